"""The base installation: everything works but what an extra is for."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import polars
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hydra_plugins
from ltr import Ranker
from ltr.errors import ConfigError
from tests.helpers.folders import refused
from tests.helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
absent, commands = json.load(sys.stdin)
sys.modules |= {name: None for name in absent if "." in name}
class Present(PathFinder):
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Present
from ltr.__main__ import main
results = []
for command in commands:
    code = 0
    sys.argv = ["ltr", *command]
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        try:
            if command[0] == "python":
                exec(command[1])
            else:
                main()
        except SystemExit as end:
            code = end.code
    results.append((code or 0, output.getvalue()))
json.dump(results, sys.stdout)
"""
RANKER = """
import pandas as pd
from ltr import Ranker
items = pd.read_csv("items.csv")
ranker = Ranker("mlp", "listnet", epochs=1, verbose=0, categories=["shop"])
ranker.fit(items.drop(columns="grade"), items.grade).rank(items)
import ltr.losses, ltr.metrics, ltr.models, ltr.relaxations
"""
REFUSED = {  # extra -> commands that need it
    "explain": ["explain checkpoint=run input=mine/test.txt qid=1 output_dir=x"],
    "export": ["export checkpoint=run to=onnx output=x"],
    "gbdt": [f"train model={library}" for library in ("lightgbm", "xgboost", "catboost")],
    "parquet": [
        "train dataset=table data_dir=. dataset.path=items.feather dataset.query=qid "
        "dataset.label=grade",
        "predict checkpoint=run input=items.csv output=x.parquet query=qid",
    ],
    "report": ["table table=softrank_slides"],
    "search": ["search"],
    "sweep": ["train -m hydra/launcher=joblib seed=1,2"],
    "cluster": ["train -m hydra/launcher=submitit_slurm seed=1,2"],
    "tracking": ["train tracking=mlflow", "train tracking=wandb"],
}


def required_packages(names: list[str]) -> Iterator[str]:
    """The packages that these requirements bring, themselves too."""
    for requirement in map(Requirement, names):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
            yield from required_packages(metadata.requires(requirement.name) or [])


def absent_modules() -> list[str]:
    """The modules of this environment that the base installation lacks."""
    base_packages = {*required_packages(PROJECT["dependencies"]), "ltr-torch"}
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not base_packages & {*map(canonicalize_name, owners)}
    }
    plugins = {f"hydra_plugins.{plugin.name}" for plugin in iter_modules(hydra_plugins.__path__)}
    return sorted((modules - {"hydra_plugins"}) | (plugins - {"hydra_plugins.ltr_jobs"}))


def write_data(folder: Path) -> None:
    """Write the same lists as ``items.csv``, ``items.feather`` and LETOR text in ``mine``."""
    rng = np.random.default_rng(0)
    items = pd.DataFrame(rng.normal(size=(240, 3)), columns=list("abc")).round(3)
    items = items.assign(shop=rng.choice(["x", "y"], 240), grade=rng.integers(0, 3, 240))
    items = items.assign(qid=np.arange(240) // 6)
    items.to_csv(folder / "items.csv", index=False)
    items.to_feather(folder / "items.feather")
    rows = zip(*(items[name] for name in ("grade", "qid", "a", "b")), strict=True)
    text = "".join(f"{grade} qid:{qid} 1:{a} 2:{b}\n" for grade, qid, a, b in rows)
    (folder / "jobs.yaml").write_text("[[seed=1], [seed=2]]")
    (folder / "mine").mkdir()
    for split in ("train", "vali", "test"):
        (folder / "mine" / f"{split}.txt").write_text(text)


def working_commands() -> list[list[str]]:
    """Commands that need no extra."""
    small = "model=mlp loss=lambdarank epochs=1 threads=1 data_dir=."
    letor = "dataset=letor dataset.folder=mine"
    table = "dataset=table dataset.path=items.csv dataset.query=qid dataset.label=grade"
    commands = [
        f"train {small} {letor} hydra.run.dir=run",
        f"train {small} {table} dataset.categories=[shop] hydra.run.dir=other",
        f"train -m {small} {letor} seed=1,2 sweep=two",
        f"train -m {small} {letor} hydra/sweeper=jobs hydra.sweeper.jobs=jobs.yaml sweep=listed",
        "evaluate checkpoint=run",
        "evaluate checkpoint=other",
        "predict checkpoint=run input=mine/test.txt output=text.csv",
        "predict checkpoint=other input=items.csv output=table.csv",
    ]
    return [*map(shlex.split, commands), ["python", RANKER]]


@pytest.mark.slow
def test_base_installation_trains_and_names_each_extra_that_a_command_needs(
    tmp_path: Path,
) -> None:
    extras = PROJECT["optional-dependencies"]
    assert REFUSED.keys() == extras.keys() - {"all", "bench", "dev", "docs", "text"}
    (all_extras,) = map(Requirement, extras["all"])
    assert all_extras.extras == REFUSED.keys() - {"cluster", "tracking"}  # these need a service
    absent = absent_modules()
    launcher = "hydra_plugins.hydra_joblib_launcher"
    assert {"pyarrow", "matplotlib", "statsmodels", launcher, "pytest"} <= {*absent}

    write_data(tmp_path)
    working = working_commands()
    refused_commands = [
        (extra, shlex.split(command)) for extra, commands in REFUSED.items() for command in commands
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps([absent, [*working, *(command for _, command in refused_commands)]]),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for command, (code, output) in zip(working, results, strict=False):
        assert code == 0, (command, output)
    refusals = zip(refused_commands, results[len(working) :], strict=True)
    for (extra, command), (code, output) in refusals:
        assert code != 0, command
        assert f"pip install 'ltr-torch[{extra}]'" in output, (command, output)
        assert output.count("\n") == 1, (command, output)


def test_ranker_without_pyarrow_refuses_tables_of_other_libraries(monkeypatch) -> None:
    frame = polars.DataFrame({"a": [0.5, 1.0], "qid": [1, 1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for arguments in ((frame, [0, 1]), (frame.drop("qid").to_numpy(), [0, 1], frame["qid"])):
        message = refused(lambda arguments=arguments: Ranker("mlp").fit(*arguments), ConfigError)
        assert "pip install 'ltr-torch[parquet]'" in message
