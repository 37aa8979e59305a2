"""One of several processes of a search: ``python -m ltr.experiment.search.worker ...``."""

import sys

from ltr.errors import LTRError
from ltr.experiment.search.order import parse_order
from ltr.experiment.search.plan import make_plan
from ltr.experiment.search.study import folder_of, open_study
from ltr.experiment.search.work import stoppable, work
from ltr.training.interruption import Interrupted


def main() -> None:
    """Work on the search that process ``sys.argv[1]`` began with the arguments behind it.

    It was named by who started this one: gone before this line, it could not be asked for.
    """
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    try:
        with stoppable():
            order = parse_order(arguments)
            plan = make_plan(order)
            folder = folder_of(order, plan)
            work(plan, open_study(folder, order), folder, order.trials, parent=parent)
    except LTRError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, Interrupted):
        sys.exit(130)


if __name__ == "__main__":
    main()
