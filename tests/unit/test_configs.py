"""Configs are composed as by Hydra, whatever signs are typed; every choice is built and trains."""

import itertools
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ltr.cli.arguments import as_hydra, check_added, quoted, with_quotes
from ltr.cli.compose import compose_by_hydra, run_config, typed, values_of, with_choices
from ltr.cli.configs import CONFIGS
from ltr.cli.typed_values import read_typed
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.lab.search.definition import split_changes
from ltr.parts.components import build_dataset
from tests.helpers.runs import compose, run


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


TREES = ["lightgbm", "stumps", "xgboost"]
OWN = ["adarank", "catboost", "prank", "rankboost"]  # they take none of these losses


# A model sees no loss, and a loss no model: each model with one of a kind, with pairs, with grades,
# with several outputs for an item, with draws. Objectives of trees are in test_trees.py.
KINDS = itertools.cycle(["lambdarank", "neuralerr", "ordinal", "listmle"])
MODELS = sorted({*choices("model")} - {*OWN})


@pytest.mark.slow
@pytest.mark.parametrize(("model", "loss"), [*zip(MODELS, KINDS, strict=False)])
def test_losses_of_every_kind_and_every_model_train(loss, model, tiny, tmp_path) -> None:
    sizes = tiny[-3:-1] if model == "transformer" else []
    if model in TREES:
        pytest.importorskip("xgboost" if model == "xgboost" else "lightgbm")
    cfg = compose(*tiny[:4], f"loss={loss}", f"model={model}", "epochs=1", *sizes)
    got = run(cfg, tmp_path, {"loss": loss, "model": model})
    assert 0 <= got["test_ndcg@5"] <= 1


GROUPS = [
    [f"{group}={choice}" for choice in choices(group) if choice != "web30k"]
    for group in ("optimizer", "schedule", "transform")
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [*itertools.zip_longest(*GROUPS)])
def test_every_optimizer_schedule_and_transform_trains(changes, tiny, tmp_path) -> None:
    got = run(compose(*tiny, "epochs=1", *filter(None, changes)), tmp_path, {})
    assert 0 <= got["test_ndcg@5"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("dataset", choices("dataset"))
def test_every_dataset_is_built(dataset) -> None:
    own = {
        "letor": ["dataset.folder=mine"],
        "table": ["dataset.query=q", "dataset.label=y", "dataset.path=a.csv"],
    }
    cfg = compose(f"dataset={dataset}", *own.get(dataset, []))
    assert build_dataset(cfg.dataset).name == dataset
    assert cfg.transform._target_.startswith("ltr.data.transforms.")
    before = OmegaConf.to_yaml(cfg)
    build(cfg).make_model(5)
    assert OmegaConf.to_yaml(cfg) == before


@pytest.mark.slow
@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_is_built_and_starts_with_its_command(experiment) -> None:
    build(compose(f"experiment={experiment}"))
    lines = Path(CONFIGS / "experiment" / f"{experiment}.yaml").read_text().splitlines()
    comments = [line for line in lines if line.startswith("# ") and "@package" not in line]
    assert comments[0] == f"# python train.py experiment={experiment}"


def test_the_paper_s_settings_come_by_themselves() -> None:
    web30k = compose("dataset=web30k")
    assert (web30k.batch_size, web30k.list_size, web30k.epochs) == (64, 240, 100)
    assert web30k.model.fc_sizes == [96]
    assert web30k.model.output_activation == "tanh"
    assert (web30k.model.blocks, web30k.model.heads, web30k.model.feed_forward) == (2, 1, 384)
    assert web30k.optimizer._target_ == "torch.optim.Adam"
    steps = (web30k.optimizer.lr, web30k.schedule.step_size, web30k.schedule.gamma)
    assert steps == (1e-3, 50, 0.1)
    istella = compose("dataset=istella", "loss=listnet")
    assert (istella.batch_size, istella.model.fc_sizes) == (110, [128])
    assert istella.model.output_activation is None
    assert compose("dataset=mq2007", "loss=rmse").loss.levels == 3
    assert compose("dataset=istella_s", "loss=rmse").loss.levels == 5
    own = compose("dataset=istella", "batch_size=7", "model.fc_sizes=[5,6]", "transform=none")
    assert (own.batch_size, own.model.fc_sizes) == (7, [5, 6])
    assert own.transform._target_ == "ltr.data.transforms.no_transform"


@pytest.mark.parametrize("loss", ["ranknet", "ranksvm", "rankboost"])
def test_a_pairwise_loss_is_a_mean_over_pairs_in_a_linear_model_alone(loss) -> None:
    own = ["model=linear", "loss.pair_weight=null"], ["model=linear", "loss.pair_weight=ndcg_beta"]
    for more, expected in zip(
        (["model=mlp"], ["model=linear"], *own), ["sum", "mean", "sum", "ndcg_beta"], strict=True
    ):
        found = compose(f"loss={loss}", *more).loss.pair_weight
        assert (found or "sum") == expected


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss=neuralndcg", "seed=3", "loss.tol=1e-3"),
        ("model=mlp", "model.hidden_sizes=[]", "metrics=[ndcg@5,mrr]", "seed=${epochs}"),
        ("experiment=lightgbm_mq2008", "model.max_depth=4", "data_dir='a b'"),
        ("dataset=table", "dataset.split={train:a,test:b}", "convention=trec"),
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


@pytest.mark.slow
def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "schedule" / "mine.yaml"
    own.parent.mkdir(parents=True)
    for gamma in (0.5, 0.25, 0.125):
        own.write_text(
            "_target_: ltr.training.schedules.step_decay\n_partial_: true\n"
            f"step_size: 1\ngamma: {gamma}\n"
        )
        assert compose("schedule=mine").schedule.gamma == gamma
    own.unlink()
    with pytest.raises(Exception, match="mine"):
        compose("schedule=mine")


# Signs in what is typed.


def parsed(override: str) -> object:
    return OverridesParser.create().parse_override(override).value()


def test_signs_in_a_path() -> None:
    for name in ("/home/müller/x", "~x", "a b", "a=b", "a (b)", "a&b", "a#b"):
        assert parsed(with_quotes(f"resume={name}")) == name
    assert compose(with_quotes("data_dir=a (b)")).data_dir == "a (b)"
    assert with_quotes("~tracking") == "~tracking"
    plain = ("resume=null", "resume=outputs/a-b_c.1", "resume='a b'", "metrics=[a,b]", "seed=1,2")
    assert [with_quotes(text) for text in plain] == [*plain]


@given(st.text(st.sampled_from("ab'\\\"=,# ~ü&;!/[1]{}():|^<>"), min_size=1))
def test_any_text_survives_quotes(text: str) -> None:
    assert parsed(f"resume={quoted(text)}") == text


def test_lists_of_commands_that_do_not_sweep_need_no_brackets() -> None:
    assert read_typed("evaluate", ["metrics=ndcg@5,map"]).values == {"metrics": ["ndcg@5", "map"]}
    predict = read_typed("predict", ["features=1,2", "id=null"]).values
    assert predict == {"features": ["1", "2"], "id": None}
    assert read_typed("evaluate", ["metrics=[ndcg@5]"]).values == {"metrics": ["ndcg@5"]}
    check = read_typed("check_loss", ["a.b", "power=2"]).values
    assert check == {"name": "a.b", "knobs": ["power=2"]}
    words = ["convention=letor4,paper", "convention.empty=0", "dataset=mq2008", "dataset.fold=2"]
    evaluate = read_typed("evaluate", words)
    assert evaluate.values == {"conventions": ["letor4", "paper"], "convention.empty": 0}
    assert evaluate.group_overrides == ["dataset=mq2008", "dataset.fold=2"]
    hydras = ["--cfg", "job", "--config-dir=x"]
    assert as_hydra(hydras) == hydras


NAMES = (
    "1.10", "1_0", "3e5", "007", "2024", "true", "inf", "may,june.txt", "price (EUR)", "catégorie",
    "[a].csv", "{x}", " x", "a=b", "a:b", "it's", "$5", "+x", "a\\b", "yes",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_holds_a_text_gets_what_was_typed(name: str) -> None:
    assert typed("explain", ["outputs/run", f"qid={name}"]).qid == name
    assert typed("evaluate", ["checkpoint=run", f"data={name}"]).data == name
    assert typed("prepare_data", ["dataset=letor", f"dataset.folder={name}"]).dataset.folder == name
    assert run_config(["dataset=letor", f"dataset.folder={name}"])[0].dataset.folder == name
    assert values_of([f"output_dir={name}"]) == {"output_dir": name}
    search = typed("search", [f"dataset.path={name}", "dataset=table", f"name={name}"])
    assert search.name == name
    assert split_changes(search.train)[0] == (f"dataset.path={name}", "dataset=table")


@pytest.mark.parametrize("name", ["1.10", "1_0", "true", "null", "price (EUR)", "catégorie", "a=b"])
def test_a_key_that_holds_texts_gets_each_as_it_was_typed(name: str) -> None:
    given = ["dataset=table", f"dataset.features=[x,{name}]", f"dataset.id={name},y"]
    dataset = typed("prepare_data", given).dataset
    assert dataset.features == ["x", name]
    assert dataset.id == [name, "y"]
    split = f"dataset.split={{train:{name},vali:null}}"
    files = run_config(["dataset=table", split])[0].dataset.split
    assert files == {"train": None if name == "null" else name, "vali": None, "test": None}
    assert typed("compare", ["outputs/a", f"scores={{a:[x,{name}]}}"]).scores == {"a": ["x", name]}


def test_a_sweep_over_texts_has_each_as_it_was_typed() -> None:
    sweep = ["--multirun", "dataset.folder=2024_05,a", "dataset.id=[1.10,b],[]", "seed=1,2"]
    folders, ids = ["dataset.folder='2024_05',a", "dataset.id=['1.10',b],[]"]
    assert as_hydra(sweep) == ["--multirun", folders, ids, "seed=1,2"]
    assert as_hydra(sweep[1:]) == ["dataset.folder='2024_05,a'", ids, "seed=1,2"]
    functions = ["--multirun", "dataset.folder=choice(a,b)", "seed=range(1,4)"]
    assert as_hydra(functions) == functions


def test_null_is_none_where_the_key_can_be_none() -> None:
    assert typed("explain", ["outputs/run", "qid=null", "input=null"]).input is None
    assert typed("explain", ["outputs/run", "qid=null"]).qid == "null"
    assert compose("resume=null").resume is None


def test_files_of_judgments_are_several_in_compare_alone() -> None:
    words = ["scores={a:[x,y]}", "qrels=1.qrels,2.qrels", "metric=map"]
    assert typed("compare", words).qrels == ["1.qrels", "2.qrels"]
    assert typed("compare", [*words[:1], "qrels=1.qrels"]).qrels == "1.qrels"
    assert typed("evaluate", ["scores=x", "qrels=1,2.qrels"]).qrels == "1,2.qrels"


def test_a_key_may_be_added_that_a_file_of_ones_own_or_a_run_reads(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs/loss").mkdir(parents=True)
    text = "_target_: ltr.losses.ranknet_loss\n_partial_: true\nsigma: ${my_sigma}\n"
    (tmp_path / "configs/loss/mine.yaml").write_text(text)
    check_added(["loss=mine", "+my_sigma=2.0"])
    check_added(["++epochs=1"])
    for override in ("+my_sig=2.0", "+epoch=1"):
        with pytest.raises(ConfigError, match=r"the key .* has no effect"):
            check_added([override])
    for command in ("table", "search"):
        assert read_typed(command, ["++epochs=1"]).values == {"train": ["++epochs=1"]}
    with pytest.raises(ConfigError, match="k: no such key"):
        typed("compare", ["+k=1"])


def test_the_choice_of_a_group_is_a_text() -> None:
    assert with_quotes("experiment=1e3") == "experiment='1e3'"
