"""Features that trees use most, and the library's own model: ``python scripts/importances.py``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

import argparse

from ltr.experiment.ending import ending

KEYS = """\
keys
  top=20            how many features are printed, those of the largest gain; 0 is all
  write=FOLDER      also importances.csv of all features, and the model as the library writes it:
                    model.txt (LightGBM), model.ubj (XGBoost) or model.cbm (CatBoost)

Features are numbered from 1, as in a LETOR file. The gain is the library's: what splits lowered the
objective by, of CatBoost PredictionValuesChange; it is printed as a share of all. A model that is
written reads features as the run's transform gives them; none is needed with transform=none.
"""


def main() -> None:
    """Print the importances that the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Which features the boosted trees of a run use.",
        epilog=KEYS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python scripts/importances.py RUN [KEY=VALUE ...]",
    )
    parser.add_argument("run", help="a run folder of train.py, or the best.pt or last.pt in it")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    with ending():
        from ltr.experiment.importances import importances  # torch only where there is work

        with stoppable():
            print(importances(given.run, given.keys))


if __name__ == "__main__":
    main()
