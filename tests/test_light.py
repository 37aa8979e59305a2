"""With the packages of the base installation alone all works but what an extra is for."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pytest
from conftest import ROOT
from folders import refused
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ltr import Ranker
from ltr.errors import ConfigError

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
absent, commands = json.load(sys.stdin)
class Present(PathFinder):
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Present
from ltr.__main__ import main
told = []
for command in commands:
    code, sys.argv, said = 0, ["ltr", *command], io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            if command[0] == "python":
                exec(command[1])
            else:
                main()
        except SystemExit as end:
            code = end.code
    told.append((code or 0, said.getvalue()))
json.dump(told, sys.stdout)
"""
RANKER = """
import pandas as pd
from ltr import Ranker
items = pd.read_csv("items.csv")
ranker = Ranker("mlp", "listnet", epochs=1, verbose=0, categories=["shop"])
ranker.fit(items.drop(columns="grade"), items.grade).rank(items)
import ltr.losses, ltr.metrics, ltr.models, ltr.relaxations
"""
REFUSED = {  # for each extra: commands that need it
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


def base(names: list[str]) -> Iterator[str]:
    """The packages that these requirements bring, themselves too."""
    for one in map(Requirement, names):
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            yield canonicalize_name(one.name)
            yield from base(metadata.requires(one.name) or [])


@pytest.mark.slow
def test_the_base_trains_and_each_extra_is_named_where_it_is_needed(tmp_path: Path) -> None:
    extras = PROJECT["optional-dependencies"]
    assert REFUSED.keys() == extras.keys() - {"all", "bench", "dev", "docs", "text"}
    (every,) = map(Requirement, extras["all"])
    assert every.extras == REFUSED.keys() - {"cluster", "tracking"}  # these need a service
    known = {*base(PROJECT["dependencies"]), "ltr-torch"}
    absent = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not known & {*map(canonicalize_name, owners)}
    ]
    assert {"pyarrow", "matplotlib", "statsmodels", "hydra_plugins", "pytest"} <= {*absent}

    rng = np.random.default_rng(0)
    items = pd.DataFrame(rng.normal(size=(240, 3)), columns=list("abc")).round(3)
    items = items.assign(shop=rng.choice(["x", "y"], 240), grade=rng.integers(0, 3, 240))
    items = items.assign(qid=np.arange(240) // 6)
    items.to_csv(tmp_path / "items.csv", index=False)
    items.to_feather(tmp_path / "items.feather")
    rows = zip(*(items[name] for name in ("grade", "qid", "a", "b")), strict=True)
    text = "".join(f"{grade} qid:{qid} 1:{a} 2:{b}\n" for grade, qid, a, b in rows)
    (tmp_path / "mine").mkdir()
    for split in ("train", "vali", "test"):
        (tmp_path / "mine" / f"{split}.txt").write_text(text)
    small = "model=mlp loss=lambdarank epochs=1 threads=1 data_dir=."
    letor = "dataset=letor dataset.folder=mine"
    table = "dataset=table dataset.path=items.csv dataset.query=qid dataset.label=grade"
    working = [
        f"train {small} {letor} hydra.run.dir=run",
        f"train {small} {table} dataset.categories=[shop] hydra.run.dir=other",
        f"train -m {small} {letor} seed=1,2 sweep=two",
        "evaluate checkpoint=run",
        "evaluate checkpoint=other",
        "predict checkpoint=run input=mine/test.txt output=text.csv",
        "predict checkpoint=other input=items.csv output=table.csv",
    ]
    commands = [*map(shlex.split, working), ["python", RANKER]]
    wrong = [(extra, shlex.split(one)) for extra, all_ in REFUSED.items() for one in all_]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps([absent, [*commands, *(one for _, one in wrong)]]),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for command, (code, said) in zip(commands, told, strict=False):
        assert code == 0, (command, said)
    for (extra, command), (code, said) in zip(wrong, told[len(commands) :], strict=True):
        assert code != 0, command
        assert f"pip install 'ltr-torch[{extra}]'" in said, (command, said)
        assert said.count("\n") == 1, (command, said)


def test_tables_of_other_libraries_go_by_arrow(monkeypatch) -> None:
    frame = polars.DataFrame({"a": [0.5, 1.0], "qid": [1, 1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for given in ((frame, [0, 1]), (frame.drop("qid").to_numpy(), [0, 1], frame["qid"])):
        said = refused(lambda given=given: Ranker("mlp").fit(*given), ConfigError)
        assert "pip install 'ltr-torch[parquet]'" in said
