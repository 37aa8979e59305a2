"""Shapes are checked while the tests run; one thread, so that timing of others changes nothing.

Drawn examples are the same at every run; ``pytest --hypothesis-profile=explore`` draws new ones.
"""

import atexit
import gc
import inspect
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import compiled_kernels, processes
from tests.helpers.paths import ROOT

NETWORKS = sorted(f"ltr.models.{path.stem}" for path in (ROOT / "ltr" / "models").glob("[a-z]*.py"))
CHECKED = ["ltr.metrics", "ltr.relaxations", "ltr.losses", *NETWORKS, "ltr.data.batches"]
collect_ignore = ["helpers/warm.py"]  # its import does much, and is the server's
QUICK = "not slow"  # the marks that ``make quick`` chooses
MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # files there wait for no disk; free bytes it must have


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepare a process that runs tests; the one that hands them out to workers needs nothing."""
    options = config.option
    if getattr(options, "numprocesses", None) and not hasattr(config, "workerinput"):
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
        compiled_kernels.ensure()
        return
    atexit.register(_end_quietly)
    if hasattr(config, "workerinput") and options.markexpr != QUICK:
        processes.begin()  # it imports while this process collects tests
    gc.disable()  # until all is imported, of which nothing is garbage
    import torch  # the hook below makes Python compile what it imports anew
    from hypothesis import settings
    from jaxtyping import install_import_hook

    install_import_hook(CHECKED, "beartype.beartype")
    from tests.helpers import kept_configs

    kept_configs.keep()
    torch.set_num_threads(1)
    settings.register_profile("explore")
    settings.register_profile("same", derandomize=True)
    settings.load_profile("same")


def _end_quietly() -> None:
    """Triton, which torch.compile imports, reports types that it leaks as the process ends."""
    if "triton" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Shapes are checked in the quick tests; in the slow ones that is a tenth of their time."""
    from jaxtyping import config

    config.update("jaxtyping_disable", item.get_closest_marker("slow") is not None)


def pytest_collection_finish() -> None:
    """Shapes are checked where they enter and leave a module, and not at each of its helpers."""
    for name, module in [*sys.modules.items()]:
        if not name.startswith(tuple(CHECKED)):
            continue
        for word, value in [*vars(module).items()]:
            inner = getattr(value, "__wrapped__", None)
            checked = inspect.isfunction(value) and "jaxtyping" in value.__code__.co_filename
            helper = word.startswith("_") or name == "ltr.knobs"
            if helper and checked and inner.__code__.co_filename == module.__file__:
                setattr(module, word, inner)  # one with a decorator stays as it is
    gc.freeze()  # it lives to the end, and need not be looked through again
    gc.enable()


@pytest.fixture
def letor_folder(tmp_path: Path) -> Path:
    """A data folder with the lists of ``letor_lists``."""
    from tests.helpers.made_lists import letor_lists

    return letor_lists(tmp_path)


@pytest.fixture
def tiny(letor_folder: Path) -> list[str]:
    """Overrides for an experiment of a second on ``letor_folder``."""
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache", "epochs=3", "batch_size=5", "list_size=6",
        "suggested.fc_sizes=[8]", "model.feed_forward=8", "model.blocks=1",
    ]  # fmt: skip


@pytest.fixture
def small(tiny: list[str], tmp_path: Path) -> list[str]:
    """One row of a table on tiny lists, in seconds."""
    own = [item for item in tiny if not item.startswith(("suggested", "model."))]
    return [
        "table=ranknet_report", "rows=BCE", *own,
        "model.hidden_sizes=[4]", f"output_dir={tmp_path}/out", "workers=1", "threads=1",
    ]  # fmt: skip


@pytest.fixture
def small_search(letor_folder: Path, tmp_path: Path) -> list[str]:
    """A search of a second, on a folder without a test file."""
    (letor_folder / "mine" / "test.txt").rename(letor_folder / "test.txt")
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache", f"output_dir={tmp_path}/out", "threads=1",
        f"write={tmp_path}/experiment/found.yaml", "name=mine", "epochs=3", "batch_size=8",
        "model=linear", "loss=listnet", "l2=0", "space.optimizer.lr=[float,1e-3,1e-1,log]",
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command called within a test sets the log up; no later test writes to its streams."""
    loggers = [logging.getLogger(), logging.getLogger("ltr.printed")]
    states = [(logger, [*logger.handlers], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in states:
        for handler in logger.handlers:
            if handler not in handlers:
                handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture(autouse=True)
def _as_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the quick tier, a test that starts a process or trains is to be marked slow."""
    if request.config.option.markexpr != QUICK:
        return
    from ltr.boosting.learner import RoundLearner
    from ltr.training.trainer import Trainer

    def refused(*_: object, **__: object) -> None:
        pytest.fail("it starts a process or trains: mark it with pytest.mark.slow")

    for place, name in (
        (subprocess.Popen, "__init__"), (os, "fork"),
        (Trainer, "fit"), (RoundLearner, "fit"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, refused)
