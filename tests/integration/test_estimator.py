"""``Ranker``: the numbers of the command line, on the arrays and tables of a program."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltr import Ranker
from ltr.cli.cli import call_command
from ltr.cli.compose import run_config, typed
from ltr.errors import ConfigError, DataError, OutputError
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.lab.analysis.compare import compare
from ltr.models import MLP, Linear
from ltr.ranker import overrides_of
from ltr.training.trainer import Trainer
from tests.helpers.folders import refused, write_folder
from tests.helpers.runs import compose, identity, run

SMALL = {"verbose": 0, "epochs": 2, "batch_size": 5, "list_size": 6, "model.hidden_sizes": [4]}


def rows(lists: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``X``, ``y`` and ``qid`` of lists whose rows are apart; the first column tells the label."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(lists), 5))
    X = rng.normal(size=(len(qid), 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=len(qid)) > 0.5).astype(int), qid


def splits_of(folder: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """``X`` in float64, ``y`` and ``qid`` of train, vali and test of ``letor_folder``."""
    splits = []
    for name in ("train", "vali", "test"):
        text = (folder / "mine" / f"{name}.txt").read_text()
        rows = [re.split(r" qid:| \d+:", line) for line in text.splitlines()]
        labels, qids, *columns = np.array(rows).T
        splits.append((np.array(columns, float).T, labels.astype(float), qids))
    return splits


@pytest.fixture(scope="module")
def fitted() -> Ranker:
    """A small network."""
    return Ranker("mlp", "listnet", **SMALL).fit(*rows())


@pytest.fixture
def data_of(monkeypatch) -> Callable[..., dict]:
    """What a network would be trained on by ``fit`` with these arguments; none is."""
    seen: dict = {}

    def stop(self, data) -> None:
        seen.update(data)
        raise KeyboardInterrupt

    def data(ranker: Ranker, *given, **more) -> dict:
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "fit", stop)
            with pytest.raises(KeyboardInterrupt):
                ranker.fit(*given, **more)
        return seen

    return data


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer", "lightgbm"])
def test_the_numbers_are_those_of_the_command_line(model, letor_folder, tmp_path) -> None:
    network = {"batch_size": 5, "list_size": 6, "model.blocks": 1}
    keys = {"epochs": 2, **(network if model == "transformer" else {})}
    cfg = compose(
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}", "seed=4",
        f"cache_dir={letor_folder}/cache", f"model={model}", *(f"{k}={keys[k]}" for k in keys),
    )  # fmt: skip
    (folder := tmp_path / "run").mkdir()
    run(cfg, folder, {"model": model})
    train, *others = splits_of(letor_folder)
    ranker = Ranker(model, **keys, random_state=4, verbose=0).fit(*train, eval_set=others)
    X, y, qid = others[1]
    kept = RunFolder(folder)
    assert [ranker.results_[s] == kept.results[s] for s in ("vali", "test")] == [True, True]
    assert ranker.predict(X, qid).tolist() == kept.scores.astype(np.float32).tolist()
    assert ranker.score(X, y, qid) == kept.results["ties_averaged"]["test"]["ndcg@5"]
    queries = ranker.evaluate(X, y, qid)
    pd.testing.assert_frame_equal(queries, kept.queries, check_dtype=False)
    assert Ranker.load(folder).predict(X, qid).tolist() == ranker.predict(X, qid).tolist()


@pytest.mark.slow
def test_a_table_gives_the_numbers_of_dataset_table(tmp_path) -> None:
    X, y, qid = rows(40)
    X[::7, 1] = np.nan
    table = pd.DataFrame(X, columns=["text match", "price", "age"])
    table["city"] = np.random.default_rng(0).choice(["rome", "oslo", None], len(table))
    table.assign(query=qid, grade=y).to_parquet(tmp_path / "all.parquet")
    model = ["model=lightgbm", "epochs=3", "model.min_data_in_leaf=2", f"data_dir={tmp_path}"]
    split = "dataset.split={train: all.parquet, test: all.parquet}"
    roles = ["dataset.query=query", "dataset.label=grade", "dataset.categories=[city]"]
    cfg = compose("dataset=table", *roles, split, *model, f"cache_dir={tmp_path}", "dataset.seed=1")
    (folder := tmp_path / "run").mkdir()
    run(cfg, folder, {})
    keys = {"epochs": 3, "verbose": 0, "model.min_data_in_leaf": 2}
    ranker = Ranker("lightgbm", categories=["city"], **keys).fit(table.assign(qid=qid), y)
    assert ranker.results_["vali"] == RunFolder(folder).results["vali"]
    assert ranker.results_["protocol"]["dataset"]["cut"] == 0.2
    assert ranker.feature_names_in_.tolist() == table.columns.tolist()
    declared = table.assign(city=table["city"].astype("category"), qid=qid)
    typed_only = clone(ranker).set_params(categories=None).fit(declared, y)
    assert typed_only.results_["vali"] == ranker.results_["vali"]
    again = Ranker.load(folder)
    assert ranker.predict(table).tolist() == again.predict(declared).tolist()
    with pytest.warns(UserWarning, match="names"), pytest.raises(DataError, match="categories"):
        ranker.predict(table.drop(columns="city").assign(city=1.0).to_numpy())


@pytest.mark.slow
def test_tables_and_arrays_are_the_same_and_columns_are_read_by_name(fitted, data_of) -> None:
    X, y, qid = rows()
    polars, table = pytest.importorskip("polars"), pd.DataFrame(X, columns=list("abc"))
    ranker = clone(fitted).fit(table.assign(qid=qid), y)
    more = table.astype(object).assign(note="not read")[["c", "note", "a", "b"]]
    for given in (table, more, pa.table(table)):
        assert ranker.predict(given).tolist() == fitted.predict(X).tolist()
    with pytest.raises(ValueError, match="now missing:\n- c"):
        ranker.predict(more.drop(columns="c"))
    expected = data_of(clone(fitted), X, y, qid)["train"].features
    frame = polars.DataFrame(X, list("abc"))
    tables = (table, pa.table(table), table.astype(object), pd.DataFrame(X), frame, frame.lazy())
    for given in (csr_matrix(X), X.tolist(), *tables):
        train = data_of(ranker := clone(fitted), given, pd.Series(y), pd.Series(qid))["train"]
        assert torch.equal(train.features, expected)
        assert ranker.n_features_in_ == 3


def test_texts_of_a_table_need_a_role_and_given_columns_have_one(data_of) -> None:
    X, y, qid = rows()
    table = pd.DataFrame(X, columns=list("abc")).assign(query=qid, grade=y, count=1.0)
    shown = table.assign(product=[f"p{i}" for i in range(len(X))], city="oslo")
    asked = Ranker("mlp", categories=["city"])
    assert "how to use product" in refused(lambda: asked.fit(shown, y, qid), DataError)
    for given in (table, X):
        said = refused(lambda given=given: asked.fit(given, y, qid), DataError)
        assert "no column 'city' (dataset.categories)" in said
    numbered = pd.DataFrame(np.column_stack([X, qid, y, np.ones(len(X))]))
    for given, columns in ((table, ["query", "grade", "count"]), (numbered, [3, 4, 5])):
        own, labels, weights = (given[name] for name in columns)
        data_of(ranker := Ranker("mlp"), given, labels, own, sample_weight=weights)
        assert ranker.n_features_in_ == 3
    data_of(ranker, table, y, qid)  # arrays say nothing of columns
    assert ranker.n_features_in_ == 6


# How LightGBM is used, also by PyTerrier (LTRTransformer), and how XGBoost is.
THEIRS = """
ranker = Ranker(random_state=1, **settings)
ranker.fit(X, y, {group}, eval_set=[(X_vali, y_vali)], eval_{group_vali})
scores = ranker.predict(X_test)
"""
SIZES = THEIRS.format(group="group=sizes", group_vali="group=[sizes_vali]")
QIDS = THEIRS.format(group="qid=qid", group_vali="qid=[qid_vali]")
XGBOOST = {"learning_rate": 0.1, "tree_method": "hist", "base_score": 0.0}
XGBOOST |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 32}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
@pytest.mark.parametrize(
    ("code", "line", "settings"),
    [
        (SIZES, "from lightgbm import LGBMRanker as Ranker", {"verbose": -1}),
        (QIDS, "from xgboost import XGBRanker as Ranker", XGBOOST),
        (SIZES, "from xgboost import XGBRanker as Ranker", XGBOOST),
    ],
)
def test_code_for_another_ranker_runs_with_one_other_import(code, line, settings) -> None:
    model = line.split()[1]
    pytest.importorskip(model)
    names = {}
    for split, lists in (("", 40), ("_vali", 10), ("_test", 10)):
        X, y, qid = rows(lists, seed=lists)
        order = np.argsort(qid, kind="stable")
        names |= {f"X{split}": X[order], f"y{split}": y[order], f"qid{split}": qid[order]}
        names[f"sizes{split}"] = np.bincount(qid)
    ours = {"model": model, "epochs": 8, "patience": None, "select": "last", "verbose": 0}
    names["settings"] = {"n_estimators": 8, "n_jobs": 1, **settings}
    exec(f"{line}{code}", theirs := dict(names))
    names["settings"] = {**ours, "threads": 1}
    exec(f"from ltr import Ranker{code}", names)
    assert len({*names["scores"]}) > 4
    assert names["scores"].tolist() == theirs["scores"].astype(np.float32).tolist()


@pytest.mark.slow
def test_sizes_of_groups_are_queries_everywhere(fitted) -> None:
    X, y, qid = rows()
    order = np.argsort(qid, kind="stable")
    X, y, qid, sizes = X[order], y[order], qid[order], [5] * 30
    part = X[:50], y[:50]
    eval_set, eval_group = [(X, y), part], [sizes, sizes[:10]]
    again = clone(fitted).fit(X, y, group=sizes, eval_set=eval_set, eval_group=eval_group)
    other = clone(fitted).fit(X, y, qid, eval_set=[(X, y, qid), (*part, qid[:50])])
    assert again.results_["test"] == other.results_["test"]
    assert again.rank(X, group=sizes).tolist() == other.rank(X, qid).tolist()
    assert again.predict(X, group=sizes).tolist() == other.predict(X).tolist()
    assert again.score(X, y, group=sizes) == other.score(X, y, qid)
    queries = again.evaluate(X, y, group=sizes)
    assert queries.drop(columns="qid").equals(other.evaluate(X, y, qid).drop(columns="qid"))


@pytest.mark.slow
def test_a_column_that_stands_twice_is_refused_everywhere(fitted) -> None:
    X, y, qid = rows()
    table = pd.DataFrame(X, columns=list("abc")).assign(qid=qid)
    ranker = clone(fitted).fit(table, y)
    for twice in ("a", "qid"):
        wrong = pd.concat([table, table[[twice]]], axis=1)
        said = f"two columns are named '{twice}'"
        for action in (ranker.predict, ranker.rank):
            assert said in refused(lambda action=action, wrong=wrong: action(wrong))
        for action in (ranker.score, ranker.evaluate, clone(ranker).fit):
            assert said in refused(lambda action=action, wrong=wrong: action(wrong, y))
        assert said in refused(
            lambda wrong=wrong: clone(ranker).fit(table, y, eval_set=[(wrong, y)])
        )
    assert "named '1'" in refused(
        lambda: ranker.predict(table.set_axis([1, "1", 2, "qid"], axis=1))
    )


@pytest.mark.slow
def test_query_ids_of_an_evaluation_have_the_type_that_was_given(fitted) -> None:
    X, y, qid = rows()
    table = pd.DataFrame(X, columns=list("abc"))
    ranker = clone(fitted).fit(table, y, qid)
    names = pd.DataFrame({"qid": np.arange(30), "name": [f"query {i}" for i in range(30)]})
    queries = ranker.evaluate(table, y, qid)
    assert queries["qid"].tolist() == pd.unique(qid).tolist()
    assert queries.merge(names, on="qid").equals(
        queries.assign(name="query " + queries["qid"].map(str))
    )
    assert ranker.evaluate(table.assign(qid=qid), y)["qid"].equals(queries["qid"])
    dates = pd.Series(pd.Timestamp("2026-01-01") + pd.to_timedelta(qid, "D"))
    for ids in (
        dates,
        dates.astype("category"),
        pd.Series(qid / 4),
        pd.Series(qid).map("{:03}".format),
    ):
        kept = ranker.evaluate(table, y, ids)["qid"]
        assert kept.equals(pd.Series(ids.drop_duplicates().reset_index(drop=True)))
        assert kept.dtype == ids.dtype
    sizes = ranker.evaluate(table, y, group=[5] * 30)["qid"]
    assert sizes.tolist() == list(range(30))
    assert clone(ranker).set_params(one_list=True).fit(table, y).evaluate(table, y)[
        "qid"
    ].tolist() == [0]


def test_a_series_that_names_a_column_has_its_values(data_of) -> None:
    X, y, qid = rows()
    table = pd.DataFrame(X, columns=list("abc")).assign(query=qid, grade=y, weight=1 + qid)
    given = {"y": table["grade"], "qid": table["query"], "sample_weight": table["weight"]}
    other_types = {"y": given["y"].astype(float), "qid": given["qid"].astype(str)}
    for series in (given, given | other_types):
        train = data_of(Ranker("mlp"), table, **series)["train"]
        assert train.features.shape[1] == 3
    for name, column in (("y", "grade"), ("qid", "query"), ("sample_weight", "weight")):
        other = given | {name: given[name] + 1}
        said = refused(lambda other=other: Ranker("mlp").fit(table, **other))
        assert said.startswith(f"{name} has the same name as column '{column}' of X, but different")
    derived = given | {"y": (table["a"] > 0).astype(int)}
    assert "rename the series" in refused(lambda: Ranker("mlp").fit(table, **derived))
    derived["y"] = derived["y"].rename("good")
    assert data_of(Ranker("mlp"), table, **derived)["train"].features.shape[1] == 4


def test_row_numbers_of_pandas_are_no_feature_of_a_table(data_of, tmp_path, caplog) -> None:
    X, y, qid = rows()
    pd.DataFrame(X, columns=list("abc")).assign(qid=qid).to_csv(tmp_path / "a.csv")
    read = pd.read_csv(tmp_path / "a.csv")
    assert data_of(Ranker("mlp"), read, y)["train"].features.shape[1] == 3
    assert "columns without a name are not used as features: 'Unnamed: 0'" in caplog.text
    named = read.rename(columns={"Unnamed: 0": "age"})
    assert data_of(Ranker("mlp"), named, y)["train"].features.shape[1] == 4


@pytest.mark.slow
def test_rows_apart_are_scored_and_ranked_in_their_order(fitted) -> None:
    X, _, qid = rows()
    order = np.argsort(qid, kind="stable")
    scores, ranks = fitted.predict(X, qid), fitted.rank(X, qid)
    assert scores[order].tolist() == fitted.predict(X[order], qid[order]).tolist()
    expected = pd.Series(scores).groupby(qid).rank("first", ascending=False)
    assert ranks.tolist() == expected.tolist()
    assert fitted.rank(np.zeros((3, 3)), [7, 7, 7]).tolist() == [1, 2, 3]  # ties in their order


@pytest.mark.slow
def test_a_model_that_reads_lists_needs_qid_and_reads_positions() -> None:
    X, y, qid = rows()
    keys = {"verbose": 0, "epochs": 1, "model.blocks": 1, "model.feed_forward": 8}
    ranker = Ranker("transformer", "listnet", **keys, **{"model.position": "fixed"})
    shown = np.random.default_rng(1).permutation(len(X))
    ranker.fit(X, y, qid, position=shown, eval_set=[(X, y, qid, shown)])
    for ask in (ranker.predict, ranker.rank):
        assert "enable_metadata_routing=True" in refused(lambda ask=ask: ask(X))
    order = np.argsort(shown)
    scores = ranker.predict(X, qid, position=shown)
    assert np.allclose(scores[order], ranker.predict(X[order], qid[order]))
    assert not np.allclose(scores, ranker.predict(X, qid))
    selected = ranker.results_["vali"]["ndcg@5"]
    assert ranker.score(X, y, qid, position=shown) == selected != ranker.score(X, y, qid)
    queries = ranker.evaluate(X, y, qid, metrics="ndcg@5", position=shown)
    assert queries["ndcg@5"].mean() == pytest.approx(selected)
    alone = X[qid == 3]
    one = ranker.set_params(one_list=True).predict(alone)
    assert one.tolist() == ranker.predict(alone, np.zeros(5)).tolist()


def test_wrong_parameters_and_input_are_one_line_at_fit() -> None:
    X, y, qid = rows(4)
    table, ranker = pd.DataFrame(X, columns=list("abc")), Ranker("mlp")
    vali, misspelt = [(X, y)], clone(Ranker("mlp", **{"model.hiden_sizes": [3]}))
    levels = pd.MultiIndex.from_arrays([qid, range(len(qid))], names=["query", "item"])
    wrong = {
        "model.hiden_sizes: no such key": lambda: misspelt.fit(X, y, qid),
        "vali_fraction=1.5": lambda: Ranker(vali_fraction=1.5).fit(X, y, qid),
        "give only one of them": lambda: ranker.fit(table.assign(qid=qid), y, qid),
        "one_list=True": lambda: ranker.fit(table, y),
        "1 queries are too few": lambda: ranker.fit(X, y, np.ones(len(X))),
        "qid: expected 20 values, one for each row, got 4": lambda: ranker.fit(table, y, [5] * 4),
        "row 3, column 'qid': no query id": lambda: ranker.fit(X, y, [1, 1, None, *qid[3:]]),
        "row 2: label -1": lambda: ranker.fit(X, [0, -1, *y[2:]], qid),
        "give all rows of a query the same weight": lambda: ranker.fit(
            X, y, qid, sample_weight=range(1, 21)
        ),
        "row 2: weight 0": lambda: ranker.fit(X, y, qid, sample_weight=[1, 0] * 10),
        "'qid': the query ids have the type object": lambda: ranker.fit(X, y, [1, "1", *qid[2:]]),
        "how to use d (datetime64": lambda: ranker.fit(
            table.assign(d=pd.Timestamp("2026-01-01")), y, qid
        ),
        "infinite value": lambda: ranker.fit(table.assign(a=np.inf), y, qid),
        "(X, y, qid, position)": lambda: ranker.fit(X, y, qid, eval_set=[X]),
        "one or two tuples": lambda: ranker.fit(X, y, qid, eval_set=[(X, y, qid)] * 3),
        "eval_group or eval_qid": lambda: ranker.fit(X, y, qid, eval_set=vali, eval_group=[]),
        "have no qid": lambda: ranker.fit(X, y, qid, eval_set=[(X, y, qid)], eval_qid=[qid]),
        "group= and qid=": lambda: ranker.fit(X, y, qid, group=[20]),
        "group= and qid= ": lambda: ranker.fit(table.assign(qid=qid), y, group=[20]),
        "add up to 20, the number of rows of X); got the sum 19": lambda: ranker.fit(
            X, y, group=[9, 10]
        ),
        "rows of X); got values that": lambda: ranker.fit(X, y, group=[0, 20]),
        ">= 1 that add up": lambda: ranker.fit(X, y, qid, eval_set=vali, eval_group=[[9.5, 10.5]]),
        "qid=index.get_level_values('query')": lambda: ranker.fit(X, y, levels),
        "y=index.get_level_values('query')": lambda: ranker.fit(X, levels, qid),
    }
    for found, action in wrong.items():
        assert found in refused(action, ValueError)


@pytest.mark.parametrize("one_list", [False, True])
def test_vali_is_whole_queries_and_categories_are_those_of_train_alone(one_list, data_of) -> None:
    X, y, qid = rows()
    seen = data_of(Ranker("mlp"), X, y, qid, sample_weight=1 + qid)
    train, vali = seen["train"], seen["vali"]
    assert (len(train), len(vali)) == (24, 6)
    assert not {*train.qids} & {*vali.qids}
    assert train.weights.tolist() == [1 + int(one) for one in train.qids]
    of_vali = np.isin(qid, vali.qids.astype(int))
    kind = np.where(of_vali, "new", np.where(X[:, 0] > 0, "a", "b"))
    table = pd.DataFrame({"x": X[:, 0], "kind": kind})
    data_of(Ranker("mlp", categories="kind", one_list=one_list), table, y, qid)
    assert seen["train"].features.shape[1] == seen["vali"].features.shape[1] == 2
    assert seen["vali"].features[:, 1].tolist() == [0] * len(seen["vali"].features), "any other"
    assert sorted({*seen["train"].features[:, 1].tolist()}) == [1, 2]


@pytest.mark.slow
def test_a_kept_ranker_is_a_run_folder(tmp_path, letor_folder) -> None:
    train, *others = splits_of(letor_folder)
    for seed in (1, 2):
        ranker = Ranker("mlp", "listnet", **SMALL, random_state=seed)
        ranker.fit(*train, eval_set=others).save(tmp_path / f"kept{seed}")
    X, y, qid = others[1]
    again = Ranker.load(tmp_path / "kept2")
    for copy in (again, pickle.loads(pickle.dumps(ranker))):
        assert copy.predict(X).tolist() == ranker.predict(X).tolist()
        assert (copy.model, copy.loss) == ("mlp", "listnet")
    about_files = "checkpoints_sha256"  # a checkpoint names its data from where it is
    for name in again.results_.keys() - {about_files}:
        assert again.results_[name] == ranker.results_[name], name
    own = [f"data_dir={letor_folder}", f"cache_dir={letor_folder}/cache"]
    asked = [f"checkpoint={tmp_path}/kept2", "dataset=letor", "dataset.folder=mine", *own]
    said = call_command(evaluate_model, typed("evaluate", [*asked, "split=test"]))
    assert f"{ranker.score(X, y, qid):.4f}" in said
    said = call_command(compare, typed("compare", [f"{tmp_path}/kept{i}" for i in (1, 2)]))
    assert re.search("seeds +1 2", said)
    assert "not empty" in refused(lambda: ranker.save(tmp_path / "kept1"), OutputError)


@pytest.mark.slow
def test_searches_and_pipelines_of_scikit_learn() -> None:
    X, y, qid = rows()
    table = pd.DataFrame(X, columns=list("abc")).assign(qid=qid)
    grid = {"optimizer.lr": [1e-3, 0.1]}
    search = GridSearchCV(Ranker("mlp", "listnet", **SMALL), grid, cv=GroupKFold(2))
    search.fit(table, y, groups=qid)  # the column travels with X
    assert search.best_params_ == {"optimizer.lr": 0.1}
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), Ranker("mlp", "listnet", **SMALL))
        pipe.set_params(**{"ranker__optimizer.lr": 0.1})
        routed = {"qid": qid, "groups": qid}
        assert cross_val_score(pipe, X, y, cv=GroupKFold(2), params=routed).min() > 0.7


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_another(tmp_path, tiny) -> None:
    X, y, qid = rows()
    first = Ranker("mlp", "listnet", **SMALL).fit(X, y, qid)
    first.save(tmp_path / "first")
    first.save(tmp_path / "copy")
    keys = {**SMALL, "init_from": tmp_path / "first"}
    later = Ranker("mlp", "listnet", **keys).fit(10 * X, y, qid, eval_set=[(X, y, qid)])
    expected = first.evaluate(X, y, qid)["ndcg@5"].mean()
    assert later.history_["vali_ndcg@5"][0] == pytest.approx(expected, abs=1e-12)
    for changed, width, said in (
        ({"model.hidden_sizes": [8]}, 3, "use the same model and"),
        ({}, 2, "3 features, but the training lists have 2"),
        ({"transform": "none"}, 3, "the transform of that run differs"),
    ):
        other = Ranker("mlp", "listnet", **keys).set_params(**changed)
        assert said in refused(lambda other=other, X=X[:, :width]: other.fit(X, y, qid), ValueError)
    trees = Ranker("lightgbm", init_from=tmp_path / "first")
    assert "boosted trees, AdaRank, PRank and RankBoost cannot start" in refused(
        lambda: trees.fit(X, y, qid), ConfigError
    )
    later.save(tmp_path / "later")
    names = ("first", "copy", "later")  # known by content
    one, same, other = (identity(compose(*tiny, f"init_from={tmp_path}/{name}")) for name in names)
    assert one == same != other


@pytest.mark.slow
def test_it_leaves_no_trace_and_shows_what_is_asked_for(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    X, y, qid = rows()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    Ranker("mlp", "listnet", **SMALL).fit(X, y, qid)
    assert torch.equal(before, torch.get_rng_state())
    assert capfd.readouterr() == ("", "")
    shown = Ranker("linear", "listnet", experiment="recommended", epochs=0, verbose=2)
    assert isinstance(shown.fit(X, y, qid)._scorer.model, Linear)
    shown.set_params(model=None).fit(X, y, qid)  # that of the experiment
    assert isinstance(shown._scorer.model, MLP)
    assert shown._scorer.config["optimizer"]["weight_decay"] == 5
    assert capfd.readouterr().out.count("vali ndcg@5") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_metrics_by_config_and_places_of_a_saved_ranker(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    hits = "def hits(scores, labels, mask): return ((labels > 0) & mask).any(-1).to(scores.dtype)\n"
    config = "_target_: metrics_of_ranker.hits\n"
    write_folder(tmp_path, {"metrics_of_ranker.py": hits, "configs/metric/hits.yaml": config})
    ranker = Ranker("mlp", "listnet", **SMALL, metrics=["hits"]).fit(*rows())
    assert list(ranker.evaluate(*rows()))[-1] == "hits"
    assert 0 <= ranker.score(*rows()) <= 1
    ranker.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"trust=\[MODULE\]"):
        Ranker.load(tmp_path / "saved")
    kept = Ranker.load(tmp_path / "saved", trust=["metrics_of_ranker"])._scorer
    assert Path(kept.config["data_dir"]).resolve() == (tmp_path / "data").resolve()


_OF_QUERIES = "a weight counts a query, where scikit-learn gives each row its own"
# Checks that a Ranker does not pass, with the reason.
EXCEPTIONS = {
    "check_sample_weights_not_overwritten": f"{_OF_QUERIES}; what is given is not changed either",
    "check_dataframe_column_names_consistency": "columns are read by name, as ltr predict does",
    "check_sample_weight_equivalence_on_dense_data": _OF_QUERIES,
    "check_sample_weight_equivalence_on_sparse_data": _OF_QUERIES,
}
# Seconds for all checks: they fit without ``qid``, so all rows are of one query.
CHECKED = Ranker("linear", "listnet", epochs=1, one_list=True, verbose=0, convention="sklearn")


@pytest.mark.slow
@parametrize_with_checks([CHECKED], expected_failed_checks=lambda _: EXCEPTIONS, xfail_strict=True)
def test_scikit_learn(estimator, check) -> None:
    check(estimator)


def test_settings_may_be_numbers_and_arrays_of_numpy() -> None:
    plain = {"gain": [0, 1], "optimizer": {"lr": 0.25}, "model.hidden_sizes": [4], "epochs": 2}
    theirs = {
        "gain": [np.int64(0), np.int64(1)],
        "optimizer": {"lr": np.float32(0.25)},
        "model.hidden_sizes": np.array([4]),
        "epochs": np.int32(2),
        "random_state": np.int64(3),
    }
    given = overrides_of(Ranker("mlp", "neuralndcg", **theirs).get_params())
    assert given == overrides_of(Ranker("mlp", "neuralndcg", random_state=3, **plain).get_params())
    assert run_config(given)[0].gain == [0, 1]


@pytest.mark.slow
def test_a_fraction_of_numpy_splits_as_the_number_does() -> None:
    X, y, qid = rows()
    found = [
        Ranker("mlp", "listnet", vali_fraction=fraction, **SMALL).fit(X, y, qid).results_["vali"]
        for fraction in (0.25, np.float32(0.25))
    ]
    assert found[0] == found[1]
