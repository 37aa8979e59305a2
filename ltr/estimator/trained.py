"""What a fitted ``Ranker`` holds: the files of a run, and the model that they keep."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ltr.atomic import atomic_write, make_folder
from ltr.console.compose import run_config, values_of
from ltr.console.keys import Kind, keys
from ltr.data.lists import Columns, Floats, Lists
from ltr.errors import OutputError
from ltr.estimator.live import as_it_was
from ltr.experiment.identity import own_metrics
from ltr.experiment.labels import check_metrics
from ltr.experiment.parts import as_list, make_convention, named_metrics
from ltr.experiment.run_folder import FILES, RESULTS, RunFolder
from ltr.experiment.scorer import Scorer, load_model
from ltr.experiment.trust import check_override, trusted
from ltr.metrics import Convention
from ltr.training.checkpoint import ENSEMBLE
from ltr.training.device import pick_device
from ltr.training.evaluation import PerQuery, metrics_of_scores

OVERRIDES = ".hydra/overrides.yaml"
# results.json is the last: it says that all others are there.
_FILES = ("best.pt", "last.pt", ENSEMBLE, *FILES, OVERRIDES, "events.out.tfevents.*", RESULTS)


class Trained:
    """A model of a run folder, which itself may be gone.

    A copy and a pickle hold the files as bytes, and load the model again.
    """

    def __init__(self, folder: Path, device: str, trust: Sequence[str] = ()) -> None:
        """Read ``folder``.

        Args:
            folder: of a run of ``train.py``.
            device: of the model.
            trust: as for ``load_model``.

        Raises:
            CheckpointError, ConfigError: as ``load_model``.
            DataError: a file of a finished run is damaged.
        """
        found = [path for name in _FILES for path in sorted(folder.glob(name))]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
        self._take(folder, files, device, tuple(trust))

    def _take(
        self, folder: Path, files: Mapping[str, bytes], device: str, trust: tuple[str, ...]
    ) -> None:
        self.files, self.trust, self.device = dict(files), trust, pick_device(device)
        self.kept: Scorer = load_model(str(folder), self.device, trust)
        run = RunFolder(folder)
        self.results: dict[str, Any] = run.results if run.finished else {}
        self.history = run.history if run.finished else pd.DataFrame()
        self.overrides = run.overrides

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "device": self.device.type, "trust": self.trust}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="ltr-") as name:
            folder = Path(name)
            _write(folder, state["files"])
            device = state["device"] if torch.cuda.is_available() else "cpu"
            self._take(folder, state["files"], device, state["trust"])

    @property
    def columns(self) -> Columns | None:
        """Names and categories of the features."""
        return self.kept.columns

    @property
    def width(self) -> int:
        """The number of features."""
        return self.kept.transform.width

    @property
    def pointwise(self) -> bool:
        """Whether the score of an item depends on that item alone."""
        return bool(getattr(self.kept.model, "pointwise", False))

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
        config = self.kept.config
        with as_it_was(verbose):
            if config["threads"] is not None:
                torch.set_num_threads(config["threads"])
            scores = self.kept.scores(lists, items=config["evaluation_items"])
        return scores.cpu().numpy()

    @cached_property
    def _own(self) -> Any:
        return trusted(self.kept.config, ["metrics"], self.trust)

    @property
    def select_on(self) -> str:
        """The metric that chose the epoch."""
        return str(self._own.select_on)

    @property
    def metrics(self) -> list[str]:
        """The metrics of the run."""
        return as_list(self._own.metrics)

    def convention(self, metrics_as: str | None) -> Convention:
        """The convention of the run, or the one of that name with its number of grades."""
        own = make_convention(self._own)
        if metrics_as is None:
            return own
        named = run_config([f"metrics_as={metrics_as}"])[0].convention
        return replace(own, **{key: named[key] for key in named if key != "levels"})

    def measured(
        self, lists: Lists, metrics: Sequence[str], convention: Convention, verbose: int
    ) -> PerQuery:
        """Every metric of every list.

        Raises:
            ConfigError: a metric is unknown, or means nothing on these labels.
        """
        asked = named_metrics(metrics)
        check_metrics("X", lists, asked, convention)
        return metrics_of_scores(lists, self.scores(lists, verbose), asked, convention)


def trust_of(cfg: Any) -> list[str]:
    """The modules of what the user has just trained with, for its model to be read again."""
    nodes = [cfg.model, *(cfg.get("own_metrics") or {}).values()]
    own = [*(str(node["_target_"]) for node in nodes), *own_metrics(cfg)]
    return [*as_list(cfg.trust), "ltr.trees", *{name.partition(".")[0] for name in own} - {"ltr"}]


def params_of(trained: Trained) -> dict[str, Any]:
    """The parameters with which the run of a folder can be fitted again.

    Raises:
        ConfigError: the folder, which may come from elsewhere, names code that is not trusted.
    """
    choices = trained.results.get("choices", {})
    if "members" in choices:
        return {"model": "ensemble"}  # of runs: the command makes it, ``fit`` cannot
    given = values_of(trained.overrides)
    groups = () if "experiment" in given else ("model", "loss")  # else the experiment has them
    params: dict[str, Any] = {group: str(choices[group]) for group in groups if group in choices}
    left_out = {*keys(Kind.PLACE), "dataset", "hydra"}
    for key, value in given.items():
        first = re.split(r"[./@]", key.lstrip("+"))[0]
        if first in left_out:
            continue
        named = own_metrics({first: value}) if first in ("metrics", "select_on") else []
        node = {"_target_": value} if key.endswith("._target_") else value
        check_override(key, node, named, trained.trust)
        params["random_state" if key == "seed" else key] = value
    if trained.columns is not None and trained.columns.categories:
        params["categories"] = list(trained.columns.categories)
    cut = trained.kept.config["dataset"].get("cut")
    return params if cut is None else params | {"vali_fraction": cut}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        atomic_write(folder / name, content)
