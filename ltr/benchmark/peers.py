"""Find the tools that this project is compared with, and set allRank up as ours is."""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what=needs has no package, and the side that reads files no torch
    from omegaconf import DictConfig

    from ltr.data.lists import Lists
    from ltr.data.transforms import FeatureTransform

# The modules of each; allRank's other imports have stand-ins below.
NEEDS = {
    "allrank": ("allrank", "attr"),
    "scikit-learn": ("sklearn",),
    "lightgbm": ("lightgbm",),
    "xgboost": ("xgboost",),
    "onnxruntime": ("onnxruntime", "onnxscript"),
}
ABSENT = "python scripts/benchmark.py what=needs says how to bring it along"
_NATURAL = {"reduction_log": "natural"}
# Our loss -> allRank's function, its knobs, and how our values of the lists make its one number.
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
    """Append the folder in which ``make bench`` installs the peers to the import path.

    It is a folder apart, as allRank's package brings a folder ``tests``; ``LTR_PEERS`` sets it.
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
    for name, parts in _STAND_INS.items() if module.startswith("allrank") else ():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(parts)
    return importlib.import_module(module)


def versions() -> dict[str, str]:
    """The version of each peer, or ``not installed``."""
    _find()
    found = dict.fromkeys(NEEDS, "not installed")
    for name in NEEDS:
        for distribution in (f"{name}-cpu", name):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(distribution)
    return found


def allrank_loss(name: str) -> Callable[..., Any]:
    """allRank's counterpart of our loss ``name``, with its knobs bound."""
    function, knobs, _ = ALLRANK[name]
    loss = getattr(need("allrank.models.losses"), function)
    return lambda scores, labels: loss(scores, labels, **knobs)


def allrank_model(cfg: "DictConfig", width: int) -> Any:
    """allRank's model with the sizes of ours: layers, heads and hidden units."""
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
    """allRank's data loader, as its ``load_libsvm_dataset_role`` makes it.

    Every list is padded or cut to ``list_size``; None, for evaluation: padded to the longest list
    of all, unshuffled.
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


# Stand-ins for what allRank 1.4.3 imports and these measurements do not use: it names torch <= 1.8,
# torchvision, of which it uses ``Compose`` alone, gcsfs 0.6.2 (Google's storage), tensorboardX and
# setuptools' pkg_resources. A package that is installed is used.
_STAND_INS: dict[str, dict[str, Any]] = {
    "torchvision": {"__path__": []},
    "torchvision.transforms": {
        "Compose": lambda steps: lambda sample: functools.reduce(lambda x, f: f(x), steps, sample)
    },
    "gcsfs": {"GCSFileSystem": None},
    "pkg_resources": {"Requirement": None, "resource_filename": None},
    "tensorboardX": {"SummaryWriter": None},
}
