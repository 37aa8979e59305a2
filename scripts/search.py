"""Search for good settings of a ranker on vali: ``python scripts/search.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

import argparse
import sys

from ltr.experiment.ending import ending
from ltr.experiment.search.order import need_optuna, parse_order
from ltr.experiment.search.space import spaces


def main() -> None:
    """Make the search that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=(
            "Search for the settings of a ranker that are best on vali; test is never read.\n\n"
            "  python scripts/search.py model=mlp loss=neuralndcg dataset=mq2008 trials=50\n"
            "  python scripts/search.py model=mlp space.optimizer.lr=[1e-5,1e-2,log] dry_run=true\n"
            "  python scripts/search.py model=linear folds=all seeds=1,2 workers=2"
        ),
        epilog=(
            f"spaces\n  {', '.join(spaces())}\n\n"
            "keys\n"
            "  trials=50            to be finished in all: pruned and failed ones count\n"
            "  space=NAME,NAME      what is searched; left out: the model's and the loss's\n"
            "  space.KEY=[...]      search KEY of train.py: [float,LOW,HIGH], [int,LOW,HIGH],\n"
            "                       these with ,log] at the end, or [choice,A,B]; null: do not;\n"
            "                       space.+KEY=[...] for one that the config does not have\n"
            "  name=NAME            left out: made of data set, model and loss\n"
            "  workers=1            trials at a time\n"
            "  folds=1,2            a trial is worth its mean over these folds (or all), and\n"
            "  seeds=1,2            over these seeds; left out: the config's own\n"
            "  pruner=median        end trials worse than the median of the others | none\n"
            "  prune_after=EPOCHS   that every trial has; left out: a fifth of them\n"
            "  n_startup_trials=10  drawn at random before the sampler learns from them\n"
            "  sampler_seed=0       of the draws\n"
            "  write=PATH           the best settings, FOLDER/experiment/NAME.yaml; left out:\n"
            "                       configs/experiment/NAME.yaml, for train.py experiment=NAME\n"
            "  output_dir=outputs   the search is kept in its search/NAME\n"
            "  dry_run=false        true only prints the space and the first config\n"
            "  any other key is for train.py, the same in all trials; set, it is not searched\n\n"
            "The same command goes on where a search was stopped or killed, or works along where\n"
            "it is under way."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python scripts/search.py [KEY=VALUE ...]",
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=argparse.SUPPRESS)
    arguments = parser.parse_args().settings
    with ending("stopped; the same command goes on from here"):
        order = parse_order(arguments)
        need_optuna()
        from ltr.experiment.search.make import search  # torch is imported only for work

        with stoppable():
            done = search(order)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
