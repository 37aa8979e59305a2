"""Cut a vali file off a train file, by query: for Istella, which is published without vali.

The original is kept as ``train.original.txt``; ``split.json``, written last, records how the two
files were made. A killed split is made again.
"""

import filecmp
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ltr.errors import ConfigError, DataError
from ltr.preparation.unpack import check_space
from ltr.whole import write_whole

ORIGINAL = "train.original.txt"
RECORD = "split.json"

log = logging.getLogger(__name__)


def split_train(folder: Path, *, vali_share: float, seed: int) -> dict[str, Any]:
    """Make ``train.txt`` and ``vali.txt`` of a folder from its original train file.

    The queries are ordered by the SHA-256 of ``seed:qid``, and the first ``vali_share`` of them,
    rounded, are vali: the split depends on nothing else, not even on the order of the file. Both
    files keep the order of the lines.

    Args:
        folder: holds ``train.txt`` as published, or the files of an earlier call.
        vali_share: share of the queries that go to vali, in (0, 1).
        seed: of the split.

    Returns:
        The content of ``split.json``: the seed, the SHA-256 of the original, and the queries, rows
        and bytes of each file.

    Raises:
        ConfigError: the folder is split already, with another seed.
        DataError: a line without a query id, a damaged record, or no room on the disk.
    """
    original, record = folder / ORIGINAL, folder / RECORD
    train, vali = folder / "train.txt", folder / "vali.txt"
    if record.exists():
        return _recorded(folder, seed)
    if not original.exists():
        train.rename(original)
        log.info("the original %s is kept as %s", train, ORIGINAL)
    size = original.stat().st_size
    check_space(folder, size, what=f"split {original.name}")
    qids: dict[bytes, None] = {}
    digest = hashlib.sha256()
    for line, qid in _lines(original, "reading"):
        digest.update(line)
        if qid is not None:
            qids[qid] = None
    ordered = sorted(qids, key=lambda qid: hashlib.sha256(b"%d:%b" % (seed, qid)).digest())
    chosen = set(ordered[: round(vali_share * len(qids))])
    facts: dict[str, Any] = {
        "seed": seed,
        "vali_share": vali_share,
        "rule": "queries ordered by the SHA-256 of SEED:QID, the first share of them is vali",
        "original": {"file": ORIGINAL, "sha256": digest.hexdigest()},
    }
    partial = {path: path.with_name(f".{path.name}.partial") for path in (vali, train)}
    rows = dict.fromkeys(partial, 0)
    with partial[vali].open("wb") as to_vali, partial[train].open("wb") as to_train:
        for line, qid in _lines(original, "splitting"):
            (to_vali if qid in chosen else to_train).write(line)
            rows[vali if qid in chosen else train] += qid is not None
    for path, queries in ((train, len(qids) - len(chosen)), (vali, len(chosen))):
        size = partial[path].stat().st_size
        facts[path.stem] = {"queries": queries, "rows": rows[path], "bytes": size}
    _check_same(partial)
    for path, written in partial.items():
        written.replace(path)
    write_whole(record, json.dumps(facts, indent=2, allow_nan=False) + "\n")
    return facts


def _check_same(partial: Mapping[Path, Path]) -> None:
    """Raise ``DataError`` over a file that is not from a killed run of the same split."""
    for path, written in partial.items():
        if path.exists() and not filecmp.cmp(path, written, shallow=False):
            for part in partial.values():
                part.unlink()
            raise DataError(
                f"{path} is there, and not of this split of {ORIGINAL}; move it elsewhere, or "
                "delete it if it is of an earlier one"
            )


def _recorded(folder: Path, seed: int) -> dict[str, Any]:
    """The record of an earlier call, if it still holds."""
    record = folder / RECORD
    again = f"delete train.txt, vali.txt and {RECORD} there (not {ORIGINAL}) to split it again"
    try:
        facts: dict[str, Any] = json.loads(record.read_bytes())
        sizes = {name: facts[name]["bytes"] for name in ("train", "vali")}
        made_with = facts["seed"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{record} is damaged; {again}") from None
    if made_with != seed:
        raise ConfigError(
            f"{folder} was split with seed={made_with}, not {seed}; give it or {again}"
        )
    for name, size in sizes.items():
        path = folder / f"{name}.txt"
        if not path.exists() or path.stat().st_size != size:
            raise DataError(f"{path} is not as {RECORD} says; {again}")
    return facts


def _lines(path: Path, what: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Every line with its query id; None for a line without an item."""
    text, size = f"{what} {path.name}", path.stat().st_size
    bar = tqdm(desc=text, total=size, unit="B", unit_scale=True, disable=None)
    with path.open("rb") as file, bar:
        for number, line in enumerate(file, 1):
            bar.update(len(line))
            words = line.split(None, 2)
            if not words or words[0].startswith(b"#"):
                yield line, None
            elif len(words) > 1 and words[1].startswith(b"qid:"):
                yield line, words[1][4:]
            else:
                text = line[:40].decode(errors="replace").strip()
                raise DataError(
                    f"{path}:{number}: {text!r}; expected label qid:ID index:value ..., "
                    "get the official archive"
                )
