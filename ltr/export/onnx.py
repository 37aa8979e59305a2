"""ONNX: a network with its feature transform by torch's exporter, trees as a tree ensemble.

Inputs ``features`` ``[batch, list, feature]`` float32, as the lists have them, and ``mask``
``[batch, list]`` bool, True where an item exists; output ``scores`` ``[batch, list]``, 0 on
padding. ``by_item``: ``features`` ``[item, feature]`` alone, and ``scores`` ``[item, 1]``.
"""

import importlib
import logging
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, install
from ltr.experiment.ensemble import Ensemble
from ltr.export.form import Exported, Scores
from ltr.export.graph import Ranker
from ltr.export.trees import Trees, leaf
from ltr.rounds import RoundModel
from ltr.training.evaluation import padded_batches

NAME = "model.onnx"
_ITEMS = 1 << 15  # padded items in a batch
LENGTHS, BATCHES = (1, 2, 240, 1000), (1, 7)  # that every graph is tried at


def need(name: str) -> ModuleType:
    """A library of the extra ``export``.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"ONNX needs {name}, which is not installed: {install('export')}"
        ) from None


def onnx_of_network(
    model: nn.Module, transform: FeatureTransform, *, by_item: bool = False
) -> Exported:
    """The graph of a network, or of an ensemble of networks.

    Raises:
        ConfigError: a library is missing, or the model has no graph.
    """
    if isinstance(model, Ensemble) and any(isinstance(m.model, RoundModel) for m in model.members):
        raise ConfigError(
            "to=onnx: the ensemble has members that are no networks: export them one by one"
        )
    ranker = Ranker(model, transform).eval()
    wrapped: nn.Module = _ByItem(ranker) if by_item else ranker
    content = _traced(wrapped, transform.width, by_item=by_item)
    return Exported({NAME: content}, _run_by_item if by_item else _run, _ran_by())


def onnx_of_trees(trees: Trees, width: int, *, by_item: bool = False) -> Exported:
    """The graph of trees: a ``TreeEnsembleRegressor`` with float32 thresholds, ``x <= t``."""
    content = _ensemble(trees, width, by_item=by_item)
    return Exported({NAME: content}, _run_by_item if by_item else _run, _ran_by())


def _ran_by() -> str:
    return f"ONNX Runtime {need('onnxruntime').__version__}"


class _ByItem(nn.Module):
    """``[item, feature]`` to ``[item, 1]``: every item is a list of its own."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, features: Tensor) -> Tensor:
        mask = torch.ones_like(features[:, :1], dtype=torch.bool)
        scores: Tensor = self.ranker(features[:, None], mask)
        return scores


def _traced(model: nn.Module, width: int, *, by_item: bool) -> bytes:
    need("onnxscript"), need("onnx")
    batch, length = torch.export.Dim("batch"), torch.export.Dim("list")
    example: tuple[Tensor, ...] = (torch.zeros(3, width),)
    shapes: tuple[Any, ...] = ({0: batch},)
    if not by_item:
        example = (torch.zeros(2, 3, width), torch.ones(2, 3, dtype=torch.bool))
        shapes = ({0: batch, 1: length}, {0: batch, 1: length})
    names = ["features"] if by_item else ["features", "mask"]
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # of what the exporter does not find: torchvision
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own code
            program: Any = torch.onnx.export(
                model, example, dynamo=True, dynamic_shapes=shapes, input_names=names,
                output_names=["scores"], verbose=False,
            )  # fmt: skip
        content: bytes = _of_no_items(_bare(program.model_proto)).SerializeToString()
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"to=onnx: {type(model).__name__} has no graph ({text}): train another model, such as "
            "model=mlp or transformer"
        ) from error
    finally:
        logging.disable(level)
    return content


def _bare(model: Any) -> Any:
    """``model`` without the exporter's notes, which name files of this machine."""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for values in (model.graph.input, model.graph.output, model.graph.value_info):
        for value in values:
            del value.metadata_props[:]
    for initializer in model.graph.initializer:
        del initializer.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    return model


def _of_no_items(model: Any) -> Any:
    """``model``, in which a 0 of a shape that a ``Reshape`` is given is 0: a list without items.

    The exporter's attention leaves ONNX's default, by which 0 stands for the input's own size. A
    shape with a -1 keeps it: both in one shape are not defined, and nothing is left to infer.
    """
    to_array = need("onnx").numpy_helper.to_array
    infers = {one.name for one in model.graph.initializer if -1 in to_array(one)}
    for node in model.graph.node:  # in the order in which they compute
        if node.op_type == "Concat" and infers.intersection(node.input):
            infers.update(node.output)
        if node.op_type == "Reshape" and node.input[1] not in infers:
            del node.attribute[:]
            node.attribute.append(need("onnx").helper.make_attribute("allowzero", 1))
    return model


def _ensemble(trees: Trees, width: int, *, by_item: bool) -> bytes:
    onnx = need("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    made = (*trees.trees, leaf(trees.bias)) if trees.bias else trees.trees
    attributes: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                     "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    targets: dict[str, list[Any]] = {f"target_{n}": [] for n in ("treeids", "nodeids", "weights")}
    for number, tree in enumerate(made):
        count, leaves = len(tree.feature), tree.feature < 0
        nodes = {
            "treeids": [number] * count,
            "nodeids": list(range(count)),
            "featureids": np.where(leaves, 0, tree.feature).tolist(),
            "values": np.where(leaves, 0, tree.threshold).tolist(),
            "modes": ["LEAF" if is_leaf else "BRANCH_LEQ" for is_leaf in leaves],
            "truenodeids": tree.left.tolist(),
            "falsenodeids": tree.right.tolist(),
            "missing_value_tracks_true": (tree.missing_left & ~leaves).astype(int).tolist(),
        }
        for name, values in nodes.items():
            attributes[f"nodes_{name}"] += values
        targets["target_treeids"] += [number] * int(leaves.sum())
        targets["target_nodeids"] += np.flatnonzero(leaves).tolist()
        targets["target_weights"] += tree.leaves.tolist()
    targets["target_ids"] = [0] * len(targets["target_weights"])
    scored = helper.make_node(
        "TreeEnsembleRegressor", ["rows"], ["sums"], domain="ai.onnx.ml", n_targets=1,
        aggregate_function="SUM", post_transform="NONE", **attributes, **targets,
    )  # fmt: skip
    numbers = [helper.make_tensor("flat", kinds.INT64, [2], [-1, width])]
    shape = ["item", width] if by_item else ["batch", "list", width]
    inputs = [helper.make_tensor_value_info("features", kinds.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("scores", kinds.FLOAT, ["item", 1])]
    steps = [helper.make_node("Reshape", ["features", "flat"], ["rows"]), scored]
    if by_item:
        steps.append(helper.make_node("Identity", ["sums"], ["scores"]))
    else:
        inputs.append(helper.make_tensor_value_info("mask", kinds.BOOL, ["batch", "list"]))
        outputs = [helper.make_tensor_value_info("scores", kinds.FLOAT, ["batch", "list"])]
        numbers.append(helper.make_tensor("zero", kinds.FLOAT, [1], [0.0]))
        steps += [
            helper.make_node("Shape", ["mask"], ["size"]),
            helper.make_node("Reshape", ["sums", "size"], ["padded"], allowzero=1),
            helper.make_node("Where", ["mask", "padded", "zero"], ["scores"]),
        ]
    graph = helper.make_graph(steps, "trees", inputs, outputs, numbers)
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def session(path: Path) -> Any:
    """ONNX Runtime of a file, on the CPU."""
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many types
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"to=onnx: ONNX Runtime {runtime.__version__} cannot run the graph ({text}): train "
            "another model, such as model=mlp or transformer"
        ) from error


def _run(folder: Path, lists: Lists) -> Scores:
    """Every list whole, padded to the longest of its batch; what stands on padding is NaN."""
    runs = session(folder / NAME)
    out = np.empty(lists.items, np.float32)
    for batch in padded_batches(lists, items=_ITEMS):
        rows, mask = batch.rows.numpy(), batch.mask.numpy()
        features = np.asarray(lists.features)[rows]
        features[~mask] = np.nan
        (scores,) = runs.run(None, {"features": features, "mask": mask})
        if scores[~mask].any():
            raise ConfigError("to=onnx: padding has scores: report the model's config")
        out[rows[mask]] = scores[mask]
    return out


def _run_by_item(folder: Path, lists: Lists) -> Scores:
    runs, features = session(folder / NAME), np.asarray(lists.features)
    parts = [
        runs.run(None, {"features": features[first : first + _ITEMS]})[0][:, 0]
        for first in range(0, len(features), _ITEMS)
    ]
    return np.concatenate(parts)


def made_lists(lists: Lists, length: int, count: int) -> Lists:
    """``count`` lists of ``length`` items drawn from real ones, for sizes that these lack."""
    random = np.random.default_rng([0, length, count])
    rows = np.sort(random.integers(lists.items, size=length * count))
    random.shuffle(rows)
    return Lists(
        features=np.asarray(lists.features)[rows],
        labels=np.asarray(lists.labels)[rows],
        offsets=np.arange(0, length * count + 1, length),
        qids=np.array([f"made-{length}-{i}" for i in range(count)]),
    )


def check_padding(folder: Path, width: int) -> None:
    """Raise ``ConfigError`` unless a list of padding alone scores 0 beside a real one."""
    features = np.zeros((2, 3, width), np.float32)
    mask = np.array([[True, True, False], [False, False, False]])
    (scores,) = session(folder / NAME).run(None, {"features": features, "mask": mask})
    if not np.isfinite(scores).all() or scores[~mask].any():
        raise ConfigError("to=onnx: a list of padding has scores: report the model's config")
