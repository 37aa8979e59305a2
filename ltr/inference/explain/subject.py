"""The model, the list and the items to explain, from the arguments of ``ltr explain``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.console.keys import required, texts, whole
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists, check_split
from ltr.data.tables import query_text
from ltr.errors import ConfigError
from ltr.metrics import Convention, Metric
from ltr.scorers.inputs import read_input, set_threads
from ltr.scorers.parts import as_list, make_convention, named_metrics
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.device import pick_device
from ltr.training.evaluation import ranks_of


@dataclass(frozen=True)
class Subject:
    """A list with a trained model that ranks it."""

    scorer: Scorer
    name: str  # of the data set, with its fold, or of the file
    split: str | None  # of the data set; None: a file, whose labels are not read
    lists: Lists  # all of the split, or of the file
    chosen: int  # the number of the list
    metric: Metric  # select_on of the run
    convention: Convention
    asked: Sequence[int] = ()  # the 0-based places of the items to explain; none: the ``top`` best
    top: int = 10
    ids: Sequence[str] | None = None  # [items], empty where an item has none; None: no item has

    @cached_property
    def data(self) -> ItemTensors:
        """The list alone, as the model reads it."""
        return self.scorer.open(self.lists.subset(np.array([self.chosen])))

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """Of the items of the list, ``[items]``."""
        return self.scorer.scores(self.data).cpu().numpy()

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Of the items of the list, 1 = best, ties in file order."""
        return ranks_of(self.scores, self.data.offsets)

    @property
    def items(self) -> NDArray[np.int64]:
        """The 0-based places of the items to explain, best first."""
        order = np.argsort(self.ranks)
        return order[np.isin(order, self.asked)] if self.asked else order[: self.top]

    @property
    def rows(self) -> slice:
        """The items of the list among all items of ``lists``."""
        return slice(*self.lists.offsets[self.chosen : self.chosen + 2].tolist())

    @property
    def features(self) -> list[str]:
        """The name of each feature, or its number from 1."""
        columns = self.scorer.columns or self.lists.columns
        if columns is not None:
            return list(columns.names)
        return [f"feature {number}" for number in range(1, self.lists.width + 1)]

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
        place = cfg.input or cfg.split
        raise ConfigError(f"qid={qid}: {place} has no such query; give one such as {known[0]}")
    chosen = known.index(qid)
    rows = np.arange(*lists.offsets[chosen : chosen + 2])
    if dataset is None:
        ids: Any = given.ids
        if isinstance(ids, pd.DataFrame):  # as one text each
            cells = ids.iloc[rows].itertuples(index=False)
            ids = [" ".join(filter(None, map(query_text, row))) for row in cells]
        elif ids is not None:
            ids = [ids[row] for row in rows]
    else:
        read = getattr(dataset, "ids", None)
        ids = read and read(cfg.split, (rows if lists.rows is None else lists.rows[rows]).tolist())
    places = list(map(str, range(1, len(rows) + 1)))
    if wrong := [text for text in texts(cfg, "items") if text not in places]:
        raise ConfigError(
            f"items={wrong[0]}: the list has the items 1 to {len(rows)}, in the order of the data"
        )
    names = [*as_list(own.metrics), str(own.select_on)]
    metrics = {str(one): one for one in named_metrics(names, own.get("own_metrics") or {})}
    return Subject(
        scorer, name, None if dataset is None else str(cfg.split), lists, chosen,
        metrics[str(own.select_on)], make_convention(own),
        asked=[places.index(text) for text in texts(cfg, "items")],
        top=whole(cfg, "top", least=1), ids=ids if ids and any(ids) else None,
    )  # fmt: skip
