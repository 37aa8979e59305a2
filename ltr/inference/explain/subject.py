"""Load the model, the list and the items that ``ltr explain`` explains."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ltr.arrays import Floats, Ints
from ltr.cli.folders import run_folder
from ltr.cli.options import option
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists, check_split
from ltr.data.tables import query_text
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.inference.inputs import (
    InputOptions,
    ScorerInput,
    ScoringOptions,
    open_scorer,
    read_input,
)
from ltr.parts.scorer import Scorer
from ltr.training.evaluation import ranks_of

_TOP = 10  # number of items to explain if none are named


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(InputOptions, ScoringOptions):
    """Explain how a trained model ranks one list. The command writes a web page, page.html, and its
    numbers as CSV files.

      ltr explain checkpoint=outputs/RUN qid=17
      ltr explain outputs/RUN qid=17 items=1,2,5 split=test
      ltr explain checkpoint=outputs/RUN input=new.parquet qid=17

    The page shows how much each feature adds to the score of an item. For boosted trees, these
    values are the exact SHAP values of the tree library. For networks, they are integrated
    gradients, which need the optional dependencies `explain` (docs/index.md#install). The page has
    no such values for ensembles, AdaRank, RankBoost and PRank. For a model that sees the whole
    list, the page also shows how the score changes when another item is left out.
    """

    checkpoint: str = option(
        help="a run folder, whose selected weights are used, or the best.pt or last.pt in it"
    )
    qid: str = option(
        null_is_text=True,
        help="the id of the query whose list is explained, in the data of the run or in the file "
        "that input= names",
    )
    split: str = option(
        "vali", help="train | vali | test: the split of the run's data that contains the query"
    )
    items: tuple[str, ...] = option(
        (),
        help="the items to explain, by their positions in the list, counted from 1, such as "
        "items=1,2,5; [] = the ten items with the highest scores",
    )
    input: str | None = option(
        None,
        help="the file that contains the query; null = the data of the run. The file is a table or "
        "LETOR text, as for ltr predict; labels are not needed",
    )
    output: str | None = option(
        None, help="the folder for the page; null = explained/RUN-qid-QID in output_dir"
    )
    output_dir: str = option(
        "outputs",
        help="if output is null, the page is written to a subfolder of explained/ in this folder",
    )
    data_dir: str | None = option(
        None, help="the folder that holds the data sets; null = the folder used in training"
    )
    cache_dir: str = option(
        "data/cache",
        help="the folder in which parsed data files are kept; the one used in training is ignored",
    )


@dataclass(frozen=True)
class ExplainedList:
    """A list, the trained model that ranks it, and the items to explain."""

    scorer: Scorer
    source: str  # where the list comes from: the data set and the split, or the file
    lists: Lists  # only the explained list
    names: Sequence[str]  # names of the items, such as their ids
    labelled: bool = True  # whether labels are known; labels in a file are not read
    chosen: Sequence[int] = ()  # positions, from 0, of the items to explain; empty: the ten best

    @cached_property
    def tensors(self) -> ItemTensors:
        """The list in the form that the model reads."""
        return self.scorer.open(self.lists)

    @cached_property
    def scores(self) -> Floats:
        """The scores of all items of the list, ``[items]``."""
        return self.scorer.scores(self.tensors).cpu().numpy()

    @cached_property
    def ranks(self) -> Ints:
        """The ranks of all items of the list, ``[items]``; 1 = best, with ties in file order."""
        return ranks_of(self.scores, self.lists.offsets)

    @property
    def items(self) -> Ints:
        """The positions, counted from 0, of the items to explain; the best item is first."""
        order = np.argsort(self.ranks)
        return order[np.isin(order, self.chosen)] if self.chosen else order[:_TOP]

    @property
    def item_names(self) -> list[str]:
        """The names of the items to explain."""
        return [self.names[item] for item in self.items]

    @property
    def features(self) -> list[str]:
        """The names of the features, or ``feature 1``, ``feature 2``, ... if they have no names."""
        columns = self.scorer.columns or self.lists.columns
        if columns is not None:
            return list(columns.names)
        return [f"feature {number}" for number in range(1, self.lists.width + 1)]

    @property
    def pointwise(self) -> bool:
        """Whether the score of an item does not depend on other items."""
        return bool(getattr(self.scorer.model, "pointwise", False))


def members_of_run(checkpoint: str) -> str:
    """Return the run folders of an ensemble's members as a string, for an error message."""
    run = RunFolder(run_folder(checkpoint))
    members = run.results.get("members", []) if run.finished else []
    return " or ".join(member["run"] for member in members) or "a run folder"


def load_explained_list(options: ExplainOptions) -> ExplainedList:
    """Load the list that ``options`` name, and the model that ranks it.

    Raises:
        ConfigError, DataError, CheckpointError: an option, the checkpoint or a data file is
            invalid; the message says what to correct.
    """
    check_split(options.split)
    scorer = open_scorer(options.checkpoint, options)
    if options.input is not None:
        source = options.input
        scorer_input = read_input(Path(options.input), options, scorer)
        lists = scorer_input.lists
        number = _list_number(lists, options.qid, source)
        ids = _ids_in_file(scorer_input, number)
    else:
        config = scorer.run_config(
            ["dataset"],
            data_dir=options.data_dir,
            cache_dir=options.cache_dir,
            trust=options.trust,
        )
        dataset, lists = scorer.read(config.dataset, options.split)
        fold = "" if dataset.fold is None else f" fold {dataset.fold}"
        source = f"{dataset.name}{fold}, {options.split}"
        number = _list_number(lists, options.qid, source)
        ids = []
        if hasattr(dataset, "ids"):
            rows = lists.source_rows[_items_of_list(lists, number)]
            ids = dataset.ids(options.split, rows.tolist())
    count = int(lists.lengths[number])
    row_names = [str(row) for row in range(1, count + 1)]
    return ExplainedList(
        scorer=scorer,
        source=source,
        lists=lists.subset(np.array([number])),
        names=[name or f"item {row}" for name, row in zip_longest(ids, row_names)],
        labelled=options.input is None,
        chosen=_item_positions(options.items, count),
    )


def _list_number(lists: Lists, qid: str, source: str) -> int:
    """Return the number of the list of the query ``qid``.

    Raises ``ConfigError`` if there is no such list.
    """
    qids = lists.qids.tolist()
    if qid not in qids:
        raise ConfigError(
            f"qid={qid}: {source} has no such query; choose another one, for example {qids[0]}"
        )
    return qids.index(qid)


def _items_of_list(lists: Lists, number: int) -> Ints:
    """Return the indices of the items of a list among all items."""
    return np.arange(lists.offsets[number], lists.offsets[number + 1])


def _ids_in_file(scorer_input: ScorerInput, number: int) -> list[str]:
    """Return a name for each item of a list: the values of its id columns, joined."""
    items = _items_of_list(scorer_input.lists, number)
    rows = scorer_input.ids.iloc[items].itertuples(index=False)
    return [" ".join(filter(None, map(query_text, row))) for row in rows]


def _item_positions(items: Sequence[str], count: int) -> list[int]:
    """Return the positions, from 0, of the named items in a list with ``count`` items."""
    row_names = {str(row) for row in range(1, count + 1)}
    for item in items:
        if item not in row_names:
            raise ConfigError(
                f"items={item}: expected positions from 1 to {count}, in the order that the items "
                "of the list have in the data"
            )
    return [int(item) - 1 for item in items]
