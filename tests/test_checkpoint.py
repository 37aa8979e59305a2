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
from conftest import compose, letor_lists
from folders import refused
from made_trees import SMALL, needed, reading
from runs import run

from ltr.errors import CheckpointError, OutputError
from ltr.experiment.resume import resumed_config
from ltr.experiment.run_folder import RESULTS, RunFolder
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.results_file import sealed_results


class Exploit:
    """Pickled, it makes the file ``owned`` when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def content(**parts: Any) -> dict[str, Any]:
    """Some of what ``save_checkpoint`` may be given, with ``parts`` of it replaced."""
    return {
        "model": {"weight": torch.zeros(50)}, "config": {"seed": 1}, "choices": {}, "width": 2,
        "progress": {"epoch": 0, "step": 0},
    } | parts  # fmt: skip


def sealed(body: bytes) -> bytes:
    """``body`` with a digest that is right, as a stranger would give it."""
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode()


def test_a_file_with_code_in_it_is_refused(tmp_path) -> None:
    owned, path = tmp_path / "owned", tmp_path / "last.pt"
    packed = io.BytesIO()
    torch.save({"version": 3, "model": Exploit(owned)}, packed)
    harmless = (b"", b"PK\x03\x04 cut", b"\x00" * 4096)
    for body in (packed.getvalue(), pickle.dumps(Exploit(owned)), *harmless):
        for file in (body, sealed(body)):
            path.write_bytes(file)
            with pytest.raises(CheckpointError, match=r"not written by.*use another one"):
                load_checkpoint(path)
        assert not owned.exists()
    save_checkpoint(path, {"version": 99})
    with pytest.raises(CheckpointError, match="not written by this version"):
        load_checkpoint(path)


def test_one_flipped_bit_or_a_cut_anywhere_is_found(tmp_path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, content())
    assert load_checkpoint(path)["config"] == {"seed": 1}
    whole = path.read_bytes()
    cuts, bits = random.Random(0).sample(range(len(whole)), 50), 8 * len(whole)
    damaged = [whole + b"\n", *(whole[:end] for end in cuts)]
    for bit in (*range(0, bits, 97), *range(bits - 8 * 100, bits, 3)):
        byte = bytes([whole[bit // 8] ^ 1 << bit % 8])
        damaged.append(whole[: bit // 8] + byte + whole[bit // 8 + 1 :])
    for file in damaged:
        path.write_bytes(file)
        assert "is damaged" in refused(lambda: load_checkpoint(path), CheckpointError)


def test_a_file_costs_no_more_memory_than_it_has_bytes(tmp_path) -> None:
    path = tmp_path / "last.pt"
    laughs, loop = [], {}
    for _ in range(60):  # 2^60 values in a few bytes
        laughs = [laughs, laughs]
    loop["loop"] = loop
    for config in ({"seed": laughs}, loop):
        save_checkpoint(path, content(config=config))
        assert "not written by" in refused(lambda: load_checkpoint(path), CheckpointError)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x00" * 5_000_000)
    path.write_bytes(sealed(packed.getvalue()))
    assert "not written by" in refused(lambda: load_checkpoint(path), CheckpointError)


def test_a_failed_write_leaves_the_one_before(tmp_path, monkeypatch) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, content(width=1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device.*free some space"):
        save_checkpoint(path, content(width=2))
    assert load_checkpoint(path)["width"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


@pytest.fixture(scope="module", params=["mlp", "lightgbm"])
def finished(request, tmp_path_factory) -> Path:
    """The folder of a finished run beside its lists."""
    if request.param == "lightgbm":
        needed(request.param)
    place = letor_lists(tmp_path_factory.mktemp("lists"))
    small = {"mlp": ["model.hidden_sizes=[4]"]} | SMALL
    settings = [f"model={request.param}", *small[request.param], "epochs=1", "select=last"]
    (place / "run").mkdir()
    run(compose(*reading(place), *settings), place / "run", {})
    return place / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("model", {"weight": torch.zeros(3), "_extra_state": torch.zeros(3)}),
        ("transform", {"mean": ["a"]}),
        ("progress", {"more": 1}),
        *((part, {"state": 1}) for part in ("optimizer", "random", "config", "width")),
    ],
)
def test_what_does_not_fit_is_one_line(finished, tmp_path, part, wrong) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / RESULTS).unlink()  # it would say that the file is another one
    kept = load_checkpoint(folder / "last.pt")
    if kept.get(part) is None:
        return  # trees have neither an optimizer nor a random state
    before = kept[part] if part in ("transform", "progress") else {}
    save_checkpoint(folder / "last.pt", kept | {part: before | wrong})
    if part in ("model", "transform", "config", "width"):
        refused(lambda: load_model(folder), CheckpointError)
    given = [*reading(finished.parent)[2:], f"resume={folder}"]
    cfg = compose(*given)
    refused(lambda: run(resumed_config(cfg, given)[0], folder, {}), CheckpointError)


def trained(place: Path, *settings: str) -> Path:
    """The folder of a finished run of two epochs."""
    place.mkdir()
    small = ["dataset.queries=12", "model=mlp", "model.hidden_sizes=[4]", "threads=1", "epochs=2"]
    run(compose(*small, *settings), place, {"loss": "neuralndcg"})
    return place


@pytest.mark.slow
def test_files_of_two_runs_in_one_folder_are_refused(tmp_path) -> None:
    """Both have the same settings but for the seed; also where neither is finished."""
    one, other = trained(tmp_path / "one", "seed=1"), trained(tmp_path / "other", "seed=2")
    for done in (True, False):
        for name in ("best.pt", "last.pt"):
            mixed = Path(shutil.copytree(one, tmp_path / f"{name}-{done}"))
            shutil.copy(other / name, mixed / name)
            if not done:
                (mixed / RESULTS).unlink()
            for use in (load_model, resume):
                said = refused(partial(use, mixed), CheckpointError)
                assert "copy all files of one run there, or train again" in said
            if done:
                single = partial(load_model, mixed / name)
                assert "another run" in refused(single, CheckpointError)
    mixed = Path(shutil.copytree(one, tmp_path / "results"))
    shutil.copy(other / RESULTS, mixed / RESULTS)
    for use in (load_model, resume):
        assert "another run" in refused(partial(use, mixed), CheckpointError)
    (mixed / RESULTS).unlink()
    resume(mixed)  # tests the run again, and writes its own results
    load_model(mixed)
    old = Path(shutil.copytree(one, tmp_path / "old"))
    shutil.copy(old / "best.pt", tmp_path / "best.pt")
    resume(old, epochs=8)
    assert load_checkpoint(old / "last.pt")["progress"]["best_epoch"] > 2
    shutil.copy(tmp_path / "best.pt", old / "best.pt")
    (old / RESULTS).unlink()
    assert "best.pt is of epoch" in refused(lambda: load_model(old), CheckpointError)


def resume(folder: Path, **settings: Any) -> None:
    given = [f"resume={folder}", *(f"{key}={value}" for key, value in settings.items())]
    run(resumed_config(compose(*given), given)[0], folder, {})


@pytest.mark.slow
def test_a_run_that_goes_on_is_not_finished_and_one_stopped_between_two_files_goes_on(
    tmp_path, monkeypatch
) -> None:
    folder = trained(tmp_path / "run")
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    resume(whole, epochs=4)

    def stopped(path: Path, content: object) -> None:
        if path.name == "last.pt":
            raise KeyboardInterrupt
        save_checkpoint(path, content)

    monkeypatch.setattr("ltr.training.monitor.save_checkpoint", stopped)
    with pytest.raises(KeyboardInterrupt):
        resume(folder, epochs=4)
    monkeypatch.undo()
    assert not RunFolder(folder).finished
    load_model(folder)
    resume(folder, epochs=4)
    found, expected = (RunFolder(path).results for path in (folder, whole))
    assert [found[key] for key in ("vali", "test")] == [expected[key] for key in ("vali", "test")]


@pytest.mark.slow
def test_a_folder_of_an_earlier_version_is_read_as_before(tmp_path) -> None:
    folder = trained(tmp_path / "run")
    for name in ("best.pt", "last.pt"):
        kept = load_checkpoint(folder / name)
        del kept["run"]
        results = (folder / RESULTS).read_bytes()
        (folder / RESULTS).unlink()
        save_checkpoint(folder / name, kept)
        (folder / RESULTS).write_bytes(results)
    results = RunFolder(folder).results
    del results["checkpoints_sha256"]
    (folder / RESULTS).write_text(sealed_results(results))
    load_model(folder)
    resume(folder, epochs=3)
    load_model(folder)
