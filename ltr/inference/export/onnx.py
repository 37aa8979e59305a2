"""ONNX: a network with its feature transform by torch's exporter, trees as a tree ensemble.

Inputs ``features`` ``[batch, list, feature]`` float32, as the lists have them, and ``mask``
``[batch, list]`` bool, True where an item exists; output ``scores`` ``[batch, list]``, 0 on
padding. ``by_item``: ``features`` ``[item, feature]`` alone, and ``scores`` ``[item, 1]``.
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, install
from ltr.inference.export.context import (
    IDENTIFIER,
    ExportContext,
    Exported,
    Scores,
    parity,
    refuse_names,
)
from ltr.inference.export.graph import ScorerGraph
from ltr.inference.export.trees import Trees
from ltr.models.rounds import RoundModel
from ltr.scorers.ensemble import Ensemble
from ltr.training.evaluation import padded_batches

NAME, PROFILE = "model.onnx", "rank-profile.sd"
_ITEMS = 1 << 15  # padded items in a batch
_LENGTHS, _BATCHES = (1, 2, 240, 1000), (1, 7)  # that every graph is tried at
_INSTEAD = "train another model, such as model=mlp or transformer"


def need(name: str) -> ModuleType:
    """A library of the extra ``export``; ``ConfigError`` where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            f"ONNX needs {name}, which is not installed: {install('export')}"
        ) from None


def onnx(context: ExportContext, *, by_item: bool = False) -> Exported:
    """The graph of trees, a network, or an ensemble of networks.

    Raises:
        ConfigError: a library is missing, or the model has no graph.
    """
    if isinstance(context.form, Trees):
        content = _ensemble(context.form, context.scorer.transform.width, by_item=by_item)
    else:
        content = traced(context.scorer.model, context.scorer.transform, by_item=by_item)
    ran_by = f"ONNX Runtime {need('onnxruntime').__version__}"
    return Exported({NAME: content}, _run_by_item if by_item else _run, ran_by)


def vespa(context: ExportContext) -> Exported:
    """The graph of one document, and the rank profile that feeds it attributes.

    Raises:
        ConfigError: as ``onnx``; or a feature's name is none of an attribute.
    """
    names, name = context.features, context.name
    wrong = (one for one in names if not IDENTIFIER.fullmatch(one))
    instead = ", or serve to=onnx beside the engine"
    refuse_names(wrong, "an attribute in an expression (to=vespa)", instead)
    values = ", ".join(f"attribute({feature})" for feature in names)
    text = f"""# Into the schema of the documents; {NAME} lies in files/ of the application package.
# A feature is an attribute of its name here: put the expression of yours in its place.
rank-profile {name} {{
    onnx-model {name} {{
        file: files/{NAME}
        input features: features
        output scores: scores
    }}
    function features() {{
        expression: tensor<float>(d0[1],d1[{len(names)}]):[[{values}]]
    }}
    first-phase {{
        expression: nativeRank
    }}
    second-phase {{
        rerank-count: 100
        expression: sum(onnx({name}).scores)
    }}
}}
"""
    graph = onnx(context, by_item=True)
    return replace(graph, files={**graph.files, PROFILE: text})


class _ByItem(nn.Module):
    """``[item, feature]`` to ``[item, 1]``: every item is a list of its own."""

    def __init__(self, ranker: ScorerGraph) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, features: Tensor) -> Tensor:
        mask = torch.ones_like(features[:, :1], dtype=torch.bool)
        scores: Tensor = self.ranker(features[:, None], mask)
        return scores


def traced(model: nn.Module, transform: FeatureTransform, *, by_item: bool = False) -> bytes:
    """The graph of a network behind its transform."""
    if isinstance(model, Ensemble) and any(isinstance(m.model, RoundModel) for m in model.members):
        raise ConfigError(
            "to=onnx: the ensemble has members that are no networks: export them one by one"
        )
    need("onnxscript"), need("onnx")
    ranker = ScorerGraph(model, transform).eval()
    wrapped: nn.Module = _ByItem(ranker) if by_item else ranker
    sizes = {0: torch.export.Dim("batch")}
    example: tuple[Tensor, ...] = (torch.zeros(3, transform.width),)
    if not by_item:
        example = (torch.zeros(2, 3, transform.width), torch.ones(2, 3, dtype=torch.bool))
        sizes[1] = torch.export.Dim("list")
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # of what the exporter does not find: torchvision
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own code
            program: Any = torch.onnx.export(
                wrapped, example, dynamo=True, dynamic_shapes=tuple(sizes for _ in example),
                input_names=["features", "mask"][: len(example)], output_names=["scores"],
                verbose=False,
            )  # fmt: skip
        content: bytes = _cleaned(program.model_proto).SerializeToString()
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"to=onnx: {type(model).__name__} has no graph ({text}): {_INSTEAD}"
        ) from error
    finally:
        logging.disable(level)
    return content


def _cleaned(model: Any) -> Any:
    """``model`` without the exporter's notes, which name files of this machine, and for no items.

    A 0 of a shape that a ``Reshape`` is given is then 0, a list without items: the exporter's
    attention leaves ONNX's default, by which it stands for the input's own size. A shape with a -1
    keeps that: both in one shape are not defined, and nothing is left to infer.
    """
    onnx, graph = need("onnx"), model.graph
    infers = {one.name for one in graph.initializer if -1 in onnx.numpy_helper.to_array(one)}
    for node in graph.node:  # in the order in which they compute
        node.ClearField("doc_string")
        if node.op_type == "Concat" and infers.intersection(node.input):
            infers.update(node.output)
        if node.op_type == "Reshape" and node.input[1] not in infers:
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("allowzero", 1))
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for noted in (model, graph, *graph.node, *values):
        del noted.metadata_props[:]
    return model


def _ensemble(trees: Trees, width: int, *, by_item: bool) -> bytes:
    """A ``TreeEnsembleRegressor`` with float32 thresholds, ``x <= t``."""
    onnx, made = need("onnx"), trees.with_bias()
    counts = [len(tree.feature) for tree in made]
    tree, node = np.repeat(np.arange(len(made)), counts), np.concatenate([*map(np.arange, counts)])
    feature, threshold, left, right, missing_left, value = (
        np.concatenate([getattr(one, name) for one in made])
        for name in ("feature", "threshold", "left", "right", "missing_left", "value")
    )
    leaves = feature < 0
    attributes = {
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(leaves, 0, feature),
        "nodes_values": np.where(leaves, 0, threshold),
        "nodes_modes": np.where(leaves, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": left,
        "nodes_falsenodeids": right,
        "nodes_missing_value_tracks_true": (missing_left & ~leaves).astype(int),
        "target_treeids": tree[leaves],
        "target_nodeids": node[leaves],
        "target_weights": value[leaves],
        "target_ids": np.zeros(leaves.sum(), int),
        "n_targets": np.array(1),
        "aggregate_function": np.array("SUM"),
        "post_transform": np.array("NONE"),
    }
    size, inputs, output, result = "item", "", "float[item, 1]", "scores = Identity(sums)"
    if not by_item:
        size, inputs, output = "batch, list", ", bool[batch, list] mask", "float[batch, list]"
        result = """size = Shape(mask)
            padded = Reshape<allowzero = 1>(sums, size)
            scores = Where(mask, padded, zero)"""
    numbers = f"int64[2] flat = {{-1, {width}}}" + ("" if by_item else ", float[1] zero = {0.0}")
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
        trees (float[{size}, {width}] features{inputs}) => ({output} scores) <{numbers}> {{
            rows = Reshape(features, flat)
            sums = ai.onnx.ml.TreeEnsembleRegressor(rows)
            {result}
        }}""")
    for name, values in sorted(attributes.items()):
        attribute = onnx.helper.make_attribute(name, values.tolist())
        model.graph.node[1].attribute.append(attribute)
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
            f"to=onnx: ONNX Runtime {runtime.__version__} cannot run the graph ({text}): {_INSTEAD}"
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
        _check_padding(scores, mask)
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
        columns=lists.columns,
    )


def try_sizes(folder: Path, lists: Lists, score: Callable[[Lists], Scores]) -> dict[str, Any]:
    """The parity at sizes that ``lists`` may lack, whose scores ``score`` gives.

    Raises:
        ConfigError: they do not agree, or a list of padding alone has scores.
    """
    features = np.zeros((2, 3, lists.width), np.float32)
    mask = np.array([[True, True, False], [False, False, False]])
    (scores,) = session(folder / NAME).run(None, {"features": features, "mask": mask})
    _check_padding(scores, mask)
    sizes, kept = [], ("largest_difference", "largest_difference_of_unit")
    for length, batch in product(_LENGTHS, _BATCHES):
        made = made_lists(lists, length, batch)
        one = parity(made, score(made), _run(folder, made), "to=onnx")
        sizes.append({"length": length, "batch": batch} | {key: one[key] for key in kept})
    return {"sizes": sizes, "bytes": (folder / NAME).stat().st_size}


def _check_padding(scores: Scores, mask: Any) -> None:
    if scores[~mask].any():  # NaN too
        raise ConfigError("to=onnx: padding has scores: report the model's config")
