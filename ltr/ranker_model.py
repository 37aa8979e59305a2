"""What a fitted ``Ranker`` holds: the files of a run with its model, and its parameters."""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state

from ltr.atomic import atomic_write, make_folder
from ltr.console.arguments import quoted
from ltr.console.compose import run_config, values_of
from ltr.console.keys import Kind, keys
from ltr.data.lists import Floats, Lists
from ltr.errors import ConfigError, OutputError
from ltr.experiment.run_folder import FILES, RESULTS, RunFolder
from ltr.metrics import Convention
from ltr.scorers.parts import as_list, make_convention, own_metrics
from ltr.scorers.scorer import load_model
from ltr.scorers.trust import check_metrics, check_override, trusted
from ltr.training.checkpoint import ENSEMBLE
from ltr.training.device import pick_device
from ltr.training.hooks import OnEpoch, quiet
from ltr.training.monitor import sentence

# Keys of the config that say where lists come from or a run goes to.
_OF_COMMAND = ("dataset", "data_dir", "cache_dir", "output_dir", "sweep", "resume", "hydra")
# Parameters that are no keys of the config, or have another name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")
_WORD = re.compile(r"(?!(null|true|false|inf|nan)$)[A-Za-z_][\w./@-]*", re.ASCII)
OVERRIDES = ".hydra/overrides.yaml"
# results.json is the last: it says that all others are there.
_FILES = ("best.pt", "last.pt", ENSEMBLE, *FILES, OVERRIDES, "events.out.tfevents.*", RESULTS)


class Trained:
    """A model of a run folder, which itself may be gone.

    A copy and a pickle hold the files as bytes, and load the model again.
    """

    def __init__(self, folder: Path, device: str, trust: Sequence[str] = ()) -> None:
        """Read the run folder; arguments and errors as of ``load_model``."""
        found = [path for name in _FILES for path in sorted(folder.glob(name))]
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
        self.trust, run = tuple(trust), RunFolder(folder)
        self.scorer = load_model(folder, pick_device(device), trust)
        self.results: dict[str, Any] = run.results if run.finished else {}
        self.history = run.history if run.finished else pd.DataFrame()
        self.overrides = run.overrides

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "device": self.scorer.device.type, "trust": self.trust}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="ltr-") as folder:
            _write(Path(folder), state["files"])
            device = state["device"] if torch.cuda.is_available() else "cpu"
            self.__init__(Path(folder), device, state["trust"])  # type: ignore[misc]

    @property
    def pointwise(self) -> bool:
        """Whether the score of an item depends on that item alone."""
        return bool(getattr(self.scorer.model, "pointwise", False))

    @property
    def config(self) -> Any:
        """The config of the run, whose metrics can be computed."""
        return trusted(self.scorer.config, ["metrics"], self.trust)

    def save(self, folder: Path) -> None:
        """Write the run folder.

        Raises:
            OutputError: something is there already, or it cannot be written.
        """
        make_folder("path", folder)
        if any(folder.iterdir()):
            raise OutputError(f"{folder} is not empty: give the name of a new folder")
        _write(folder, self.files)

    def scores(self, lists: Lists, verbose: int) -> Floats:
        """The score of every item, ``[items]``."""
        config = self.scorer.config
        with as_it_was(verbose):
            if config["threads"] is not None:
                torch.set_num_threads(config["threads"])
            return self.scorer.scores(lists, items=config["evaluation_items"]).cpu().numpy()

    def convention(self, metrics_as: str | None) -> Convention:
        """The convention of the run, or the one of that name with its number of grades."""
        own = make_convention(self.config)
        if metrics_as is None:
            return own
        named = run_config([f"metrics_as={metrics_as}"])[0].convention
        return replace(own, **{key: named[key] for key in named if key != "levels"})


def trust_of(cfg: Any) -> list[str]:
    """The modules of what the user has just trained with, for its model to be read again."""
    nodes = [cfg.model, *(cfg.get("own_metrics") or {}).values()]
    own = [*(str(node["_target_"]) for node in nodes), *own_metrics(cfg)]
    return [*as_list(cfg.trust), *{name.partition(".")[0] for name in own} - {"ltr"}]


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        atomic_write(folder / name, content)


@contextmanager
def as_it_was(verbose: int) -> Iterator[None]:
    """Within, torch may draw and threads be set; afterwards both are as before."""
    threads = torch.get_num_threads()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(gpus), quiet(not verbose):
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def shown(verbose: int, epochs: int) -> list[OnEpoch]:
    """The hook that a run calls after each epoch: in a notebook a table that grows, else lines.

    Args:
        verbose: 0: nothing is shown; 1: the table; 2: a line for each epoch outside a notebook.
        epochs: of the whole run.
    """
    ipython = sys.modules.get("IPython") if verbose else None  # it is not imported for this
    if ipython and hasattr(ipython.get_ipython(), "kernel"):
        rows: list[Mapping[str, float]] = []
        handle = ipython.display.display(pd.DataFrame(), display_id=True)

        def update(epoch: int, row: Mapping[str, float]) -> None:
            rows.append(row)
            handle.update(pd.DataFrame(rows).set_index("epoch"))

        return [OnEpoch(update)]
    lines = OnEpoch(lambda epoch, row: print(sentence(row, epochs)))
    return [lines] if verbose > 1 else []


def overrides_of_ranker(params: Mapping[str, Any]) -> list[str]:
    """What the command line would be given for the parameters of a ``Ranker``.

    Raises:
        ConfigError: one is wrong, or a key is not for an estimator.
        ValueError: ``random_state`` is no seed.
    """
    unset = [name for name in ("model", "loss", "epochs") if params[name] is None]
    given = {name: value for name, value in params.items() if name not in (*_OWN, *unset)}
    if not isinstance(verbose := params["verbose"], (int, np.integer)):
        raise ConfigError(f"verbose={verbose}: give 0, 1 or 2")
    if (seed := params["random_state"]) is not None:
        if "seed" in given:
            raise ConfigError("seed and random_state: give one of them")
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        given["seed"] = seed
    return ["dataset=memory", *overrides_of(given)]


def overrides_of(given: Mapping[str, Any]) -> list[str]:
    """``KEY=VALUE`` for each of ``given``.

    Raises:
        ConfigError: a key is not for an estimator.

    >>> overrides_of({"loss": "listnet", "optimizer": {"lr": 0.01}, "model.hidden_sizes": [8, 4]})
    ['loss=listnet', 'optimizer.lr=0.01', 'model.hidden_sizes=[8,4]']
    >>> overrides_of({"patience": None, "compile": True, "metrics": ("ndcg@5",), "select": "a b"})
    ['patience=null', 'compile=true', 'metrics=[ndcg@5]', "select='a b'"]
    """
    for key in given:
        if _group(key) in _OF_COMMAND:
            raise ConfigError(
                f"{key}: a Ranker takes its lists from fit and keeps files by save alone; leave "
                "it out"
            )
    return [f"{key}={_text(value)}" for key, value in _flat(given)]


def _group(key: str) -> str:
    return re.split(r"[./@]", key.lstrip("+~"))[0]


def _flat(given: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        whole = f"{prefix}{key}"
        if isinstance(value, Mapping):
            more = "++" if whole.endswith(".options") else ""  # its keys are the library's
            yield from _flat(value, f"{more}{whole}.")
        else:
            yield whole, value


def _text(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_text(one)}' for key, one in value.items())}}}"
    text = str(value)
    return text if _WORD.fullmatch(text) else quoted(text)


def params_of(trained: Trained) -> dict[str, Any]:
    """The parameters with which the run of a folder can be fitted again.

    Raises:
        ConfigError: the folder, which may come from elsewhere, names code that is not trusted.
    """
    choices, columns = trained.results.get("choices", {}), trained.scorer.columns
    if "members" in choices:
        return {"model": "ensemble"}  # of runs: the command makes it, ``fit`` cannot
    given = values_of(trained.overrides)
    groups = () if "experiment" in given else ("model", "loss")  # else the experiment has them
    params: dict[str, Any] = {group: str(choices[group]) for group in groups if group in choices}
    for key, value in given.items():
        if (first := _group(key)) in {*keys(Kind.PLACE), "dataset", "hydra"}:
            continue
        if first in ("metrics", "select_on"):
            check_metrics(own_metrics({first: value}), trained.trust)
        node = {"_target_": value} if key.endswith("._target_") else value
        check_override(key, node, trained.trust)
        params["random_state" if key == "seed" else key] = value
    if columns is not None and columns.categories:
        params["categories"] = list(columns.categories)
    cut = trained.scorer.config["dataset"].get("cut")
    return params if cut is None else params | {"vali_fraction": cut}
