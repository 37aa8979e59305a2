"""Every loss with its paper and its knobs: ``python scripts/list_losses.py --help``."""

from ltr.training.interruption import end_when_stopped

end_when_stopped()  # before what takes long to import

import argparse

from ltr.experiment.ending import ending
from ltr.experiment.list_losses import details, table


def main() -> None:
    """Print all losses, or one in full; the exit status is 2 where there is no such loss."""
    parser = argparse.ArgumentParser(
        description="List the losses of configs/loss/, or explain one: formula, knobs, a command."
    )
    parser.add_argument("loss", nargs="?", help="the loss to explain")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    given = parser.parse_args()
    with ending():
        print(details(given.loss) if given.loss else table(markdown=given.markdown))


if __name__ == "__main__":
    main()
