"""Export to ONNX: a model with its feature transform, or an ensemble of such models.

The inputs are the raw ``features`` ``[batch, list, feature]``, float32, and ``mask``
``[batch, list]``, bool, True where an item exists. The output is ``scores`` ``[batch, list]``, 0 on
padding. With ``by_item``, the only input is ``features`` ``[item, feature]``, and ``scores`` are
``[item, 1]``.
"""

import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ltr.arrays import Reals
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, need
from ltr.inference.export.context import IDENTIFIER, ExportContext, Exported, by_rows
from ltr.inference.export.forms import Trees
from ltr.inference.export.graph import TreesGraph, graph_of
from ltr.training.evaluation import padded_batches

NAME, PROFILE = "model.onnx", "rank-profile.sd"
_ITEMS = 1 << 15  # largest number of items in a batch, including padding


def onnx(context: ExportContext, *, by_item: bool = False) -> Exported:
    """Export trees, a network, or an ensemble of them to ONNX.

    Raises:
        ConfigError: a library is missing, or the model cannot be exported.
    """
    content = traced(context.scorer.model, context.scorer.transform, by_item=by_item)
    return Exported(
        {NAME: content}, _run, f"ONNX Runtime {need('onnxruntime', 'export').__version__}"
    )


def vespa(context: ExportContext) -> Exported:
    """Export for Vespa: an ONNX graph that scores one item, and a rank profile that calls it.

    The rank profile reads each feature from the attribute with its name.

    Raises:
        ConfigError: a library is missing, or the model or a feature's name cannot be exported.
    """
    names, name = context.features, context.name
    if wrong := [one for one in names if not IDENTIFIER.fullmatch(one)]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of an attribute of Vespa: name the columns by letters, "
            "digits and _, and train again, or serve to=onnx beside the engine"
        )
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

    def run(folder: Path, lists: Lists) -> Reals:
        read = re.findall(r"attribute\((\w+)\)", (folder / PROFILE).read_text())
        columns = [names.index(attribute) for attribute in read]
        return _by_item(_session(folder), lists, columns)

    graph = onnx(context, by_item=True)
    return replace(graph, files={**graph.files, PROFILE: text}, run=run)


def traced(model: nn.Module, transform: FeatureTransform, *, by_item: bool = False) -> bytes:
    """Return the ONNX file of a model with its transform, or of an ensemble."""
    script: Any = need("onnxscript", "export")
    passes = need("onnx_ir.passes.common", "export")
    size = (3,) if by_item else (2, 3)
    example = (torch.zeros(*size, transform.width), torch.ones(size, dtype=torch.bool))
    sizes = {i: torch.export.Dim(name) for i, name in enumerate(("batch", "list")[: len(size)])}
    inputs = len(size)  # 2, or 1 (no mask) with by_item
    graph = graph_of(model, transform).eval()
    forests = {one.number: one.trees for one in graph.modules() if isinstance(one, TreesGraph)}

    def write(items: Any, number: int) -> Any:
        nodes = _nodes(forests[number])
        return script.onnx_opset.opset_ai_onnx_ml3.TreeEnsembleRegressor(items, **nodes)

    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the exporter warns that torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the exporter's own code
            program: Any = torch.onnx.export(
                graph, example[:inputs], dynamo=True,
                dynamic_shapes=(sizes,) * inputs, input_names=["features", "mask"][:inputs],
                output_names=["scores"], verbose=False,
                custom_translation_table={torch.ops.ltr.trees.default: write},
            )  # fmt: skip
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"to=onnx: {type(model).__name__} has no graph ({text}): train another model"
        ) from error
    finally:
        logging.disable(level)
    passes.ClearMetadataAndDocStringPass()(program.model)  # it contains paths on this machine
    return bytes(program.model_proto.SerializeToString())


def _nodes(trees: Trees) -> dict[str, Any]:
    """Return the attributes of a ``TreeEnsembleRegressor`` with splits ``x <= t`` on float64 items.
    It adds the values of leaves in float64, as the libraries do.
    """
    onnx, made = need("onnx", "export"), trees.with_bias()
    counts, nodes = [*map(len, made)], np.concatenate(made)
    tree, node = np.repeat(np.arange(len(made)), counts), np.concatenate([*map(np.arange, counts)])
    leaves = nodes["feature"] < 0
    thresholds = np.where(leaves, 0, nodes["threshold"].astype(np.float64))
    attributes = {
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(leaves, 0, nodes["feature"]),
        "nodes_modes": np.where(leaves, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": nodes["left"],
        "nodes_falsenodeids": nodes["right"],
        "nodes_missing_value_tracks_true": (nodes["missing_left"] & ~leaves).astype(int),
        "target_treeids": tree[leaves],
        "target_nodeids": node[leaves],
        "target_ids": 0 * tree[leaves],
    }
    tensors = {"nodes_values": thresholds, "target_weights": nodes["value"][leaves]}
    return {
        "n_targets": 1,
        **{name: values.tolist() for name, values in attributes.items()},
        **{f"{k}_as_tensor": onnx.numpy_helper.from_array(v) for k, v in tensors.items()},
    }


def _run(folder: Path, lists: Lists) -> Reals:
    """Compute the scores of all items, ``[items]``, with ONNX Runtime.

    Lists are padded to the longest of their batch, and each batch has one more list that is only
    padding. Padded features are NaN, to check that they are not used.
    """
    session = _session(folder)
    if len(session.get_inputs()) == 1:  # by item
        return _by_item(session, lists, [*range(lists.width)])
    out = np.empty(lists.items, np.float32)
    for batch in padded_batches(lists, items=_ITEMS):
        rows, mask = (np.pad(one.numpy(), ((0, 1), (0, 0))) for one in (batch.rows, batch.mask))
        features = np.asarray(lists.features)[rows]
        features[~mask] = np.nan
        (scores,) = session.run(None, {"features": features, "mask": mask})
        if scores[~mask].any():  # NaN too
            raise ConfigError("to=onnx: padding has scores: report the model's config")
        out[rows[mask]] = scores[mask]
    return out


def _session(folder: Path) -> Any:
    """Return an inference session of the graph in ``folder``."""
    runtime = need("onnxruntime", "export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    path = str(folder / NAME)
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _by_item(session: Any, lists: Lists, columns: list[int]) -> Reals:
    """Compute the scores of all items from these ``columns`` of the features."""
    return by_rows(lambda rows: session.run(None, {"features": rows[:, columns]})[0][:, 0], lists)
