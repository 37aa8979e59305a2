"""Load the model, the list and the items that ``ltr explain`` explains."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np
from omegaconf import DictConfig

from ltr.arrays import Floats, Ints
from ltr.console.folders import run_folder
from ltr.console.keys import required, texts
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists, check_split
from ltr.data.tables import query_text
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.scorers.inputs import open_scorer, read_input
from ltr.scorers.scorer import Scorer
from ltr.training.evaluation import ranks_of

_TOP = 10  # number of items to explain if none are named


@dataclass(frozen=True)
class Subject:
    """A list, the trained model that ranks it, and the items to explain."""

    scorer: Scorer
    place: str  # where the list comes from: the data set and the split, or the file
    lists: Lists  # only the one list
    names: Sequence[str]  # names of the items, such as their ids
    labelled: bool = True  # whether labels are known; those in a file are not read
    asked: Sequence[int] = ()  # positions of the items to explain, from 0; empty: the ten best

    @cached_property
    def data(self) -> ItemTensors:
        """The list in the form that the model reads."""
        return self.scorer.open(self.lists)

    @cached_property
    def scores(self) -> Floats:
        """The scores of all items of the list, ``[items]``."""
        return self.scorer.scores(self.data).cpu().numpy()

    @cached_property
    def ranks(self) -> Ints:
        """The ranks of all items of the list, ``[items]``; 1 = best, ties in file order."""
        return ranks_of(self.scores, self.lists.offsets)

    @property
    def items(self) -> Ints:
        """The positions (from 0) of the items to explain, best first."""
        order = np.argsort(self.ranks)
        return order[np.isin(order, self.asked)] if self.asked else order[:_TOP]

    @property
    def shown(self) -> list[str]:
        """The names of the items to explain."""
        return [self.names[item] for item in self.items]

    @property
    def features(self) -> list[str]:
        """The name of each feature; ``feature 1``, ``feature 2``, ... if features have no names."""
        columns = self.scorer.columns or self.lists.columns
        if columns is not None:
            return list(columns.names)
        return [f"feature {number}" for number in range(1, self.lists.width + 1)]

    @property
    def pointwise(self) -> bool:
        """Whether the score of an item does not depend on other items."""
        return bool(getattr(self.scorer.model, "pointwise", False))


def members_of_run(checkpoint: str) -> str:
    """Return the names of the run folders of an ensemble's members, as text for a remedy."""
    run = RunFolder(run_folder(checkpoint))
    members = run.results.get("members", []) if run.finished else []
    return " or ".join(member["run"] for member in members) or "a run folder"


def subject_of(cfg: DictConfig) -> Subject:
    """Load the subject that the config of the command (``configs/explain.yaml``) describes.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to correct.
    """
    required(cfg, "checkpoint", "qid")
    check_split(cfg.split)
    scorer = open_scorer(cfg)
    if cfg.input is not None:
        (lists, columns, _), place = read_input(cfg, scorer), str(cfg.input)
    else:
        dataset, lists = scorer.read(scorer.own_config(cfg, ["dataset"]).dataset, cfg.split)
        fold = "" if dataset.fold is None else f" fold {dataset.fold}"
        place = f"{dataset.name}{fold}, {cfg.split}"
    known, qid = lists.qids.tolist(), str(cfg.qid)
    if qid not in known:
        raise ConfigError(f"qid={qid}: {place} has no such query; give one such as {known[0]}")
    chosen = known.index(qid)
    rows, ids = np.arange(*lists.offsets[chosen : chosen + 2]), list[str]()
    if cfg.input is None:
        if read := getattr(dataset, "ids", None):
            ids = read(cfg.split, lists.source_rows[rows].tolist())
    else:  # join the id columns of an item into one text
        cells = columns.iloc[rows].itertuples(index=False)
        ids = [" ".join(filter(None, map(query_text, row))) for row in cells]
    places = [*map(str, range(1, len(rows) + 1))]
    names = [one or f"item {place}" for one, place in zip_longest(ids, places)]
    asked = texts(cfg, "items")
    if wrong := [text for text in asked if text not in places]:
        raise ConfigError(
            f"items={wrong[0]}: the list has the items 1 to {len(rows)}, in the order of the data"
        )
    return Subject(
        scorer, place, lists.subset(np.array([chosen])), names, cfg.input is None,
        [int(text) - 1 for text in asked],
    )  # fmt: skip
