"""Which runs are better, and how sure that is: ``python scripts/compare.py --help``."""

import argparse
import os
import sys

from ltr.errors import LTRError
from ltr.experiment.compare.order import parse_order


def main() -> None:
    """Print the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=(
            "Compare finished runs by their test metric of every query: each pair of systems is\n"
            "better, worse, equivalent or undecided; with one seed of either, differ stands\n"
            "in place of better and worse. Runs that differ in seed and\n"
            "fold only are one system.\n\n"
            "  python scripts/compare.py outputs/RUN outputs/OTHER\n"
            "  python scripts/compare.py outputs/SWEEP baseline=loss=rmse write=verdicts"
        ),
        epilog=(
            "keys\n"
            "  metric=NAME       a column of queries.csv (default: what runs were selected on)\n"
            "  margin=0.005      the largest difference that does not matter\n"
            "  alpha=0.05        of every test; intervals cover the rest\n"
            "  baseline=NAME     compare others with this system only; a part of its name does\n"
            "  published=NUMBER  say whether the interval of each system covers it\n"
            "  samples=10000     of the bootstrap and of the randomisation test\n"
            "  seed=0            of their draws: the same seed prints the same\n"
            "  write=FOLDER      also compare.csv, compare.md, compare.png and compare.svg\n\n"
            "One seed of a system says nothing of how training varies; train three or more:\n"
            "  python train.py -m loss=neuralndcg,rmse seed=1,2,3"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python scripts/compare.py RUN|FOLDER [RUN|FOLDER ...] [KEY=VALUE ...]",
    )
    parser.add_argument("given", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    given = parser.parse_args().given
    try:
        order = parse_order(given)
        from ltr.experiment.compare.run import compare  # SciPy only where there is work

        print(compare(order), flush=True)
    except LTRError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # | head has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
