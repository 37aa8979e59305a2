"""A table of many runs beside the published numbers: ``python scripts/table.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

import argparse
import sys

from ltr.experiment.ending import ending
from ltr.experiment.table.order import parse_order
from ltr.experiment.table.spec import tables


def main() -> None:
    """Make the table that the command line asks for."""
    listed = "\n".join(f"  {name:<20} {title}" for name, title in tables().items())
    parser = argparse.ArgumentParser(
        description=(
            "Run what is missing of a table and write it, the published numbers beside ours.\n\n"
            "  python scripts/table.py table=letor4_mq2008\n"
            "  python scripts/table.py table=letor4_mq2008 dataset=synthetic epochs=1 dry_run=true"
        ),
        epilog=(
            f"tables\n{listed}\n\n"
            "keys\n"
            "  table=NAME        which\n"
            "  rows=A,B          some of its rows only\n"
            "  baseline=ROW      what the others are compared with; default: as the table says\n"
            "  margin=0.005      differences smaller than this count as none\n"
            "  seeds=1           seeds of the training, from 1 to this, for every row and fold\n"
            "  workers=N         runs at a time; left out: one on a GPU, else one per core\n"
            "  output_dir=PATH   the folder of runs/ and tables/ (default outputs)\n"
            "  dry_run=false     true only says what would run, and about how long\n"
            "  any other key is for train.py: data_dir=PATH dataset=synthetic epochs=1\n"
            "                    select=last tests the last epoch, select=best the best by vali\n\n"
            "A run that is finished is not done again, one that was cut off goes on. Written are\n"
            "table.html, .md, .tex and .csv, and runs.csv, in output_dir/tables."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python scripts/table.py table=NAME [KEY=VALUE ...]",
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=argparse.SUPPRESS)
    arguments = parser.parse_args().settings
    with ending("stopped; the same command goes on from here"):
        order = parse_order(arguments)
        from ltr.experiment.table.make import make_table  # torch is imported only for work

        with stoppable():
            done = make_table(order)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
