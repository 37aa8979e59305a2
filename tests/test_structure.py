"""Imports point one way, and the edge (Hydra, OmegaConf) stays at the edge."""

import ast
from pathlib import Path

import pytest

from ltr.experiment.identity import _CODE
from ltr.figures.architecture import architecture, imported, rooms

LTR = Path(__file__).resolve().parents[1] / "ltr"
MAY_IMPORT = {
    "__main__": {"", "benchmark", "commands", "console", "training"},
    "commands": {
        "scoring",
        "training",
        "console",
        "experiment",
        "checks",
        "explain",
        "figures",
        "compare",
        "tables",
        "search",
        "benchmark",
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
    "models": {"errors", "typing", "kernels", "metrics"},
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
        "models",
        "tabular",
        "training",
        "rounds",
        "trees",
        "console",
        "experiment",
        "scoring",
        "figures",
        "tables",
    },
    "figures": {"errors", "whole", "metrics", "relaxations", "losses", "statistics"},
    "compare": {
        "errors",
        "whole",
        "metrics",
        "statistics",
        "console",
        "experiment",
        "figures",
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
        "figures",
    },
    "search": {
        "errors",
        "whole",
        "data",
        "training",
        "statistics",
        "console",
        "experiment",
        "figures",
    },
    "benchmark": {
        "export",
        "errors",
        "typing",
        "whole",
        "metrics",
        "losses",
        "models",
        "data",
        "tabular",
        "training",
        "rounds",
        "trees",
        "kernels",
        "console",
        "experiment",
        "figures",
        "statistics",
    },
}

# Hydra and OmegaConf stay there.
MAY_COMPOSE = MAY_IMPORT["commands"] | {"commands", "plugins"} - {"training"}

# What reports on runs and computes none of them.
COMPUTE_NO_RUN = {
    "battery",
    "benchmark",
    "checks",
    "compare",
    "console",
    "ensembles",
    "estimator",
    "experiment",
    "export",
    "explain",
    "figures",
    "preparation",
    "scoring",
    "search",
    "statistics",
    "tables",
}


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


@pytest.mark.slow
def test_the_picture_of_the_imports_has_them_all_and_no_other() -> None:
    known = {name: room.imports for name, room in rooms().items() if name != "__init__"}
    allowed = {
        name: {other or "__init__" for other in others} for name, others in MAY_IMPORT.items()
    }
    assert all(others <= allowed[name] for name, others in known.items())
    data = architecture().data
    edges = {(row.room, row.imports): row.drawn for row in data.itertuples() if row.imports}
    assert set(edges) == {
        (name, other)
        for name, others in known.items()
        for other in others
        if not name.startswith("__")
    }

    def reached(name: str) -> set[str]:
        ends = {end for (start, end), drawn in edges.items() if drawn and start == name}
        return ends.union(*map(reached, ends))

    left_out = {end for start, end in edges if end not in reached(start)}
    assert left_out == {"errors", "typing"}
