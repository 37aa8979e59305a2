"""``ltr export``: exact thresholds and layers, parity, and what an engine cannot hold."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
import torch
from conftest import compose, make_lists
from export_engines import engine_scores, of_ranklib, parity_in_engine, ranklib_scores, restored
from folders import refused
from made_columns import COLUMNS, mixed
from made_trees import after, needed, tensors
from runs import run
from torch import nn

import ltr.inference.export.command
import ltr.inference.export.texts
from ltr.data.lists import Columns, Lists
from ltr.data.transforms import (
    FeatureTransform,
    column_range,
    fit_transform,
    no_transform,
    quantile_transform,
)
from ltr.errors import ConfigError
from ltr.experiment.engines import check_engine
from ltr.inference.export.boosters import trees_of
from ltr.inference.export.command import export_model, manifest
from ltr.inference.export.context import ExportContext, Exported, parity
from ltr.inference.export.forms import Layers, Trees, above, at_most, below, layers_of, leaf, stump
from ltr.inference.export.graph import TreesGraph, normal_score, transformed
from ltr.inference.export.onnx import NAME, onnx, vespa
from ltr.inference.export.texts import before_slack, plugin, ranklib, solr
from ltr.models import DASALC, MLP, ContextAwareTransformer, Linear
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import AdaRank, CatBoost, LightGBM, RankBoost
from ltr.scorers.ensemble import Ensemble, Member
from ltr.scorers.scorer import Scorer


def lists_with(missing: bool = False) -> Lists:
    """Lists of which some columns are never negative, one is constant and one has few values."""
    lists = make_lists([7, 5, 9, 1, 12])
    features = lists.features * 10
    features[:, 1] = np.abs(features[:, 1])
    features[:, 2] = 3
    features[:, 3] = np.round(features[:, 3] / 10)
    if missing:
        features[::5, 1] = np.nan
        features[1::7, 4] = np.nan
    return Lists(features, lists.labels, lists.offsets, lists.qids, missing=int(missing))


def transform_of(shape: str, lists: Lists, **how: Any) -> FeatureTransform:
    if shape == "quantile":
        return quantile_transform(lists, quantiles=6, noise=0.0, **how)
    return fit_transform(lists, log=shape, negate=[4], **how)  # type: ignore[arg-type]


def context(
    lists: Lists, form: Any = None, model: Any = None, transform: Any = None, columns: Any = None
) -> ExportContext:
    transform = transform or no_transform(lists)
    scorer = Scorer(model or nn.Identity(), transform, columns, {"precision": "float32"})
    return ExportContext("m", scorer, form, not lists.missing, column_range(lists.features)[0] < 0)


def in_engines(form: Trees | Layers, lists: Lists, ours: Any) -> None:
    """Every text that holds ``form`` scores in its engine as ``ours``, and by its parity check."""
    given = context(lists, form)
    made = [("solr", solr(given))]
    if isinstance(form, Trees) or form.is_linear:
        made.append(("ranklib", ranklib(given)))
    if isinstance(form, Trees):
        made.append(("elasticsearch", plugin(given)))
    for engine, exported in made:
        raw, notes = engine_scores(engine, exported.files, lists.features), exported.notes
        what = f"{engine} {notes}"
        parity(lists, ours, restored(raw, notes["score"]) if "score" in notes else raw, what)
        with tempfile.TemporaryDirectory() as folder:
            parity(lists, ours, exported.run(written(exported, Path(folder)), lists), what)
        if engine == "elasticsearch":
            assert raw.dtype == np.float32
            assert (raw >= 0).all(), "Lucene takes no score below 0"


def written(exported: Any, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in exported.files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_a_float32_threshold_routes_as_the_librarys_does() -> None:
    random = np.random.default_rng(0)
    exact = np.concatenate(
        [random.normal(size=500) * 10.0 ** random.integers(-6, 6, 500), [0, 1e-35]]
    )
    near = exact.astype(np.float32)
    for values in (near, np.nextafter(near, np.float32(9e9)), np.nextafter(near, np.float32(-9e9))):
        assert ((values <= at_most(exact)) == (values.astype(float) <= exact)).all()
        assert ((values <= below(near)) == (values < near)).all()
        assert ((values < above(near)) == (values <= near)).all()
        slack = np.array([before_slack(t) for t in near]) + np.float32(1e-6)  # as Solr adds it
        assert (slack <= near).all()
        assert (np.abs(slack - near) <= np.maximum(2e-13, np.abs(np.spacing(near)))).all()


@pytest.mark.parametrize("shape", ["never", "nonnegative", "skewed", "signed", "quantile"])
@pytest.mark.parametrize("missing", ["mean", "indicator", "keep"])
def test_the_transform_as_a_graph_is_the_transform(shape: str, missing: str) -> None:
    lists = lists_with(missing=True)
    transform = transform_of(shape, lists, missing=missing)
    wide = np.concatenate([lists.features, lists.features * 1e30, lists.features * 0])
    found = transformed(torch.from_numpy(wide), transform).numpy()
    np.testing.assert_allclose(found, transform(wide), rtol=3e-7, atol=3e-7)


def test_the_normal_score_reaches_its_ends() -> None:
    from scipy.special import ndtri

    levels = np.concatenate([np.linspace(1e-7, 1 - 1e-7, 999), [1e-11, 0.075, 0.925]])
    np.testing.assert_allclose(normal_score(torch.from_numpy(levels)), ndtri(levels), rtol=1e-13)


def network(activation: str, end: str | None = None) -> nn.Module:
    torch.manual_seed(3)
    return MLP(5, hidden_sizes=[6, 4], activation=activation, output_activation=end)


@pytest.mark.parametrize(
    "model",
    [network("tanh"), network("sigmoid", "tanh"), network("tanh", "sigmoid"), Linear(5),
     network("relu"), network("leaky_relu", "tanh")],
    ids=str,
)  # fmt: skip
def test_layers_score_alike_in_every_engine(model: nn.Module) -> None:
    lists = lists_with()
    transform = transform_of("never", lists)
    inputs = torch.from_numpy(transform(lists.features))[None]
    with torch.no_grad():
        ours = model(inputs, torch.ones(1, lists.items, dtype=torch.bool))[0].numpy()
    form = layers_of(model, transform)
    exact = form(torch.from_numpy(lists.features).double())[:, 0].numpy()
    parity(lists, ours, exact, "the layers")
    in_engines(form, lists, ours)


def trees() -> Trees:
    """Stumps whose thresholds are values of ``lists_with``, or the next below."""
    random, values, made = np.random.default_rng(1), lists_with().features, []
    for number in range(12):
        column = int(random.integers(5))
        threshold = values[random.integers(len(values)), column]
        threshold = below(threshold) if number % 2 else threshold
        made.append(stump(column, float(threshold), *random.normal(size=2)))
    return Trees((*made, leaf(0.25)), bias=-0.5)


def test_trees_score_alike_in_every_engine_and_absent_features_are_0() -> None:
    lists, form = lists_with(), trees()
    ours = form.scores(lists.features)
    assert (ours < 0).any()
    in_engines(form, lists, ours)
    given = [np.where(np.arange(5) == 1, lists.features, np.float32(x)) for x in (0, np.nan)]
    files = plugin(context(lists, form)).files
    zeros, absent = (engine_scores("elasticsearch", files, features) for features in given)
    assert (absent == zeros).all()


def trees_with_missing_sides() -> Trees:
    """``trees`` of which half send a missing value to the other side than 0."""
    made = trees()
    turned = tuple(tree.copy() for tree in made.trees)
    for tree in turned[::2]:
        tree["missing_left"] ^= True
    return replace(made, trees=turned)


def test_elasticsearch_scores_missing_and_negative_values_as_the_trees_do(tmp_path: Path) -> None:
    lists, form = lists_with(missing=True), trees_with_missing_sides()
    assert np.isnan(lists.features).any()
    ours = form.scores(lists.features)
    assert not np.allclose(ours, form.scores(np.nan_to_num(lists.features)))
    exported = plugin(context(lists, form))
    raw = engine_scores("elasticsearch", exported.files, lists.features)
    parity(lists, ours, restored(raw, exported.notes["score"]), "the engine")
    parity(lists, ours, exported.run(written(exported, tmp_path), lists), "read back")
    store = json.loads(exported.files["featureset.json"])["featureset"]["features"]
    for feature in store:
        feature["template"]["function_score"]["query"] = {"match_all": {}}  # an absent field is 0
    (tmp_path / "featureset.json").write_text(json.dumps({"featureset": {"features": store}}))
    with pytest.raises(ConfigError, match="does not score as the model does"):
        parity(lists, ours, exported.run(tmp_path, lists), "read back")
    store[0]["template"]["function_score"]["functions"][0].pop("filter")
    (tmp_path / "featureset.json").write_text(json.dumps({"featureset": {"features": store}}))
    assert "f1 sends -" in refused(lambda: exported.run(tmp_path, lists), ConfigError)


def test_solr_and_ranklib_are_checked_with_missing_values_as_0(tmp_path: Path) -> None:
    lists, form = lists_with(missing=True), trees_with_missing_sides()
    for name, write in (("solr", solr), ("ranklib", ranklib)):
        exported = write(context(lists, form))
        scores = exported.run(written(exported, tmp_path / name), lists)
        parity(lists, form.scores(np.nan_to_num(lists.features)), scores, name)
        with pytest.raises(ConfigError, match="does not score as the model does"):
            parity(lists, form.scores(lists.features), scores, name)


def test_a_feature_has_no_name_that_the_feature_set_needs() -> None:
    form = Trees((stump(0, -1.0, 0.0, 1.0),))
    columns = Columns(("f1", "f1.below_zero", "b", "c", "d"))
    named = context(lists_with(), form, columns=columns)
    assert "rename the column" in refused(lambda: plugin(named), ConfigError)


def test_a_missing_value_is_0_to_rankboost() -> None:
    model = RankBoost(2)
    model.content = {
        "features": torch.tensor([0, 1]), "thresholds": torch.tensor([-1.0, 1.0]),
        "alphas": torch.tensor([1.0, 2.0]),
    }  # fmt: skip
    assert {*model.names} == model.content.keys()
    assert trees_of(model).scores(np.full((1, 2), np.nan, np.float32)).tolist() == [1.0]


@pytest.mark.parametrize("option", ["linear_tree", "zero_as_missing"])
def test_trees_that_no_engine_has_are_refused(option: str) -> None:
    needed("lightgbm")
    model = LightGBM(2, options={option: True})
    model.booster = "grown"
    assert option in refused(lambda: trees_of(model), ConfigError)


@pytest.mark.parametrize("fault", ["above", "before_slack"])
def test_a_threshold_that_is_one_float_off_is_found(fault, monkeypatch) -> None:
    monkeypatch.setattr(ltr.inference.export.texts, fault, lambda threshold: threshold)
    form, lists = trees(), lists_with()
    with pytest.raises(ConfigError, match="qid q"):
        in_engines(form, lists, form.scores(lists.features))


def test_the_manifest_says_how_a_category_is_coded() -> None:
    model = WithEmbeddings(Linear, COLUMNS.codes.tolist())
    given = context(mixed(6), model=model, transform=fit_transform(mixed(6)), columns=COLUMNS)
    exported = Exported({}, lambda folder, lists: lists.labels, "", {"score": "x"})
    told = manifest("onnx", given, exported, {}, {})
    assert (told["model"], told["categories"]["shop"]) == ("Linear", ["a", "b", "c"])
    assert "1 + the place of its value" in told["notes"]["categories"]
    assert told["notes"]["score"] == "x"


def test_parity_finds_what_differs_and_names_it() -> None:
    lists, ours = make_lists([3, 4]), np.arange(7, dtype=np.float32) / 7
    near = parity(lists, 8 * ours, 8 * ours + 2.0**-18 * (np.arange(7) == 4), "x")
    assert near["largest_difference"] == 2.0**-18
    assert near["largest_difference_of_unit"] == pytest.approx(2.0**-18 / (48 / 7))
    other = ours + np.float32(1e-3) * (np.arange(7) == 4)
    assert "qid q1 item 2 " in refused(lambda: parity(lists, ours, other, "to=x"), ConfigError)


def test_what_an_engine_cannot_hold_is_refused_with_all_reasons() -> None:
    lists, tanh = lists_with(), network("tanh")
    never, signed, quantile = (
        transform_of(shape, lists) for shape in ("never", "signed", "quantile")
    )
    indicated = transform_of("never", lists_with(missing=True), missing="indicator")
    for engine, model, transform, missing, remedy in (
        ("solr", ContextAwareTransformer(5, fc_sizes=[4], heads=2), None, 0, "model=mlp"),
        ("solr", network("gelu"), None, 0, "model.activation=relu"),
        ("elasticsearch", network("relu"), None, 0, "model=lightgbm"),
        ("solr", MLP(5, hidden_sizes=[4], input_norm=True), None, 0, "input_norm"),
        ("ranklib", tanh, None, 0, "to=onnx"),
        ("ranklib", Linear(5, output_activation="tanh"), None, 0, "output_activation=null"),
        ("native", tanh, None, 0, "to=onnx"),
        ("vespa", DASALC(5, hidden_sizes=[4]), None, 0, "to=onnx"),
        ("lucene", tanh, None, 0, "solr"),
        ("ranklib", Linear(5), signed, 0, "transform=standardise"),
        ("solr", tanh, signed, 0, "transform=standardise"),
        ("solr", tanh, quantile, 0, "transform=standardise"),
        ("solr", tanh, never, 3, "to=onnx"),
        ("onnx", RankBoost(5), signed, 0, "transform=none"),
        (
            "onnx",
            Ensemble([Member(RankBoost(5), signed, "float32")], [1.0]),
            never,
            0,
            "its member RankBoost",
        ),
        ("ranklib", Linear(5), indicated, 0, "mean"),
        ("vespa", tanh, fit_transform(mixed(6)), 0, "leave these columns out of the table"),
    ):
        given = (engine, model, transform, missing)
        assert remedy in refused(lambda given=given: check_engine(*given), ConfigError)
    named = context(lists, trees(), columns=Columns(("f1", "price-usd", "f3", "f4", "f5")))
    assert "'price-usd' is" in refused(lambda: vespa(named), ConfigError)
    check_engine("solr", tanh, never)
    check_engine("onnx", tanh, quantile, 3)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_boosted_trees_go_to_engines_and_a_fault_leaves_nothing(
    library: str, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed(library)
    own = [one for one in tiny if not one.startswith(("suggested", "model.", "list_size"))]
    own += ["model.min_data_in_leaf=3"] * (library == "lightgbm")
    (out := tmp_path / "out").mkdir()
    settings = compose(*own, f"model={library}", "threads=1")
    run(settings, out, {"model": library})
    given = [f"checkpoint={out}", "threads=1", f"cache_dir={tmp_path}/cache"]

    def export(engine: str) -> None:
        folder = tmp_path / engine
        cfg = compose(*given, f"to={engine}", f"output={folder}", config="export")
        export_model(cfg)
        if engine != "native":
            parity_in_engine(cfg)

    export("solr"), export("opensearch"), export("native")
    compared = json.loads((tmp_path / "opensearch" / "parity.json").read_text())
    assert compared["missing_values"] == 0
    assert compared["features_below_zero"] == 5
    told = json.loads((tmp_path / "solr" / "manifest.json").read_text())
    assert told["features"] == ["f1", "f2", "f3", "f4", "f5"]
    assert told["sha256"]["data"].keys() >= {"train", "vali", "test"}
    assert refused(lambda: export("solr"), ConfigError).startswith("output=")
    before = sorted(tmp_path.iterdir())
    found = ltr.inference.export.command.trees_of
    wrong = lambda *given, **how: replace(found(*given, **how), bias=1e-3)  # noqa: E731
    monkeypatch.setattr(ltr.inference.export.command, "trees_of", wrong)
    assert "qid q" in refused(lambda: export("ranklib"), ConfigError)
    assert sorted(tmp_path.iterdir()) == before, "nothing is left of an export that disagrees"


@pytest.mark.slow
def test_onnx_scores_lists_of_any_size(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    lists = lists_with(missing=True)
    transform = transform_of("skewed", lists, missing="indicator")
    model = ContextAwareTransformer(
        transform.outputs, fc_sizes=[4], blocks=1, feed_forward=4, position="fixed"
    ).eval()
    given = context(lists, model=model, transform=transform)
    folder = written(exported := onnx(given), tmp_path / "network")
    assert str(Path.cwd()).encode() not in (folder / NAME).read_bytes()
    for sizes in ([1], [1] * 7, [2, 2], [240], [1000], [5, 240, 1]):
        made = replace(make_lists(sizes, width=lists.width), missing=0)
        ours = given.scorer.scores(made).numpy()
        parity(made, ours, exported.run(folder, made), f"lists of {sizes}")


def grown(model: Any, lists: Lists) -> nn.Module:
    """``model`` after three rounds on ``lists``."""
    model.take(after(model, tensors(lists), rounds=3).state())
    return model


@pytest.mark.slow
def test_onnx_of_an_ensemble_mixes_networks_and_trees(tmp_path: Path) -> None:
    for library in ("onnxruntime", "onnxscript", "lightgbm", "catboost"):
        needed(library)
    lists = lists_with(missing=True)
    raw, shaped = no_transform(lists, missing="keep"), transform_of("skewed", lists)
    indicated = transform_of("never", lists, missing="indicator")
    torch.manual_seed(1)
    transformer = ContextAwareTransformer(indicated.outputs, fc_sizes=[4], blocks=1, feed_forward=4)
    listwise = Ensemble([Member(transformer, indicated, "float32")], [1.0])  # an ensemble in one
    unknown = LightGBM(5, options={"linear_tree": True})
    unknown.booster = "grown"  # it has no graph, and weight 0
    parts = [
        (MLP(5, hidden_sizes=[6]), shaped), (Linear(5), shaped), (listwise, raw),
        (grown(AdaRank(5), lists_with()), no_transform(lists)),
        (grown(LightGBM(5, min_data_in_leaf=3), lists), raw),
        (grown(CatBoost(5, depth=2), lists), raw),
        (LightGBM(5), raw),  # without trees: the scores are constant
        (unknown, shaped),
    ]  # fmt: skip
    weights = [0.1, 0.15, 0.2, 0.05, 0.25, 0.15, 0.1, 0.0]
    ensemble = Ensemble([Member(*part, "float32") for part in parts], weights).eval()
    check_engine("onnx", ensemble, raw, lists.missing)
    given = context(lists, None, ensemble, raw)
    folder = written(exported := onnx(given), tmp_path / "mixed")
    for made in (lists, replace(make_lists([1, 40, 1, 7], width=5), missing=0)):
        ours = given.scorer.scores(made).numpy()
        parity(made, ours, exported.run(folder, made), "the ensemble")


@pytest.mark.slow
def test_onnx_of_trees_takes_missing_values_as_they_do(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    lists, form = lists_with(missing=True), trees()
    given = context(lists, None, TreesGraph(form), no_transform(lists, missing="keep"))
    for by_item in (False, True):
        exported = onnx(given, by_item=by_item)
        raw = exported.run(written(exported, tmp_path / f"trees{by_item}"), lists)
        parity(lists, form.scores(lists.features), raw, "trees")


@pytest.mark.slow
@pytest.mark.skipif(which("java") is None, reason="Java is not installed")
@pytest.mark.skipif("LTR_RANKLIB" not in os.environ, reason="LTR_RANKLIB names no RankLib")
def test_ranklib_itself_reads_what_it_is_given() -> None:
    lists = lists_with()
    linear = layers_of(Linear(5), no_transform(lists))
    for one in (trees(), linear):
        text = ranklib(context(lists, one)).files["model.txt"]
        found = ranklib_scores(os.environ["LTR_RANKLIB"], text, lists.features)
        np.testing.assert_allclose(found, of_ranklib(text, lists.features), rtol=1e-12)
