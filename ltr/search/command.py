"""The command search: what is wrong is said before slow imports."""

from omegaconf import DictConfig

from ltr.search.definition import define_search, need_optuna


def search(cfg: DictConfig) -> bool:
    """Search for good settings on vali; whether all trials are finished."""
    definition = define_search(cfg)
    need_optuna()
    from ltr.search.search import run_search

    return run_search(definition)
