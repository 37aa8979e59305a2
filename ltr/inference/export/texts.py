"""Write trees and layers in the text formats of Solr, RankLib, Elasticsearch and OpenSearch.

Solr's ``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel`` compute in
float32, and so does ``model/xgboost+json`` in the plugins of Elasticsearch and OpenSearch. RankLib
2.x reads ``LinearRegRank``, which computes in float64, and ``Ensemble``, which adds in float32.
"""

import json
from typing import Any

import numpy as np

from ltr.inference.export.context import ExportContext, Exported, json_text
from ltr.inference.export.forms import Trees, above, fold

_SOLR = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_MARGIN = 1e-4  # relative margin of the shift of trees, for rounding errors of float32 sums


def solr(context: ExportContext) -> Exported:
    """Write Solr's feature store and model.

    Each feature is read from the field with its name. Numbers in trees are texts, as in Solr's own
    examples.
    """
    form, names, notes, params = context.form, context.features, dict[str, Any](), dict[str, Any]()
    if isinstance(form, Trees):
        kind, trees = "MultipleAdditiveTreesModel", form.with_bias()

        def split(row: Any, left: Any, right: Any, *_: int) -> dict[str, Any]:
            limit = str(before_slack(row["threshold"]))
            name = names[row["feature"]]
            return {"feature": name, "threshold": limit, "left": left, "right": right}

        roots = [fold(tree, lambda value, _: {"value": str(value)}, split) for tree in trees]
        params["trees"] = [{"weight": "1.0", "root": root} for root in roots]
    elif form.is_linear:
        kind, weights = "LinearModel", form[0].weight[0]
        params["weights"] = dict(zip(names, weights.tolist(), strict=True))
        notes["score"] = f"the model's score {-float(form[0].bias):+}"
    else:
        kind = "NeuralNetworkModel"
        params["layers"] = [
            {
                "matrix": layer.weight.tolist(),
                "bias": layer.bias.tolist(),
                "activation": type(activation).__name__.lower(),  # Solr's name for it
            }
            for layer, activation in zip(form[::2], form[1::2], strict=True)
        ]
    store, field = dict[str, Any](store=context.name), f"{_SOLR}.feature.FieldValueFeature"
    features = [{**store, "name": n, "class": field, "params": {"field": n}} for n in names]
    known = [{"name": name} for name in names]
    model = {
        **store, "name": context.name, "features": known, "class": f"{_SOLR}.model.{kind}",
        "params": params,
    }  # fmt: skip
    files = {"features.json": json_text(features), "model.json": json_text(model)}
    return context.texts(files, **notes)


def before_slack(threshold: np.float32) -> np.float32:
    """Return the largest float32 that, after Solr has added 1e-6, is at most ``threshold``.

    >>> before_slack(np.float32(0.5)) + np.float32(1e-6)
    np.float32(0.5)
    """
    near = np.float32(threshold - _SLACK)
    while near + _SLACK <= threshold:
        near = np.nextafter(near, np.float32(np.inf))
    while near + _SLACK > threshold:
        near = np.nextafter(near, np.float32(-np.inf))
    return near


def ranklib(context: ExportContext) -> Exported:
    """Write RankLib's text for trees or a linear regression; features are numbered from 1."""
    form = context.form
    if not isinstance(form, Trees):
        numbers = enumerate([float(form[0].bias), *form[0].weight[0].tolist()])  # 0: the bias
        entries = " ".join(f"{i}:{number!r}" for i, number in numbers)
        text = f"## Linear Regression\n## Lambda = 1.0E-10\n{entries}\n"
        return context.texts({"model.txt": text})

    def split(row: Any, left: str, right: str, *_: int) -> str:
        return (
            f"<feature>{row['feature'] + 1}</feature><threshold>{row['threshold']}</threshold>"
            f'<split pos="left">{left}</split><split pos="right">{right}</split>'
        )

    made = form.with_bias()
    lines = [
        f'<tree id="{number}" weight="1.0"><split>'
        f"{fold(tree, '<output>{}</output>'.format, split)}</split></tree>"
        for number, tree in enumerate(made, 1)
    ]
    head = ["## LambdaMART", f"## No. of trees = {len(made)}", "", "<ensemble>"]
    return context.texts({"model.txt": "\n".join([*head, *lines, "</ensemble>", ""])})


def plugin(context: ExportContext) -> Exported:
    """Write the requests that create feature set and model in Elasticsearch and OpenSearch.

    Lucene does not accept scores below 0, so a constant is added to the scores of the trees.
    """
    form, names = context.form, context.features
    shift = max(0.0, -form.least) * (1 + _MARGIN)
    # the plugins treat a feature that matches nothing as missing: for a model that was trained
    # without missing values, this means 0
    notes: dict[str, Any] = {
        "absent_is_zero": context.absent_is_zero,
        "score": f"the model's score {shift:+}",
    }
    features = [
        {
            "name": name,
            "params": [],
            "template_language": "mustache",
            "template": {
                "function_score": {
                    "query": {"match_all": {}},
                    "functions": [{"field_value_factor": {"field": name, "missing": 0.0}}],
                    "boost_mode": "replace",
                }
            },
        }
        for name in names
    ]
    model = {"type": "model/xgboost+json", "definition": _splits(context, form, shift)}
    files = {
        "featureset.json": {"featureset": {"name": context.name, "features": features}},
        "model.json": {"model": {"name": context.name, "model": model}},
    }
    return context.texts({name: json_text(content) for name, content in files.items()}, **notes)


def _splits(context: ExportContext, trees: Trees, shift: float) -> str:
    """Return ``model/xgboost+json``: nested nodes; left if the value is below the condition."""

    def split(row: Any, left: Any, right: Any, node: int, depth: int) -> dict[str, Any]:
        absent_left = row["threshold"] >= 0 if context.absent_is_zero else row["missing_left"]
        return {
            "nodeid": node,
            "depth": depth,
            "split": context.features[row["feature"]],
            "split_condition": float(str(above(row["threshold"]))),  # shortest float32 digits
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": (left if absent_left else right)["nodeid"],
            "children": [left, right],
        }

    def leaf(value: np.float32, node: int) -> dict[str, Any]:
        return {"nodeid": node, "leaf": float(str(value))}

    splits = [fold(tree, leaf, split) for tree in trees.with_bias(shift)]
    return json.dumps({"objective": "rank:ndcg", "splits": splits}, allow_nan=False)
