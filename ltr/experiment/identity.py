"""The identity of a run: one hash of its config, the content of its data, and the code.

A sweep does not repeat a finished run that has the same identity.
"""

import ast
import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.keys import Kind, as_list, without
from ltr.data.lists import splits_of
from ltr.experiment.labels import with_suggested
from ltr.models.rounds import BoostedTrees
from ltr.relaxations.learned_sorter import SHIPPED
from ltr.scorers.parts import by_rounds, class_of, make_dataset, own_metrics
from ltr.scorers.trust import values_in
from ltr.training.checkpoint import selected_checkpoint

SHOWN = 10  # characters of an identity in the name of a folder
# The folders whose code decides what a run computes. The second is for trees, or for a teacher.
_ROOMS = ("metrics", "relaxations", "kernels", "losses", "models", "data", "training", "scorers",
          "experiment")  # fmt: skip
_OF_ROUNDS = "models/rounds"
# Files in these folders that do not decide it.
_AROUND = (
    "prepare_data",
    "public_sets",
    "sweep",
    "commands",
    "ensemble_command",
    "identity",
    "engines",
)
_LTR = Path(__file__).resolve().parents[1]


def identity(config: DictConfig) -> str:
    """Return the SHA-256 of what a run computes: its config, its data and the code.

    Keys that say where and how fast the run is computed (``Kind.PLACE``) do not count. The code is
    that of this project, the user's own, and the version of a library of trees. The versions of
    PyTorch, NumPy, Numba and SciPy, the device and the number of threads change only the last
    digits and do not count; ``results.json`` records them. ``ConfigError``, ``DataError``: the data
    of the run are missing, or cannot be read.
    """
    dataset = make_dataset(config.dataset)
    dataset.check()
    digests = {split: dataset.split(split).digest for split in splits_of(dataset)}
    config = with_suggested(config, lambda: dataset.split("train"))
    return _hash(_parts(config) | {"data": digests})


def identity_without_data(config: DictConfig) -> str:
    """Return a hash like ``identity`` for a run without its data; it equals no run's identity."""
    return _hash(_parts(config))


def ensemble_identity(members: Sequence[str], weights: str | Sequence[float]) -> str:
    """Return the SHA-256 of the members' identities in order, ``weights``, and ensemble code."""
    return _hash([list(members), weights, *map(room_digest, ("experiment", "scorers"))])


def origins_of(config: DictConfig) -> dict[str, str | None]:
    """Return the digests of a run's teacher and sorter, None for one that it does not have."""
    whole = OmegaConf.to_container(config, resolve=True)
    nodes = (node for node in values_in(whole) if isinstance(node, Mapping))
    sorter = Path(next(filter(None, (node.get("sorter") for node in nodes)), SHIPPED))
    return {
        "loss.sorter": _sha256(sorter) if sorter.is_file() else None,
        "teacher": run_digest(config.get("teacher")),
    }


def run_digest(path: str | None) -> str | None:
    """Return the SHA-256 of the selected checkpoint of the run ``path``; None for None."""
    return None if path is None else _sha256(selected_checkpoint(Path(path))[0])


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _parts(config: DictConfig) -> dict[str, Any]:
    whole: Any = OmegaConf.to_container(config, resolve=True)
    plain = without(whole, Kind.PLACE) | {
        "monitor": sorted({*as_list(config.monitor)} - {"vali"}),  # decides columns of history.csv
        "init_from": run_digest(config.init_from),
        "teacher": None,  # its digest is among the origins
    }
    return {"config": plain, "code": _code(config), "origins": origins_of(config)}


def _hash(parts: Any) -> str:
    """Return the SHA-256 of what JSON can hold; 0 and 0.0 count as the same number."""
    same = json.loads(json.dumps(parts), parse_int=float)
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def _code(config: DictConfig) -> list[Any]:
    rounds = by_rounds(config.model) or config.get("teacher") is not None  # that may be trees
    rooms = [*_ROOMS, *([_OF_ROUNDS] if rounds else ())]
    return [[*map(room_digest, rooms)], own_code(config), tree_library(config)]


def own_code(config: DictConfig) -> dict[str, str]:
    """Return a hash for each ``_target_`` and metric outside ``ltr`` and ``torch`` whose file is
    found: of that file, or for a package of all Python files in the folder.
    """
    plain = without(OmegaConf.to_container(config, resolve=True), Kind.PLACE)  # type: ignore[arg-type]
    nodes = [one for one in values_in(plain) if isinstance(one, Mapping) and "_target_" in one]
    named = {*(str(node["_target_"]) for node in nodes), *own_metrics(plain)}
    others = sorted(name for name in named if name.partition(".")[0] not in ("ltr", "torch"))
    return {name: code_hash(files) for name in others if (files := _files(name))}


def _files(target: str) -> list[Path]:
    """Return the source files that define ``target``, such as ``my_losses.margin_loss``.

    They are the file of its module, or all files in its folder if it belongs to a package.
    """
    first, *rest = target.split(".")
    spec = None
    with suppress(ImportError, ValueError):  # ValueError: a module without a spec, as __main__
        spec = find_spec(first)  # does not import anything
    if spec is None or not str(spec.origin).endswith(".py"):
        return []
    file = Path(str(spec.origin))
    if not spec.submodule_search_locations:
        return [file]
    folder = file.parent
    for name in rest:
        folder = folder / name if (folder / name).is_dir() else folder
    return sorted(folder.glob("*.py"))


def tree_library(config: DictConfig) -> dict[str, str]:
    """Return name and version of the library of boosted trees; empty for other models."""
    made, found = class_of(config.model), {}
    if issubclass(made, BoostedTrees):
        for distribution in (made.library, f"{made.library}-cpu"):  # such as xgboost-cpu
            with suppress(PackageNotFoundError):
                found[distribution] = version(distribution)
    return found


@functools.cache
def room_digest(room: str) -> str:
    """Return a hash of the code in a folder of the package ``ltr``, such as ``losses``."""
    files = sorted((_LTR / room).glob("*.py"))
    return code_hash([path for path in files if path.stem not in _AROUND])


def code_hash(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the statements in Python files, without comments, docstrings, layout,
    and texts of errors and log messages. A file that is not valid Python counts as it is.
    """
    digest = hashlib.sha256()
    for path in files:
        source = path.read_text(errors="replace")
        with suppress(SyntaxError):
            source = ast.unparse(_Quiet().visit(ast.parse(source)))
        digest.update(f"{path.name}\0{source}\0".encode())
    return digest.hexdigest()


class _Quiet(ast.NodeTransformer):
    """Removes docstrings, and the texts of errors and log messages, from a syntax tree."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_text(node.value) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name, _, method = ast.unparse(node.func).rpartition(".")
        if method.endswith("Error") or (name == "log" and hasattr(logging, method)):
            node.args = [ast.Constant("") if _is_text(part) else part for part in node.args]
        return node


def _is_text(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)
