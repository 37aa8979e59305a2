"""Folders of runs and sweeps: read as written or refused; named, listed, finished once."""

import hashlib
import json
import math
import pickle
import random
import re
import shutil
from functools import partial
from pathlib import Path

import hydra
import numpy as np
import pytest

from ltr.atomic import write_csv
from ltr.cli import folders
from ltr.cli.cli import call_command
from ltr.cli.configs import CONFIGS
from ltr.cli.folders import (
    job_dir,
    jobs_of,
    label_of,
    run_folder,
    sweep_dir,
    write_overrides,
)
from ltr.errors import ConfigError, DataError
from ltr.experiment.commands import ListRunsOptions, kept_once_begun, list_runs
from ltr.experiment.copies import correct_copy
from ltr.experiment.run_folder import (
    CHECKPOINTS,
    FILES,
    NOTE,
    QUERIES,
    RESULTS,
    SCORES,
    RunFolder,
    write_queries,
    write_scores,
)
from ltr.experiment.sweep import (
    check_folder,
    format_summary,
    offer_gpus,
    plan_sweep,
    read_runs,
    take_gpu,
)
from ltr.parts.trust import _READ, config_of
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from tests.helpers import processes
from tests.helpers.folders import finish, refused
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import compose

FILES_OF_RUN = (RESULTS, "queries.csv", "scores.csv", "history.csv")  # of a run with test lists


def write_run(folder: Path, override: str = "seed=1", *, split: str = "test") -> RunFolder:
    """Write the folder of a finished run, measured on ``split``, without training."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(f"- {override}")
    lists = make_lists([3, 5, 4])
    write_queries(folder / QUERIES[split], lists, {"ndcg@5": np.array([0.25, 1.0, 1e-5])})
    write_scores(folder / SCORES[split], lists, np.linspace(-1, 1, 12, dtype=np.float32))
    write_csv(folder / "history.csv", [{"epoch": 0, "vali_ndcg@5": 0.5}])
    means = {"vali": {"ndcg@5": 0.5}} | ({"test": {"ndcg@5": 1e-5}} if split == "test" else {})
    finish(
        folder,
        {**means, "seed": 1, "selected_epoch": 0, "wall_seconds": 1.5, "select_on": "ndcg@5",
         "crossfit": 0.4, "convention": {"text": "empty list = 1"}},
    )  # fmt: skip
    return RunFolder(folder)


def seal(content: dict[str, object]) -> str:
    """Return the text of a ``results.json`` with the right digest, whatever its entries are."""
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "sha256": hashlib.sha256(plain.encode()).hexdigest()})


def test_run_folder_of_a_run_without_test_holds_values_of_vali(tmp_path) -> None:
    run = write_run(tmp_path / "a", split="vali")
    assert run.split == "vali"
    assert run.damage() is None
    assert run.values("ndcg@5")[1].tolist() == [0.25, 1.0, 1e-5]
    assert len(run.scores) == 12
    write_run(tmp_path / "b", "seed=2", split="vali")
    table = format_summary(read_runs(tmp_path), test=True)
    assert "test ndcg@5" not in table
    assert "2 of 2 runs have no test split" in table
    write_run(tmp_path / "c", "seed=3")
    assert "2 of 3 runs have no test split" in format_summary(read_runs(tmp_path), test=True)
    name = QUERIES["vali"]
    (tmp_path / "a" / name).write_text("qid,ndcg@5\n1,1.0\n")
    assert f"{name} is damaged" in str(RunFolder(tmp_path / "a").damage())


def read_all_of_run(folder: Path) -> tuple[object, ...]:
    """Return all that can be read of a run."""
    read = RunFolder(folder)
    tables = [table.to_csv() for table in (read.queries, read.history)]
    return (read.results, read.scores.tolist(), *tables)


def test_run_folder_reads_what_a_run_wrote(tmp_path) -> None:
    run = write_run(tmp_path)
    assert run.damage() is None
    assert run.results["vali"] == {"ndcg@5": 0.5}
    assert run.values("ndcg@5")[1].tolist() == [0.25, 1.0, 1e-5]
    assert run.scores.astype(np.float32).tolist() == np.linspace(-1, 1, 12, dtype="f4").tolist()
    assert run.history["vali_ndcg@5"].tolist() == [0.5]
    path = tmp_path / RESULTS
    path.write_text(path.read_text().replace("0.5", "0.7"))
    assert "results.json is damaged" in refused(lambda: RunFolder(tmp_path).results)
    (tmp_path / "last.pt").touch()
    assert f"resume={tmp_path}" in refused(lambda: RunFolder(tmp_path).results)


WRONG_VALUES = {
    "finished": ["never", 5, None], "vali": [None, [], {"ndcg@5": "0.5"}],
    "choices": [None, 5, {"loss": []}, {"loss": {}}],
    "select_on": [None, 5], "data": [None, {"test": None}, {"test": {"digest": 5}}],
    "convention": [None, [], {"text": None}], "protocol": [None, [], {"dataset": None}],
    "seed": ["1"], "wall_seconds": [None, "1"], "files_sha256": [None, {"queries.csv": 5}],
    "crossfit_halves": [5, [5], [[None, 1]]], "commit": [5], "parameters": ["many"],
}  # fmt: skip


def test_results_raise_one_line_for_a_missing_inner_entry(tmp_path) -> None:
    run = write_run(tmp_path)
    content = json.loads((tmp_path / RESULTS).read_text())
    del content["sha256"]
    for entry in ({"convention": {}}, {"data": {"test": {}}}):
        (tmp_path / RESULTS).write_text(seal(content | entry))
        name = "convention" if "convention" in entry else "digest"
        message = refused(partial(getattr, RunFolder(run.folder), name))
        assert "results.json is damaged, or from an old version" in message


@pytest.mark.parametrize(
    ("entry", "value"),
    [(entry, value) for entry, values in WRONG_VALUES.items() for value in values],
)
def test_results_of_wrong_types_are_damaged_despite_a_right_digest(
    tmp_path: Path, entry: str, value: object
) -> None:
    run = write_run(tmp_path / "run").folder
    results = {**RunFolder(run).results, "select_on": "ndcg@5", "finished": "2026-01-01T10:00:00"}
    finish(run, results)
    options = ListRunsOptions(folder=str(tmp_path))
    assert "finished" in list_runs(options)
    content = json.loads((run / RESULTS).read_text()) | {entry: value}
    content.pop("sha256")
    (run / RESULTS).write_text(seal(content))
    if value != "never":
        assert "results.json is damaged" in refused(lambda: RunFolder(run).results)
        assert RunFolder(run).damage() is not None
    assert "damaged" in list_runs(options)


def test_results_raise_one_line_for_a_missing_entry(tmp_path: Path) -> None:
    results = write_run(tmp_path).results
    for action in (lambda: results["choices"], lambda: results["vali"]["map"]):
        assert "results.json is damaged, or from an old version" in refused(action)
    assert results.get("choices") is None
    assert pickle.loads(pickle.dumps(results)) == results


@pytest.mark.parametrize(
    ("name", "text"),
    [("queries.csv", "a,b\n1,2\n"), ("queries.csv", 'qid,items,empty,ndcg@5\n1,2,False,"x\n'),
     ("queries.csv", "qid,items,empty,ndcg@5\n1,2,False,high\n"), ("scores.csv", "qid\n1\n"),
     ("scores.csv", "score\nhigh\n"), ("history.csv", "loss\n1\n"), ("history.csv", ""),
     ("queries.csv", "a\n1,2\n1,2,3\n")],
)  # fmt: skip
def test_tables_of_wrong_columns_are_damaged_despite_a_right_digest(
    tmp_path: Path, name: str, text: str
) -> None:
    run = write_run(tmp_path)
    (tmp_path / name).write_text(text)
    finish(tmp_path, {**run.results})
    read = RunFolder(tmp_path)

    def read_all() -> None:
        read.values("ndcg@5")
        _ = read.scores
        _ = read.history

    assert f"{name} is damaged" in refused(read_all)


@pytest.mark.parametrize(
    "text", ["5", "2020-01-01", "a: 1", "- 5", "- [a]", "[" * 5000, "'a'", "\0"]
)
def test_overrides_must_be_a_list_of_texts(tmp_path: Path, text: str) -> None:
    run = write_run(tmp_path / "run")
    (run.folder / ".hydra" / "overrides.yaml").write_text(text)
    assert "overrides.yaml: expected" in refused(lambda: run.overrides)
    assert "overrides.yaml" in str(run.damage())
    (row,) = read_runs(tmp_path)
    assert "overrides.yaml" in row["status"]


def test_results_hold_null_for_nan(tmp_path) -> None:
    def refuse_constant(name):
        raise ValueError(f"{name} is not JSON")

    for seed in (1, 2):
        folder = write_run(tmp_path / f"seed-{seed}", f"seed={seed}").folder
        results = {**RunFolder(folder).results, "protocol": {"sigma": math.inf}}
        for split in ("test", "vali"):
            results[split] = {**results[split], "map": math.nan}
        finish(folder, results | {"seed": seed})
        plain = json.loads((folder / RESULTS).read_text(), parse_constant=refuse_constant)
        assert plain["vali"]["map"] is plain["test"]["map"] is None
        read = RunFolder(folder)
        assert read.damage() is None
        assert read.results["vali"] == {"ndcg@5": 0.5, "map": pytest.approx(math.nan, nan_ok=True)}
    means = format_summary(read_runs(tmp_path)).partition("mean ±")[2]
    assert "vali ndcg@5" in means
    assert "map" not in means


@pytest.mark.parametrize("name", FILES_OF_RUN)
def test_run_folder_detects_flipped_bits_and_cuts(name, tmp_path) -> None:
    write_run(tmp_path)
    expected = read_all_of_run(tmp_path)
    path = tmp_path / name
    sound = path.read_bytes()
    rng = random.Random(0)
    for _ in range(25):
        damaged = bytearray(sound)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        for content in (damaged, sound[: rng.randrange(len(sound))]):
            path.write_bytes(content)
            try:
                read = read_all_of_run(tmp_path)
            except DataError:
                continue
            assert name == RESULTS  # the case of an exponent, the last end of a line
            assert read == expected


def test_read_runs_reports_damage_and_continues(tmp_path) -> None:
    for name in ("one", "two", "three"):
        write_run(tmp_path / name)
    (tmp_path / "two" / RESULTS).write_text("{}")
    (tmp_path / "three" / ".hydra" / "overrides.yaml").write_bytes(b"- 'seed\xff\n\t")
    status = {row["run"]: row["status"] for row in read_runs(tmp_path)}
    assert status["one"] == "done"
    assert "results.json is damaged" in status["two"]
    assert "overrides.yaml: expected" in status["three"]


def test_prepare_never_takes_a_damaged_note_for_a_finished_run(tmp_path) -> None:
    identity = "0123456789abcdef" * 4
    rng = random.Random(0)
    finished = write_run(tmp_path / "done").folder
    for number in range(12):
        damaged = bytearray(identity.encode())
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(number)
        shutil.copytree(finished, folder)
        note = damaged if number % 2 else identity[: rng.randrange(64)].encode()
        (folder / NOTE).write_bytes(note)
        assert RunFolder(folder).identity != identity
        assert not RunFolder(folder).prepare(identity)
        (old,) = folder.glob("before-*")
        assert RunFolder(old).damage() is None


def start_run(folder: Path) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("seed: 1\n")
    (folder / "train.log").write_text("")
    return folder


def fail_run(folder: Path, file_name: str, error: BaseException) -> None:
    """Make a run that ends by ``error`` and leaves a file."""
    with kept_once_begun(folder, folder.parent):
        assert (folder.parent / "latest").readlink() == Path(folder.name)
        (folder / file_name).write_text("")
        raise error


def test_kept_once_begun_removes_a_folder_without_training_and_restores_the_link(tmp_path) -> None:
    first = start_run(tmp_path / "first")
    second = start_run(tmp_path / "second")
    link = tmp_path / "latest"
    with kept_once_begun(first, tmp_path):
        (first / "last.pt").write_text("")
    assert link.readlink() == Path("first")
    with pytest.raises(ConfigError):
        fail_run(second, "error.txt", ConfigError("wrong"))
    assert not second.exists()
    assert link.readlink() == Path("first")
    assert run_folder(str(link / "last.pt")) == first
    third = start_run(tmp_path / "third")
    with pytest.raises(KeyboardInterrupt):  # it has begun
        fail_run(third, "history.csv", KeyboardInterrupt())
    assert third.is_dir()
    assert link.readlink() == Path("third")


def test_kept_once_begun_links_only_beside_the_run_and_over_links(tmp_path) -> None:
    with kept_once_begun(start_run(tmp_path / "sweep" / "run"), tmp_path):
        assert not (tmp_path / "sweep" / "latest").is_symlink()
    (tmp_path / "latest").mkdir()
    with kept_once_begun(start_run(tmp_path / "run"), tmp_path):
        assert not (tmp_path / "latest").is_symlink()


def test_list_runs_shows_each_run_once_with_state_and_vali(tmp_path) -> None:
    results = {"select_on": "ndcg@5", "vali": {"ndcg@5": 0.4321}, "test": {"ndcg@5": 0.9}}
    finish(
        start_run(tmp_path / "sweep/seed-1"), results | {"finished": "2026-01-02T03:04:05+00:00"}
    )
    start_run(tmp_path / "cut_off")
    (start_run(tmp_path / "broken") / "error.txt").write_text("ConfigError: wrong\n")
    (start_run(tmp_path / "damaged") / "results.json").write_text("{}")
    (tmp_path / "latest").symlink_to("cut_off")
    table = call_command(list_runs, compose(f"folder={tmp_path}", config="runs"))
    first, *lines = table.splitlines()[2:]
    assert first.split()[2:4] == ["sweep/seed-1", "finished"]
    assert first.endswith("ndcg@5 0.4321")
    states = {"cut_off": "unfinished", "broken": "failed", "damaged": "damaged"}
    assert dict(line.split()[2:4] for line in lines) == states
    assert len(lines) == 3


def test_prepare_keeps_a_finished_run_and_moves_results_of_another_identity(
    tmp_path, caplog
) -> None:
    assert not RunFolder(tmp_path).prepare("a" * 64)
    for name in ("train.log", "history.csv", "last.pt"):
        (tmp_path / name).write_text(name)
    assert not RunFolder(tmp_path).prepare("a" * 64)
    assert (tmp_path / "last.pt").is_file()  # to go on from
    (tmp_path / "results.json").write_text("results.json")
    assert not RunFolder(tmp_path).prepare("b" * 64)
    (old,) = tmp_path.glob("before-*")
    assert {path.name for path in tmp_path.iterdir()} == {NOTE, "train.log", old.name}
    assert {path.name for path in old.iterdir()} == {"results.json", "last.pt", "history.csv"}
    (tmp_path / "last.pt").touch()
    for name in FILES_OF_RUN:
        finish(tmp_path, {})
        assert RunFolder(tmp_path).prepare("b" * 64)
        (tmp_path / name).write_text("x")
        assert not RunFolder(tmp_path).prepare("b" * 64)  # it is tested again
        assert f"{name} is damaged" in caplog.text
        (tmp_path / name).unlink()
    assert (tmp_path / "last.pt").exists()


def test_sweep_dir_is_the_same_for_a_reordered_grid() -> None:
    first = sweep_dir("out", None, ["loss=listnet,rmse", "seed=1,2", "threads=1"])
    assert first == sweep_dir("out", None, ["seed=1,2", "loss=listnet,rmse", "device=cpu"])
    assert first != sweep_dir("out", None, ["seed=1,2,3", "loss=listnet,rmse"])
    assert Path(first).name.startswith("sweep_loss_seed_")
    for wrong in ("a/b", "..", "."):
        with pytest.raises(ConfigError, match="expected the name of a folder"):
            sweep_dir("out", wrong, [])
    with pytest.raises(ConfigError, match=r"threads: .*start one sweep for each"):
        sweep_dir("out", None, ["threads=1,2", "seed=1,2"])


def test_job_dir_depends_on_overrides() -> None:
    long = [f"model.hidden_sizes=[{','.join('64' for _ in range(50))}]"]
    assert len(job_dir(long)) == len(job_dir(long, ".", ["model.hidden_sizes"])) == 160 + 1 + 8
    assert job_dir(["epochs=1"]) != job_dir(["epochs=2"])
    assert job_dir(["epochs=1", "data_dir=a"]) == job_dir(["epochs=1", "data_dir=b"])


def test_job_dir_keeps_varied_keys_when_cut_and_finds_earlier_names(tmp_path) -> None:
    same = [f"metrics=[{','.join(f'ndcg@{k}' for k in range(1, 41))}]", "epochs=15"]
    typed = [*same, "optimizer.lr=0.01", "seed=1"]
    name = job_dir(typed, str(tmp_path), ["optimizer.lr", "seed"])
    assert name.startswith("epochs-15_metrics-_ndcg_1_ndcg_2_")
    assert "_optimizer.lr-0.01_seed-1_" in name
    assert job_dir(["seed=1", "l2=0"], str(tmp_path), ["l2"]).startswith("l2-0_seed-1_")
    varied = [f"model.long_key_{number}" for number in range(6)]
    name_of_many = job_dir([*same, *(f"{key}=0.001" for key in varied)], ".", varied)
    assert all(f"{key}-0.001" in name_of_many for key in varied)
    keys = [f"model.{'abcdef'[n] * 12}" for n in range(6)]
    sweep = Path(sweep_dir(str(tmp_path), None, [f"{key}=1,2" for key in keys]))
    assert all(key in sweep.name for key in keys)
    settings = [*same, "budget=20", "dataset.query=1"]
    label = label_of(settings, f"{tmp_path}/table_")
    assert label.rpartition("_")[0].endswith("_epochs-15_budget-20_dataset.query-1")
    # names that earlier versions cut
    plain = re.sub(r"[^a-z0-9.-]+", "_", "_".join(sorted(typed)).replace("=", "-"))
    old_folder = tmp_path / f"{plain[:160].strip('_')}_{name[-8:]}"
    old_sweep = tmp_path / f"{'_'.join(['sweep', *keys])[:60].strip('_')}_{sweep.name[-8:]}"
    for path in (old_folder, old_sweep):
        path.mkdir()
    assert job_dir(typed, str(tmp_path), ["optimizer.lr", "seed"]) == old_folder.name
    assert sweep_dir(str(tmp_path), None, [f"{key}=1,2" for key in keys]) == str(old_sweep)
    plain = re.sub(r"[^a-z0-9.-]+", "_", "_".join(settings).replace("=", "-"))
    old_label = f"{plain[:80].strip('_')}_{label[-8:]}"
    (tmp_path / f"other_{old_label}.yaml").touch()
    assert label_of(settings, f"{tmp_path}/table_") == label
    (tmp_path / f"table_{old_label}.yaml").touch()
    assert label_of(settings, f"{tmp_path}/table_") == old_label


def test_read_runs_selects_jobs_of_the_grid(tmp_path) -> None:
    grid = ["loss=listnet,rmse", "l2=0", "threads=1"]
    for name, keys in {
        "a": ["loss=listnet", "l2=0"], "b": ["l2=0", "loss=rmse", "threads=2"],
        "c": ["loss=bce", "l2=0"], "d": ["loss=rmse"], "e": ["loss=rmse", "l2=0", "seed=1"],
    }.items():  # fmt: skip
        write_run(tmp_path / name, "\n- ".join(keys))
    assert [row["run"] for row in read_runs(tmp_path, jobs_of(grid))] == ["a", "b"]
    assert len(read_runs(tmp_path)) == 5


def test_format_summary_shows_a_convention_that_varies(tmp_path) -> None:
    for name in ("letor4", "trec"):
        write_run(tmp_path / name, f"convention={name}")
    rows = read_runs(tmp_path)
    assert [row["convention"] for row in rows] == ["letor4", "trec"]
    assert {row["convention.text"] for row in rows} == {"empty list = 1"}
    table = format_summary(rows)
    assert table.split()[:2] == ["convention", "status"]
    assert table.count("empty list = 1") == 1


@pytest.mark.slow
def test_plan_sweep_passes_the_sweep_folder_to_other_processes(tmp_path: Path) -> None:
    folders.register_resolvers()
    output_dir = tmp_path / "it's a=b,c back\\slash"
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        first = hydra.compose("train", return_hydra_config=True)
        first.output_dir = str(output_dir)
        sweep = plan_sweep(first)
        composed_again = hydra.compose("train", sweep.overrides, return_hydra_config=True)
    assert composed_again.hydra.sweep.dir == str(sweep.folder)
    assert sweep.folder.parent == output_dir


def test_take_gpu_gives_each_process_the_gpu_of_its_first_job() -> None:
    environ: dict[str, str] = {}
    offer_gpus(1, environ)
    assert environ == {}
    for visible, first_gpu in (({}, "0"), ({"CUDA_VISIBLE_DEVICES": "4, GPU-5,6"}, "4")):
        environ = {**visible}
        offer_gpus(2, environ)
        processes = [{**environ} for _ in range(3)]
        for job, process in enumerate(processes):
            take_gpu(job, process)
        second_gpu = "GPU-5" if visible else "1"
        gpus = [process.pop("CUDA_VISIBLE_DEVICES") for process in processes]
        assert gpus == [first_gpu, second_gpu, first_gpu]
        assert not any(processes)  # a later job takes none


def test_check_folder_refuses_another_run_unless_resumed(tmp_path) -> None:
    check_folder(tmp_path / "new", None, ["loss=listnet"])
    finish(tmp_path, {"vali": {}})
    message = refused(lambda: check_folder(tmp_path, None, ["loss=listnet"]), ConfigError)
    assert message.startswith(f"hydra.run.dir={tmp_path} holds another run: choose another folder")
    write_overrides(tmp_path / ".hydra" / "overrides.yaml", ["loss=listnet", "threads=1"])
    check_folder(tmp_path, None, ["threads=2", "loss=listnet"])  # the same run
    check_folder(tmp_path, str(tmp_path), ["resume=there"])
    assert "another run" in refused(
        lambda: check_folder(tmp_path, None, ["loss=ranknet"]), ConfigError
    )
    (tmp_path / RESULTS).unlink()
    (tmp_path / "last.pt").touch()  # not finished
    assert "another run" in refused(
        lambda: check_folder(tmp_path, None, ["loss=ranknet"]), ConfigError
    )
    with RunFolder(tmp_path).locked(wait=False):
        message = refused(lambda: check_folder(tmp_path, str(tmp_path), []), ConfigError)
        assert "another process is training this run" in message


def test_remove_results_removes_all_files_if_a_run_begins_anew(tmp_path) -> None:
    names = {RESULTS, *CHECKPOINTS, *FILES, "train.log"}
    for name in names:
        (tmp_path / name).touch()
    RunFolder(tmp_path).remove_results(everything=False)  # it goes on
    assert {path.name for path in tmp_path.iterdir()} == names - {RESULTS}
    RunFolder(tmp_path).remove_results(everything=True)
    assert {path.name for path in tmp_path.iterdir()} == {"train.log"}


@pytest.mark.slow
def test_train_leaves_the_folder_of_another_run_unchanged(tiny, tmp_path) -> None:
    folder = f"hydra.run.dir={tmp_path}/run"
    assert processes.run("train.py", *tiny, "loss=listnet", "epochs=1", folder).returncode == 0
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    process = processes.run("train.py", *tiny, "loss=ranknet", "epochs=1", folder)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "holds another run" in process.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_correct_copy_relocates_paths_of_an_ensemble_and_its_members(tmp_path) -> None:
    config = {"data_dir": "../data", "init_from": None, "teacher": "../teacher"}
    source = tmp_path / "outputs/run"
    copy = tmp_path / "kept/far/run"
    for folder in (source, copy):
        folder.mkdir(parents=True)
        content = {"config": config, "members": [{"config": config}, {"config": dict(config)}]}
        save_checkpoint(folder / "ensemble.pt", content)
    correct_copy(copy, source)
    content = load_checkpoint(copy / "ensemble.pt")
    for entry in (content, *content["members"]):
        assert entry["config"] == {
            "data_dir": "../../../outputs/data",
            "init_from": None,
            "teacher": "../../../outputs/teacher",
        }


def test_config_of_finds_data_from_results_that_were_moved_aside(tmp_path) -> None:
    content = {"config": dict.fromkeys(_READ) | {"data_dir": "../../data"}}
    for name in ("outputs/run", "outputs/run/before-0123456789"):
        config = config_of(content, tmp_path / name / "best.pt")
        assert Path(config["data_dir"]).resolve() == (tmp_path / "data").resolve()
