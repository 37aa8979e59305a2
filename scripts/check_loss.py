"""Which properties hold for a loss, yours too: ``python scripts/check_loss.py --help``."""

from ltr.training.interruption import end_when_stopped

end_when_stopped()  # before what takes long to import

import argparse
import sys
from pathlib import Path

from ltr.experiment.ending import ending

HELP = """\
Run the battery of properties on a loss (scores, labels, mask, *, knobs) -> [batch].

  python scripts/check_loss.py my.module.my_loss          a function of yours; the current
                                                          folder and PYTHONPATH are searched
  python scripts/check_loss.py my.module.my_loss k=5 temperature=0.1
  python scripts/check_loss.py neuralndcg k=10            a loss of configs/loss/
"""
EXITS = """\
Every property is printed: it holds, FAILS with what was seen, or does not apply and why.
Exit status: 0 if none fails, 1 if one does, 2 for a mistake in the command.
Knobs of these names are understood: k is the cutoff rank, None = the whole list; temperature,
cut_slope and beta make a relaxation sharp; generator draws what is random.
"""


def main() -> int:
    """Print the table and give the exit status."""
    parser = argparse.ArgumentParser(
        description=HELP, epilog=EXITS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loss", help="module.function, or a name that loss= of train.py takes")
    parser.add_argument("knobs", nargs="*", metavar="knob=value", help="knobs of the loss")
    parser.add_argument(
        "--metric", help="the metric that a soft loss, negated, goes to: ndcg, map, mrr, ..."
    )
    parser.add_argument(
        "--grades", type=int, default=5, help="labels are from 0 to this less one (default 5)"
    )
    given = parser.parse_intermixed_args()
    sys.path.insert(0, str(Path.cwd()))
    with ending():
        from ltr.battery import FAILS, PROPERTIES, judge
        from ltr.experiment.check_loss import named_loss, read_knobs, report, set_metric

        subject = named_loss(given.loss, read_knobs(given.knobs))
        set_metric(subject, given.metric, given.grades)
        verdicts = [judge(prop, subject) for prop in PROPERTIES]
        print(report(verdicts))
    return int(any(verdict.outcome == FAILS for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
