"""Train a ranker: ``python train.py loss=neuralndcg dataset=web30k``. See ``--help``."""

from ltr.training.interruption import end_when_stopped

end_when_stopped()  # before what takes long to import

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("train")
def main(cfg: DictConfig) -> float:
    """Run the experiment that ``cfg`` describes; return ``select_on`` on vali, for sweepers."""
    from ltr.experiment.job import train_job  # torch is imported only when there is work

    return train_job(cfg)


if __name__ == "__main__":
    main()
