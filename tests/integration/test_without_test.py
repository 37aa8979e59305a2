"""Lists without a test split: every command works on vali and says so, or says what to do."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.data.files import LetorFiles
from ltr.errors import ConfigError, DataError
from ltr.experiment.prepare_data import prepare_data
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.inference.export.command import export_model
from ltr.lab.analysis.compare import compare
from ltr.lab.auto.command import run_auto
from ltr.lab.ensembles.command import ensemble_of_runs
from ltr.lab.tables import runs as table_runs
from ltr.lab.tables.table import make_table
from ltr.ranker import Ranker
from tests.helpers.folders import refused
from tests.helpers.made_lists import make_lists, write_letor
from tests.helpers.made_table import train_here
from tests.helpers.orders import auto_options, comparison_of, table_of
from tests.helpers.runs import compose, identity, run

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


def write_lists(folder: Path, *splits: str) -> None:
    """Write LETOR files of small lists."""
    for seed, split in enumerate(splits):
        lengths = np.random.default_rng(seed).integers(2, 9, 24 if split == "train" else 10)
        write_letor(folder / f"{split}.txt", make_lists(lengths.tolist(), seed=seed))


@pytest.fixture
def shop_lists(tmp_path: Path) -> list[str]:
    """Write lists without test; return the overrides that read them."""
    write_lists(tmp_path / "shop", "train", "vali")
    return ["dataset=letor", "dataset.folder=shop", *data_folders(tmp_path)]


def data_folders(folder: Path) -> list[str]:
    """Return the overrides with the folders of data and cache."""
    return [f"data_dir={folder}", f"cache_dir={folder}/cache"]


def train_in_sweep(folder: Path, data: Sequence[str], *overrides: str) -> RunFolder:
    """Train on ``data``, as a run of a sweep does."""
    folder.mkdir(parents=True)
    config = compose(*data, *NETWORK, *overrides)
    run_folder = RunFolder(folder)
    run_folder.prepare(identity(config))
    run(config, folder, {"model": "mlp", "loss": "listnet"}, printed=True)
    assert run_folder.prepare(identity(config))
    return run_folder


def test_letor_files_have_the_splits_whose_files_exist(tmp_path: Path) -> None:
    write_lists(tmp_path / "shop", "train", "vali")
    data = LetorFiles(name="letor", folder="shop", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    data.check()
    assert data.splits == ("train", "vali")
    assert "no test split: put a test.txt there" in refused(lambda: data.split("test"))
    (tmp_path / "shop" / "test.txt").symlink_to("nowhere.txt")
    assert "missing test.txt" in refused(data.check), "a link to nothing is no missing split"
    (tmp_path / "shop" / "test.txt").unlink()
    write_lists(tmp_path / "shop", "train", "vali", "test")
    assert data.splits == ("train", "vali", "test")


@pytest.mark.slow
def test_run_without_test_is_measured_on_vali(shop_lists, tmp_path, capsys, caplog) -> None:
    with caplog.at_level("INFO"):
        run_folder = train_in_sweep(tmp_path / "run", shop_lists)
    printed = capsys.readouterr().out
    assert "letor has no test split: metrics are computed on vali only" in caplog.text
    assert "no test split: these values are measured on vali" in printed
    assert "test" not in run_folder.results
    assert run_folder.split == "vali"
    files = {path.name for path in run_folder.folder.iterdir()}
    assert {"vali_queries.csv", "vali_scores.csv"} <= files
    assert not {"queries.csv", "scores.csv"} & files
    mean = run_folder.queries["ndcg@5"].mean()
    assert mean == pytest.approx(run_folder.results["vali"]["ndcg@5"])

    arguments = [f"checkpoint={run_folder.folder}", *data_folders(tmp_path)]
    message = refused(lambda: call_command(evaluate_model, typed("evaluate", arguments)), DataError)
    assert "the data set has no test split: put a test.txt there, or use split=vali" in message
    assert f"{mean:.4f}" in call_command(
        evaluate_model, typed("evaluate", [*arguments, "split=vali"])
    )
    export_arguments = [*arguments, "to=onnx", f"output={tmp_path}/onnx"]
    assert "10 lists of vali" in call_command(export_model, typed("export", export_arguments))

    (tmp_path / "shop" / "test.txt").write_text((tmp_path / "shop" / "vali.txt").read_text())
    resumed = compose(*shop_lists, *NETWORK, f"resume={run_folder.folder}")
    message = refused(lambda: run(resumed, run_folder.folder, {}), DataError)
    assert message.startswith("the files of test have changed since the run began")


@pytest.mark.slow
def test_resume_notices_a_missing_test_split(tmp_path) -> None:
    write_lists(tmp_path / "shop", "train", "vali", "test")
    data = ["dataset=letor", "dataset.folder=shop", *data_folders(tmp_path)]
    run_folder = train_in_sweep(tmp_path / "run", data)
    (tmp_path / "shop" / "test.txt").unlink()
    resumed = compose(*data, *NETWORK, f"resume={run_folder.folder}")
    message = refused(lambda: run(resumed, run_folder.folder, {}), DataError)
    assert message.startswith("the files of test have changed since the run began")


@pytest.mark.slow
def test_compare_and_ensemble_work_on_vali(shop_lists, tmp_path) -> None:
    for seed in (1, 2):
        train_in_sweep(tmp_path / "out" / f"a{seed}", shop_lists, f"seed={seed}")
        train_in_sweep(tmp_path / "out" / f"b{seed}", shop_lists, f"seed={seed}", "loss=rmse")
    arguments = [str(tmp_path / "out"), f"cache_dir={tmp_path}/cache", "samples=500"]
    text = compare(comparison_of(arguments))
    assert "ndcg@5 on letor, vali: 10 queries" in text
    assert "no test split: these values are measured on vali" in text
    assert "crossfit" in text.partition("Differences")[0]
    text = compare(comparison_of([*arguments, "published=0.5", f"write={tmp_path}/c.csv"]))
    assert "published=0.5 is compared with values on vali" in " ".join(text.split())
    assert pd.read_csv(tmp_path / "c.csv")["split"].unique().tolist() == ["vali"]
    scores = tmp_path / "out" / "a1" / "vali_scores.csv"
    assert "vali_scores" in compare(comparison_of([*arguments, f"scores=[{scores}]"]))

    both = [f"runs=[{tmp_path}/out/a1,{tmp_path}/out/b1]", f"output={tmp_path}/both"]
    for weights in ("equal", "vali"):
        shutil.rmtree(tmp_path / "both", ignore_errors=True)
        overrides = [*both, f"weights={weights}", *data_folders(tmp_path)]
        text = call_command(ensemble_of_runs, compose(*overrides, config="ensemble"))
        assert "no test split: these values are measured on vali" in text
    assert RunFolder(tmp_path / "both").split == "vali"

    write_lists(tmp_path / "full", "train", "vali", "test")
    full = [*shop_lists[:1], "dataset.folder=full", *shop_lists[2:]]
    tested = train_in_sweep(tmp_path / "tested", full)
    assert "is measured on test" in refused(
        lambda: compare(comparison_of([str(tmp_path / "out"), str(tested.folder)])), ConfigError
    )


@pytest.fixture
def table_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write a table whose runs are trained in this process; return the arguments of its command."""
    (tmp_path / "rows.yaml").write_text(TABLE)
    monkeypatch.setattr(table_runs, "execute", lambda runs, *_: train_here(runs))
    return [f"table={tmp_path}/rows.yaml", *data_folders(tmp_path), f"output_dir={tmp_path}/out"]


@pytest.mark.slow
def test_table_and_auto_work_on_vali(shop_lists, table_arguments, tmp_path, capsys) -> None:
    assert make_table(table_of([*table_arguments, *shop_lists[:2]]))
    output = capsys.readouterr()
    assert (
        "the published numbers are left out: they were measured on test, but these runs"
        in output.err
    )
    assert "letor, vali" in output.out
    assert "Vali metrics, convention=paper" in output.out
    assert "no test split: these values are measured on vali" in output.out
    assert "Test metrics" not in output.out
    (page,) = (tmp_path / "out" / "tables").glob("*/table.csv")
    assert pd.read_csv(page)["split"].unique().tolist() == ["vali"]

    arguments = [*table_arguments, *shop_lists[:2], f"output={tmp_path}/best"]
    text = run_auto(auto_options(arguments))
    assert "vali ndcg@5" in text.replace("crossfit vali ndcg@5", "")
    assert "test ndcg@5" not in text
    assert "no test split: these values are measured on vali" in text
    assert f"evaluate {tmp_path}/best split=vali" in text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["table", "auto"])
def test_table_and_auto_refuse_folds_with_and_without_test(
    command, table_arguments, tmp_path
) -> None:
    for fold, splits in ((1, ("train", "vali", "test")), (2, ("train", "vali"))):
        write_lists(tmp_path / f"mixed/Fold{fold}", *splits)
    arguments = [*table_arguments, "dataset=letor", "dataset.folder=mixed", "dataset.folds=2"]
    function = make_table if command == "table" else run_auto
    message = refused(lambda: call_command(function, typed(command, arguments)), ConfigError)
    assert "fold 1, seed 1 has a test split" in message
    assert "fold 2, seed 1 has none" in message
    assert not (tmp_path / "out" / "runs").exists()
    (tmp_path / "mixed/Fold1/test.txt").unlink()
    if command == "table":
        assert make_table(table_of(arguments))


@pytest.mark.slow
def test_prepare_data_counts_the_splits_that_exist(shop_lists, tmp_path, capsys) -> None:
    call_command(prepare_data, typed("prepare_data", shop_lists))
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[2:4]] == ["train", "vali"]
    assert "no test split" in printed

    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        for split in ("train", "vali"):
            archive.write(tmp_path / "shop" / f"{split}.txt", f"{split}.txt")
    data = [*shop_lists[:1], "dataset.folder=unpacked", *shop_lists[2:]]
    arguments = [*data, f"archive={tmp_path}/shop.zip"]
    call_command(prepare_data, typed("prepare_data", arguments))
    assert capsys.readouterr().out == printed
    with zipfile.ZipFile(tmp_path / "shop.zip", "a") as archive:
        archive.write(tmp_path / "shop" / "vali.txt", "test.txt")
    arguments[1] = "dataset.folder=with_test"
    call_command(prepare_data, typed("prepare_data", arguments))
    assert "test" in capsys.readouterr().out.split()


def make_items(lists: int, seed: int) -> pd.DataFrame:
    """Return a table with four items per query."""
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
        (["dataset.split={train: a.csv, vali: b.csv}"], [30, 10]),
        (["dataset.split={train: a.csv}"], [24, 6]),
        (["dataset.path=a.csv", "dataset.fractions=[0.7,0.3]"], [21, 9]),
    ],
)
def test_table_files_need_no_test(source, lists, tmp_path) -> None:
    make_items(30, 0).to_csv(tmp_path / "a.csv", index=False)
    make_items(10, 1).to_csv(tmp_path / "b.csv", index=False)
    table = ["dataset=table", "dataset.query=query", "dataset.label=grade", *data_folders(tmp_path)]
    run_folder = train_in_sweep(tmp_path / "run", [*table, *source])
    data = json.loads((run_folder.folder / "results.json").read_text())["data"]
    assert {split: entry["lists"] for split, entry in data.items()} == dict(
        zip(("train", "vali"), lists, strict=True)
    )
    arguments = [f"checkpoint={run_folder.folder}", *data_folders(tmp_path)]
    message = refused(
        lambda: call_command(evaluate_model, typed("evaluate", arguments)), ConfigError
    )
    assert "dataset.split.test=PATH" in message
    assert "split=vali" in message
    assert "vali" in call_command(evaluate_model, typed("evaluate", [*arguments, "split=vali"]))
    if "vali:" not in source[0]:  # a file of scores has a row for each of train's rows too
        scores = f"scores=[{run_folder.folder}/vali_scores.csv]"
        arguments = [str(run_folder.folder), scores, f"cache_dir={tmp_path}/cache"]
        message = refused(lambda: compare(comparison_of(arguments)), ConfigError)
        assert "its vali lists are only some of the rows of its data file" in message


@pytest.mark.slow
def test_compare_works_on_rankers_without_test(tmp_path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        table = make_items(30, 0)
        ranker = Ranker("linear", "listnet", epochs=2, random_state=seed, threads=1, verbose=0)
        ranker.fit(table[["price"]], table["grade"], table["query"]).save(tmp_path / name)
    # a seed cuts other queries off as vali
    arguments = [str(tmp_path / "a"), f"cache_dir={tmp_path}/cache", "samples=500"]
    assert "vali: 6 queries" in compare(comparison_of(arguments))
    assert OmegaConf.is_config(compose("dataset=memory").dataset)
