"""Trees as they are kept: what is damaged is refused, what features did is told."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose, make_lists
from made_trees import KINDS, LIBRARIES, after, booster_of, needed, reading, tensors, train

from ltr.console.compose import typed
from ltr.errors import CheckpointError, ConfigError
from ltr.experiment.run import run
from ltr.inference.explain.importances import importances
from ltr.models.rounds import LightGBM
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"not trees", b"tree\nversion=v4\n", b"\x00" * 64])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_booster_that_is_damaged_is_refused(library, content) -> None:
    needed(library)
    model = KINDS[library](5)
    state = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
    with pytest.raises(CheckpointError, match=r"trees kept are not a model that") as error:
        model.load_state_dict({"_extra_state": state})
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_checkpoint_without_trees_is_refused(data, tmp_path) -> None:
    train(tmp_path / "run", *data, "model=lightgbm", "epochs=1", "select=last")
    path = tmp_path / "run" / "last.pt"
    for state in ({}, {"_extra_state": [1, 2]}, {"_extra_state": torch.zeros(3)}):
        save_checkpoint(path, load_checkpoint(path) | {"model": state})
        with pytest.raises(CheckpointError):
            load_model(str(path), torch.device("cpu"))


def test_trees_of_other_features_are_refused() -> None:
    data = tensors(make_lists([8, 9]))
    last = after(LightGBM(5, num_leaves=2, min_data_in_leaf=1), data)
    with pytest.raises(CheckpointError, match=r"have other features than their config"):
        LightGBM(6).take(last.state())


@pytest.mark.slow
@pytest.mark.parametrize("model", LIBRARIES)
def test_importances_and_the_library_s_own_model(model, data, tmp_path) -> None:
    needed(model)
    out, written = tmp_path / "run", tmp_path / "a folder"
    train(out, *data, f"model={model}", "epochs=12", "select=last")
    trees = load_model(str(out), torch.device("cpu")).model
    gain, splits = trees.importances()
    assert gain.shape == splits.shape == (5,)
    assert gain.argmax() == 0  # the feature that tells the label
    assert gain[0] > gain[1:].sum()
    if model == "catboost":
        assert np.isnan(splits).all()
        assert gain.sum() == pytest.approx(100)
    else:  # a tree has one leaf more than splits
        assert splits.sum() == trees.fitted - 12
        assert ((splits > 0) == (gain > 0)).all()

    text = importances_of(out, "top=2", f"write={written}")
    lines = text.splitlines()
    assert len(lines) == 1 + 2 + 2 + 1
    used = int((gain > 0).sum())
    assert lines[0].endswith(f"{trees.title} {trees.version}, {used} of 5 features used")
    assert lines[1].split() == ["feature", "share"] + ["splits"] * (model != "catboost")
    assert lines[3].split()[:2] == ["1", f"{gain[0] / gain.sum():.4f}"]
    table = pd.read_csv(written / "importances.csv")
    assert list(table) == ["feature", "gain", "share", "splits"]
    np.testing.assert_allclose(table.sort_values("feature").gain, gain)
    assert table.gain.is_monotonic_decreasing
    assert table.share.sum() == pytest.approx(1)
    assert [path.name for path in written.iterdir()] == ["importances.csv"]
    native = (
        tmp_path / {"lightgbm": "model.txt", "xgboost": "model.ubj", "catboost": "model.cbm"}[model]
    )
    native.write_bytes(booster_of(out / "last.pt"))
    items = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    np.testing.assert_allclose(
        trees.score_with(read(model, native), items),
        trees(torch.from_numpy(items)[None], torch.ones(1, 20, dtype=torch.bool))[0],
        rtol=1e-5,
    )
    assert len(importances_of(out, "top=0").splitlines()) == 1 + 2 + 5


def importances_of(run: Path, *keys: str) -> str:
    """What ``scripts/importances.py RUN KEY=VALUE ...`` prints."""
    return importances(typed("importances", [str(run), *keys]))


def read(library: str, path: Path):
    """The model of ``path``, as users of the library read it."""
    module = pytest.importorskip(library)
    if library == "lightgbm":
        return module.Booster(model_file=str(path))
    if library == "xgboost":
        return module.Booster(model_file=str(path))
    return module.CatBoost().load_model(str(path))


@pytest.mark.slow
def test_importances_of_what_has_none(data, tiny, tmp_path) -> None:
    assert LightGBM(3).importances().gain.tolist() == [0, 0, 0]
    out = tmp_path / "network"
    out.mkdir()
    run(compose(*tiny, "epochs=0"), out, {})
    with pytest.raises(CheckpointError, match=r"no importances .*, rankboost, .*explain"):
        importances_of(out)
    train(tmp_path / "none", *data, "model=lightgbm", "epochs=0")
    with pytest.raises(CheckpointError, match=r"has no trees .*: resume it, or give another"):
        importances_of(tmp_path / "none")
    for wrong, message in (
        ("top=many", "top=many: give a whole number >= 0"),
        ("depth=2", "depth: no such key; the keys are run, top, write"),
        ("write=", "write=: not a folder"),
        (f"write={tmp_path / 'none' / 'last.pt'}", "not a folder; give write=FOLDER"),
    ):
        with pytest.raises(ConfigError, match=message):
            importances_of(tmp_path / "none", wrong)
