"""``ltr explain``: parts of scores add up, items are left out."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import ltr.inference.explain.importances
from ltr.boosting import AdaRank
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.data.lists import Columns
from ltr.data.transforms import fit_transform
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.command import attributions_block, explain_list, items_block
from ltr.inference.explain.effects import attribute_scores, leave_one_out
from ltr.inference.explain.importances import importances
from ltr.inference.explain.subject import ExplainedList
from ltr.parts.scorer import Scorer
from tests.helpers.folders import refused
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import train


class Compared(nn.Module):
    """An item's own sum less the mean of the list's, of which each item is a part."""

    def __init__(self, weights: list[float], mean: list[float]) -> None:
        super().__init__()
        self.own_weights = nn.Parameter(torch.tensor(weights))
        self.mean_weights = nn.Parameter(torch.tensor(mean))
        self.pointwise = not any(mean)

    def forward(self, features, mask, ranks=None):
        means = (features @ self.mean_weights).masked_fill(~mask, 0).sum(-1) / mask.sum(-1)
        return (features @ self.own_weights - means[:, None]).masked_fill(~mask, 0)


def explained_list(model: nn.Module, *, missing: bool = False) -> ExplainedList:
    """The second of four lists of six items with three features, explained by ``model``."""
    lists = make_lists([6, 6, 6, 6], width=3)
    if missing:
        lists.features[::2, 1] = np.nan
        lists = replace(lists, missing=12)
    transform = fit_transform(lists, missing="indicator" if missing else "mean")
    names = Columns(("a", "b", "c"))
    scorer = Scorer(model.eval(), transform, names, {"precision": "float32"})
    items = [f"item {row}" for row in range(1, 7)]
    return ExplainedList(scorer, "made, vali", lists.subset(np.array([1])), items, chosen=[4, 0])


@pytest.mark.parametrize("named", [True, False])
def test_importances_names_indicators_of_missing_values(named, monkeypatch, tmp_path) -> None:
    lists = make_lists([6, 6], width=3)
    lists.features[::2, 1] = np.nan
    transform = fit_transform(replace(lists, missing=6), missing="indicator")
    model = AdaRank(transform.outputs)
    model.content = {"features": np.array([3, 1]), "alphas": np.array([2.0, 1.0])}
    columns = Columns(("a", "b", "c")) if named else None
    scorer = Scorer(model, transform, columns, {"precision": "float32"})
    monkeypatch.setattr(ltr.inference.explain.importances, "load_model", lambda _: scorer)
    lines = call_command(
        importances, typed("importances", ["run", f"write={tmp_path}"])
    ).splitlines()
    name = "b" if named else "2"
    assert f"{name} (is missing) " in lines[3]
    assert lines[4].split()[:2] == (["2", "b"] if named else ["2", "0.3333"])
    table = pd.read_csv(tmp_path / "importances.csv")
    assert table["feature"].tolist() == [2, 2, 1, 3]
    assert table["indicator"].tolist() == [True, False, False, False]


def test_attribute_scores_adds_up_to_the_scores() -> None:
    weights = [1.0, -2.0, 0.5]
    mean = [3.0, 0.0, -1.0]
    explained = explained_list(Compared(weights, mean))
    attributions = attribute_scores(explained)
    features = explained.tensors.features.numpy()
    centred = features - features.mean(0)
    expected = centred[explained.items] * (np.array(weights) - np.array(mean) / 6)
    np.testing.assert_allclose(attributions.values, expected, atol=1e-5)
    other_items = np.tile(-(centred @ np.array(mean)) / 6, (2, 1))
    other_items[[0, 1], explained.items] = 0
    np.testing.assert_allclose(attributions.other_items, other_items.sum(-1), atol=1e-5)
    scores = explained.scores[explained.items]
    np.testing.assert_allclose(attributions.sums, scores, atol=1e-5)
    tiny = attributions._replace(values=attributions.values * 1e-9)
    rows = attributions_block(explained, tiny).rows
    assert not any("0.000" in text for row in rows[:3] for text in row)
    near = replace(explained, chosen=[1, 0])
    vars(near)["scores"] = np.array([1, 1 - 2**-24, 1, 1, 1, 1], np.float32)  # saturated
    block = items_block(near)
    assert [row[3] for row in block.rows] == ["1.0", "0.99999994"]
    assert "; 2 different scores" in block.note
    pointwise = attribute_scores(explained_list(Compared(weights, [0.0, 0.0, 0.0])))
    assert pointwise.other_items.tolist() == [0, 0]


def test_attribute_scores_adds_an_indicator_to_its_feature() -> None:
    explained = explained_list(Compared([0.0, 0.0, 0.0, 2.0], [0.0] * 4), missing=True)
    values = attribute_scores(explained).values
    assert values.shape == (2, 3)
    assert (values[:, [0, 2]] == 0).all()
    assert np.abs(values[:, 1]).min() > 0.1


def test_leave_one_out_scores_the_list_without_an_item() -> None:
    class Against(nn.Module):
        """The score depends on the item before it in the list."""

        def forward(self, features, mask, ranks=None):
            return features[..., 0] * (1 + features[..., 1].roll(1, -1))

    explained = explained_list(Against())
    changes = leave_one_out(explained, items=11)  # one list of five in a batch
    features = explained.tensors.features.numpy()
    for removed in range(6):
        remaining = np.delete(np.arange(6), removed)
        factors = 1 + np.roll(features[remaining, 1], 1)
        scores = pd.Series(features[remaining, 0] * factors, remaining)
        for row, item in enumerate(explained.items):
            if removed == item:
                assert np.isnan(changes[row, removed])
                continue
            expected = scores[item] - explained.scores[item]
            assert changes[row, removed] == pytest.approx(expected, abs=1e-5)


def test_attribute_scores_without_captum_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    explained = explained_list(Compared([1.0] * 3, [0.0] * 3))
    message = refused(lambda: attribute_scores(explained), ConfigError)
    assert "pip install 'ltr-torch[explain]'" in message


def test_explain_reads_a_query_id_as_text() -> None:
    assert typed("explain", ["outputs/x", "qid=007"]).qid == "007"
    assert typed("explain", ["qid=1", "items=1,2"])["items"] == ["1", "2"]


@pytest.mark.slow
def test_explain_shows_categories_ids_and_new_files(tmp_path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"search": np.repeat(np.arange(30), 5), "price": rng.normal(size=150)})
    table["brand"] = rng.choice(["acme", "zeta"], 150)
    table["sku"] = [f"P-{row}" for row in range(150)]
    table["grade"] = (table["brand"] == "acme").astype(int)
    table.sample(frac=1, random_state=0, ignore_index=True).to_parquet(tmp_path / "all.parquet")
    table.drop(columns="grade").replace("zeta", "new").to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "run"
    train(
        out, "dataset=table", "dataset.query=search", "dataset.label=grade",
        "dataset.id=[sku]", "dataset.categories=[brand]", "dataset.path=all.parquet", "model=mlp",
        "loss=listnet", "batch_size=4", "epochs=5", "threads=1", f"data_dir={tmp_path}",
        f"cache_dir={tmp_path}/cache",
    )  # fmt: skip
    qid = RunFolder(out).queries.qid[0]

    def explained(qid: str, *more: str) -> tuple[str, pd.DataFrame]:
        arguments = [
            str(out),
            f"cache_dir={tmp_path}/cache",
            f"output={tmp_path}/page",
            f"qid={qid}",
        ]
        text = call_command(explain_list, typed("explain", [*arguments, *more]))
        return text, pd.read_csv(tmp_path / "page" / "parts_of_scores.csv")

    text, parts = explained(qid, "split=test")
    assert re.search(r"model +MLP\n", text)
    items = table[table["search"].astype(str) == qid].set_index("sku")
    brands = parts[parts.feature == "brand"].set_index("id")
    assert (brands["part"] > 0).to_dict() == (items["brand"] == "acme").to_dict()
    assert all(sku in text for sku in items.index)
    assert "item 1" not in text
    text, parts = explained("17", f"input={tmp_path}/new.csv")
    assert text.startswith(f"list 17 of {tmp_path}/new.csv\n")
    assert not re.search("label|all other features", text), "it has none"
    assert "/new.csv split=vali qid=17\n" in (tmp_path / "page/page.md").read_text()
    new = table[table["search"] == 17].set_index("sku")
    brands = parts[parts.feature == "brand"].set_index("id")
    assert (brands["part"] > 0).to_dict() == (new["brand"] == "acme").to_dict()
    (tmp_path / "new.txt").write_text("qid:1 1:0.5 2:1\n")
    for wrong, key in (
        (("99", "split=test"), "qid=99"),
        ((qid, "split=test", "items=6"), "items=6"),
        (("1", f"input={tmp_path}/new.txt"), "use a table"),
    ):
        assert key in refused(lambda wrong=wrong: explained(*wrong), ConfigError)


@pytest.mark.slow
def test_explain_names_items_by_the_comments_of_letor_text(tiny, letor_folder, tmp_path) -> None:
    for split in ("train", "vali", "test"):
        path = letor_folder / "mine" / f"{split}.txt"
        lines = path.read_text().splitlines()
        named = "".join(f"{line} #docid = {split}-{i}\n" for i, line in enumerate(lines))
        path.write_text(f"# made\n\n{named}")
    train(tmp_path / "run", *tiny, "epochs=0")
    train_file = letor_folder / "mine" / "train.txt"
    for source, name in ("split=test", "test"), (f"input={train_file}", "train"):
        arguments = [str(tmp_path / "run"), f"cache_dir={tmp_path}/cache", "qid=q1", source]
        shown = call_command(
            explain_list, typed("explain", [*arguments, f"output={tmp_path}/{name}"])
        )
        assert "raised most without" in shown
        left_out = pd.read_csv(tmp_path / name / "leave_one_out.csv")
        assert list(left_out) == ["item", "id", "without", "score"]
        assert (left_out.score.isna() == (left_out.item == left_out.without)).all()
        text = (letor_folder / "mine" / f"{name}.txt").read_text()
        ids = dict(enumerate(re.findall(r"qid:q1 .*docid = (\S+)", text), 1))
        parts = pd.read_csv(tmp_path / name / "parts_of_scores.csv")
        assert parts.groupby("item").id.first().to_dict().items() <= ids.items()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost"])
def test_explain_splits_the_scores_of_trees(model, tiny, tmp_path) -> None:
    pytest.importorskip(model)
    shared = [text for text in tiny if "model." not in text and "fc_sizes" not in text]
    more = ["model.min_data_in_leaf=1"] if model == "lightgbm" else []
    train(tmp_path / "run", *shared, f"model={model}", *more)
    arguments = [
        str(tmp_path / "run"), "qid=q1", f"cache_dir={tmp_path}/cache", "items=2,1",
        f"output={tmp_path}/page",
    ]  # fmt: skip
    text = call_command(explain_list, typed("explain", arguments))
    assert "does not depend on them" in text
    error = float(text.partition("add up to the score within ")[2].split()[0])
    assert error < 1e-5
    parts = pd.read_csv(tmp_path / "page" / "parts_of_scores.csv")
    assert parts.groupby("item").part.apply(lambda values: values.abs().idxmax() % 5).tolist() == [
        0,
        0,
    ]
