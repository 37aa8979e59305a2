"""The lists and the scorer that training begins with: resumed, warm, or new."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Lists, splits_of
from ltr.errors import DataError
from ltr.experiment.identity import sorter_digest, teacher_digest
from ltr.experiment.labels import resolve_labels
from ltr.experiment.warm_start import take_weights, warm_start, with_its_categories
from ltr.scorers.parts import Experiment, boosts, model_for
from ltr.scorers.scorer import Scorer, check_columns, check_size
from ltr.training.checkpoint import columns_of, fitting, transform_of
from ltr.training.device import check_memory


def open_lists(
    cfg: DictConfig, parts: Experiment, folder: Path
) -> tuple[DictConfig, Experiment, dict[str, Lists]]:
    """The lists of every split, and config and parts with what follows from them.

    All of them before training, so that a bad test file is not found hours later.
    """
    parts.dataset.check()
    parts = replace(parts, dataset=with_its_categories(cfg, parts.dataset, folder))
    lists = {split: parts.dataset.split(split) for split in splits_of(parts.dataset)}
    return *resolve_labels(cfg, parts, lists), lists


def start(
    cfg: DictConfig,
    parts: Experiment,
    lists: Mapping[str, Lists],
    file: Path,
    last: Mapping[str, Any] | None,
) -> Scorer:
    """The scorer that the run ``cfg`` begins with, of drawn weights unless it has ``init_from``.

    Args:
        cfg: of a run.
        parts: built from it.
        lists: the splits that the record of the run names.
        file, last: the checkpoint from which it is resumed, whose weights its learner takes; None:
            it begins.
    """
    train, settings = lists["train"], parts.settings
    origins: dict[str, str | None] = {split: part.digest for split, part in lists.items()}
    origins["loss.sorter"] = sorter_digest(cfg.get("loss"))
    origins["teacher"] = teacher_digest(cfg.teacher)
    begun, columns = None, train.columns
    if last is not None:
        with fitting(file):
            before, transform, columns = last["data"], transform_of(last), columns_of(last)
            changed = [name for name, digest in origins.items() if before.get(name) != digest]
        if changed:
            raise DataError(
                f"{', '.join(changed)} changed since the run began: restore it, or start anew"
            )
        check_size(parts.model, transform, file)
    elif cfg.init_from is not None:
        begun = warm_start(cfg, train, parts.device)
        transform = begun.transform
    else:
        transform = parts.fit_transform(train)
        if boosts(parts.model):
            transform = transform.keeping_missing()
    for part in lists.values():
        check_columns(part, columns)
    torch.manual_seed(settings.seed)
    model = model_for(parts.model, transform).to(parts.device)
    if begun is not None:
        take_weights(model, begun.model, cfg.init_from)
    if settings.epochs and parts.device.type == "cpu":  # a GPU's attention keeps no matrix
        longest = min(int(train.lengths.max()), settings.list_size)
        check_memory(model, longest, parts.device, training=True)
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    return Scorer(model, transform, columns, config, origins, parts.device)
