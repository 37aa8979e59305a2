"""Find what this project is measured beside, and set allRank up as ours is."""

import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scipy.sparse import csr_matrix
from torch.utils.data import DataLoader

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
# allRank 1.4.3 imports these; the measurements use of them ``Compose`` alone. Its pins exclude this
# torch. A package that is installed is used.
_STAND_INS: dict[str, dict[str, Any]] = {
    "torchvision": {"__path__": []}, "gcsfs": {"GCSFileSystem": None},
    "torchvision.transforms": {
        "Compose": lambda steps: lambda sample: functools.reduce(lambda x, f: f(x), steps, sample)},
    "tensorboardX": {"SummaryWriter": None},
    "pkg_resources": {"Requirement": None, "resource_filename": None},
}  # fmt: skip
# make bench installs allRank apart, as its wheel brings a folder ``tests``.
sys.path.append(os.environ.get("LTR_PEERS") or str(Path(sys.prefix, "peers")))


def need(module: str) -> Any:
    """Import a module of a peer that is installed."""
    for name, parts in _STAND_INS.items() if module.startswith("allrank") else ():
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(parts)
    return importlib.import_module(module)


def allrank_loss(name: str) -> Callable[..., Any]:
    """allRank's counterpart of our loss ``name``, with its knobs bound."""
    function, knobs, _ = ALLRANK[name]
    return functools.partial(getattr(need("allrank.models.losses"), function), **knobs)


def allrank_model(ours: Any, width: int) -> Any:
    """allRank's model with the sizes of ``ours``, the config of our transformer."""
    last = ours.output_activation and ours.output_activation.capitalize()
    first = {"sizes": list(ours.fc_sizes), "dropout": ours.fc_dropout, "activation": None}
    blocks = ours.blocks, ours.feed_forward, ours.heads, None, ours.dropout
    encoder = need("allrank.config").TransformerConfig(*blocks)
    make, head = need("allrank.models.model").make_model, {"d_output": 1, "output_activation": last}
    return make({**first, "input_norm": ours.input_norm}, encoder, head, width)


def allrank_loader(lists: Any, transform: Any, batch_size: int, list_size: int | None) -> Any:
    """allRank's own; lists have ``list_size`` items, None: as many as the longest of all."""
    loading = need("allrank.data.dataset_loading")
    qids = [i for i, length in enumerate(lists.lengths) for _ in range(length)]
    data = loading.LibSVMDataset(csr_matrix(transform(lists.features)), lists.labels.copy(), qids)
    if list_size is None:
        data.transform = loading.fix_length_to_longest_slate(data)
    else:
        steps = [loading.FixLength(list_size), loading.ToTensor()]
        data.transform = loading.transforms.Compose(steps)
    return DataLoader(data, batch_size=batch_size, shuffle=list_size is not None, num_workers=0)
