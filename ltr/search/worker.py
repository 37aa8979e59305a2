"""One of several processes of a search: ``python -m ltr.search.worker ...``."""

from ltr.training.interruption import end_when_stopped, stoppable

if __name__ == "__main__":
    end_when_stopped()  # before what takes long to import

import sys

from ltr.console.compose import typed
from ltr.console.ending import ending
from ltr.search.order import search_order
from ltr.search.plan import make_plan
from ltr.search.study import folder_of, open_study
from ltr.search.work import work


def main() -> None:
    """Work on the search that process ``sys.argv[1]`` began with the arguments behind it.

    It was named by who started this one: gone before this line, it could not be asked for.
    """
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    with ending(), stoppable():
        order = search_order(typed("search", arguments))
        plan = make_plan(order)
        folder = folder_of(order, plan)
        work(plan, open_study(folder, order), folder, order.trials, parent=parent)


if __name__ == "__main__":
    main()
