"""``Scorer``: a trained model and everything that it needs to score items.

Loading a scorer runs no code from its file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ltr.boosting import RoundModel
from ltr.data.batches import ItemTensors
from ltr.data.lists import Columns, Dataset, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, DataError
from ltr.parts.components import (
    build_convention,
    build_dataset,
    build_model,
    build_part,
    build_settings,
)
from ltr.parts.ensemble import Ensemble, Member
from ltr.parts.trust import config_of, trusted
from ltr.training.checkpoint import (
    checkpoint_errors,
    features_of,
    members_of,
    selected_checkpoint,
    weight_bytes,
)
from ltr.training.device import describe_device
from ltr.training.evaluation import predict

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Scorer:
    """A trained model, the transform and names of its features, and the config of its run.

    Attributes:
        model: a network, trees, or an ensemble, on ``device``.
        transform: applied to the features before the model. Each member of an ensemble has its own.
        columns: names and categories of the features; None: the features are unnamed numbers.
        config: the config of the run, which is not yet trusted. Its relative paths are relative to
            the working directory.
        data: the digests of the lists of each split of the run, and of everything else that the run
            read.
        device: the device on which the scorer runs.
    """

    model: nn.Module
    transform: FeatureTransform
    columns: Columns | None
    config: dict[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = CPU

    @property
    def precision(self) -> str:
        """The precision in which the model was trained, and in which it computes scores."""
        return str(self.config["precision"])

    @property
    def parameters(self) -> int:
        """The number of fitted parameters; for trees, the number of leaves."""
        if isinstance(self.model, RoundModel):
            return self.model.fitted
        return sum(p.numel() for p in self.model.parameters())

    @property
    def device_name(self) -> str:
        """The description of the device for results."""
        return describe_device(self.device)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores of this scorer in addition to weights and config."""
        return {
            "transform": self.transform.state(),
            "width": self.transform.width,
            "columns": None if self.columns is None else self.columns.state(),
            "data": {name: digest for name, digest in self.data.items() if digest is not None},
        }

    def open(self, lists: Lists) -> ItemTensors:
        """Return ``lists`` as transformed tensors on the device of the model.

        Raises ``DataError`` if the feature names or categories differ from those of the training
        lists.
        """
        check_columns(lists, self.columns)
        return ItemTensors(lists, self.transform, self.device)

    def scores(self, lists: Lists | ItemTensors, *, items: int = 32768) -> Tensor:
        """Return the float32 scores of all items, ``[items]``, in the order of ``lists``.

        Args:
            lists: the lists, or what ``open`` returned for them.
            items: the maximum number of items in a batch, padding included. It limits the memory.

        Raises:
            DataError: the features differ from those on which the model was trained.
            TrainingError: a score is not finite.
        """
        data = self.open(lists) if isinstance(lists, Lists) else lists
        return predict(self.model, data, items=items, precision=self.precision)

    def run_config(
        self,
        parts: Sequence[str],
        *,
        data_dir: str | None,
        cache_dir: str,
        trust: Sequence[str] | str,
    ) -> DictConfig:
        """Return the config of the scorer's run after checking that ``parts`` may be built from it.

        Args:
            parts: the parts that will be built; see ``trusted``.
            data_dir: the folder of the data set; None or empty: the folder that the run used.
            cache_dir: the folder of parsed data.
            trust: the user's own modules that the parts may name.

        Raises:
            ConfigError: a part names code that is not trusted.
        """
        folders = {"data_dir": data_dir or self.config["data_dir"], "cache_dir": cache_dir}
        return trusted(self.config | folders, parts, trust)

    def read(self, node: DictConfig, split: str) -> tuple[Dataset, Lists]:
        """Return the data set of a ``dataset`` node, and the lists of its ``split`` for this model.

        Raises ``DataError`` if the features differ from those on which the model was trained.
        """
        if "width" in node and node.width is None:
            OmegaConf.update(node, "width", self.transform.width)
        dataset = build_dataset(node)
        if self.columns is not None and hasattr(dataset, "with_columns"):
            dataset = dataset.with_columns(self.columns)
        lists = dataset.split(split)
        check_columns(lists, self.columns)
        return dataset, lists


def load_model(
    path: str | Path, device: torch.device = CPU, trust: Sequence[str] | str = ()
) -> Scorer:
    """Return the scorer of a run folder, with the selected weights, or of a ``.pt`` file.

    Raises:
        CheckpointError: there is no readable checkpoint, or its content does not match its config.
        ConfigError: the config names code that is neither in this project nor in ``trust``.
    """
    return scorer_of(*selected_checkpoint(Path(path), device), device, trust)


def scorer_of(
    file: Path,
    content: Mapping[str, Any],
    device: torch.device = CPU,
    trust: Sequence[str] | str = (),
) -> Scorer:
    """Return the scorer of a checkpoint.

    Args:
        file: the path of the checkpoint.
        content: the content of ``file``, or that of one member if it holds an ensemble.
        device: the device of the scorer.
        trust: the user's own modules that the config of the checkpoint may name.

    Raises:
        CheckpointError, ConfigError: as for ``load_model``.
    """
    config = config_of(content, file)
    with checkpoint_errors(file):
        members = members_of(content)
        data = content.get("data", {})
        transform, columns = features_of(content)
    checked = trusted(config, [] if members else ["model"], trust)
    with checkpoint_errors(file):
        build_settings(checked)  # its errors name a wrong value
        build_convention(checked)
    model: nn.Module
    if members:
        with checkpoint_errors(file):
            model = _build_ensemble(content, file, transform.width, device, trust)
    else:
        make_model_for = partial(build_model, build_part(checked.model, "model"))
        check_size(make_model_for, transform, file)
        model = make_model_for(transform)
        with checkpoint_errors(file):
            model.load_state_dict(content["model"])
    return Scorer(model.to(device).eval(), transform, columns, config, data, device)


def _build_ensemble(
    content: Mapping[str, Any],
    file: Path,
    width: int,
    device: torch.device,
    trust: Sequence[str] | str,
) -> Ensemble:
    """Return the ensemble of a checkpoint.

    Raises ``ValueError`` if its members do not fit together.
    """
    if weight_bytes(content) > file.stat().st_size:
        raise ValueError("members: their weights are larger than the file that holds them")
    members = members_of(content)
    scorers = [scorer_of(file, member, device, trust) for _, member in members]
    if any(scorer.transform.width != width for scorer in scorers):
        raise ValueError(f"members: expected {width} features in each, got a different number")
    return ensemble_of(scorers, [weight for weight, _ in members])


def ensemble_of(scorers: Sequence[Scorer], weights: Sequence[float]) -> Ensemble:
    """Return the ensemble of ``scorers``; there is one weight for each, and their sum is 1."""
    members = [Member(scorer.model, scorer.transform, scorer.precision) for scorer in scorers]
    return Ensemble(members, weights)


def check_size(
    make_model_for: Callable[[FeatureTransform], nn.Module],
    transform: FeatureTransform,
    file: Path,
) -> None:
    """Raise ``CheckpointError`` if the model is larger than ``file``, which holds its weights.

    No weights are allocated, so a small malicious config cannot request terabytes.
    """
    with checkpoint_errors(file), torch.device("meta"):
        model = make_model_for(transform)
        tensors = (*model.parameters(), *model.buffers())
        if sum(tensor.nbytes for tensor in tensors) > file.stat().st_size:
            raise ValueError("model: its weights are larger than the file that holds them")


def copy_weights(
    scorer: Scorer, model: nn.Module, transform: Mapping[str, Any], source: str
) -> None:
    """Copy the weights of ``scorer`` to ``model``.

    ``transform`` is the ``transform`` node in the config of ``model``. ``source`` is the setting
    that names the run of ``scorer``. Raises ``ConfigError`` if the models or the
    transforms differ.
    """
    try:
        if scorer.config["transform"] != transform:
            raise RuntimeError("the transform of that run differs from yours")
        model.load_state_dict(scorer.model.state_dict())
    except RuntimeError as error:
        text = " ".join(str(error).split()[:60])
        raise ConfigError(
            f"{source}: {text}; use the same model and transform settings as that run"
        ) from None


def check_columns(lists: Lists, columns: Columns | None) -> None:
    """Raise ``DataError`` if the feature names or categories of ``lists`` differ from ``columns``.

    If the lists or the model have no names, the features are identified by their order alone.
    """
    trained = columns or Columns(())
    read = lists.columns or Columns(())
    if trained.names and read.names:
        pairs = zip_longest(trained.names, read.names, fillvalue="nothing")
        differing = [pair for pair in pairs if pair[0] != pair[1]]
        if differing:
            trained_name, read_name = differing[0]
            raise DataError(
                f"the features differ: the model was trained on {trained_name}, but the lists have "
                f"{read_name} in its place; give lists with the same features in the same order"
            )
    names = dict.fromkeys([*trained.categories, *read.categories])
    changed = [name for name in names if trained.categories.get(name) != read.categories.get(name)]
    if changed:
        raise DataError(
            f"the categories of {', '.join(changed[:5])} differ from those on which the model was "
            "trained: read the lists with the columns of the model (TableFiles.with_columns), or "
            "train a new model"
        )
