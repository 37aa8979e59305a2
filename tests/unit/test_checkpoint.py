"""Checkpoints: whole or not at all, every bit checked, and nothing in one is ever executed."""

import hashlib
import io
import os
import pickle
import random
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ltr.errors import CheckpointError, OutputError
from ltr.experiment.resume import resumed_config
from ltr.experiment.run_folder import RESULTS, RunFolder
from ltr.parts.scorer import load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.results_file import sealed_results
from tests.helpers.folders import refused
from tests.helpers.made_checkpoint import make_content
from tests.helpers.made_lists import letor_lists
from tests.helpers.made_trees import SMALL, needed, reading
from tests.helpers.runs import compose, run


class Exploit:
    """An object that makes the folder ``path`` when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def add_digest(body: bytes) -> bytes:
    """Return ``body`` with its right digest, as a stranger would write it."""
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode()


def test_load_checkpoint_refuses_code(tmp_path) -> None:
    owned = tmp_path / "owned"
    path = tmp_path / "last.pt"
    packed = io.BytesIO()
    torch.save({"version": 3, "model": Exploit(owned)}, packed)
    harmless = (b"", b"PK\x03\x04 cut", b"\x00" * 4096)
    for body in (packed.getvalue(), pickle.dumps(Exploit(owned)), *harmless):
        for file in (body, add_digest(body)):
            path.write_bytes(file)
            with pytest.raises(CheckpointError, match=r"not written by.*use another checkpoint"):
                load_checkpoint(path)
        assert not owned.exists()
    save_checkpoint(path, {"version": 99})
    with pytest.raises(CheckpointError, match="not written by this version"):
        load_checkpoint(path)


def test_load_checkpoint_detects_flipped_bits_and_cuts(tmp_path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, make_content())
    assert load_checkpoint(path)["config"] == {"seed": 1}
    sound = path.read_bytes()
    cuts = random.Random(0).sample(range(len(sound)), 50)
    bits = 8 * len(sound)
    damaged_files = [sound + b"\n", *(sound[:end] for end in cuts)]
    for bit in (*range(0, bits, 97), *range(bits - 8 * 100, bits, 3)):
        byte = bytes([sound[bit // 8] ^ 1 << bit % 8])
        damaged_files.append(sound[: bit // 8] + byte + sound[bit // 8 + 1 :])
    for file in damaged_files:
        path.write_bytes(file)
        assert "is damaged" in refused(lambda: load_checkpoint(path), CheckpointError)


def test_load_checkpoint_takes_no_more_memory_than_the_file_has_bytes(tmp_path) -> None:
    path = tmp_path / "last.pt"
    doubled = []
    for _ in range(60):  # 2^60 values in a few bytes
        doubled = [doubled, doubled]
    loop = {}
    loop["loop"] = loop
    for config in ({"seed": doubled}, loop):
        save_checkpoint(path, make_content(config=config))
        assert "not written by" in refused(lambda: load_checkpoint(path), CheckpointError)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x00" * 5_000_000)
    path.write_bytes(add_digest(packed.getvalue()))
    assert "not written by" in refused(lambda: load_checkpoint(path), CheckpointError)


def test_save_checkpoint_leaves_the_old_file_if_writing_fails(tmp_path, monkeypatch) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, make_content(width=1))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match=r"No space left on device.*free some disk space"):
        save_checkpoint(path, make_content(width=2))
    assert load_checkpoint(path)["width"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


@pytest.fixture(scope="module", params=["mlp", "lightgbm"])
def trained_folder(request, tmp_path_factory) -> Path:
    """Return the folder of a finished run beside its lists."""
    if request.param == "lightgbm":
        needed(request.param)
    lists = letor_lists(tmp_path_factory.mktemp("lists"))
    small = {"mlp": ["model.hidden_sizes=[4]"]} | SMALL
    settings = [f"model={request.param}", *small[request.param], "epochs=1", "select=last"]
    folder = lists / "run"
    folder.mkdir()
    run(compose(*reading(lists), *settings), folder, {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ("model", {"weight": torch.zeros(3), "_extra_state": torch.zeros(3)}),
        ("transform", {"mean": ["a"]}),
        ("progress", {"more": 1}),
        *((entry, {"state": 1}) for entry in ("optimizer", "random", "config", "width")),
    ],
)
def test_checkpoint_with_wrong_entries_is_refused_in_one_line(
    trained_folder, tmp_path, entry, wrong
) -> None:
    folder = Path(shutil.copytree(trained_folder, tmp_path / "run"))
    (folder / RESULTS).unlink()  # it would say that the file is another one
    checkpoint = load_checkpoint(folder / "last.pt")
    if checkpoint.get(entry) is None:
        return  # trees have neither an optimizer nor a random state
    sound = checkpoint[entry] if entry in ("transform", "progress") else {}
    save_checkpoint(folder / "last.pt", checkpoint | {entry: sound | wrong})
    if entry in ("model", "transform", "config", "width"):
        refused(lambda: load_model(folder), CheckpointError)
    overrides = [*reading(trained_folder.parent)[2:], f"resume={folder}"]
    cfg = compose(*overrides)
    refused(lambda: run(resumed_config(cfg, overrides)[0], folder, {}), CheckpointError)


def train_run(folder: Path, *settings: str) -> Path:
    """Train a run of two epochs; return its folder."""
    folder.mkdir()
    small = ["dataset.queries=12", "model=mlp", "model.hidden_sizes=[4]", "threads=1", "epochs=2"]
    run(compose(*small, *settings), folder, {"loss": "neuralndcg"})
    return folder


@pytest.mark.slow
def test_load_model_and_resume_refuse_files_of_two_runs(tmp_path) -> None:
    """Both have the same settings but for the seed; they may be finished or not."""
    first = train_run(tmp_path / "first", "seed=1")
    second = train_run(tmp_path / "second", "seed=2")
    for is_finished in (True, False):
        for name in ("best.pt", "last.pt"):
            mixed = Path(shutil.copytree(first, tmp_path / f"{name}-{is_finished}"))
            shutil.copy(second / name, mixed / name)
            if not is_finished:
                (mixed / RESULTS).unlink()
            for read in (load_model, resume):
                message = refused(partial(read, mixed), CheckpointError)
                assert "copy all files of one run into this folder, or train again" in message
            if is_finished:
                load_file = partial(load_model, mixed / name)
                assert "from different runs" in refused(load_file, CheckpointError)
    mixed = Path(shutil.copytree(first, tmp_path / "results"))
    shutil.copy(second / RESULTS, mixed / RESULTS)
    for read in (load_model, resume):
        assert "from different runs" in refused(partial(read, mixed), CheckpointError)
    (mixed / RESULTS).unlink()
    resume(mixed)  # tests the run again, and writes its own results
    load_model(mixed)
    old = Path(shutil.copytree(first, tmp_path / "old"))
    shutil.copy(old / "best.pt", tmp_path / "best.pt")
    resume(old, epochs=8)
    assert load_checkpoint(old / "last.pt")["progress"]["best_epoch"] > 2
    shutil.copy(tmp_path / "best.pt", old / "best.pt")
    (old / RESULTS).unlink()
    assert "best.pt is from epoch" in refused(lambda: load_model(old), CheckpointError)


def resume(folder: Path, **settings: Any) -> None:
    overrides = [f"resume={folder}", *(f"{key}={value}" for key, value in settings.items())]
    run(resumed_config(compose(*overrides), overrides)[0], folder, {})


@pytest.mark.slow
def test_resume_continues_a_run_stopped_between_two_files(tmp_path, monkeypatch) -> None:
    folder = train_run(tmp_path / "run")
    uninterrupted = Path(shutil.copytree(folder, tmp_path / "uninterrupted"))
    resume(uninterrupted, epochs=4)

    def stop_at_last(path: Path, content: object) -> None:
        if path.name == "last.pt":
            raise KeyboardInterrupt
        save_checkpoint(path, content)

    monkeypatch.setattr("ltr.training.monitor.save_checkpoint", stop_at_last)
    with pytest.raises(KeyboardInterrupt):
        resume(folder, epochs=4)
    monkeypatch.undo()
    assert not RunFolder(folder).finished
    load_model(folder)
    resume(folder, epochs=4)
    results = RunFolder(folder).results
    expected = RunFolder(uninterrupted).results
    for split in ("vali", "test"):
        assert results[split] == expected[split]


@pytest.mark.slow
def test_load_model_and_resume_read_folders_of_earlier_versions(tmp_path) -> None:
    folder = train_run(tmp_path / "run")
    for name in ("best.pt", "last.pt"):
        checkpoint = load_checkpoint(folder / name)
        del checkpoint["run"]
        results = (folder / RESULTS).read_bytes()
        (folder / RESULTS).unlink()
        save_checkpoint(folder / name, checkpoint)
        (folder / RESULTS).write_bytes(results)
    results = RunFolder(folder).results
    del results["checkpoints_sha256"]
    (folder / RESULTS).write_text(sealed_results(results))
    load_model(folder)
    resume(folder, epochs=3)
    load_model(folder)
