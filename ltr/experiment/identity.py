"""The identity of a run: a hash of its settings, its data, and the user's code.

A sweep does not repeat a finished run with the same identity.
"""

import ast
import hashlib
import json
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ltr.boosting import BoostedTrees
from ltr.cli.folders import former_convention
from ltr.cli.keys import FORMER_CONVENTION, Kind, as_list, without, without_null
from ltr.data.lists import Dataset, splits_of
from ltr.experiment.build import Experiment
from ltr.experiment.origins import digest_origins, run_digest
from ltr.parts.components import model_class, user_metrics
from ltr.parts.trust import iter_nested

# If a change of this project makes a run with the same settings compute other numbers, raise this
# by 1. Finished runs of sweeps and tables are then trained again.
RESULTS_VERSION = 1
SHOWN = 10  # characters of an identity in the name of a folder


def identity(experiment: Experiment) -> str:
    """Return a SHA-256 of everything that determines the results of a run.

    These are the settings, the data and the user's own code. Keys that say where and how fast the
    run is computed (``Kind.PLACE``) are left out. The versions of PyTorch, NumPy, Numba and SciPy,
    the device and the number of threads are also left out, because they change only the last
    digits; ``results.json`` records them.

    Raises:
        ConfigError, DataError: the data of the run are missing, or cannot be read.
    """
    dataset = experiment.dataset
    dataset.check()
    complete = experiment.with_facts_of(dataset.split("train"))
    return config_identity(complete.record.config, complete.record.choices, dataset)


def config_identity(config: Mapping[str, Any], choices: Mapping[str, str], dataset: Dataset) -> str:
    """Return the ``identity`` of a run without building its experiment.

    Args:
        config: the resolved config, with the settings that depend on the training lists filled in.
        choices: the choice of each config group.
        dataset: the data set of the run.
    """
    digests = {split: dataset.split(split).digest for split in splits_of(dataset)}
    return _hash(settings_of(config, choices) | {"data": digests})


def identity_without_data(config: Mapping[str, Any], choices: Mapping[str, str]) -> str:
    """Return a hash like ``identity``, but without the data; it never equals a run's identity."""
    return _hash(settings_of(config, choices))


def ensemble_identity(members: Sequence[str], weights: str | Sequence[float]) -> str:
    """Return the SHA-256 of the members' identities, in their order, and of ``weights``."""
    return _hash([list(members), weights, RESULTS_VERSION])


def settings_of(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return what determines the results of a run with the resolved ``config``, except data."""
    settings = without(config, Kind.PLACE) | {
        "monitor": sorted({*as_list(config["monitor"])} - {"vali"}),  # columns of history.csv
        "init_from": run_digest(config.get("init_from")),
        "teacher": None,  # its digest is among the origins
        FORMER_CONVENTION: former_convention(choices),
    }
    return {
        # A null key counts as absent. A new key that is null by default then changes no identity.
        "config": without_null(settings),
        "origins": digest_origins(config),
        "user_code": user_code(config),
        "tree_library": tree_library(config),
        "results_version": RESULTS_VERSION,
    }


def tree_library(config: Mapping[str, Any]) -> dict[str, str]:
    """Return ``{package: version}`` for boosted trees; an empty dict for other models."""
    model = model_class(config["model"])
    versions: dict[str, str] = {}
    if issubclass(model, BoostedTrees):
        for distribution in (model.library, f"{model.library}-cpu"):  # such as xgboost-cpu
            with suppress(PackageNotFoundError):
                versions[distribution] = version(distribution)
    return versions


def user_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest for each ``_target_`` and metric outside ``ltr`` and ``torch``.

    The digest covers the source file that defines the target, and all of the user's own modules
    that this file imports, directly or through other modules.
    """
    computing = without(config, Kind.PLACE)
    nodes = [node for node in iter_nested(computing) if isinstance(node, Mapping)]
    targets = {str(node["_target_"]) for node in nodes if "_target_" in node}
    targets |= {*user_metrics(computing)}
    user_targets = sorted(t for t in targets if t.partition(".")[0] not in ("ltr", "torch"))
    sources = {target: _sources(target) for target in user_targets}
    return {target: _sha256(files) for target, files in sources.items() if files}


def _sources(target: str) -> list[Path]:
    """Return the source files behind ``target``, sorted, without importing anything."""
    files: set[Path] = set()
    pending = _module_files(target)
    while pending:
        file = pending.pop()
        if file not in files:
            files.add(file)
            pending += [imported for imported in _imported_files(file) if _is_of_user(imported)]
    return sorted(files)


def _module_files(name: str) -> list[Path]:
    """Return the file of the module in the dotted ``name``, such as ``my_losses.margin_loss``.

    If the module belongs to a package, return all Python files in the module's folder.
    """
    first, *inner_names = name.split(".")
    spec = None
    with suppress(ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        spec = find_spec(first)  # does not import anything
    if spec is None or not str(spec.origin).endswith(".py"):
        return []
    file = Path(str(spec.origin))
    if not spec.submodule_search_locations:
        return [file]
    folder = file.parent
    for inner_name in inner_names:
        if (folder / inner_name).is_dir():
            folder = folder / inner_name
    return sorted(folder.glob("*.py"))


def _imported_files(file: Path) -> Iterator[Path]:
    """Yield the source files of the modules that ``file`` imports."""
    try:
        tree = ast.parse(file.read_text(errors="replace"))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from _module_files(str(node.module))
        elif isinstance(node, ast.ImportFrom):  # within a package: all its files count
            folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield from (folder if folder.is_dir() else folder.parent).glob("*.py")


def _is_of_user(file: Path) -> bool:
    """Return whether ``file`` is not part of Python, of an installed package, or of ltr."""
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    installed.add(Path(__file__).resolve().parents[1])
    return installed.isdisjoint(file.resolve().parents)


def _sha256(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the names and contents of ``files``."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _hash(content: Any) -> str:
    """Return the SHA-256 of ``content`` as JSON; 0 and 0.0 count as the same number."""
    with_floats = json.loads(json.dumps(content), parse_int=float)
    return hashlib.sha256(json.dumps(with_floats, sort_keys=True).encode()).hexdigest()
