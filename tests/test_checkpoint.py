"""Checkpoints: whole or not at all, every bit checked, and nothing in one is ever executed."""

import hashlib
import io
import os
import pickle
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import compose, letor_lists
from folders import refused
from made_trees import SMALL, needed, reading

from ltr.errors import CheckpointError, OutputError
from ltr.experiment.run import run
from ltr.experiment.start import resumed
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint


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
    kept = load_checkpoint(folder / "last.pt")
    if kept.get(part) is None:
        return  # trees have neither an optimizer nor a random state
    before = kept[part] if part in ("transform", "progress") else {}
    save_checkpoint(folder / "last.pt", kept | {part: before | wrong})
    if part in ("model", "transform", "config", "width"):
        refused(lambda: load_model(folder), CheckpointError)
    given = [*reading(finished.parent)[2:], f"resume={folder}"]
    cfg = compose(*given)
    refused(lambda: run(resumed(cfg, given)[0], folder, {}), CheckpointError)
