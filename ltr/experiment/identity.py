"""The identity of a run: one hash of its whole config, the content of its data and the code."""

import ast
import functools
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import CONFIGS
from ltr.console.keys import Kind, without
from ltr.data.lists import SPLITS
from ltr.experiment.labels import with_levels
from ltr.experiment.parts import as_list, by_rounds, class_of, make_dataset
from ltr.relaxations.learned_sorter import SHIPPED
from ltr.training.checkpoint import add_tensors, scoring_digest, selected_checkpoint
from ltr.training.settings import Settings
from ltr.trees import BoostedTrees

SHOWN = 10  # characters of an identity in the name of a folder
# The code that decides what a run computes; what is not listed is not counted.
_CODE = (
    "metrics", "relaxations", "kernels", "losses", "models", "rounds", "trees", "data",
    "training",
    "experiment/warm_start.py", "experiment/build.py", "experiment/ensemble.py",
    "experiment/fit.py", "experiment/labels.py", "experiment/parts.py", "experiment/run.py",
    "experiment/list_steps.py", "experiment/scorer.py",
)  # fmt: skip
# And what an ensemble computes from its members.
_CODE_OF_ENSEMBLES = (
    "experiment/ensemble.py", "ensembles/combine.py", "ensembles/weights.py",
)  # fmt: skip
_OF_ROUNDS = ("rounds", "trees")  # not counted in a run of a network that has no teacher
_DISTRIBUTIONS = {"xgboost": ("xgboost", "xgboost-cpu")}  # where a library's name is not its own
_LTR = Path(__file__).resolve().parents[1]
_NOT_OWN = ("ltr", "torch")
_LOGGED = ("debug", "info", "warning", "error", "exception")  # methods of ``log``


def identity(config: DictConfig) -> str:
    """SHA-256 of what a run computes: its config without places, its data, the code.

    The code is this project's, the user's and the library of its trees, whose versions fit other
    trees. The versions of PyTorch, NumPy, Numba and SciPy do not count, for they change the last
    digits as the machine does, and no kept run would outlive an update; ``results.json`` has them.

    Raises:
        ConfigError, DataError: its data are missing, or cannot be read.
    """
    data = _data(json.dumps(OmegaConf.to_container(config.dataset, resolve=True), sort_keys=True))
    settled = with_levels(config, lambda: make_dataset(config.dataset).split("train"))
    return _hash(settled, data)


def identity_without_data(config: DictConfig) -> str:
    """As ``identity`` where the data are missing: different for each config, equal to no run's."""
    return _hash(config, {})


def ensemble_identity(members: Sequence[str], weights: str | Sequence[float]) -> str:
    """SHA-256 of what an ensemble is: the identities of its members, their weights, its code.

    Args:
        members: in order.
        weights: ``equal``, ``vali``, or one for each member.
    """
    sources = ((_LTR / part).read_text(encoding="utf-8") for part in _CODE_OF_ENSEMBLES)
    parts = [list(members), weights, code_hash(sources)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _hash(config: DictConfig, data: dict[str, str]) -> str:
    whole: Any = OmegaConf.to_container(config, resolve=True)
    plain = Settings.spelled(without(whole, Kind.PLACE))
    del plain["monitor"], plain["init_from"], plain["shards"]  # ``_more`` has them
    plain.pop("teacher", None)  # an older run has none
    rounds = by_rounds(config.model) or config.get("teacher") is not None  # trees may be a teacher
    parts = {"config": plain, "data": data, "code": code_digest(rounds=rounds)}
    parts |= _more(config)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _more(config: DictConfig) -> dict[str, Any]:
    """The parts that only some runs have; absent elsewhere, so that other hashes stay."""
    more = {
        "monitor": sorted({*as_list(config.monitor)} - {"vali"}),  # columns of history.csv
        "own_code": own_code(config),
        "library": tree_library(config),
        "init_from": beginning_digest(config.init_from),
        "teacher": teacher_digest(config.get("teacher")),
        "sorter": sorter_digest(config.get("loss")),
        "shards": config.shards,
    }
    return {key: value for key, value in more.items() if value}


@functools.cache
def _data(node: str) -> dict[str, str]:
    dataset = make_dataset(OmegaConf.create(json.loads(node)))
    dataset.check()
    return {split: dataset.split(split).digest for split in SPLITS}


@functools.cache
def code_digest(*, rounds: bool = True) -> str:
    """A hash of the code that decides what a run computes; without ``rounds``, of a network."""
    return code_hash(file.read_text(encoding="utf-8") for file in _code_files(rounds=rounds))


def _code_files(*, rounds: bool) -> Iterator[Path]:
    for part in _CODE:
        place = _LTR / part
        if rounds or part not in _OF_ROUNDS:
            yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def training_code(*configs: DictConfig) -> str:
    """A hash of all code that trains ``configs``: ours, the user's own, libraries of trees."""
    parts = [
        [code_digest(rounds=by_rounds(config.model)), own_code(config), tree_library(config)]
        for config in configs
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def own_code(config: DictConfig) -> dict[str, str]:
    """A hash for each ``_target_`` and metric outside ``ltr`` and ``torch`` whose file is found.

    A module counts with its file, a module of a package with all files of its folder. Nothing is
    imported.
    """
    whole: Any = OmegaConf.to_container(config, resolve=True)
    plain = without(whole, Kind.PLACE)
    found = {}
    for target in sorted({*_targets(plain), *own_metrics(plain)}):
        files = _files(target) if target.partition(".")[0] not in _NOT_OWN else []
        if files:
            found[target] = code_hash(file.read_text(errors="replace") for file in files)
    return found


def own_metrics(config: Mapping[str, Any]) -> list[str]:
    """The user's own functions among ``metrics`` and ``select_on``, without their cutoffs.

    >>> own_metrics({"metrics": ["ndcg@5", "mine.hits@5"], "select_on": "mine.hits"})
    ['mine.hits']
    """
    texts = [*as_list(config.get("metrics")), str(config.get("select_on"))]
    return sorted({name for name in (text.partition("@")[0] for text in texts) if "." in name})


def tree_library(config: DictConfig) -> dict[str, str]:
    """Name and version of the library of boosted trees; empty for other models."""
    made, found = class_of(config.model), {}
    if issubclass(made, BoostedTrees):
        for distribution in _DISTRIBUTIONS.get(made.library, (made.library,)):
            with suppress(PackageNotFoundError):
                found[distribution] = version(distribution)
    return found


def sorter_digest(loss: DictConfig | None) -> str | None:
    """SHA-256 of the network that ``loss=sodeep`` sorts with, alone or as a part of ``loss=mix``.

    None for a loss without one.
    """
    if loss is None:
        return None
    of_mix = OmegaConf.select(loss, "parts.sodeep")
    if "sorter" not in loss and not of_mix:
        return None
    given = OmegaConf.select(loss, "knobs.sodeep.sorter") if of_mix else loss.sorter
    path = Path(given or SHIPPED)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def beginning_digest(init_from: str | None) -> str | None:
    """SHA-256 of the weights and the transform that a run begins with; None: it begins anew.

    Raises:
        CheckpointError: they cannot be read.
    """
    if init_from is None:
        return None
    _, content = selected_checkpoint(Path(init_from))
    digest = hashlib.sha256(json.dumps(content["transform"], sort_keys=True).encode())
    add_tensors(digest, content["model"])
    return digest.hexdigest()


def teacher_digest(teacher: str | None) -> str | None:
    """SHA-256 of all that the run ``teacher`` scores items with; None: there is no teacher.

    Raises:
        CheckpointError: its checkpoint cannot be read.
    """
    if teacher is None:
        return None
    return scoring_digest(selected_checkpoint(Path(teacher))[1])


def _targets(value: Any) -> Iterator[str]:
    """Every ``_target_`` in ``value``."""
    if isinstance(value, dict):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _targets(item)


def _files(target: str) -> list[Path]:
    """The source files of the innermost module that ``target`` names."""
    first, *rest = target.split(".")
    spec = _top(first)
    for name in rest:
        inside = spec.submodule_search_locations if spec is not None else None
        below = (
            PathFinder.find_spec(f"{spec.name}.{name}", list(inside)) if spec and inside else None
        )
        if below is None:
            break
        spec = below
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return []
    file = Path(spec.origin)
    in_package = "." in spec.name or spec.submodule_search_locations is not None
    return sorted(file.parent.glob("*.py")) if in_package else [file]


def _top(name: str) -> ModuleSpec | None:
    """A module that is in no package, as ``train.py`` would find it."""
    try:
        return PathFinder.find_spec(name, [str(CONFIGS.parent), *sys.path]) or find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return None


def code_hash(sources: Iterable[str]) -> str:
    """SHA-256 of the statements of Python modules.

    Comments, docstrings, layout, the order of the definitions and their modules do not count, nor
    do the texts of errors and of the log. An import from ``ltr`` counts only where several
    definitions share the imported name. A text that is no Python counts as it is.

    Args:
        sources: the text of each module.

    >>> before = code_hash(["x = 1  # one", "def f(a):\\n    'Double.'\\n    return 2 * a"])
    >>> before == code_hash(["def f(a):\\n    return 2 * a\\nx = 1"])
    True
    >>> before == code_hash(["def f(a):\\n    return 3 * a\\nx = 1"])
    False
    """
    modules, found = [], []
    for source in sources:
        try:
            modules.append(ast.parse(source))
        except SyntaxError:
            found.append(source)
    names = Counter(name for module in modules for part in module.body for name in _defined(part))
    quiet = _Quiet({name for name, times in names.items() if times > 1})
    imports: set[str] = set()  # two modules that become one need a shared import once
    for module in modules:
        for part in quiet.visit(module).body:
            if isinstance(part, (ast.Import, ast.ImportFrom)):
                imports.update(_imports(part))
            elif "__all__" not in _defined(part):
                found.append(ast.unparse(part))
    return hashlib.sha256("\0".join(sorted([*found, *imports])).encode()).hexdigest()


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """A text for each imported name, but for those of ``ltr`` that one definition alone has."""
    module = statement.module if isinstance(statement, ast.ImportFrom) else None
    for alias in statement.names:
        if module != "ltr" or alias.asname is not None:
            yield f"{module} {alias.name} {alias.asname}"


class _Quiet(ast.NodeTransformer):
    """Remove docstrings, texts of errors and of the log, and the modules that ``ltr`` imports."""

    def __init__(self, shared: set[str]) -> None:
        self._shared = shared

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                part for part in body if not (isinstance(part, ast.Expr) and _is_text(part.value))
            ]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if f"{node.module}.".startswith("ltr.") and not any(
            alias.name in self._shared for alias in node.names
        ):
            node.module = "ltr"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute):
            to_log = isinstance(function.value, ast.Name) and function.value.id == "log"
            message = function.attr.endswith("Error") or (to_log and function.attr in _LOGGED)
        else:
            message = isinstance(function, ast.Name) and function.id.endswith("Error")
        if message:
            node.args = [
                ast.Constant("") if isinstance(part, ast.JoinedStr) or _is_text(part) else part
                for part in node.args
            ]
        return node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
