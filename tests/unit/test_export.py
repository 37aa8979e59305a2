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
from torch import nn

import ltr.inference.export.command
import ltr.inference.export.texts
from ltr.boosting import AdaRank, CatBoost, LightGBM, RankBoost
from ltr.cli.cli import call_command
from ltr.data.lists import Columns, Lists
from ltr.data.transforms import (
    FeatureTransform,
    column_range,
    fit_transform,
    no_transform,
    quantile_transform,
)
from ltr.errors import ConfigError
from ltr.inference.export.boosters import convert_trees
from ltr.inference.export.command import build_manifest, export_model
from ltr.inference.export.context import ExportContext, Exported, check_parity
from ltr.inference.export.engines import check_engine
from ltr.inference.export.forms import (
    Layers,
    Trees,
    convert_layers,
    make_leaf,
    make_stump,
    next_above,
    next_below,
    round_down,
)
from ltr.inference.export.graph import TreesGraph, normal_score, transform_features
from ltr.inference.export.onnx import NAME, export_onnx, export_vespa
from ltr.inference.export.texts import (
    export_plugin,
    export_ranklib,
    export_solr,
    threshold_before_slack,
)
from ltr.models import DASALC, MLP, ContextAwareTransformer, Linear
from ltr.models.embeddings import WithEmbeddings
from ltr.parts.ensemble import Ensemble, Member
from ltr.parts.scorer import Scorer
from tests.helpers.export_engines import (
    engine_scores,
    of_ranklib,
    parity_in_engine,
    ranklib_scores,
    restored,
)
from tests.helpers.folders import refused
from tests.helpers.made_columns import COLUMNS, mixed
from tests.helpers.made_lists import make_lists
from tests.helpers.made_trees import after, needed, tensors
from tests.helpers.runs import compose, run


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


def transform_of(shape: str, lists: Lists, **settings: Any) -> FeatureTransform:
    if shape == "quantile":
        return quantile_transform(lists, quantiles=6, noise=0.0, **settings)
    return fit_transform(lists, log=shape, negate=[4], **settings)  # type: ignore[arg-type]


def context(
    lists: Lists,
    converted: Any = None,
    model: Any = None,
    transform: Any = None,
    columns: Any = None,
) -> ExportContext:
    transform = transform or no_transform(lists)
    scorer = Scorer(model or nn.Identity(), transform, columns, {"precision": "float32"})
    lowest, _ = column_range(lists.features)
    return ExportContext("m", scorer, converted, not lists.missing, lowest < 0)


def check_in_engines(converted: Trees | Layers, lists: Lists, expected: Any) -> None:
    """Every text that holds the model scores as ``expected``, in its engine and when read back."""
    export = context(lists, converted)
    exports = [("solr", export_solr(export))]
    if isinstance(converted, Trees) or converted.is_linear:
        exports.append(("ranklib", export_ranklib(export)))
    if isinstance(converted, Trees):
        exports.append(("elasticsearch", export_plugin(export)))
    for engine, exported in exports:
        raw = engine_scores(engine, exported.files, lists.features)
        notes = exported.notes
        title = f"{engine} {notes}"
        scores = restored(raw, notes["score"]) if "score" in notes else raw
        check_parity(lists, expected, scores, title)
        with tempfile.TemporaryDirectory() as folder:
            scores = exported.score(written(exported, Path(folder)), lists)
            check_parity(lists, expected, scores, title)
        if engine == "elasticsearch":
            assert raw.dtype == np.float32
            assert (raw >= 0).all(), "Lucene takes no score below 0"


def written(exported: Any, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in exported.files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_float32_thresholds_split_as_the_librarys_do() -> None:
    random = np.random.default_rng(0)
    exact = np.concatenate(
        [random.normal(size=500) * 10.0 ** random.integers(-6, 6, 500), [0, 1e-35]]
    )
    near = exact.astype(np.float32)
    for values in (near, np.nextafter(near, np.float32(9e9)), np.nextafter(near, np.float32(-9e9))):
        assert ((values <= round_down(exact)) == (values.astype(float) <= exact)).all()
        assert ((values <= next_below(near)) == (values < near)).all()
        assert ((values < next_above(near)) == (values <= near)).all()
        lowered = np.array([threshold_before_slack(threshold) for threshold in near])
        slack = lowered + np.float32(1e-6)  # as Solr adds it
        assert (slack <= near).all()
        assert (np.abs(slack - near) <= np.maximum(2e-13, np.abs(np.spacing(near)))).all()


@pytest.mark.parametrize("shape", ["never", "nonnegative", "skewed", "signed", "quantile"])
@pytest.mark.parametrize("missing", ["mean", "indicator", "keep"])
def test_transform_features_agrees_with_the_transform(shape: str, missing: str) -> None:
    lists = lists_with(missing=True)
    transform = transform_of(shape, lists, missing=missing)
    wide = np.concatenate([lists.features, lists.features * 1e30, lists.features * 0])
    transformed = transform_features(torch.from_numpy(wide), transform).numpy()
    np.testing.assert_allclose(transformed, transform(wide), rtol=3e-7, atol=3e-7)


def test_normal_score_is_exact_up_to_its_ends() -> None:
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
def test_convert_layers_scores_alike_in_every_engine(model: nn.Module) -> None:
    lists = lists_with()
    transform = transform_of("never", lists)
    inputs = torch.from_numpy(transform(lists.features))[None]
    with torch.no_grad():
        expected = model(inputs, torch.ones(1, lists.items, dtype=torch.bool))[0].numpy()
    layers = convert_layers(model, transform)
    exact = layers(torch.from_numpy(lists.features).double())[:, 0].numpy()
    check_parity(lists, expected, exact, "the layers")
    check_in_engines(layers, lists, expected)


def trees() -> Trees:
    """Stumps whose thresholds are values of ``lists_with``, or the next below."""
    random = np.random.default_rng(1)
    values = lists_with().features
    stumps = []
    for number in range(12):
        column = int(random.integers(5))
        threshold = values[random.integers(len(values)), column]
        threshold = next_below(threshold) if number % 2 else threshold
        stumps.append(make_stump(column, float(threshold), *random.normal(size=2)))
    return Trees((*stumps, make_leaf(0.25)), bias=-0.5)


def test_trees_score_alike_in_every_engine_and_absent_features_are_0() -> None:
    lists = lists_with()
    form = trees()
    ours = form.scores(lists.features)
    assert (ours < 0).any()
    check_in_engines(form, lists, ours)
    files = export_plugin(context(lists, form)).files
    is_second = np.arange(5) == 1
    with_zeros = np.where(is_second, lists.features, np.float32(0))
    with_absent = np.where(is_second, lists.features, np.float32(np.nan))
    expected = engine_scores("elasticsearch", files, with_zeros)
    assert (engine_scores("elasticsearch", files, with_absent) == expected).all()


def trees_with_missing_sides() -> Trees:
    """``trees`` of which half send a missing value to the other side than 0."""
    original = trees()
    turned = tuple(tree.copy() for tree in original.trees)
    for tree in turned[::2]:
        tree["missing_left"] ^= True
    return replace(original, trees=turned)


def test_export_plugin_scores_missing_and_negative_values_as_the_trees_do(tmp_path: Path) -> None:
    lists = lists_with(missing=True)
    form = trees_with_missing_sides()
    assert np.isnan(lists.features).any()
    ours = form.scores(lists.features)
    assert not np.allclose(ours, form.scores(np.nan_to_num(lists.features)))
    exported = export_plugin(context(lists, form))
    raw = engine_scores("elasticsearch", exported.files, lists.features)
    check_parity(lists, ours, restored(raw, exported.notes["score"]), "the engine")
    check_parity(lists, ours, exported.score(written(exported, tmp_path), lists), "read back")
    store = json.loads(exported.files["featureset.json"])["featureset"]["features"]
    for feature in store:
        feature["template"]["function_score"]["query"] = {"match_all": {}}  # an absent field is 0
    (tmp_path / "featureset.json").write_text(json.dumps({"featureset": {"features": store}}))
    with pytest.raises(ConfigError, match="do not give the model's scores"):
        check_parity(lists, ours, exported.score(tmp_path, lists), "read back")
    store[0]["template"]["function_score"]["functions"][0].pop("filter")
    (tmp_path / "featureset.json").write_text(json.dumps({"featureset": {"features": store}}))
    assert "f1 has the value -" in refused(lambda: exported.score(tmp_path, lists), ConfigError)


def test_export_solr_and_ranklib_take_missing_values_for_0(tmp_path: Path) -> None:
    lists = lists_with(missing=True)
    form = trees_with_missing_sides()
    for name, write in (("solr", export_solr), ("ranklib", export_ranklib)):
        exported = write(context(lists, form))
        scores = exported.score(written(exported, tmp_path / name), lists)
        check_parity(lists, form.scores(np.nan_to_num(lists.features)), scores, name)
        with pytest.raises(ConfigError, match="do not give the model's scores"):
            check_parity(lists, form.scores(lists.features), scores, name)


def test_export_plugin_refuses_a_feature_with_a_name_that_it_needs() -> None:
    form = Trees((make_stump(0, -1.0, 0.0, 1.0),))
    columns = Columns(("f1", "f1.below_zero", "b", "c", "d"))
    named = context(lists_with(), form, columns=columns)
    assert "rename the column" in refused(lambda: export_plugin(named), ConfigError)


def test_convert_trees_takes_a_missing_value_for_0_in_rankboost() -> None:
    model = RankBoost(2)
    model.content = {
        "features": torch.tensor([0, 1]), "thresholds": torch.tensor([-1.0, 1.0]),
        "alphas": torch.tensor([1.0, 2.0]),
    }  # fmt: skip
    assert {*model.names} == model.content.keys()
    assert convert_trees(model).scores(np.full((1, 2), np.nan, np.float32)).tolist() == [1.0]


@pytest.mark.parametrize("option", ["linear_tree", "zero_as_missing"])
def test_convert_trees_refuses_options_that_no_engine_has(option: str) -> None:
    needed("lightgbm")
    model = LightGBM(2, options={option: True})
    model.booster = "grown"
    assert option in refused(lambda: convert_trees(model), ConfigError)


@pytest.mark.parametrize("fault", ["next_above", "threshold_before_slack"])
def test_check_parity_finds_a_threshold_that_is_one_float_off(fault, monkeypatch) -> None:
    monkeypatch.setattr(ltr.inference.export.texts, fault, lambda threshold: threshold)
    form = trees()
    lists = lists_with()
    with pytest.raises(ConfigError, match="qid q"):
        check_in_engines(form, lists, form.scores(lists.features))


def test_build_manifest_says_how_a_category_is_coded() -> None:
    model = WithEmbeddings(Linear, COLUMNS.codes.tolist())
    export = context(mixed(6), model=model, transform=fit_transform(mixed(6)), columns=COLUMNS)
    exported = Exported({}, lambda folder, lists: lists.labels, "", {"score": "x"})
    manifest = build_manifest("onnx", export, exported, {}, {})
    assert manifest["model"] == "Linear"
    assert manifest["categories"]["shop"] == ["a", "b", "c"]
    assert "1 + the index of its value" in manifest["notes"]["categories"]
    assert manifest["notes"]["score"] == "x"


def test_check_parity_names_the_item_that_differs() -> None:
    lists = make_lists([3, 4])
    scores = np.arange(7, dtype=np.float32) / 7
    near = check_parity(lists, 8 * scores, 8 * scores + 2.0**-18 * (np.arange(7) == 4), "x")
    assert near["largest_difference"] == 2.0**-18
    assert near["largest_difference_of_unit"] == pytest.approx(2.0**-18 / (48 / 7))
    different = scores + np.float32(1e-3) * (np.arange(7) == 4)
    message = refused(lambda: check_parity(lists, scores, different, "to=x"), ConfigError)
    assert "qid q1, item 2 " in message


def test_check_engine_refuses_models_that_an_engine_lacks() -> None:
    lists = lists_with()
    tanh = network("tanh")
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
        ("vespa", tanh, fit_transform(mixed(6)), 0, "train without category columns"),
    ):
        arguments = (engine, model, transform, missing)
        message = refused(lambda arguments=arguments: check_engine(*arguments), ConfigError)
        assert remedy in message
    named = context(lists, trees(), columns=Columns(("f1", "price-usd", "f3", "f4", "f5")))
    assert "'price-usd' cannot be" in refused(lambda: export_vespa(named), ConfigError)
    check_engine("solr", tanh, never)
    check_engine("onnx", tanh, quantile, 3)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_export_model_exports_trees_and_leaves_nothing_of_a_wrong_export(
    library: str, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed(library)
    overrides = [text for text in tiny if not text.startswith(("suggested", "model.", "list_size"))]
    if library == "lightgbm":
        overrides.append("model.min_data_in_leaf=3")
    out = tmp_path / "out"
    out.mkdir()
    settings = compose(*overrides, f"model={library}", "threads=1")
    run(settings, out, {"model": library})
    keys = [f"checkpoint={out}", "threads=1", f"cache_dir={tmp_path}/cache"]

    def export(engine: str) -> None:
        folder = tmp_path / engine
        cfg = compose(*keys, f"to={engine}", f"output={folder}", config="export")
        call_command(export_model, cfg)
        if engine != "native":
            parity_in_engine(cfg)

    export("solr")
    export("opensearch")
    export("native")
    compared = json.loads((tmp_path / "opensearch" / "parity.json").read_text())
    assert compared["missing_values"] == 0
    assert compared["features_below_zero"] == 5
    manifest = json.loads((tmp_path / "solr" / "manifest.json").read_text())
    assert manifest["features"] == ["f1", "f2", "f3", "f4", "f5"]
    assert manifest["sha256"]["data"].keys() >= {"train", "vali", "test"}
    assert refused(lambda: export("solr"), ConfigError).startswith("output=")
    entries = sorted(tmp_path.iterdir())
    real_conversion = ltr.inference.export.command.convert_trees

    def convert_wrongly(model: Any) -> Trees:
        return replace(real_conversion(model), bias=1e-3)

    monkeypatch.setattr(ltr.inference.export.command, "convert_trees", convert_wrongly)
    assert "qid q" in refused(lambda: export("ranklib"), ConfigError)
    assert sorted(tmp_path.iterdir()) == entries, "nothing is left of an export that disagrees"


def grown(model: Any, lists: Lists) -> nn.Module:
    """``model`` after three rounds on ``lists``."""
    model.restore(after(model, tensors(lists), rounds=3).state())
    return model


@pytest.mark.slow
def test_export_onnx_scores_lists_of_any_size_by_networks_and_trees(tmp_path: Path) -> None:
    for library in ("onnxruntime", "onnxscript", "lightgbm", "catboost"):
        needed(library)
    lists = lists_with(missing=True)
    raw = no_transform(lists, missing="keep")
    shaped = transform_of("skewed", lists)
    indicated = transform_of("skewed", lists, missing="indicator")
    torch.manual_seed(1)
    transformer = ContextAwareTransformer(
        indicated.outputs, fc_sizes=[4], blocks=1, feed_forward=4, position="fixed"
    )
    listwise = Ensemble([Member(transformer, indicated, "float32")], [1.0])  # an ensemble in one
    unknown = LightGBM(5, options={"linear_tree": True})
    unknown.booster = "grown"  # it has no graph, and weight 0
    models = [
        (MLP(5, hidden_sizes=[6]), shaped), (Linear(5), shaped), (listwise, raw),
        (grown(AdaRank(5), lists_with()), no_transform(lists)),
        (grown(LightGBM(5, min_data_in_leaf=3), lists), raw),
        (grown(CatBoost(5, depth=2), lists), raw),
        (LightGBM(5), raw),  # without trees: the scores are constant
        (unknown, shaped),
    ]  # fmt: skip
    weights = [0.1, 0.15, 0.2, 0.05, 0.25, 0.15, 0.1, 0.0]
    members = [Member(model, transform, "float32") for model, transform in models]
    ensemble = Ensemble(members, weights).eval()
    check_engine("onnx", ensemble, raw, lists.missing)
    export = context(lists, None, ensemble, raw)
    exported = export_onnx(export)
    folder = written(exported, tmp_path / "mixed")
    assert str(Path.cwd()).encode() not in (folder / NAME).read_bytes()
    sizes = ([1], [1] * 7, [2, 2], [240], [1000], [5, 240, 1], [1, 40, 1, 7])
    for new in (lists, *(replace(make_lists(size, width=5), missing=0) for size in sizes)):
        expected = export.scorer.scores(new).numpy()
        check_parity(new, expected, exported.score(folder, new), f"lists of {new.lengths}")


@pytest.mark.slow
def test_export_onnx_takes_missing_values_as_the_trees_do(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    lists = lists_with(missing=True)
    form = trees()
    export = context(lists, None, TreesGraph(form), no_transform(lists, missing="keep"))
    for by_item in (False, True):
        exported = export_onnx(export, by_item=by_item)
        raw = exported.score(written(exported, tmp_path / f"trees{by_item}"), lists)
        check_parity(lists, form.scores(lists.features), raw, "trees")


@pytest.mark.slow
@pytest.mark.skipif(which("java") is None, reason="Java is not installed")
@pytest.mark.skipif("LTR_RANKLIB" not in os.environ, reason="LTR_RANKLIB names no RankLib")
def test_export_ranklib_is_read_by_ranklib_itself() -> None:
    lists = lists_with()
    linear = convert_layers(Linear(5), no_transform(lists))
    for converted in (trees(), linear):
        text = export_ranklib(context(lists, converted)).files["model.txt"]
        scores = ranklib_scores(os.environ["LTR_RANKLIB"], text, lists.features)
        np.testing.assert_allclose(scores, of_ranklib(text, lists.features), rtol=1e-12)
