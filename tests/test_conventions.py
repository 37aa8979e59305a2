"""The named conventions, in configs and on the command line."""

from pathlib import Path

import pytest
from conftest import compose

from ltr.console.configs import CONFIGS
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.run import run
from ltr.inference.evaluate import chosen_conventions, evaluate_model
from ltr.metrics import Convention
from ltr.scorers.parts import make_convention

NAMED = {
    "paper": Convention(),
    "lightgbm": Convention(relevant=0.50000001, map_over="reachable"),
    "letor4": Convention(empty=0, discount="letor", short="zero"),
    "trec": Convention(empty=0, gain="linear"),
    "sklearn": Convention(empty=0, gain="linear", ties="averaged"),
}


def test_every_named_convention_is_known_here() -> None:
    assert sorted(path.stem for path in (CONFIGS / "metrics_as").glob("*.yaml")) == sorted(NAMED)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_a_name_sets_every_key_but_the_data_s(name: str) -> None:
    cfg = compose(f"metrics_as={name}")
    assert set(cfg.metrics_as[name]) == set(vars(Convention())) - {"levels"}
    assert make_convention(cfg) == NAMED[name]
    assert chosen_conventions(compose(f"metrics_as={name}", config="evaluate"), {}) == {
        name: NAMED[name]
    }


def test_single_keys_go_over_the_name() -> None:
    cfg = compose("metrics_as=letor4", "convention.empty=skip", "convention.gain=[0,1,4]")
    assert make_convention(cfg) == Convention("skip", [0, 1, 4], "letor", short="zero")
    assert make_convention(compose()) == Convention()
    assert make_convention(compose("dataset=mq2008")).levels == 3
    cfg = compose("metrics_as=[letor4,trec]", "convention.empty=0.5", config="evaluate")
    assert chosen_conventions(cfg, {"levels": 3}) == {
        "letor4": Convention(empty=0.5, discount="letor", short="zero", levels=3),
        "trec": Convention(empty=0.5, gain="linear", levels=3),
    }
    cfg = compose("convention.gain=[0,1]", config="evaluate")
    assert chosen_conventions(cfg, {"empty": 0}) == {"own": Convention(0, [0, 1])}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("metrics_as=[letor4,paper]", "training takes one convention"),
        ("metrics_as=sklearn metrics=[ndcg@5,err@5]", "err has no averaged ties: leave err out"),
        ("+convention.gian=linear", "unexpected keyword argument 'gian'"),
    ],
)
def test_what_training_cannot_take_is_refused_before_data_is_read(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(compose(*given.split()))


@pytest.mark.slow
def test_a_run_stores_its_convention_and_others_can_be_asked_for(
    tiny: list[str], tmp_path: Path
) -> None:
    cfg = compose(*tiny, "epochs=1", "metrics_as=letor4", "metrics=[ndcg@5,map,mean_ndcg,err]")
    got = run(cfg, tmp_path, {})
    assert '"short": "zero"' in (tmp_path / "results.json").read_text()
    text = evaluate_model(compose(f"checkpoint={tmp_path}", config="evaluate"))
    assert f"{got['test_mean_ndcg']:.4f}" in text
    assert text.endswith(Convention(0, discount="letor", short="zero", levels=3).describe())
    given = [f"checkpoint={tmp_path}", "metrics_as=[letor4,paper]", "metrics=[ndcg@5]"]
    both = compose(*given, f"output={tmp_path / 'queries.csv'}", config="evaluate")
    table, described = evaluate_model(both).split("\n\n")[1:]
    assert table.split()[-2] == f"{got['test_ndcg@5']:.4f}"
    assert described.splitlines()[1] == f"paper: {Convention(levels=3).describe()}"
    head = (tmp_path / "queries.csv").read_text().splitlines()[0]
    assert head == "qid,items,empty,letor4 ndcg@5,paper ndcg@5"
