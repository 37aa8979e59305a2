"""Istella's train file is cut by query, three to one; nothing is lost, whenever it is killed."""

import json
import re
import signal
import tarfile
from dataclasses import replace
from pathlib import Path

import processes
import pytest
from folders import ids, read_folder, refused, write_folder

from ltr.data.archives import Known, PublishedSet
from ltr.errors import ConfigError
from ltr.preparation.prepare import prepare
from ltr.preparation.resplit import split_train

ROOT = Path(__file__).parents[1]
TEST = "1 qid:3 1:0.5 2:1\n"


def rows_of(qid: int) -> str:
    return "".join(f"{qid % 3} qid:{qid} 1:{item}\n" for item in range(1 + qid % 4))


QUERIES = range(100, 141)
ORIGINAL = "# made up\n" + "".join(rows_of(qid) for qid in QUERIES)
ISTELLA = PublishedSet(
    name="istella",
    folder="full",
    page="https://example.org/",
    archive="full.tar.gz",
    width=2,
    max_grade=4,
    splits=("train", "test"),
    vali_share=0.25,
    files={"train.txt": ids(ORIGINAL), "test.txt": ids(TEST)},
    known=(Known(("train", "vali"), rows=ORIGINAL.count("qid:"), lists=len(QUERIES)),),
)


def qids(path: Path) -> set[str]:
    return set(re.findall(r"qid:(\d+)", path.read_text()))


def split_folder(path: Path, text: str = ORIGINAL) -> Path:
    return write_folder(path, {"train.txt": text, "test.txt": TEST})


def test_split_is_by_query_three_to_one_and_loses_nothing(tmp_path: Path) -> None:
    folder = split_folder(tmp_path / "full")
    facts = split_train(folder, vali_share=0.25, seed=1)
    train, vali = qids(folder / "train.txt"), qids(folder / "vali.txt")
    assert (len(train), len(vali)) == (31, 10)
    assert train | vali == {str(qid) for qid in QUERIES}
    for name, part in (("train", train), ("vali", vali)):
        lines = ["# made up\n"] if name == "train" else []
        lines += [rows_of(qid) for qid in QUERIES if str(qid) in part]
        text = (folder / f"{name}.txt").read_text()
        assert text == "".join(lines)  # the order of the original
        rows = text.count("qid:")
        assert facts[name] == {"queries": len(part), "rows": rows, "bytes": len(text)}
    assert (folder / "train.original.txt").read_text() == ORIGINAL
    assert json.loads((folder / "split.json").read_text()) == facts
    assert facts["original"]["sha256"] == ids(ORIGINAL)[0]
    assert (facts["seed"], facts["vali_share"]) == (1, 0.25)


def test_split_depends_on_the_seed_alone(tmp_path: Path) -> None:
    text = "".join(rows_of(qid) for qid in reversed(QUERIES))
    folders = [split_folder(tmp_path / "a"), split_folder(tmp_path / "b", text)]
    other = split_folder(tmp_path / "c")
    for folder in folders:
        split_train(folder, vali_share=0.25, seed=1)
    split_train(other, vali_share=0.25, seed=2)
    a, b, c = (qids(folder / "vali.txt") for folder in [*folders, other])
    assert a == b != c


def test_split_again_changes_nothing_or_says_how(tmp_path: Path) -> None:
    folder = split_folder(tmp_path / "full")
    facts = split_train(folder, vali_share=0.25, seed=1)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert split_train(folder, vali_share=0.25, seed=1) == facts
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    again = "delete train.txt, vali.txt and split.json there (not train.original.txt)"
    message = refused(lambda: split_train(folder, vali_share=0.25, seed=2), ConfigError)
    assert message.startswith(f"{folder} was split with seed=1, not 2; give it or {again}")
    (folder / "vali.txt").write_text("0 qid:1 1:1\n")
    message = refused(lambda: split_train(folder, vali_share=0.25, seed=1))
    assert message.startswith(f"{folder}/vali.txt is not as split.json says; {again}")
    (folder / "split.json").write_text("{")
    message = refused(lambda: split_train(folder, vali_share=0.25, seed=1))
    assert message.startswith(f"{folder}/split.json is damaged; {again}")
    for name in ("train.txt", "vali.txt", "split.json"):
        (folder / name).unlink()
    assert split_train(folder, vali_share=0.25, seed=1) == facts


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(5))
def test_a_killed_split_is_made_again(tmp_path: Path, steps: int) -> None:
    """Killed before each rename: of train to original, of the two new files, of the record."""
    whole = split_folder(tmp_path / "whole")
    split_train(whole, vali_share=0.25, seed=1)
    folder = split_folder(tmp_path / "full")
    code = (
        "import os, sys; from pathlib import Path\n"
        "from ltr.preparation.resplit import split_train\n"
        "left = [int(sys.argv[2])]\n"
        "def counted(real):\n"
        "    def step(*arguments):\n"
        "        if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "        left[0] -= 1\n"
        "        return real(*arguments)\n"
        "    return step\n"
        "Path.rename, Path.replace = counted(Path.rename), counted(Path.replace)\n"
        "split_train(Path(sys.argv[1]), vali_share=0.25, seed=1)\n"
    )
    done = processes.run(code, str(folder), str(steps))
    assert done.returncode == (-signal.SIGKILL if steps < 4 else 0)
    dataset = replace(ISTELLA, folder="full")
    report = prepare(dataset, data_dir=tmp_path, cache_dir=tmp_path / "cache")
    report.check()
    assert read_folder(folder) == read_folder(whole)


def test_split_needs_a_query_on_every_row(tmp_path: Path) -> None:
    folder = split_folder(tmp_path / "full", ORIGINAL + "1 1:0.5\n")
    message = refused(lambda: split_train(folder, vali_share=0.25, seed=1))
    number = ORIGINAL.count("\n") + 1
    assert message.startswith(f"{folder}/train.original.txt:{number}: '1 1:0.5'; expected label")
    assert not (folder / "vali.txt").exists()


def prepared(tmp_path: Path, dataset: PublishedSet, **options: object) -> str:
    options |= {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    report = prepare(dataset, **options)  # type: ignore[arg-type]
    report.check()
    return report.table


def test_prepare_splits_and_counts(tmp_path: Path) -> None:
    files = {"full/train.txt": ORIGINAL, "full/test.txt": TEST, "full/LICENCE.txt": "no"}
    archive = tmp_path / "full.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(write_folder(tmp_path / "there", files), arcname=".")
    text = prepared(tmp_path, ISTELLA, archive=archive, seed=3)
    rows = str(ORIGINAL.count("qid:"))
    lines = [line.split()[:5] for line in text.splitlines()]
    assert ["train+vali", rows, rows, "41", "41"] in lines
    assert prepared(tmp_path, ISTELLA, archive=archive, seed=3) == text
    message = refused(lambda: prepared(tmp_path, ISTELLA, seed=4), ConfigError)
    assert "was split with seed=3, not 4" in message
    wrong = replace(ISTELLA, files={"train.txt": ids("no")})
    message = refused(lambda: prepared(tmp_path, wrong, seed=3))
    assert "data/full/train.original.txt is not the official file" in message


def test_prepare_leaves_a_vali_file_of_other_making(tmp_path: Path) -> None:
    files = {"train.txt": ORIGINAL, "vali.txt": TEST, "test.txt": TEST}
    folder = write_folder(tmp_path / "data/full", files)
    message = refused(lambda: prepared(tmp_path, ISTELLA))
    assert "train+vali has 42 lists, not 41" in message
    assert read_folder(folder) == files


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_seed_out_of_range(tmp_path: Path, seed: float) -> None:
    message = refused(lambda: prepared(tmp_path, ISTELLA, seed=seed), ConfigError)
    assert message == f"seed={seed}: give a whole number >= 0"


@pytest.mark.parametrize("name", ["train.txt", "vali.txt"])
def test_a_file_of_other_making_is_not_overwritten(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "full", {"train.original.txt": ORIGINAL, name: "mine\n"})
    before = read_folder(folder)
    message = refused(lambda: split_train(folder, vali_share=0.25, seed=1))
    assert message.startswith(f"{folder / name} is there, and not of this split")
    assert read_folder(folder) == before
