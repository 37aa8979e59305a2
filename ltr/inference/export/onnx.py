"""Export to ONNX: a model with its feature transform, or an ensemble of such models.

The inputs are the raw ``features`` ``[batch, list, feature]``, float32, and ``mask``
``[batch, list]``, bool, True where an item exists. The output is ``scores`` ``[batch, list]``, 0 on
padding. If ``by_item`` is True, the only input is ``features`` ``[item, feature]``, and ``scores``
are ``[item, 1]``.
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

from ltr.arrays import Floats, Reals
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, need
from ltr.inference.export.context import IDENTIFIER, ExportContext, Exported, score_in_blocks
from ltr.inference.export.forms import Trees
from ltr.inference.export.graph import TreesGraph, build_graph
from ltr.training.evaluation import padded_batches

NAME = "model.onnx"
PROFILE = "rank-profile.sd"
_ITEMS = 1 << 15  # maximum number of items in a batch, including padding


def export_onnx(context: ExportContext, *, by_item: bool = False) -> Exported:
    """Export trees, a network, or an ensemble of them to ONNX.

    Raises:
        ConfigError: a library is missing, or the model cannot be exported.
    """
    content = build_onnx(context.scorer.model, context.scorer.transform, by_item=by_item)
    runtime = need("onnxruntime", "export")
    return Exported({NAME: content}, _score, f"ONNX Runtime {runtime.__version__}")


def export_vespa(context: ExportContext) -> Exported:
    """Export for Vespa: an ONNX graph that scores one item, and a rank profile that calls it.

    The rank profile reads each feature from the attribute with its name.

    Raises:
        ConfigError: a library is missing, or the model or a feature's name cannot be exported.
    """
    names = context.features
    model_name = context.name
    invalid = [name for name in names if not IDENTIFIER.fullmatch(name)]
    if invalid:
        raise ConfigError(
            f"{invalid[0]!r} cannot be the name of a Vespa attribute: use only letters, digits and "
            "_ in the names of columns and train again, or use to=onnx and run the ONNX file in a "
            "separate service"
        )
    values = ", ".join(f"attribute({feature})" for feature in names)
    text = f"""# Put this into the schema of the documents, and {NAME} into files/ of the package.
# Each feature is read from the attribute with its name; you may write another expression instead.
rank-profile {model_name} {{
    onnx-model {model_name} {{
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
        expression: sum(onnx({model_name}).scores)
    }}
}}
"""

    def score(folder: Path, lists: Lists) -> Reals:
        attributes = re.findall(r"attribute\((\w+)\)", (folder / PROFILE).read_text())
        columns = [names.index(attribute) for attribute in attributes]
        return _score_by_item(_open_session(folder), lists, columns)

    graph = export_onnx(context, by_item=True)
    return replace(graph, files={**graph.files, PROFILE: text}, score=score)


def build_onnx(model: nn.Module, transform: FeatureTransform, *, by_item: bool = False) -> bytes:
    """Return the ONNX file of a model with its transform, or of an ensemble.

    Raises:
        ConfigError: a library is missing, or the model cannot be exported.
    """
    script: Any = need("onnxscript", "export")
    passes = need("onnx_ir.passes.common", "export")
    size = (3,) if by_item else (2, 3)
    example = (torch.zeros(*size, transform.width), torch.ones(size, dtype=torch.bool))
    sizes = {i: torch.export.Dim(name) for i, name in enumerate(("batch", "list")[: len(size)])}
    inputs = len(size)  # 2, or 1 (no mask) with by_item
    graph = build_graph(model, transform).eval()
    forests = {
        module.number: module.trees for module in graph.modules() if isinstance(module, TreesGraph)
    }

    def write(items: Any, number: int) -> Any:
        nodes = _tree_attributes(forests[number])
        return script.onnx_opset.opset_ai_onnx_ml3.TreeEnsembleRegressor(items, **nodes)

    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the exporter warns that torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the exporter's own code
            program: Any = torch.onnx.export(
                graph,
                example[:inputs],
                dynamo=True,
                dynamic_shapes=(sizes,) * inputs,
                input_names=["features", "mask"][:inputs],
                output_names=["scores"],
                verbose=False,
                custom_translation_table={torch.ops.ltr.trees.default: write},
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"to=onnx: {type(model).__name__} cannot be written as a graph ({text}): train another "
            "model"
        ) from error
    finally:
        logging.disable(level)
    passes.ClearMetadataAndDocStringPass()(program.model)  # it contains paths on this machine
    return bytes(program.model_proto.SerializeToString())


def _tree_attributes(trees: Trees) -> dict[str, Any]:
    """Return the attributes of a ``TreeEnsembleRegressor`` with splits ``x <= t`` on float64 items.

    The regressor adds the values of leaves in float64, as the tree libraries do.
    """
    onnx = need("onnx", "export")
    forest = trees.with_bias()
    counts = [len(tree) for tree in forest]
    nodes = np.concatenate(forest)
    tree_ids = np.repeat(np.arange(len(forest)), counts)
    node_ids = np.concatenate([np.arange(count) for count in counts])
    leaves = nodes["feature"] < 0
    thresholds = np.where(leaves, 0, nodes["threshold"].astype(np.float64))
    attributes = {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": node_ids,
        "nodes_featureids": np.where(leaves, 0, nodes["feature"]),
        "nodes_modes": np.where(leaves, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": nodes["left"],
        "nodes_falsenodeids": nodes["right"],
        "nodes_missing_value_tracks_true": (nodes["missing_left"] & ~leaves).astype(int),
        "target_treeids": tree_ids[leaves],
        "target_nodeids": node_ids[leaves],
        "target_ids": 0 * tree_ids[leaves],
    }
    tensors = {"nodes_values": thresholds, "target_weights": nodes["value"][leaves]}
    return {
        "n_targets": 1,
        **{name: values.tolist() for name, values in attributes.items()},
        **{
            f"{name}_as_tensor": onnx.numpy_helper.from_array(values)
            for name, values in tensors.items()
        },
    }


def _score(folder: Path, lists: Lists) -> Reals:
    """Compute the scores of all items, ``[items]``, with ONNX Runtime.

    Lists are padded to the longest list of their batch, and a list with only padding is added to
    each batch. Features on padding are NaN, which checks that they are not used.
    """
    session = _open_session(folder)
    if len(session.get_inputs()) == 1:  # by item
        return _score_by_item(session, lists, [*range(lists.width)])
    out = np.empty(lists.items, np.float32)
    for batch in padded_batches(lists, items=_ITEMS):
        one_more_list = ((0, 1), (0, 0))
        rows = np.pad(batch.rows.numpy(), one_more_list)
        mask = np.pad(batch.mask.numpy(), one_more_list)
        features = np.asarray(lists.features)[rows]
        features[~mask] = np.nan
        (scores,) = session.run(None, {"features": features, "mask": mask})
        if scores[~mask].any():  # NaN too
            raise ConfigError(
                "to=onnx: expected the score 0 on padding, got another; report this as a bug, with "
                "the config of the model"
            )
        out[rows[mask]] = scores[mask]
    return out


def _open_session(folder: Path) -> Any:
    """Return an inference session of the graph in ``folder``."""
    runtime = need("onnxruntime", "export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    path = str(folder / NAME)
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _score_by_item(session: Any, lists: Lists, columns: list[int]) -> Reals:
    """Compute the scores of all items from these ``columns`` of the features."""

    def score(rows: Floats) -> Reals:
        (scores,) = session.run(None, {"features": rows[:, columns]})
        return scores[:, 0]

    return score_in_blocks(score, lists)
