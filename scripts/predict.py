"""Scores of a kept model for new lists: ``python scripts/predict.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("predict")
def main(cfg: DictConfig) -> None:
    """Score every row of ``cfg.input`` and write ``cfg.output``."""
    from ltr.experiment.apply import predict_kept  # torch is imported only when there is work

    with stoppable():
        print(predict_kept(cfg))


if __name__ == "__main__":
    main()
