"""The base class of tree models; it handles the options, errors and state of a tree library."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Floats, Reals
from ltr.boosting.model import FitData, Round, RoundModel
from ltr.errors import CheckpointError, ConfigError, LTRError, need

# Parameters that a run sets itself, or that would break its saved files: remedy -> names.
RESERVED: Mapping[str, str] = {
    "set model.objective instead": "application app objective_type loss loss_function",
    "set epochs instead": "num_iterations iterations",
    "set seed instead": "seed random_state random_seed",
    "set threads instead": "num_threads nthread n_jobs thread_count",
    "set device instead": "device task_type devices",
    "set model.learning_rate instead": "eta",
    "set model.gamma instead": "min_split_loss",
    "set model.reg_alpha instead": "alpha",
    "set model.reg_lambda instead": "lambda",
    "set metrics and select_on instead": "metric eval_at first_metric_only eval_metric "
    "custom_metric disable_default_eval_metric",
    "set patience instead": "early_stopping_round early_stopping_rounds early_stopping_min_delta "
    "od_type od_wait od_pval",
    "set select instead": "use_best_model best_model_min_trees",
    "the data set defines which features are categories: leave this option out": ""
    "categorical_feature cat_features",
    "the gain is 2^label - 1; for another gain, boost with a loss and set gain=...": "label_gain",
    "the trees of the best round are kept, but later rounds would change them: leave this "
    "option out": "boosting booster",
    "ltr sets this option itself, or does not use such a file: leave this option out": "verbosity "
    "verbose verbose_eval silent "
    "logging_level metric_period deterministic force_row_wise force_col_wise device_type "
    "feature_pre_filter validate_parameters process_type updater multi_strategy tree_method "
    "base_score data valid header label_column weight_column group_column ignore_column two_round "
    "pre_partition precise_float_parser parser_config_file allow_writing_files train_dir "
    "save_snapshot snapshot_file snapshot_interval output_borders input_borders text_features "
    "embedding_features",
}


class BoostedTrees(RoundModel, ABC):
    """Boosted trees that score each item alone; before the first tree every score is 0.

    The state is the file that the library writes for the booster, as a uint8 tensor, ``[bytes]``.
    It contains no code, but the library's C++ reader trusts it; see docs/concepts/security.md.

    Args:
        objective: one of ``objectives``, used if no loss is chosen; None: the first of them.
        options, knobs: parameters of the library by name; the defaults are the library's own.

    Raises:
        ConfigError: the library is not installed or has no such objective, or a parameter is one
            that the run sets.
    """

    library: ClassVar[str]  # the name under which it is imported
    error: ClassVar[str]  # the library's exception class, as an attribute path in the library
    objectives: ClassVar[tuple[str, ...]]
    reserved: ClassVar[Mapping[str, str]] = RESERVED
    makes = "trees"
    accepts_losses = True
    nonfinite_remedy = (
        "train with a lower model.learning_rate or more regularisation (model.*), or check the "
        "features and labels"
    )

    def __init__(
        self,
        width: int,
        *,
        objective: str | None = None,
        options: Mapping[str, Any] | None = None,
        **knobs: Any,
    ) -> None:
        super().__init__(width)
        options = dict(options or {})
        remedies = {
            name: remedy for remedy, names in self.reserved.items() for name in names.split()
        }
        remedies |= {name: f"set model.{name} instead" for name in ("objective", *knobs)}
        for name in sorted(options.keys() & remedies.keys()):
            raise ConfigError(f"model.options.{name}: {remedies[name]}")
        if objective is not None and objective not in self.objectives:
            raise ConfigError(
                f"model.objective={objective}: choose one of {', '.join(self.objectives)} for "
                f"{self.title}, or fit a loss with loss=NAME"
            )
        self.objective = objective
        self.params = knobs | options
        self.categories: list[int] = []  # the columns whose values are category codes
        need(self.library, "gbdt")  # raises an error if the library is not installed
        self.content = b""  # the booster as the library writes it; empty before the first tree
        self.booster: Any = None  # the library's booster; None before the first tree
        self._leaves = 0

    @abstractmethod
    def grow(self, data: FitData) -> Iterator[Round]:
        """Yield the library's rounds; ``rounds`` handles the library's exceptions."""

    @abstractmethod
    def load(self, content: bytes) -> Any:
        """Read the booster that the library wrote as ``content``; check its number of features."""

    @abstractmethod
    def to_bytes(self, booster: Any, trees: int) -> bytes:
        """Return the first ``trees`` trees (1 or more) of ``booster`` as bytes for ``load``."""

    @abstractmethod
    def score_with(self, booster: Any, items: Floats) -> Reals:
        """Return the scores, ``[items]``, one for each row of ``items``."""

    @abstractmethod
    def count_leaves(self, booster: Any) -> int:
        """Return the number of leaves of all trees."""

    def round(self, data: FitData, booster: Any, trees: int, scores: Mapping[str, Reals]) -> Round:
        """Return the round after which the model has the first ``trees`` trees of ``booster``.

        ``scores`` are the scores of each split after the round. The column ``loss`` of the round is
        the training loss before the round.
        """
        value = math.nan if data.objective is None else data.objective.value
        columns: dict[str, float] = {} if math.isnan(value) else {"loss": value}
        state = partial(self.to_bytes, booster, trees) if trees else lambda: None
        return Round(scores, state, columns | {self.makes: trees})

    def check_parameters(self, names: Iterable[str], library_names: Iterable[str]) -> None:
        """Raise ``ConfigError`` if one of ``names`` is not a parameter of the library."""
        for name in sorted(set(names) - set(library_names)):
            raise ConfigError(
                f"model.options.{name}: {self.description} has no parameter of this name "
                "(aliases are not accepted): see the documentation of "
                f"{self.title}"
            )

    def rounds(self, data: FitData) -> Iterator[Round]:
        """Fit the trees and yield the rounds.

        A library error, or a setting of the wrong type, becomes a one-line ``ConfigError``.
        """
        rounds = self.grow(data)
        with self._as_config_error(TypeError, ValueError, AttributeError):
            yield next(rounds)
        with self._as_config_error():
            yield from rounds

    @contextmanager
    def _as_config_error(self, *error_types: type[Exception]) -> Iterator[None]:
        """Context in which an error of the library or ``error_types`` becomes a ``ConfigError``."""
        library_error = attrgetter(self.error)(self.module)
        try:
            yield
        except LTRError:
            raise
        except (library_error, *error_types) as error:
            text = " ".join(str(error).partition("Stack trace")[0].split())
            raise ConfigError(f"{self.title}: {text}; check the model.* settings") from error

    @property
    def module(self) -> Any:
        """The library; raises ``ConfigError`` if it is not installed or cannot be imported."""
        return need(self.library, "gbdt")

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.module.__version__)

    @property
    def description(self) -> str:
        return f"{self.title} {self.version}"

    @property
    def fitted(self) -> int:
        """The number of leaves of all trees; each leaf has one fitted parameter."""
        return self._leaves

    def own_objective(self) -> str:
        """Return the name of the library's objective that is used if no loss is chosen."""
        return self.objective or self.objectives[0]

    def score_items(self, items: Floats) -> Reals:
        return self.score_with(self.booster, items)

    def restore(self, content: bytes | None) -> None:
        booster = None
        leaves = 0
        if content:
            try:
                booster = self.load(content)
                leaves = self.count_leaves(booster)
            except CheckpointError:
                raise
            except Exception as error:  # each library raises errors of many types
                raise CheckpointError(
                    f"{self.description} cannot read the saved trees: use the version that wrote "
                    "them, or train again"
                ) from error
        self.content = content or b""
        self.booster = booster
        self._leaves = leaves  # stored, because ``forward`` reads it for every batch

    def check_match(self, matches: bool, noun: str) -> None:
        """Raise ``CheckpointError`` unless the trees match their config.

        ``noun``, such as ``"features"``, names what differs, for the message.
        """
        if not matches:
            raise CheckpointError(
                f"the {noun} of the saved trees do not match the config in the checkpoint: use the "
                "checkpoint that ltr train wrote"
            )

    def get_extra_state(self) -> Tensor:
        """Return the booster's bytes."""
        return torch.from_numpy(np.frombuffer(self.content, np.uint8).copy())

    def set_extra_state(self, state: Any) -> None:
        """Restore the booster from the bytes in ``state``.

        Raises ``CheckpointError`` if they are unusable.
        """
        content = state.cpu().numpy().tobytes() if isinstance(state, Tensor) else b"?"
        self.restore(content)  # b"?" is not a booster of any library
