"""``scripts/explain.py``: parts of scores add up, items are left out."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import make_lists
from folders import refused
from test_trainer import train
from torch import nn

import ltr.inference.explain.importances
from ltr.console.arguments import as_hydra
from ltr.console.compose import typed
from ltr.data.lists import Columns
from ltr.data.transforms import fit_transform
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.command import explain, list_block, parts_block
from ltr.inference.explain.effects import attributions_of, leave_one_out
from ltr.inference.explain.importances import importances
from ltr.inference.explain.subject import Subject
from ltr.models.rounds import AdaRank
from ltr.scorers.scorer import Scorer


class Compared(nn.Module):
    """An item's own sum less the mean of the list's, of which each item is a part."""

    def __init__(self, own: list[float], mean: list[float]) -> None:
        super().__init__()
        self.own, self.mean = nn.Parameter(torch.tensor(own)), nn.Parameter(torch.tensor(mean))
        self.pointwise = not any(mean)

    def forward(self, features, mask, ranks=None):
        seen = (features @ self.mean).masked_fill(~mask, 0).sum(-1) / mask.sum(-1)
        return (features @ self.own - seen[:, None]).masked_fill(~mask, 0)


def subject(model: nn.Module, *, missing: bool = False) -> Subject:
    """The second of four lists of six items with three features, explained by ``model``."""
    lists = make_lists([6, 6, 6, 6], width=3)
    if missing:
        lists.features[::2, 1] = np.nan
        lists = replace(lists, missing=12)
    transform = fit_transform(lists, missing="indicator" if missing else "mean")
    names = Columns(("a", "b", "c"))
    scorer = Scorer(model.eval(), transform, names, {"precision": "float32"})
    items = [f"item {place}" for place in range(1, 7)]
    return Subject(scorer, "made, vali", lists.subset(np.array([1])), items, asked=[4, 0])


@pytest.mark.parametrize("named", [True, False])
def test_importances_name_the_indicators_of_missing_values(named, monkeypatch, tmp_path) -> None:
    lists = make_lists([6, 6], width=3)
    lists.features[::2, 1] = np.nan
    transform = fit_transform(replace(lists, missing=6), missing="indicator")
    model = AdaRank(transform.outputs)
    model.content = {"features": np.array([3, 1]), "alphas": np.array([2.0, 1.0])}
    columns = Columns(("a", "b", "c")) if named else None
    scorer = Scorer(model, transform, columns, {"precision": "float32"})
    monkeypatch.setattr(ltr.inference.explain.importances, "load_model", lambda _: scorer)
    lines = importances(typed("importances", ["run", f"write={tmp_path}"])).splitlines()
    name = "b" if named else "2"
    assert f"{name} (is missing) " in lines[3]
    assert lines[4].split()[:2] == (["2", "b"] if named else ["2", "0.3333"])
    table = pd.read_csv(tmp_path / "importances.csv")
    assert table["feature"].tolist() == [2, 2, 1, 3]
    assert table["indicator"].tolist() == [True, False, False, False]


def test_parts_of_a_score_are_those_of_its_features_and_of_other_items() -> None:
    own, mean = [1.0, -2.0, 0.5], [3.0, 0.0, -1.0]
    of = subject(Compared(own, mean))
    found = attributions_of(of)
    away = of.data.features.numpy()
    away = away - away.mean(0)
    np.testing.assert_allclose(
        found.values, away[of.items] * (np.array(own) - np.array(mean) / 6), atol=1e-5
    )
    others = np.tile(-(away @ np.array(mean)) / 6, (2, 1))
    others[[0, 1], of.items] = 0
    np.testing.assert_allclose(found.others, others.sum(-1), atol=1e-5)
    np.testing.assert_allclose(found.sums, of.scores[of.items], atol=1e-5)
    tiny = parts_block(of, found._replace(values=found.values * 1e-9))
    assert not any("0.000" in text for row in tiny.rows[:3] for text in row)
    near = replace(of, asked=[1, 0])
    vars(near)["scores"] = np.array([1, 1 - 2**-24, 1, 1, 1, 1], np.float32)  # saturated
    block = list_block(near)
    assert [row[3] for row in block.rows] == ["1.0", "0.99999994"]
    assert "; 2 different scores" in block.note
    alone = attributions_of(subject(Compared(own, [0.0, 0.0, 0.0])))
    assert alone.others.tolist() == [0, 0]


def test_what_an_indicator_adds_belongs_to_its_feature() -> None:
    of = subject(Compared([0.0, 0.0, 0.0, 2.0], [0.0] * 4), missing=True)
    found = attributions_of(of)
    assert found.values.shape == (2, 3)
    assert (found.values[:, [0, 2]] == 0).all()
    assert np.abs(found.values[:, 1]).min() > 0.1


def test_an_item_is_left_out_of_the_list() -> None:
    class Against(nn.Module):
        """The score depends on the item before it in the list."""

        def forward(self, features, mask, ranks=None):
            return features[..., 0] * (1 + features[..., 1].roll(1, -1))

    of = subject(Against())
    found = leave_one_out(of, items=11)  # one list of five in a batch
    x = of.data.features.numpy()
    for other in range(6):
        left = np.delete(np.arange(6), other)
        scores = pd.Series(x[left, 0] * (1 + np.roll(x[left, 1], 1)), left)
        for at, item in enumerate(of.items):
            if other == item:
                assert np.isnan(found[at, other])
                continue
            moved = scores[item] - of.scores[item]
            assert found[at, other] == pytest.approx(moved, abs=1e-5)


def test_a_network_without_captum_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    said = refused(lambda: attributions_of(subject(Compared([1.0] * 3, [0.0] * 3))), ConfigError)
    assert "pip install 'ltr-torch[explain]'" in said


def test_a_query_id_is_text_whatever_it_looks_like() -> None:
    assert typed("explain", ["outputs/x", "qid=007"]).qid == "007"
    assert "items=['1','2']" in as_hydra("explain", ["qid=1", "items=1,2"])


@pytest.mark.slow
def test_categories_ids_and_new_files_are_explained(tmp_path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"search": np.repeat(np.arange(30), 5), "price": rng.normal(size=150)})
    table["brand"] = rng.choice(["acme", "zeta"], 150)
    table["sku"] = [f"P-{row}" for row in range(150)]
    table["grade"] = (table["brand"] == "acme").astype(int)
    table.sample(frac=1, random_state=0, ignore_index=True).to_parquet(tmp_path / "all.parquet")
    table.drop(columns="grade").replace("zeta", "new").to_csv(tmp_path / "new.csv", index=False)
    train(
        out := tmp_path / "run", "dataset=table", "dataset.query=search", "dataset.label=grade",
        "dataset.id=[sku]", "dataset.categories=[brand]", "dataset.path=all.parquet", "model=mlp",
        "loss=listnet", "batch_size=4", "epochs=5", "threads=1", f"data_dir={tmp_path}",
        f"cache_dir={tmp_path}/cache",
    )  # fmt: skip
    qid = RunFolder(out).queries.qid[0]

    def explained(qid: str, *more: str) -> tuple[str, pd.DataFrame]:
        asked = [str(out), f"cache_dir={tmp_path}/cache", f"output={tmp_path}/page", f"qid={qid}"]
        said = explain(typed("explain", [*asked, *more]))
        return said, pd.read_csv(tmp_path / "page" / "parts_of_scores.csv")

    said, parts = explained(qid, "split=test")
    assert re.search(r"model +MLP\n", said)
    known = table[table["search"].astype(str) == qid].set_index("sku")
    brands = parts[parts.feature == "brand"].set_index("id")
    assert (brands["part"] > 0).to_dict() == (known["brand"] == "acme").to_dict()
    assert all(sku in said for sku in known.index)
    assert "item 1" not in said
    said, parts = explained("17", f"input={tmp_path}/new.csv")
    assert said.startswith(f"list 17 of {tmp_path}/new.csv\n")
    assert not re.search("label|all other features", said), "it has none"
    assert "/new.csv split=vali qid=17\n" in (tmp_path / "page/page.md").read_text()
    new = table[table["search"] == 17].set_index("sku")
    brands = parts[parts.feature == "brand"].set_index("id")
    assert (brands["part"] > 0).to_dict() == (new["brand"] == "acme").to_dict()
    (tmp_path / "new.txt").write_text("qid:1 1:0.5 2:1\n")
    for wrong, key in (
        (("99", "split=test"), "qid=99"),
        ((qid, "split=test", "items=6"), "items=6"),
        (("1", f"input={tmp_path}/new.txt"), "give a table"),
    ):
        assert key in refused(lambda wrong=wrong: explained(*wrong), ConfigError)


@pytest.mark.slow
def test_comments_name_the_items_of_letor_text(tiny, letor_folder, tmp_path) -> None:
    for split in ("train", "vali", "test"):
        path = letor_folder / "mine" / f"{split}.txt"
        lines = path.read_text().splitlines()
        named = "".join(f"{line} #docid = {split}-{i}\n" for i, line in enumerate(lines))
        path.write_text(f"# made\n\n{named}")
    train(tmp_path / "run", *tiny, "epochs=0")
    for place, name in ("split=test", "test"), (f"input={letor_folder}/mine/train.txt", "train"):
        asked = [str(tmp_path / "run"), f"cache_dir={tmp_path}/cache", "qid=q1", place]
        said = explain(typed("explain", [*asked, f"output={tmp_path}/{name}"]))
        assert "raised most without" in said
        left_out = pd.read_csv(tmp_path / name / "leave_one_out.csv")
        assert list(left_out) == ["item", "id", "without", "score"]
        assert (left_out.score.isna() == (left_out.item == left_out.without)).all()
        text = (letor_folder / "mine" / f"{name}.txt").read_text()
        ids = dict(enumerate(re.findall(r"qid:q1 .*docid = (\S+)", text), 1))
        found = pd.read_csv(tmp_path / name / "parts_of_scores.csv").groupby("item").id.first()
        assert found.to_dict().items() <= ids.items()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost"])
def test_trees_are_explained_by_their_library(model, tiny, tmp_path) -> None:
    pytest.importorskip(model)
    own = [one for one in tiny if "model." not in one and "fc_sizes" not in one]
    more = ["model.min_data_in_leaf=1"] if model == "lightgbm" else []
    train(tmp_path / "run", *own, f"model={model}", *more)
    said = explain(
        typed("explain", [str(tmp_path / "run"), "qid=q1", f"cache_dir={tmp_path}/cache",
              "items=2,1", f"output={tmp_path}/page"])
    )  # fmt: skip
    assert "that of its item alone" in said
    error = float(said.partition("miss the score by ")[2].split()[0])
    assert error < 1e-5
    parts = pd.read_csv(tmp_path / "page" / "parts_of_scores.csv")
    assert parts.groupby("item").part.apply(lambda part: part.abs().idxmax() % 5).tolist() == [0, 0]
