"""The model, the list and the items to explain, from the arguments of ``ltr explain``."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.console.values import required, texts, whole
from ltr.data.batches import ItemTensors
from ltr.data.cells import query_text
from ltr.data.lists import Lists, check_split
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention, Metric
from ltr.models.embeddings import WithEmbeddings
from ltr.scorers.inputs import read_input, set_threads
from ltr.scorers.parts import as_list, make_convention, named_metrics
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.device import pick_device
from ltr.training.evaluation import ranks_of


@dataclass(frozen=True)
class Subject:
    """A list with a trained model that ranks it."""

    checkpoint: str  # as it was given
    scorer: Scorer
    name: str  # of the data set, with its fold, or of the file
    split: str | None  # of the data set; None: a file, whose labels are not read
    lists: Lists  # all of the split, or of the file
    chosen: int  # the number of the list
    data: ItemTensors  # the list alone, as the model reads it
    scores: NDArray[np.float32]  # of the items of the list, [items]
    items: NDArray[np.int64]  # the 0-based places of the items to explain, best first
    metric: Metric  # select_on of the run
    convention: Convention
    ids: Sequence[str] | None = None  # [items], empty where an item has none; None: no item has

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Of the items of the list, 1 = best, ties in file order."""
        return ranks_of(self.scores, self.data.offsets)

    @property
    def rows(self) -> slice:
        """The items of the list among all items of ``lists``."""
        return slice(*self.lists.offsets[self.chosen : self.chosen + 2].tolist())

    @property
    def qid(self) -> str:
        """The query id of the list."""
        return str(self.lists.qids[self.chosen])

    @property
    def features(self) -> list[str]:
        """The name of each feature, or its number from 1."""
        columns = self.scorer.columns or self.lists.columns
        if columns is not None:
            return list(columns.names)
        return [f"feature {number}" for number in range(1, self.lists.width + 1)]

    @property
    def model_name(self) -> str:
        """The choice of ``model=`` that the run names, or else the class."""
        model, path = self.scorer.model, Path(self.checkpoint)
        run = RunFolder(path.parent if path.suffix == ".pt" else path)
        named = run.results.get("choices", {}).get("model") if run.finished else None
        return named or type(model.model if isinstance(model, WithEmbeddings) else model).__name__

    @property
    def pointwise(self) -> bool:
        """Whether the score of an item depends on that item alone."""
        return bool(getattr(self.scorer.model, "pointwise", False))

    def names(self, places: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """The ids of the items at these 0-based places of the list, or their places from 1."""
        return [(self.ids or {place: ""})[place] or f"item {place + 1}" for place in places]

    def value(self, feature: int, value: float) -> float | str:
        """A value as the data have it: of a category its text, "other" where train had none."""
        columns = self.scorer.columns
        values = () if columns is None else columns.categories.get(columns.names[feature], ())
        if isinstance(values, int) or not values or np.isnan(value):
            return float(value)
        return ("other", *values)[int(value)]


def subject_of(cfg: DictConfig) -> Subject:
    """The subject in ``configs/explain.yaml``.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    required(cfg, "checkpoint", "qid")
    check_split(cfg.split)
    set_threads(cfg)
    scorer = load_model(cfg.checkpoint, pick_device(cfg.device), cfg.trust)
    own, dataset = scorer.own_config(cfg, ["dataset", "metrics"]), None
    if cfg.input is not None:
        names = cfg.features if OmegaConf.is_list(cfg.features) else None
        read_as: Any = OmegaConf.merge(cfg, {"features": names})
        given = read_input(read_as, scorer)
        lists, name = given.lists, str(cfg.input)
    else:
        dataset, lists = scorer.read(own.dataset, cfg.split)
        name = dataset.name + (f" fold {dataset.fold}" if dataset.fold is not None else "")
    known, qid = lists.qids.tolist(), str(cfg.qid)
    if qid not in known:
        near = difflib.get_close_matches(qid, known, 1) or known[:1]
        place = name if dataset is None else cfg.split
        raise ConfigError(
            f"qid={qid}: {place} has no such query; give one of it, such as {near[0]}"
        )
    chosen = known.index(qid)
    rows = np.arange(*lists.offsets[chosen : chosen + 2])
    if dataset is None:
        ids = _texts(given.ids, rows)
    else:
        read = getattr(dataset, "ids", None)
        ids = read and read(cfg.split, (rows if lists.rows is None else lists.rows[rows]).tolist())
    names = [*as_list(own.metrics), str(own.select_on)]
    metrics = {str(one): one for one in named_metrics(names, own.get("own_metrics") or {})}
    data = scorer.open(lists.subset(np.array([chosen])))
    scores = scorer.scores(data, items=cfg.evaluation_items).cpu().numpy()
    return Subject(
        checkpoint=str(cfg.checkpoint), scorer=scorer, name=name,
        split=None if dataset is None else str(cfg.split), lists=lists, chosen=chosen, data=data,
        scores=scores, items=_items(cfg, ranks_of(scores, data.offsets)),
        metric=metrics[str(own.select_on)], convention=make_convention(own),
        ids=ids if ids and any(ids) else None,
    )  # fmt: skip


def _texts(ids: list[str] | pd.DataFrame | None, rows: NDArray[np.int64]) -> list[str] | None:
    """The ids of the items ``rows`` of an input, as one text each."""
    if isinstance(ids, pd.DataFrame):
        cells = ids.iloc[rows].itertuples(index=False)
        return [" ".join(filter(None, map(query_text, row))) for row in cells]
    return None if ids is None else [ids[row] for row in rows]


def _items(cfg: DictConfig, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the items to explain, best first."""
    given, order = texts(cfg, "items"), np.argsort(ranks)
    if not given:
        return order[: whole(cfg, "top", least=1)]
    known = list(map(str, range(1, len(ranks) + 1)))
    if wrong := [text for text in given if text not in known]:
        raise ConfigError(
            f"items={wrong[0]}: the list has the items 1 to {len(ranks)}, in the order of the data"
        )
    return order[np.isin(order, [known.index(text) for text in given])]
