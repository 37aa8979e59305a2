"""Make a data set ready: ``python scripts/prepare_data.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from ltr.experiment.cli import command


@command("prepare_data")
def main(cfg: DictConfig) -> None:
    """Prepare the data set that ``cfg`` names and print what it holds."""
    from ltr.data.published.archives import published
    from ltr.data.published.prepare import own_lists, prepare
    from ltr.errors import ConfigError

    if "dataset" not in cfg:
        raise ConfigError("give dataset=NAME, one of those that --help names")
    given = OmegaConf.to_container(cfg.dataset, resolve=True)
    own = given["name"] == "letor"
    dataset = own_lists(given["folder"], data_dir=cfg.data_dir) if own else published(given["name"])
    how_read = ("folder", "width", "labels", "max_grade", "regroup")
    folds = OmegaConf.to_object(cfg.folds) if OmegaConf.is_list(cfg.folds) else cfg.folds
    with stoppable():
        report = prepare(
            replace(dataset, **{key: given[key] for key in how_read}),
            data_dir=cfg.data_dir,
            cache_dir=cfg.cache_dir,
            archive=cfg.archive,
            seed=cfg.seed,
            folds=folds,
        )
    print(report.table)
    report.check()


if __name__ == "__main__":
    main()
