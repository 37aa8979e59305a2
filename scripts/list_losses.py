"""Every loss with its paper and its knobs: ``python scripts/list_losses.py --help``."""

import argparse
import os
import sys

from ltr.errors import LTRError
from ltr.experiment.list_losses import details, table


def main() -> int:
    """Print all losses, or one in full; the exit status is 2 where there is no such loss."""
    parser = argparse.ArgumentParser(
        description="List the losses of configs/loss/, or explain one: formula, knobs, a command."
    )
    parser.add_argument("loss", nargs="?", help="the loss to explain")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    given = parser.parse_args()
    try:
        print(details(given.loss) if given.loss else table(markdown=given.markdown), flush=True)
    except LTRError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # | head has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
