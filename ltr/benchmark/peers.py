"""The tools that this project is measured against: where they are, and allRank set as ours is."""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

if TYPE_CHECKING:  # the side that reads files is measured without torch
    from ltr.data.lists import Lists
    from ltr.data.transforms import FeatureTransform

# What each needs to be imported; allRank's other needs have stand-ins below.
NEEDS = {"allrank": ("allrank", "attr"), "scikit-learn": ("sklearn",), "lightgbm": ("lightgbm",)}
_NATURAL = {"reduction_log": "natural"}
# allRank's losses: its function and knobs, and how our values of the lists become its one number.
ALLRANK: dict[str, tuple[str, dict[str, Any], str]] = {
    "neuralndcg": ("neuralNDCG", {}, "mean_nonempty"),
    "neuralndcg_t": ("neuralNDCG_transposed", {}, "mean_nonempty"),
    "lambdarank": ("lambdaLoss", {"weighing_scheme": "lambdaRank_scheme", **_NATURAL}, "sum"),
    "lambdaloss": ("lambdaLoss", {"weighing_scheme": "ndcgLoss2PP_scheme", **_NATURAL}, "sum"),
    "ranknet": ("rankNet", {}, "mean_pairs"),
    "approxndcg": ("approxNDCGLoss", {}, "mean"),
    "listnet": ("listNet", {}, "mean"),
    "listmle": ("listMLE", {}, "mean"),
    "rmse": ("pointwise_rmse", {"no_of_levels": 5}, "mean"),
}


def _find() -> None:
    """Make what ``make bench`` installed importable, after everything else.

    allRank lies apart, as its package brings a folder ``tests``; ``LTR_PEERS`` names its place.
    """
    place = str(Path(os.environ.get("LTR_PEERS") or Path(sys.prefix, "peers")))
    if place not in sys.path:
        sys.path.append(place)


def installed(peer: str) -> bool:
    """Whether a peer can be used here."""
    _find()
    return all(importlib.util.find_spec(module) is not None for module in NEEDS[peer])


def need(module: str) -> Any:
    """Import a module of a peer that is installed."""
    _find()
    if module.partition(".")[0] == "allrank":
        _shim_allrank()
    return importlib.import_module(module)


def versions() -> dict[str, str]:
    """The version of each peer, or that it is not there."""
    _find()
    found = dict.fromkeys(NEEDS, "not installed")
    for name in NEEDS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def allrank_loss(name: str) -> Callable[..., Any]:
    """Its counterpart of our loss ``name``, with its knobs."""
    function, knobs, _ = ALLRANK[name]
    loss = getattr(need("allrank.models.losses"), function)
    return lambda scores, labels: loss(scores, labels, **knobs)


def allrank_model(cfg: DictConfig, width: int) -> Any:
    """Its model with the sizes of ours: the same number of layers, heads and hidden units."""
    ours, config = cfg.model, need("allrank.config")
    dense = {"sizes": list(ours.fc_sizes), "input_norm": ours.input_norm, "activation": None}
    activation = ours.output_activation and ours.output_activation.capitalize()
    return need("allrank.models.model").make_model(
        fc_model=dense | {"dropout": ours.fc_dropout},
        transformer=config.TransformerConfig(
            N=ours.blocks, d_ff=ours.feed_forward, h=ours.heads, dropout=ours.dropout,
            positional_encoding=None,
        ),
        post_model={"d_output": 1, "output_activation": activation},
        n_features=width,
    )  # fmt: skip


def allrank_loader(
    lists: "Lists", transform: "FeatureTransform", *, batch_size: int, list_size: int | None
) -> Any:
    """Its data loader, in its own process; ``list_size`` None: padded to the longest, unshuffled.

    Every list of training is padded or cut to ``list_size``, every list of evaluation padded to the
    longest of all, as its ``load_libsvm_dataset_role`` has it.
    """
    from scipy.sparse import csr_matrix
    from torch.utils.data import DataLoader

    loading = need("allrank.data.dataset_loading")
    qids = [i for i, length in enumerate(lists.lengths) for _ in range(length)]
    data = loading.LibSVMDataset(csr_matrix(transform(lists.features)), lists.labels.copy(), qids)
    if list_size is None:
        data.transform = loading.fix_length_to_longest_slate(data)
    else:
        steps = [loading.FixLength(list_size), loading.ToTensor()]
        data.transform = loading.transforms.Compose(steps)
    return DataLoader(data, batch_size=batch_size, shuffle=list_size is not None, num_workers=0)


def _shim_allrank() -> None:
    """Stand-ins for what allRank 1.4.3 imports and these measurements do not use.

    It names torch <= 1.8, torchvision, gcsfs 0.6.2 (Google's storage), tensorboardX and setuptools'
    pkg_resources; of torchvision it uses ``Compose`` alone. A package that is installed is used.
    """
    for name, parts in _STAND_INS.items():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(parts)


def _compose(transforms: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """``torchvision.transforms.Compose``: one function after the other."""
    return lambda sample: functools.reduce(lambda x, transform: transform(x), transforms, sample)


_STAND_INS: dict[str, dict[str, Any]] = {
    "torchvision": {"__path__": []},
    "torchvision.transforms": {"Compose": _compose},
    "gcsfs": {"GCSFileSystem": None},
    "pkg_resources": {"Requirement": None, "resource_filename": None},
    "tensorboardX": {"SummaryWriter": None},
}
