"""Imports point one way, and the edge (Hydra, OmegaConf) stays at the edge."""

import ast
from pathlib import Path

import pytest

from ltr.experiment.identity import _CODE

LTR = Path(__file__).resolve().parents[1] / "ltr"
MAY_IMPORT = {
    "__main__": {"", "commands", "console", "training"},
    "commands": {
        "scoring",
        "training",
        "console",
        "experiment",
        "checks",
        "explain",
        "compare",
        "tables",
        "search",
        "ensembles",
        "export",
        "preparation",
    },
    "errors": set(),
    "typing": set(),
    "kernels": set(),
    "whole": {"errors"},
    "tracking": {"errors", "whole"},
    "metrics": {"errors", "typing"},
    "relaxations": {"errors", "typing", "metrics"},
    "losses": {"errors", "typing", "kernels", "metrics", "relaxations"},
    "battery": {"errors", "typing", "metrics", "losses"},
    "models": {"errors", "typing", "metrics"},
    "data": {"errors", "typing", "whole", "kernels"},
    "tabular": {"errors", "data"},
    "training": {
        "errors",
        "typing",
        "whole",
        "metrics",
        "relaxations",
        "losses",
        "models",
        "data",
        "statistics",
    },
    "rounds": {"errors", "typing", "kernels", "metrics", "models", "data", "training"},
    "trees": {"errors", "typing", "losses", "models", "data", "training", "rounds"},
    "statistics": {"errors"},
    "plugins": {"errors"},
    "console": {"errors", "training"},
    "experiment": {
        "errors",
        "typing",
        "whole",
        "tracking",
        "metrics",
        "relaxations",
        "losses",
        "models",
        "data",
        "tabular",
        "training",
        "rounds",
        "trees",
        "statistics",
        "console",
    },
    "preparation": {"errors", "whole", "data", "console", "experiment"},
    "scoring": {
        "errors",
        "whole",
        "metrics",
        "data",
        "tabular",
        "training",
        "console",
        "experiment",
    },
    "ensembles": {
        "errors",
        "whole",
        "metrics",
        "data",
        "training",
        "console",
        "experiment",
        "scoring",
    },
    "export": {
        "errors",
        "whole",
        "models",
        "data",
        "training",
        "rounds",
        "trees",
        "console",
        "experiment",
        "scoring",
    },
    "checks": {
        "errors",
        "metrics",
        "losses",
        "data",
        "battery",
        "training",
        "rounds",
        "trees",
        "console",
        "experiment",
    },
    "estimator": {
        "errors",
        "whole",
        "metrics",
        "data",
        "tabular",
        "training",
        "console",
        "experiment",
    },
    "explain": {
        "errors",
        "whole",
        "metrics",
        "data",
        "training",
        "rounds",
        "trees",
        "console",
        "experiment",
        "scoring",
        "analysis",
        "tables",
    },
    "analysis": {"errors", "whole", "statistics"},
    "compare": {
        "errors",
        "whole",
        "metrics",
        "statistics",
        "console",
        "experiment",
        "analysis",
        "scoring",
    },
    "tables": {
        "ensembles",
        "search",
        "rounds",
        "trees",
        "errors",
        "whole",
        "metrics",
        "data",
        "training",
        "statistics",
        "console",
        "experiment",
        "analysis",
    },
    "search": {
        "errors",
        "whole",
        "data",
        "training",
        "statistics",
        "console",
        "experiment",
        "analysis",
    },
}

# Hydra and OmegaConf stay there.
MAY_COMPOSE = MAY_IMPORT["commands"] | {"commands", "plugins"} - {"training"}

# What reports on runs and computes none of them.
COMPUTE_NO_RUN = {
    "analysis",
    "battery",
    "checks",
    "compare",
    "console",
    "ensembles",
    "estimator",
    "experiment",
    "export",
    "explain",
    "preparation",
    "scoring",
    "search",
    "statistics",
    "tables",
}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it; relative imports are not allowed."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write the whole name of what is imported"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_a_run_is_known_by_the_code_of_every_package_that_computes_it() -> None:
    packages = {path.parent.name for path in LTR.glob("*/__init__.py")}
    counted = {part for part in _CODE if (LTR / part).is_dir()}
    assert counted == packages - COMPUTE_NO_RUN
    assert all((LTR / part).exists() for part in _CODE)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(LTR.rglob("*.py")), ids=str)
def test_imports_point_one_way(path) -> None:
    here = path.relative_to(LTR).parts[0].removesuffix(".py")
    if here == "__init__":  # `import ltr` is instant: what only a type checker reads costs nothing
        top = [node for node in ast.parse(path.read_text()).body if hasattr(node, "names")]
        assert all(getattr(node, "module", None) == "typing" for node in top)
        return
    for name in imported(path):
        package, _, rest = name.partition(".")
        if package == "ltr":
            there = rest.partition(".")[0]
            assert there == here or there in MAY_IMPORT[here], f"{path} imports {name}"
        if package in ("hydra", "omegaconf"):
            assert here in MAY_COMPOSE, f"{path} imports {name}"
