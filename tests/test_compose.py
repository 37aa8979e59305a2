"""Configs are composed as Hydra composes them, and again only where a file has changed."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ltr.console.compose import compose_by_hydra, composed, with_choices


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss=neuralndcg", "seed=3", "loss.tol=1e-3"),
        ("model=mlp", "model.hidden_sizes=[]", "metrics=[ndcg@5,mrr]", "seed=${epochs}"),
        ("experiment=lightgbm_mq2008", "model.max_depth=4", "data_dir='a b'"),
        ("dataset=table", "dataset.split={train:a,test:b}", "metrics_as=trec"),
        ("model.dropout=0.1", "model.dropout=0.2", "+model.extra=1", "~tracking"),
    ],
)
def test_it_is_what_hydra_composes(overrides) -> None:
    for _ in range(2):  # read, and kept
        config, choices = with_choices("train", overrides)
        config.seed = 99  # a change of one is none of the next
    config, choices = with_choices("train", overrides)
    expected, chosen = compose_by_hydra("train", overrides)
    assert choices == chosen
    assert list(config) == list(expected)
    assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)


def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "schedule" / "mine.yaml"
    own.parent.mkdir(parents=True)
    for gamma in (0.5, 0.25, 0.125):
        own.write_text(
            "_target_: ltr.training.schedules.step_decay\n_partial_: true\n"
            f"step_size: 1\ngamma: {gamma}\n"
        )
        assert composed("train", "schedule=mine").schedule.gamma == gamma
    own.unlink()
    with pytest.raises(Exception, match="mine"):
        composed("train", "schedule=mine")
