"""Scores as search engines compute them from the files of an export, by each engine's own rules.

Written from the documentation and sources of Solr 9.x, RankLib 2.x, the Elasticsearch plugin 1.5
and the OpenSearch plugin 3.x; no evaluation is shared with the code that writes the files.

    python -m tests.helpers.export_engines outputs/RUN outputs/OTHER ...
    python -m tests.helpers.export_engines ranklib=RANKLIB outputs/RUN ... [split=test]

print a table and the refusals: a cell is the largest difference of the model's and an exported
form's scores over ``max(1, largest |score| of the list)``. With ``ranklib=``, RankLib's jar or a
folder of its compiled classes (2.10 and later, run by Java 11 and later), its own classes score.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import LTRError
from ltr.inference.export.command import export_model
from ltr.inference.export.context import check_parity
from ltr.inference.export.engines import ENGINES
from ltr.parts.scorer import load_model

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leakyrelu": lambda x: np.where(x < 0, x.dtype.type(0.01) * x, x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
}


def run_layers(layers: Sequence[tuple[Array, Array, str]], values: Array) -> Array:
    """The scores, ``[items]``: term by term, in the precision of ``values``."""
    for weights, bias, activation in layers:
        kind = values.dtype.type
        total = np.broadcast_to(bias.astype(kind), (len(values), len(bias))).copy()
        for column, leaving in zip(values.T, weights.T.astype(kind), strict=True):
            total += column[:, None] * leaving
        values = ACTIVATIONS[activation](total)
    return values[:, 0]


def descend(root: Any, read: Callable[[Any], Any], items: Array, *, strict: bool = False) -> Array:
    """The leaf of each item, ``[items]`` float32; ``strict``: left is ``x < threshold``.

    ``read`` gives the value of a leaf, and of a split its feature, threshold, left and right node,
    and whether a missing value goes left.
    """
    told = read(root)
    if isinstance(told, float):
        return np.full(len(items), told, np.float32)
    feature, threshold, left, right, missing_left = told
    x, limit = items[:, feature], np.float32(threshold)
    goes_left = np.where(np.isnan(x), missing_left, x < limit if strict else x <= limit)
    below, above = (descend(node, read, items, strict=strict) for node in (left, right))
    return np.where(goes_left, below, above)


def restored(scores: Array, described: str) -> Array:
    """The model's own scores of an engine's, as the note ``score`` of the manifest says."""
    shift = float(described.removeprefix("the model's score "))
    return scores.astype(np.float64) - shift


def engine_scores(
    engine: str, files: Mapping[str, str], features: Array, jar: str | None = None
) -> Array:
    """The scores, ``[items]``, that the engine gives to raw ``features`` by the files."""
    if engine == "ranklib":
        text = files["model.txt"]
        return ranklib_scores(jar, text, features) if jar else of_ranklib(text, features)
    model = json.loads(files["model.json"])
    if engine == "solr":
        return of_solr(json.loads(files["features.json"]), model, features)
    store = json.loads(files["featureset.json"])["featureset"]["features"]
    return of_plugin(model["model"]["model"], store, features)


def parity_in_engine(cfg: DictConfig, jar: str | None = None) -> dict[str, Any]:
    """The parity of the engine's scores, by the files of a finished export, with the model's."""
    scorer = load_model(cfg.checkpoint, trust=cfg.trust)
    config = scorer.run_config(
        ["dataset"], data_dir=cfg.data_dir, cache_dir=cfg.cache_dir, trust=cfg.trust
    )
    _, lists = scorer.read(config.dataset, cfg.split)
    files = {path.name: path.read_text() for path in Path(cfg.output).iterdir()}
    found = engine_scores(cfg.to, files, np.asarray(lists.features), jar)
    notes = json.loads(files["manifest.json"])["notes"]
    theirs = restored(found, notes["score"]) if "score" in notes else found
    return check_parity(lists, scorer.scores(lists).numpy(), theirs, f"to={cfg.to}")


def of_ranklib(text: str, features: Array) -> Array:
    """A missing value is 0; trees add in float32, the other in float64."""
    items = np.nan_to_num(features, nan=0.0, posinf=np.inf, neginf=-np.inf)
    first, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("##")]
    if first == "## LambdaMART":
        total = np.zeros(len(items), np.float32)
        for tree in ElementTree.fromstring("".join(lines)).iter("tree"):
            weight = np.float64(np.float32(tree.get("weight", "1")))
            added = descend(tree[0], _xml, items).astype(float) * weight
            total = (total + added).astype(np.float32)
        return total
    assert first == "## Linear Regression"
    weights = {int(k): float(v) for k, v in re.findall(r"(\d+):(\S+)", lines[0])}
    bias = np.array([weights.pop(0)])
    inputs = items.astype(np.float64)[:, [feature - 1 for feature in weights]]
    return run_layers([(np.array([[*weights.values()]]), bias, "identity")], inputs)


def _xml(split: ElementTree.Element) -> Any:
    if split[0].tag != "feature":
        return float(split[0].text or "")
    return int(split[0].text or "") - 1, float(split[1].text or ""), split[2], split[3], False


def of_plugin(model: Mapping[str, Any], store: list[Any], features: Array) -> Array:
    """Float32; a feature that does not match takes the branch of missing ones."""
    assert model["type"] == "model/xgboost+json"
    names = [one["name"] for one in store]
    templates = [one["template"]["function_score"] for one in store]
    fields = [one["functions"][0]["field_value_factor"]["field"] for one in templates]
    columns = dict(zip(dict.fromkeys(fields), np.asarray(features).T, strict=True))
    sent = np.stack([function_score(one, columns) for one in templates], axis=1)
    content, total = json.loads(model["definition"]), np.zeros(len(features), np.float32)

    def read(node: Mapping[str, Any]) -> Any:
        if "leaf" in node:
            return float(node["leaf"])
        children, order = node["children"], [node["yes"], node["no"]]
        assert [child["nodeid"] for child in children] == order, "the plugin refuses them"
        missing_left = node["missing"] == node["yes"]
        return names.index(node["split"]), node["split_condition"], *children, missing_left

    for root in content["splits"]:
        total += descend(root, read, sent, strict=True)
    return total


def function_score(query: Mapping[str, Any], columns: Mapping[str, Array]) -> Array:
    """The score of each document, NaN where the query does not match; none may be below 0."""
    assert query["boost_mode"] == "replace"
    assert query.get("score_mode") == "first"
    items = len(next(iter(columns.values())))
    score = np.ones(items)  # where no function applies
    open_ = np.ones(items, bool)  # no function has applied so far
    for function in query["functions"]:
        applies = open_ & matches(function.get("filter", {"match_all": {}}), columns)
        open_ &= ~applies
        if factor := function.get("field_value_factor"):
            value = np.nan_to_num(columns[factor["field"]], nan=factor.get("missing", np.nan))
            score = np.where(applies, value.astype(float) * factor.get("factor", 1.0), score)
        else:
            score = np.where(applies, function["weight"], score)
    matched = matches(query["query"], columns)
    assert (score[matched] >= 0).all(), "Lucene takes no score below 0, and no missing value"
    return np.where(matched, score, np.nan).astype(np.float32)


def matches(query: Mapping[str, Any], columns: Mapping[str, Array]) -> Array:
    """Which documents a query of a template matches."""
    ((kind, content),) = query.items()
    if kind == "match_all":
        return np.ones(len(next(iter(columns.values()))), bool)
    if kind == "exists":
        return ~np.isnan(columns[content["field"]])
    assert kind == "range"
    ((field, bounds),) = content.items()
    compare = {"gte": np.greater_equal, "lt": np.less}
    return np.all([compare[how](columns[field], limit) for how, limit in bounds.items()], axis=0)


def of_solr(store: list[Any], model: Mapping[str, Any], features: Array) -> Array:
    """Float32; a field that a document lacks is 0; 1e-6 is added to each threshold."""
    raw = np.nan_to_num(np.asarray(features), nan=0.0)
    fields = [one["params"]["field"] for one in store]
    kind, params = model["class"].rpartition(".")[2], model["params"]
    names = [one["name"] for one in model["features"]]
    assert [one["name"] for one in store] == names == fields
    if kind == "LinearModel":
        weights = np.array([[params["weights"][name] for name in names]])
        return run_layers([(weights, np.zeros(1), "identity")], raw)
    if kind == "NeuralNetworkModel":
        layers = [
            (np.array(one["matrix"]), np.array(one["bias"]), one["activation"])
            for one in params["layers"]
        ]
        return run_layers(layers, raw)

    def read(node: Mapping[str, Any]) -> Any:
        if "feature" not in node:
            return float(node["value"])
        threshold = np.float32(node["threshold"]) + np.float32(1e-6)
        return names.index(node["feature"]), threshold, node["left"], node["right"], False

    total = np.zeros(len(raw), np.float32)
    for one in params["trees"]:
        total += np.float32(one["weight"]) * descend(one["root"], read, raw)
    return total


MAIN = """
import ciir.umass.edu.learning.*;
import java.nio.file.*;

public class Score {
    public static void main(String[] args) throws Exception {
        Ranker ranker = new RankerFactory().loadRankerFromFile(args[0]);
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[1])))
            out.append(ranker.eval(new DenseDataPoint(line))).append('\\n');
        Files.writeString(Path.of(args[2]), out.toString());
    }
}
"""


def ranklib_scores(jar: str, text: str, features: Array) -> Array:
    """The scores, ``[items]`` float64, that RankLib itself gives by the model ``text``."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("Score.java", "model.txt", "items", "scores")
        main, model, items, out = (Path(folder) / name for name in names)
        rows = (" ".join(f"{i}:{x!s}" for i, x in enumerate(row, 1)) for row in features)
        main.write_text(MAIN), model.write_text(text)
        items.write_text("".join(f"0 qid:1 {row}\n" for row in rows))
        command = [str(shutil.which("java")), "-XX:TieredStopAtLevel=1", "-cp", jar]
        subprocess.run([*command, *map(str, (main, model, items, out))], check=True)
        return np.array(out.read_text().split(), float)


def main(arguments: list[str]) -> None:
    """Export each run to every engine."""
    runs = [one for one in arguments if "=" not in one]
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    jar = given.pop("ranklib", None)
    options = [f"{key}={value}" for key, value in given.items()]
    rows, refusals, engines = [], dict[str, str](), ("ranklib",) if jar else ENGINES
    for run in runs:
        rows.append([Path(run).name])
        for engine in engines:
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "exported"
                asked = [*options, f"checkpoint={run}", f"to={engine}", f"output={output}"]
                try:
                    call_command(export_model, cfg := typed("export", asked))
                    found = json.loads((output / "parity.json").read_text())
                    if engine not in ("onnx", "vespa", "native"):
                        found = parity_in_engine(cfg, jar)
                    rows[-1].append(f"{found['largest_difference_of_unit']:.1e}")
                except LTRError as error:
                    refusals.setdefault(str(error), Path(run).name)
                    rows[-1].append("refused")
    print(tabulate(rows, ["run", *engines], tablefmt="github", disable_numparse=True))
    for text, run in refusals.items():
        print(f"- {run}: `{text}`")


if __name__ == "__main__":
    main(sys.argv[1:])
