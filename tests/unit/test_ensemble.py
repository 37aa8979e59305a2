"""Ensembles: scores, weights, the runs that can be combined, run folders; bagging of members."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.cli.cli import call_command
from ltr.data.batches import ItemTensors
from ltr.data.transforms import fit_transform, no_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.identity import ensemble_identity
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.train_lists import check_bagging, draw_lists
from ltr.inference.evaluate import evaluate_model
from ltr.lab.ensembles import weights as weights_module
from ltr.lab.ensembles.command import ensemble_of_runs
from ltr.lab.ensembles.ensemble import check_combinable
from ltr.lab.ensembles.weights import (
    Measure,
    SplitHalfScores,
    fixed_weights,
    greedy_selection,
    parse_weights,
    select_on_halves,
    shrink_to_equal,
    tuned_weights,
)
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves
from ltr.models import MLP, Linear
from ltr.parts.ensemble import Ensemble, Member, standardised
from ltr.parts.scorer import load_model
from ltr.ranker import Ranker
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.evaluation import predict
from ltr.training.trainer import Trainer
from tests.helpers.folders import finish, refused
from tests.helpers.made_lists import make_lists
from tests.helpers.made_table import write_data
from tests.helpers.made_trees import SMALL
from tests.helpers.runs import compose, run


def standardise_by_hand(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return scores ``[items]``, standardised list by list."""
    standardised_lists = []
    for values in np.split(scores.astype(np.float64), np.cumsum(lengths)[:-1]):
        if values.max() > values.min():
            standardised_lists.append((values - values.mean()) / values.std())
        else:
            standardised_lists.append(np.zeros(len(values)))
    return np.concatenate(standardised_lists)


def test_ensemble_averages_scores_standardised_in_each_list() -> None:
    lists = make_lists([3, 7, 1, 5])
    torch.manual_seed(0)
    models = [Linear(5).eval(), MLP(5, hidden_sizes=[4]).eval()]
    transforms = [fit_transform(lists), no_transform(lists)]
    member_scores = [
        standardise_by_hand(predict(model, ItemTensors(lists, transform)).numpy(), lists.lengths)
        for model, transform in zip(models, transforms, strict=True)
    ]
    members = [
        Member(model, transform, "float32")
        for model, transform in zip(models, transforms, strict=True)
    ]
    ensemble = Ensemble(members, [0.75, 0.25])
    raw = ItemTensors(lists, no_transform(lists, missing="keep"))
    for items in (1, 100):  # a list alone, and all of them padded
        scores = predict(ensemble, raw, items=items).numpy()
        expected = 0.75 * member_scores[0] + 0.25 * member_scores[1]
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert not hasattr(ensemble, "pointwise")


def test_member_scores_in_the_precision_of_its_run(monkeypatch) -> None:
    lists = make_lists([3, 4])
    settings = []

    def forward(self, features, mask, ranks=None):
        settings.append((torch.backends.cuda.matmul.allow_tf32, torch.is_autocast_enabled("cpu")))
        return features[..., 0]

    monkeypatch.setattr(Linear, "forward", forward)
    precisions = ("float32", "tf32", "bfloat16", "float32")
    members = [Member(Linear(5), no_transform(lists), precision) for precision in precisions]
    predict(Ensemble(members, [0.25] * 4), ItemTensors(lists, no_transform(lists)))
    assert settings == [(False, False), (True, False), (False, True), (False, False)]


def test_standardised_does_not_read_padding() -> None:
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    scores = torch.tensor([[1.0, 2.0, 4.0, torch.nan], [0.1, 0.1, 7.0, torch.inf]])
    values = standardised(scores, mask)
    expected = standardise_by_hand(np.array([1, 2, 4]), np.array([3]))
    assert values[0, :3].tolist() == pytest.approx(expected)
    assert values[1].tolist() == [0, 0, 0, 0]
    for value in (0.1, -3e30, 1e-30):
        assert not standardised(torch.full((1, 7), value), torch.ones(1, 7, dtype=torch.bool)).any()
    features = torch.full((2, 4, 5), torch.nan).masked_fill(mask[..., None], 0.5)
    member = Member(Linear(5), no_transform(make_lists([3])), "float32")
    assert bool(Ensemble([member], [1.0])(features, mask).isfinite().all())


def make_member(scores: torch.Tensor) -> SplitHalfScores:
    """Return a member whose epoch is 3 on each first half and 5 on each second."""
    epochs = np.tile([3, 5], (HALVINGS, 1))
    return SplitHalfScores(epochs, {3: scores[0].double(), 5: scores[1].double()})


def make_measure(expected: torch.Tensor) -> Measure:
    """Return a metric that compares the scores of a list with the ``expected`` ones."""

    def measure(scores: torch.Tensor) -> np.ndarray:
        return torch.cosine_similarity(scores.view_as(expected), expected).numpy()

    return measure


def test_tuned_weights_of_one_good_member_are_exact() -> None:
    torch.manual_seed(0)
    expected = torch.randn(200, 4).double()  # of 200 lists of four items
    noise = [0.1, 5, 5]
    members = [
        make_member((expected + level * torch.randn(2, 200, 4)).flatten(1)) for level in noise
    ]
    weights = tuned_weights(members, make_measure(expected)).weights
    assert weights[0] == 1  # to the last bit: a member of weight 0 is not run
    assert weights[1:] == (0, 0)


@pytest.fixture(scope="module")
def similar_members() -> tuple[list[SplitHalfScores], Measure]:
    """Return three members of similar quality on 200 lists of four items, and the metric."""
    torch.manual_seed(0)
    expected = torch.randn(200, 4).double()
    noise = (0.8, 1.0, 1.0)
    members = [
        make_member((expected + level * torch.randn(2, 200, 4)).flatten(1)) for level in noise
    ]
    return members, make_measure(expected)


def test_tuned_weights_shrink_as_halves_of_vali_disagree(similar_members) -> None:
    members, measure = similar_members
    ensemble = tuned_weights(members, measure)
    all_halves = Halves.split(np.ones(200, dtype=bool))
    halves = Halves(all_halves.first[:5], all_halves.second[:5])
    deviations = select_on_halves(members, measure, halves) - 1 / 3
    agreement = 2 * (deviations[:, 0] * deviations[:, 1]).sum() / np.square(deviations).sum()
    assert 0 < agreement < 1
    expected = 1 / 3 + 2 * agreement / (1 + agreement) * deviations.mean((0, 1))
    np.testing.assert_allclose(ensemble.weights, expected)
    measured_together = tuned_weights(members, measure, np.full(200, 4))
    assert measured_together == ensemble
    assert measured_together.crossfit.measured == ensemble.crossfit.measured


def test_tuned_weights_crossfit_tunes_on_each_half(similar_members) -> None:
    members, measure = similar_members
    crossfit = tuned_weights(members, measure).crossfit
    halves = Halves.split(np.ones(200, dtype=bool))

    def tune_on_half(split: int, side: int) -> tuple[float, ...]:
        """Return the weights that a half tunes on its own halves."""
        lists = (halves.first, halves.second)[side][split]
        scores = torch.stack([member.scores[(3, 5)[side]] for member in members])
        quarters = (lists[::2], lists[1::2])
        selections = [greedy_selection(scores, measure, quarter) for quarter in quarters]
        weights = shrink_to_equal(np.array([selections]))
        return tuple(weights / weights.sum())

    for split in range(HALVINGS):
        for side in (0, 1):
            expected = fixed_weights(tune_on_half(split, side), members, measure).crossfit
            measured = crossfit.measured[split][side]
            assert measured == pytest.approx(expected.measured[split][side], abs=1e-12)


def test_tuned_weights_of_a_half_do_not_depend_on_labels_of_the_other_half(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(160, 4))
    errors = (0.4, 1.0, 1.0, 1.2)
    members = [
        make_member(torch.tensor(truth + error * rng.normal(size=(2, 160, 4))).flatten(1))
        for error in errors
    ]
    halves = Halves.split(np.ones(160, dtype=bool))

    def tune(labels: np.ndarray) -> np.ndarray:
        """Return the weights of each half, ``[splits, 2, members]``."""
        tuned = []
        measure_crossfit = weights_module._measure_crossfit

        def record(weights: np.ndarray, *args: object) -> Crossfit | None:
            tuned.append(weights)
            return measure_crossfit(weights, *args)

        with monkeypatch.context() as patch:
            patch.setattr(weights_module, "_measure_crossfit", record)
            tuned_weights(members, make_measure(torch.tensor(labels)))
        return tuned[0]

    weights = tune(truth)
    assert np.ptp(weights[:, 1], axis=-1).min() > 0.01  # they are not equal
    changed = truth.copy()
    changed[halves.first[0]] = rng.permuted(truth[halves.first[0]], axis=1)
    changed_weights = tune(changed)
    np.testing.assert_array_equal(weights[0, 1], changed_weights[0, 1])
    assert (weights[0, 0] != changed_weights[0, 0]).any()


def test_tuned_weights_have_one_crossfit_on_the_same_halves_as_equal_weights() -> None:
    torch.manual_seed(1)
    expected = torch.randn(40, 4).double()
    measure = make_measure(expected)
    counts = set()
    for seed in range(20):
        torch.manual_seed(seed)
        members = [make_member((expected + torch.randn(2, 40, 4)).flatten(1)) for _ in range(3)]
        tuned = tuned_weights(members, measure)
        equal = fixed_weights("equal", members, measure)
        counts |= {len(tuned.crossfit.measured), len(equal.crossfit.measured)}
        if np.ptp(tuned.weights) == 0:
            assert tuned == equal
    assert counts == {HALVINGS}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_weights_are_equal_on_a_gpu() -> None:
    torch.manual_seed(0)
    members = [make_member(torch.rand(2, 30)) for _ in range(3)]
    gpu_members = [
        SplitHalfScores(
            member.epochs, {epoch: scores.cuda() for epoch, scores in member.scores.items()}
        )
        for member in members
    ]

    def measure(scores: torch.Tensor) -> np.ndarray:
        return scores.cpu().numpy()

    for weigh in (tuned_weights, partial(fixed_weights, "equal")):
        ensemble = weigh(members, measure)
        gpu_ensemble = weigh(gpu_members, measure)
        np.testing.assert_allclose(ensemble.weights, gpu_ensemble.weights)
        np.testing.assert_allclose(ensemble.crossfit.measured, gpu_ensemble.crossfit.measured)


def test_fixed_weights_crossfit_measures_on_the_other_half() -> None:
    lists = 10
    halves = Halves.split(np.ones(lists, dtype=bool))
    first, second = torch.rand(2, lists).double()
    member = make_member(torch.stack([first, second]))

    def measure(scores: torch.Tensor) -> np.ndarray:
        return scores.numpy()

    crossfit = fixed_weights([1.0], [member], measure).crossfit
    expected = np.stack(
        [first.numpy()[halves.second].mean(1), second.numpy()[halves.first].mean(1)], axis=1
    )
    assert crossfit == Crossfit.from_halves(expected)
    np.testing.assert_allclose(crossfit.measured, expected)
    assert crossfit.minus(crossfit) == Crossfit(0.0, 0.0, ())
    member_of_one_list = SplitHalfScores(member.epochs, {3: first[:1], 5: second[:1]})
    assert fixed_weights("equal", [member_of_one_list], measure).crossfit is None
    refused(lambda: tuned_weights([member_of_one_list] * 2, measure), DataError)


@pytest.mark.parametrize(
    "wrong",
    [["best"], ["1"], ["1", "-1"], ["0", "0"], ["nan", "1"], ["1_0", "1"], ["\uff11", "1"], []],
)
def test_parse_weights_refuses_wrong_weights(wrong) -> None:
    assert refused(lambda: parse_weights(wrong, 2), ConfigError).startswith("weights")
    assert parse_weights(["3", "1"], 2) == (0.75, 0.25)


RESULTS = {
    "dataset": "mine", "fold": 1, "features": 5, "protocol": {},
    "data": {split: {"digest": split} for split in ("train", "vali", "test")},
    "convention": {"empty": 1.0, "text": "empty list = 1"},
}  # fmt: skip


def test_check_combinable_refuses_runs_that_differ(tmp_path) -> None:
    def finished(name: str, **entries: object) -> RunFolder:
        (tmp_path / name).mkdir()
        finish(tmp_path / name, RESULTS | entries)
        return RunFolder(tmp_path / name)

    first = finished("first")
    check_combinable([first, first])
    for setting, entries in {
        "fold": {"fold": 2},
        "features": {"features": 6},
        "convention": {"convention": {"empty": 0.0, "text": ""}},
        "lists": {"data": RESULTS["data"] | {"train": {"digest": "changed"}}},
    }.items():
        runs = [first, finished(setting, **entries)]
        assert f"differ in {setting}" in refused(
            lambda runs=runs: check_combinable(runs), ConfigError
        )


def test_ensemble_identity_depends_on_members_and_weights() -> None:
    identity = ensemble_identity(["a", "b"], "equal")
    different = [
        (["b", "a"], "equal"), (["a", "b"], "vali"), (["a"], "equal"), (["a", "b"], (1, 0)),
    ]  # fmt: skip
    assert identity not in {ensemble_identity(*ensemble) for ensemble in different}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[list[Path], list[str]]:
    """Return the folders of a network and of trees, and the override with their cache.

    The two read features through different transforms.
    """
    folder = tmp_path_factory.mktemp("members")
    data = [*write_data(folder, queries=8), "epochs=2", "threads=1"]
    rows = {
        "net": ["model=mlp", "model.hidden_sizes=[4]", "loss=listnet", "transform=standardise"],
        "trees": ["model=lightgbm", *SMALL["lightgbm"], "metrics=[map]"],
    }
    for name, row in rows.items():
        (folder / name).mkdir()
        choices = {"model": name, "loss": "None", "optimizer": "adam"}
        run(compose(*data, *row), folder / name, choices)
    cache = [override for override in data if override.startswith("cache")]
    return [folder / name for name in rows], cache


def combine(members: list[Path], folder: Path, *overrides: str) -> RunFolder:
    """Make an ensemble as the command does."""
    paths = ",".join(map(str, members))
    cfg = compose(f"runs=[{paths}]", f"output={folder}", *overrides, config="ensemble")
    call_command(ensemble_of_runs, cfg)
    return RunFolder(folder)


@pytest.mark.slow
def test_ensemble_folder_works_as_a_run_without_its_members(trained, tmp_path) -> None:
    folders, cache = trained
    members = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]
    runs = [RunFolder(folder) for folder in members]
    lengths = runs[0].queries["items"].to_numpy()
    expected = sum(standardise_by_hand(run.scores, lengths) for run in runs) / 2
    ensemble = combine(members, tmp_path / "both", *cache)
    np.testing.assert_allclose(ensemble.scores, expected, atol=2e-6)
    assert ensemble.results["choices"] == {
        "model": "ensemble", "members": "net + trees", "weights": "equal",
    }  # fmt: skip
    assert set(ensemble.results["test"]) == {"ndcg@5", "ndcg@10"}
    nested = combine([ensemble.folder, members[1]], tmp_path / "nested", "weights=[1,0]", *cache)
    expected = standardise_by_hand(ensemble.scores, lengths)
    np.testing.assert_allclose(nested.scores, expected, atol=2e-6)
    fitted = combine(members, tmp_path / "fitted", "weights=vali", *cache)
    assert 0 <= fitted.results["crossfit"] <= 1
    assert fitted.results["crossfit_equal"] == ensemble.results["crossfit"]
    assert nested.results["crossfit"] is None  # the epochs of a member saw all of vali

    for folder in members:
        shutil.rmtree(folder)
    table = call_command(
        evaluate_model, compose(f"checkpoint={nested.folder}", *cache, config="evaluate")
    )
    assert f"{nested.results['test']['ndcg@5']:.4f}" in table
    ranker = Ranker.load(ensemble.folder)
    lists = make_lists(lengths.tolist())
    scores = ranker.predict(lists.features, qid=np.repeat(lists.qids, lengths))
    assert np.isfinite(scores).all()
    saved = tmp_path / "saved"
    ranker.save(saved)
    assert RunFolder(saved).results == ensemble.results
    assert RunFolder(saved).damage() is None
    assert "new folder" in refused(lambda: combine([nested.folder], saved, *cache), ConfigError)


@pytest.mark.slow
def test_load_model_refuses_harmful_ensembles(trained, tmp_path) -> None:
    members, cache = trained
    path = combine(members, tmp_path / "both", *cache).folder / "ensemble.pt"
    sound = load_checkpoint(path)
    cpu = torch.device("cpu")
    (path.parent / "results.json").unlink()  # it would say that the file is another one

    first, second = sound["members"]

    def changed(**entries):
        save_checkpoint(path, sound | {"members": [first | entries, second]})
        return str(path)

    foreign = changed(config=first["config"] | {"model": {"_target_": "os.system"}})
    assert "trust=[MODULE]" in refused(lambda: load_model(foreign, cpu), ConfigError)
    large = {name: torch.zeros(1).expand(10**9) for name in first["model"]}  # 4 GB, of one number
    refused(lambda: load_model(changed(model=large), cpu), CheckpointError)
    refused(lambda: load_model(changed(width=7), cpu), CheckpointError)
    for wrong in ([], [0.5], [0.5, "a"], None):
        save_checkpoint(path, sound | {"weights": wrong})
        refused(lambda: load_model(str(path), cpu), CheckpointError)


def test_subset_repeats_whole_lists() -> None:
    lists = replace(make_lists([3, 1, 4]), weights=np.array([1, 2, 3], np.float32))
    bag = lists.subset(np.array([2, 0, 2]))
    rows = [4, 5, 6, 7, 0, 1, 2, 4, 5, 6, 7]
    assert bag.rows.tolist() == rows
    np.testing.assert_array_equal(bag.features, lists.features[rows])
    np.testing.assert_array_equal(bag.labels, lists.labels[rows])
    assert (bag.qids.tolist(), bag.offsets.tolist()) == (["q2", "q0", "q2"], [0, 4, 7, 11])
    assert bag.weights.tolist() == [3, 1, 3]


def test_draw_lists_depends_on_seed_and_bagging() -> None:
    bags = [draw_lists(1000, "bootstrap", seed) for seed in range(5)]
    distinct_shares = [len({*bag.tolist()}) / 1000 for bag in bags]
    assert all(abs(share - (1 - np.exp(-1))) < 0.05 for share in distinct_shares)
    assert len({tuple(bag) for bag in bags}) == 5
    assert len(draw_lists(1, 0.1, 1)) == 1


@pytest.mark.parametrize("wrong", [True, 0, 1, 1.5, "boot", [0.5]])
def test_check_bagging_refuses_wrong_values(wrong) -> None:
    with pytest.raises(ConfigError, match=r"bagging=.*bootstrap"):
        check_bagging(wrong)


@pytest.mark.slow
def test_run_trains_on_its_bag_and_records_all_lists(tiny, tmp_path, monkeypatch):
    data_of_runs = []
    fit = Trainer.fit

    def recording_fit(trainer, data):
        data_of_runs.append(data)
        return fit(trainer, data)

    monkeypatch.setattr(Trainer, "fit", recording_fit)
    overrides = [override for override in tiny if not override.startswith("model.")]
    for bagging in ("null", "0.5"):
        cfg = compose(*overrides, "epochs=1", "model=linear", "loss=listnet", f"bagging={bagging}")
        (tmp_path / bagging).mkdir()
        run(cfg, tmp_path / bagging, {})
    all_qids, bag_qids = (data["train"].qids.tolist() for data in data_of_runs)
    assert bag_qids == [all_qids[i] for i in draw_lists(24, 0.5, 1)]
    assert len(data_of_runs[1]["vali"]) == 8
    checkpoints = [load_checkpoint(tmp_path / name / "last.pt") for name in ("null", "0.5")]
    for entry in ("data", "transform"):
        assert checkpoints[0][entry] == checkpoints[1][entry]
