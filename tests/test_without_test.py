"""Lists without a test split: every command works on vali and says so, or says what to do."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import compose, make_lists, write_letor
from folders import refused
from made_table import train_here
from omegaconf import OmegaConf
from orders import comparison_of, recommendation_of, table_of
from runs import identity, run

from ltr.analysis.compare import compare
from ltr.console.cli import call_command
from ltr.console.compose import typed
from ltr.data.files import LetorFiles
from ltr.errors import ConfigError, DataError
from ltr.experiment.ensemble_command import ensemble_of_runs
from ltr.experiment.prepare_data import prepare_data
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.inference.export.command import export_model
from ltr.ranker import Ranker
from ltr.tables import runs as table_runs
from ltr.tables.recommend import recommend
from ltr.tables.table import make_table

NETWORK = ("model=mlp", "model.hidden_sizes=[4]", "epochs=3", "threads=1", "loss=listnet")
TABLE = """\
title: Two models
settings: [epochs=3, threads=1, "metrics=[ndcg@5,map]", select_on=ndcg@5]
metrics: [ndcg@5, map]
conventions: [paper]
verdicts: [ndcg@5]
rows:
  linear: [model=linear, loss=ranknet]
  adarank: [model=adarank]
  both: {ensemble: [linear, adarank], weights: vali}
published:
  letor: {source: a book, values: {linear: {paper: {ndcg@5: 0.9}}}}
"""


def write(folder: Path, *splits: str) -> None:
    for seed, split in enumerate(splits):
        lengths = np.random.default_rng(seed).integers(2, 9, 24 if split == "train" else 10)
        write_letor(folder / f"{split}.txt", make_lists(lengths.tolist(), seed=seed))


@pytest.fixture
def shop(tmp_path: Path) -> list[str]:
    """Lists without test, and the overrides that read them."""
    write(tmp_path / "shop", "train", "vali")
    return ["dataset=letor", "dataset.folder=shop", *places(tmp_path)]


def places(folder: Path) -> list[str]:
    return [f"data_dir={folder}", f"cache_dir={folder}/cache"]


def trained(folder: Path, data: Sequence[str], *more: str) -> RunFolder:
    """Train on ``data``, as a run of a sweep does."""
    folder.mkdir(parents=True)
    config = compose(*data, *NETWORK, *more)
    kept = RunFolder(folder)
    kept.prepare(identity(config))
    run(config, folder, {"model": "mlp", "loss": "listnet"}, printed=True)
    assert kept.prepare(identity(config))
    return kept


def test_a_split_is_there_if_its_file_is(tmp_path: Path) -> None:
    write(tmp_path / "shop", "train", "vali")
    data = LetorFiles(name="letor", folder="shop", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    data.check()
    assert data.splits == ("train", "vali")
    assert "no test split: put a test.txt there" in refused(lambda: data.split("test"))
    (tmp_path / "shop" / "test.txt").symlink_to("nowhere.txt")
    assert "no file test.txt" in refused(data.check), "a link to nothing is no missing split"
    (tmp_path / "shop" / "test.txt").unlink()
    write(tmp_path / "shop", "train", "vali", "test")
    assert data.splits == ("train", "vali", "test")


@pytest.mark.slow
def test_a_run_is_measured_on_vali_alone_and_says_so(shop, tmp_path, capsys, caplog) -> None:
    with caplog.at_level("INFO"):
        kept = trained(tmp_path / "run", shop)
    said = capsys.readouterr().out
    assert "letor has no test split: vali alone is measured" in caplog.text
    assert "no test split: these values are of vali" in said
    assert "test" not in kept.results
    assert kept.split == "vali"
    files = {path.name for path in kept.folder.iterdir()}
    assert {"vali_queries.csv", "vali_scores.csv"} <= files
    assert not {"queries.csv", "scores.csv"} & files
    mean = kept.queries["ndcg@5"].mean()
    assert mean == pytest.approx(kept.results["vali"]["ndcg@5"])

    words = [f"checkpoint={kept.folder}", *places(tmp_path)]
    said = refused(lambda: call_command(evaluate_model, typed("evaluate", words)), DataError)
    assert "these lists have no test split: put a test.txt there, or use split=vali" in said
    assert f"{mean:.4f}" in call_command(evaluate_model, typed("evaluate", [*words, "split=vali"]))
    exported = [*words, "to=onnx", f"output={tmp_path}/onnx"]
    assert "10 lists of vali" in call_command(export_model, typed("export", exported))

    (tmp_path / "shop" / "test.txt").write_text((tmp_path / "shop" / "vali.txt").read_text())
    resumed = compose(*shop, *NETWORK, f"resume={kept.folder}")
    again = refused(lambda: run(resumed, kept.folder, {}), DataError)
    assert again.startswith("test changed since the run began")


@pytest.mark.slow
def test_a_test_split_that_is_gone_is_noticed_when_a_run_goes_on(tmp_path) -> None:
    write(tmp_path / "shop", "train", "vali", "test")
    data = ["dataset=letor", "dataset.folder=shop", *places(tmp_path)]
    kept = trained(tmp_path / "run", data)
    (tmp_path / "shop" / "test.txt").unlink()
    resumed = compose(*data, *NETWORK, f"resume={kept.folder}")
    said = refused(lambda: run(resumed, kept.folder, {}), DataError)
    assert said.startswith("test changed since the run began")


@pytest.mark.slow
def test_runs_are_compared_and_combined_on_vali(shop, tmp_path) -> None:
    for seed in (1, 2):
        trained(tmp_path / "out" / f"a{seed}", shop, f"seed={seed}")
        trained(tmp_path / "out" / f"b{seed}", shop, f"seed={seed}", "loss=rmse")
    words = [str(tmp_path / "out"), f"cache_dir={tmp_path}/cache", "samples=500"]
    said = compare(comparison_of(words))
    assert "ndcg@5 on letor, vali: 10 queries" in said
    assert "no test split: these values are of vali" in said
    assert "crossfit" in said.partition("Differences")[0]
    said = compare(comparison_of([*words, "published=0.5", f"write={tmp_path}/c.csv"]))
    assert "published=0.5 is compared with values of vali" in " ".join(said.split())
    assert pd.read_csv(tmp_path / "c.csv")["split"].unique().tolist() == ["vali"]
    scores = tmp_path / "out" / "a1" / "vali_scores.csv"
    assert "vali_scores" in compare(comparison_of([*words, f"scores=[{scores}]"]))

    both = [f"runs=[{tmp_path}/out/a1,{tmp_path}/out/b1]", f"output={tmp_path}/both"]
    for weights in ("equal", "vali"):
        shutil.rmtree(tmp_path / "both", ignore_errors=True)
        order = compose(*both, f"weights={weights}", *places(tmp_path), config="ensemble")
        said = ensemble_of_runs(order)
        assert "no test split: these values are of vali" in said
    assert RunFolder(tmp_path / "both").split == "vali"

    write(tmp_path / "full", "train", "vali", "test")
    full = [*shop[:1], "dataset.folder=full", *shop[2:]]
    tested = trained(tmp_path / "tested", full)
    assert "is measured on test" in refused(
        lambda: compare(comparison_of([str(tmp_path / "out"), str(tested.folder)])), ConfigError
    )


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A table whose runs are trained here."""
    (tmp_path / "rows.yaml").write_text(TABLE)
    monkeypatch.setattr(table_runs, "execute", lambda wanted, *_: train_here(wanted))
    return [f"table={tmp_path}/rows.yaml", *places(tmp_path), f"output_dir={tmp_path}/out"]


@pytest.mark.slow
def test_a_table_shows_vali_and_recommend_chooses_on_it(shop, order, tmp_path, capsys) -> None:
    assert make_table(table_of([*order, *shop[:2]]))
    said = capsys.readouterr()
    assert "the published numbers are left out: they are of test, these values" in said.err
    assert "letor, vali" in said.out
    assert "Vali metrics, metrics_as=paper" in said.out
    assert "no test split: these values are of vali" in said.out
    assert "Test metrics" not in said.out
    (page,) = (tmp_path / "out" / "tables").glob("*/table.csv")
    assert pd.read_csv(page)["split"].unique().tolist() == ["vali"]

    said = recommend(recommendation_of([*order, *shop[:2], f"output={tmp_path}/best"]))
    assert "vali ndcg@5" in said.replace("crossfit vali ndcg@5", "")
    assert "test ndcg@5" not in said
    assert "no test split: these values are of vali" in said
    assert f"evaluate {tmp_path}/best split=vali" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", ["table", "recommend"])
def test_folds_with_and_without_test_are_refused(command, order, tmp_path) -> None:
    for fold, splits in ((1, ("train", "vali", "test")), (2, ("train", "vali"))):
        write(tmp_path / f"mixed/Fold{fold}", *splits)
    words = [*order, "dataset=letor", "dataset.folder=mixed", "dataset.folds=2"]
    made = make_table if command == "table" else recommend
    said = refused(lambda: call_command(made, typed(command, words)), ConfigError)
    assert "fold 1, seed 1 has a test split" in said
    assert "fold 2, seed 1 has none" in said
    assert not (tmp_path / "out" / "runs").exists()
    (tmp_path / "mixed/Fold1/test.txt").unlink()
    if command == "table":
        assert make_table(table_of(words))


@pytest.mark.slow
def test_prepare_data_counts_what_is_there(shop, tmp_path, capsys) -> None:
    call_command(prepare_data, typed("prepare_data", shop))
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:4]] == ["train", "vali"]
    assert "no test split" in said

    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        for split in ("train", "vali"):
            archive.write(tmp_path / "shop" / f"{split}.txt", f"{split}.txt")
    words = [*shop[:1], "dataset.folder=unpacked", *shop[2:], f"archive={tmp_path}/shop.zip"]
    call_command(prepare_data, typed("prepare_data", words))
    assert capsys.readouterr().out == said
    with zipfile.ZipFile(tmp_path / "shop.zip", "a") as archive:
        archive.write(tmp_path / "shop" / "vali.txt", "test.txt")
    words[1] = "dataset.folder=whole"
    call_command(prepare_data, typed("prepare_data", words))
    assert "test" in capsys.readouterr().out.split()


def items(lists: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "query": np.repeat(np.arange(lists), 4) + 1000 * seed,
        "price": rng.normal(size=4 * lists),
        "grade": rng.integers(0, 3, 4 * lists),
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "lists"),
    [
        ("dataset.split={train: a.csv, vali: b.csv}", [30, 10]),
        ("dataset.split={train: a.csv}", [24, 6]),
        ("dataset.path=a.csv dataset.fractions=[0.7,0.3]", [21, 9]),
    ],
)
def test_tables_need_no_test(source, lists, tmp_path) -> None:
    items(30, 0).to_csv(tmp_path / "a.csv", index=False)
    items(10, 1).to_csv(tmp_path / "b.csv", index=False)
    split = source.split(" dataset.fractions")[0]
    more = [source.partition(" ")[2]] if split != source else []
    table = ["dataset=table", "dataset.query=query", "dataset.label=grade", *places(tmp_path)]
    kept = trained(tmp_path / "run", [*table, split, *more])
    data = json.loads((kept.folder / "results.json").read_text())["data"]
    assert {name: one["lists"] for name, one in data.items()} == dict(
        zip(("train", "vali"), lists, strict=True)
    )
    words = [f"checkpoint={kept.folder}", *places(tmp_path)]
    said = refused(lambda: call_command(evaluate_model, typed("evaluate", words)), ConfigError)
    assert "dataset.split.test=PATH" in said
    assert "split=vali" in said
    assert "vali" in call_command(evaluate_model, typed("evaluate", [*words, "split=vali"]))
    if "vali:" not in source:  # a file of scores has a row for each of train's rows too
        scores = f"scores=[{kept.folder}/vali_scores.csv]"
        words = [str(kept.folder), scores, f"cache_dir={tmp_path}/cache"]
        said = refused(lambda: compare(comparison_of(words)), ConfigError)
        assert "its vali lists are cut from a file that has lists of train too" in said


@pytest.mark.slow
def test_rankers_without_test_are_compared(tmp_path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        made = items(30, 0)
        ranker = Ranker("linear", "listnet", epochs=2, random_state=seed, threads=1, verbose=0)
        ranker.fit(made[["price"]], made["grade"], made["query"]).save(tmp_path / name)
    # a seed cuts other queries off as vali
    words = [str(tmp_path / "a"), f"cache_dir={tmp_path}/cache", "samples=500"]
    assert "vali: 6 queries" in compare(comparison_of(words))
    assert OmegaConf.is_config(compose("dataset=memory").dataset)
