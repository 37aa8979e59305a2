"""Ensembles: their scores, which runs go together, what a folder holds; the bags of members."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose, make_lists
from folders import finish, refused
from made_table import write_data
from made_trees import SMALL
from runs import run

from ltr.console.cli import call_command
from ltr.data.batches import ItemTensors
from ltr.data.transforms import fit_transform, no_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.ensemble import check_alike
from ltr.experiment.ensemble_command import ensemble_of_runs
from ltr.experiment.identity import ensemble_identity
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.train_lists import check_bagging, draw_lists
from ltr.inference.evaluate import evaluate_model
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves
from ltr.models import MLP, Linear
from ltr.ranker import Ranker
from ltr.scorers import weights as weights_module
from ltr.scorers.ensemble import Ensemble, Member, standardised
from ltr.scorers.scorer import load_model
from ltr.scorers.weights import (
    HalfScores,
    given_weights,
    greedy,
    parse_weights,
    picked_on_halves,
    shrunken,
    weights_on_vali,
)
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.evaluation import predict
from ltr.training.trainer import Trainer


def by_hand(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Scores ``[items]``, standardised list by list."""
    parts = np.split(scores.astype(np.float64), np.cumsum(lengths)[:-1])
    return np.concatenate(
        [(p - p.mean()) / p.std() if p.max() > p.min() else np.zeros(len(p)) for p in parts]
    )


def test_members_are_standardised_in_each_list_and_averaged() -> None:
    lists = make_lists([3, 7, 1, 5])
    torch.manual_seed(0)
    models = [Linear(5).eval(), MLP(5, hidden_sizes=[4]).eval()]
    transforms = [fit_transform(lists), no_transform(lists)]
    alone = [
        by_hand(predict(model, ItemTensors(lists, transform)).numpy(), lists.lengths)
        for model, transform in zip(models, transforms, strict=True)
    ]
    members = [Member(m, t, "float32") for m, t in zip(models, transforms, strict=True)]
    ensemble = Ensemble(members, [0.75, 0.25])
    raw = ItemTensors(lists, no_transform(lists, missing="keep"))
    for items in (1, 100):  # a list alone, and all of them padded
        found = predict(ensemble, raw, items=items).numpy()
        np.testing.assert_allclose(found, 0.75 * alone[0] + 0.25 * alone[1], atol=1e-6)
    assert not hasattr(ensemble, "pointwise")


def test_a_member_scores_in_the_precision_of_its_run(monkeypatch) -> None:
    lists, seen = make_lists([3, 4]), []

    def forward(self, features, mask, ranks=None):
        seen.append((torch.backends.cuda.matmul.allow_tf32, torch.is_autocast_enabled("cpu")))
        return features[..., 0]

    monkeypatch.setattr(Linear, "forward", forward)
    ways = ("float32", "tf32", "bfloat16", "float32")
    members = [Member(Linear(5), no_transform(lists), one) for one in ways]
    predict(Ensemble(members, [0.25] * 4), ItemTensors(lists, no_transform(lists)))
    assert seen == [(False, False), (True, False), (False, True), (False, False)]


def test_what_stands_on_padding_is_not_read() -> None:
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    scores = torch.tensor([[1.0, 2.0, 4.0, torch.nan], [0.1, 0.1, 7.0, torch.inf]])
    found = standardised(scores, mask)
    assert found[0, :3].tolist() == pytest.approx(by_hand(np.array([1, 2, 4]), np.array([3])))
    assert found[1].tolist() == [0, 0, 0, 0]
    for value in (0.1, -3e30, 1e-30):
        assert not standardised(torch.full((1, 7), value), torch.ones(1, 7, dtype=torch.bool)).any()
    features = torch.full((2, 4, 5), torch.nan).masked_fill(mask[..., None], 0.5)
    member = Member(Linear(5), no_transform(make_lists([3])), "float32")
    assert bool(Ensemble([member], [1.0])(features, mask).isfinite().all())


def of_halves(scores: torch.Tensor) -> HalfScores:
    """A member whose epoch is 3 on each first half and 5 on each second."""
    epochs = np.tile([3, 5], (HALVINGS, 1))
    return HalfScores(epochs, {3: scores[0].double(), 5: scores[1].double()})


def test_weights_shrink_as_halves_of_vali_disagree() -> None:
    torch.manual_seed(0)
    wanted = torch.randn(200, 4).double()  # of 200 lists of four items

    def measure(scores: torch.Tensor) -> np.ndarray:
        given = scores.view(200, 4)
        return torch.cosine_similarity(given, wanted).numpy()

    def weights(noise: list[float]) -> tuple[float, ...]:
        members = [
            of_halves((wanted + level * torch.randn(2, 200, 4)).flatten(1)) for level in noise
        ]
        return weights_on_vali(members, measure).weights

    best, *others = weights([0.1, 5, 5])
    assert best == 1  # to the last bit: a member of weight 0 is not run
    assert others == [0, 0]
    members = [
        of_halves((wanted + level * torch.randn(2, 200, 4)).flatten(1)) for level in (0.8, 1.0, 1.0)
    ]
    found, whole = weights_on_vali(members, measure), Halves.of(np.ones(200, dtype=bool))
    halves = Halves(whole.first[:5], whole.second[:5])
    off = picked_on_halves(members, measure, halves) - 1 / 3
    agree = 2 * (off[:, 0] * off[:, 1]).sum() / np.square(off).sum()
    assert 0 < agree < 1
    expected = 1 / 3 + 2 * agree / (1 + agree) * off.mean((0, 1))
    np.testing.assert_allclose(found.weights, expected)
    together = weights_on_vali(members, measure, np.full(200, 4))
    assert together == found
    assert together.crossfit.measured == found.crossfit.measured

    def of_half(split: int, side: int) -> tuple[float, ...]:
        """The weights that a half chooses from its own halves."""
        lists = (whole.first, whole.second)[side][split]
        scores = torch.stack([member.scores[(3, 5)[side]] for member in members])
        picked = [greedy(scores, measure, part) for part in (lists[::2], lists[1::2])]
        weights = shrunken(np.array([picked]))
        return tuple(weights / weights.sum())

    for split in range(HALVINGS):
        for side in (0, 1):
            alone = given_weights(of_half(split, side), members, measure).crossfit
            measured = found.crossfit.measured[split][side]
            assert measured == pytest.approx(alone.measured[split][side], abs=1e-12)


def test_the_labels_of_one_half_have_no_part_in_the_weights_of_the_other(monkeypatch) -> None:
    draws = np.random.default_rng(0)
    truth = draws.normal(size=(160, 4))
    errors = (0.4, 1.0, 1.0, 1.2)
    members = [
        of_halves(torch.tensor(truth + error * draws.normal(size=(2, 160, 4))).flatten(1))
        for error in errors
    ]
    halves = Halves.of(np.ones(160, dtype=bool))

    def weights_of_halves(labels: np.ndarray) -> np.ndarray:
        chosen = []
        measure_crossfit = weights_module._crossfit
        monkeypatch.setattr(
            weights_module,
            "_crossfit",
            lambda weights, *rest: (chosen.append(weights), measure_crossfit(weights, *rest))[1],
        )
        wanted = torch.tensor(labels)
        weights_on_vali(
            members, lambda scores: torch.cosine_similarity(scores.view(160, 4), wanted).numpy()
        )
        monkeypatch.undo()
        return chosen[0]

    before = weights_of_halves(truth)
    assert np.ptp(before[:, 1], axis=-1).min() > 0.01  # they are not equal
    changed = truth.copy()
    changed[halves.first[0]] = draws.permuted(truth[halves.first[0]], axis=1)
    after = weights_of_halves(changed)
    np.testing.assert_array_equal(before[0, 1], after[0, 1])
    assert (before[0, 0] != after[0, 0]).any()


def test_one_ensemble_has_one_crossfit_and_all_have_the_same_halves() -> None:
    torch.manual_seed(1)
    wanted = torch.randn(40, 4).double()

    def measure(scores: torch.Tensor) -> np.ndarray:
        return torch.cosine_similarity(scores.view(40, 4), wanted).numpy()

    counts = set()
    for seed in range(20):
        torch.manual_seed(seed)
        members = [of_halves((wanted + torch.randn(2, 40, 4)).flatten(1)) for _ in range(3)]
        on_vali, equal = weights_on_vali(members, measure), given_weights("equal", members, measure)
        counts |= {len(on_vali.crossfit.measured), len(equal.crossfit.measured)}
        if np.ptp(on_vali.weights) == 0:
            assert on_vali == equal
    assert counts == {HALVINGS}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_weights_are_the_same_on_a_gpu() -> None:
    torch.manual_seed(0)
    members = [of_halves(torch.rand(2, 30)) for _ in range(3)]
    there = [
        HalfScores(one.epochs, {k: s.cuda() for k, s in one.scores.items()}) for one in members
    ]

    def measure(scores: torch.Tensor) -> np.ndarray:
        return scores.cpu().numpy()

    for weigh in (weights_on_vali, lambda *given: given_weights("equal", *given)):
        here, other = weigh(members, measure), weigh(there, measure)
        np.testing.assert_allclose(here.weights, other.weights)
        np.testing.assert_allclose(here.crossfit.measured, other.crossfit.measured)


def test_crossfit_of_an_ensemble_measures_on_the_other_half() -> None:
    lists = 10
    halves = Halves.of(np.ones(lists, dtype=bool))
    first, second = torch.rand(2, lists).double()
    member = of_halves(torch.stack([first, second]))

    def measure(scores: torch.Tensor) -> np.ndarray:
        return scores.numpy()

    worth = given_weights([1.0], [member], measure).crossfit
    expected = np.stack(
        [first.numpy()[halves.second].mean(1), second.numpy()[halves.first].mean(1)], axis=1
    )
    assert worth == Crossfit.of(expected)
    np.testing.assert_allclose(worth.measured, expected)
    assert worth.less(worth) == Crossfit(0.0, 0.0, ())
    one = HalfScores(member.epochs, {3: first[:1], 5: second[:1]})
    assert given_weights("equal", [one], measure).crossfit is None
    refused(lambda: weights_on_vali([one, one], measure), DataError)


@pytest.mark.parametrize(
    "wrong",
    [["best"], ["1"], ["1", "-1"], ["0", "0"], ["nan", "1"], ["1_0", "1"], ["\uff11", "1"], []],
)
def test_wrong_weights_are_refused(wrong) -> None:
    assert refused(lambda: parse_weights(wrong, 2), ConfigError).startswith("weights")
    assert parse_weights(["3", "1"], 2) == (0.75, 0.25)


RESULTS = {
    "dataset": "mine", "fold": 1, "features": 5, "protocol": {},
    "data": {split: {"digest": split} for split in ("train", "vali", "test")},
    "convention": {"empty": 1.0, "text": "empty list = 1"},
}  # fmt: skip


def test_runs_that_do_not_go_together_are_refused(tmp_path) -> None:
    def finished(name: str, **other: object) -> RunFolder:
        (tmp_path / name).mkdir()
        finish(tmp_path / name, RESULTS | other)
        return RunFolder(tmp_path / name)

    first = finished("first")
    check_alike([first, first])
    for said, other in {
        "fold": {"fold": 2},
        "features": {"features": 6},
        "convention": {"convention": {"empty": 0.0, "text": ""}},
        "lists": {"data": RESULTS["data"] | {"train": {"digest": "changed"}}},
    }.items():
        runs = [first, finished(said, **other)]
        assert f"differ in {said}" in refused(lambda runs=runs: check_alike(runs), ConfigError)


def test_an_ensemble_is_known_by_its_members_and_weights() -> None:
    known = ensemble_identity(["a", "b"], "equal")
    others = [(["b", "a"], "equal"), (["a", "b"], "vali"), (["a"], "equal"), (["a", "b"], (1, 0))]
    assert known not in {ensemble_identity(*other) for other in others}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[list[Path], list[str]]:
    """A network and trees, which read features through other transforms; and where data are."""
    place = tmp_path_factory.mktemp("members")
    data = [*write_data(place, queries=8), "epochs=2", "threads=1"]
    rows = {
        "net": ["model=mlp", "model.hidden_sizes=[4]", "loss=listnet", "transform=standardise"],
        "trees": ["model=lightgbm", *SMALL["lightgbm"], "metrics=[map]"],
    }
    for name, row in rows.items():
        (place / name).mkdir()
        choices = {"model": name, "loss": "None", "optimizer": "adam"}
        run(compose(*data, *row), place / name, choices)
    return [place / name for name in rows], [item for item in data if item.startswith("cache")]


def made(members: list[Path], out: Path, *more: str) -> RunFolder:
    paths = ",".join(map(str, members))
    ensemble_of_runs(compose(f"runs=[{paths}]", f"output={out}", *more, config="ensemble"))
    return RunFolder(out)


@pytest.mark.slow
def test_an_ensemble_stands_as_a_run_when_its_members_are_gone(trained, tmp_path) -> None:
    first, cache = trained
    members = [Path(shutil.copytree(one, tmp_path / one.name)) for one in first]
    alone = [RunFolder(folder) for folder in members]
    lengths = alone[0].queries["items"].to_numpy()
    expected = sum(by_hand(one.scores, lengths) for one in alone) / 2
    ensemble = made(members, tmp_path / "both", *cache)
    np.testing.assert_allclose(ensemble.scores, expected, atol=2e-6)
    assert ensemble.results["choices"] == {
        "model": "ensemble", "members": "net + trees", "weights": "equal",
    }  # fmt: skip
    assert set(ensemble.results["test"]) == {"ndcg@5", "ndcg@10"}
    nested = made([ensemble.folder, members[1]], tmp_path / "nested", "weights=[1,0]", *cache)
    again = by_hand(ensemble.scores, lengths)
    np.testing.assert_allclose(nested.scores, again, atol=2e-6)
    fitted = made(members, tmp_path / "fitted", "weights=vali", *cache)
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
    assert "new folder" in refused(lambda: made([nested.folder], saved, *cache), ConfigError)


@pytest.mark.slow
def test_an_ensemble_from_elsewhere_runs_no_code_and_takes_no_memory(trained, tmp_path) -> None:
    members, cache = trained
    path = made(members, tmp_path / "both", *cache).folder / "ensemble.pt"
    sound, cpu = load_checkpoint(path), torch.device("cpu")
    (path.parent / "results.json").unlink()  # it would say that the file is another one

    first, other = sound["members"]

    def changed(**parts):
        save_checkpoint(path, sound | {"members": [first | parts, other]})
        return str(path)

    foreign = changed(config=first["config"] | {"model": {"_target_": "os.system"}})
    assert "trust=[MODULE]" in refused(lambda: load_model(foreign, cpu), ConfigError)
    large = {name: torch.zeros(1).expand(10**9) for name in first["model"]}  # 4 GB, of one number
    refused(lambda: load_model(changed(model=large), cpu), CheckpointError)
    refused(lambda: load_model(changed(width=7), cpu), CheckpointError)
    for wrong in ([], [0.5], [0.5, "a"], None):
        save_checkpoint(path, sound | {"weights": wrong})
        refused(lambda: load_model(str(path), cpu), CheckpointError)


def test_lists_are_taken_whole_and_again_where_they_were_drawn_again() -> None:
    lists = replace(make_lists([3, 1, 4]), weights=np.array([1, 2, 3], np.float32))
    bag, rows = lists.subset(np.array([2, 0, 2])), [4, 5, 6, 7, 0, 1, 2, 4, 5, 6, 7]
    assert bag.rows.tolist() == rows
    np.testing.assert_array_equal(bag.features, lists.features[rows])
    np.testing.assert_array_equal(bag.labels, lists.labels[rows])
    assert (bag.qids.tolist(), bag.offsets.tolist()) == (["q2", "q0", "q2"], [0, 4, 7, 11])
    assert bag.weights.tolist() == [3, 1, 3]


def test_a_bag_is_of_its_seed_and_its_kind() -> None:
    bags = [draw_lists(1000, "bootstrap", seed) for seed in range(5)]
    unique = [len({*bag.tolist()}) / 1000 for bag in bags]
    assert all(abs(part - (1 - np.exp(-1))) < 0.05 for part in unique)
    assert len({tuple(bag) for bag in bags}) == 5
    assert len(draw_lists(1, 0.1, 1)) == 1


@pytest.mark.parametrize("wrong", [True, 0, 1, 1.5, "boot", [0.5]])
def test_a_wrong_bagging_is_refused(wrong) -> None:
    with pytest.raises(ConfigError, match=r"bagging=.*bootstrap"):
        check_bagging(wrong)


@pytest.mark.slow
def test_a_run_trains_on_its_bag_and_is_still_of_the_whole_data(tiny, tmp_path, monkeypatch):
    seen, fit = [], Trainer.fit
    monkeypatch.setattr(Trainer, "fit", lambda *given: (seen.append(given[1]), fit(*given)))
    own = [item for item in tiny if not item.startswith("model.")]
    for bagging in ("null", "0.5"):
        cfg = compose(*own, "epochs=1", "model=linear", "loss=listnet", f"bagging={bagging}")
        (tmp_path / bagging).mkdir()
        run(cfg, tmp_path / bagging, {})
    whole, bag = (data["train"].qids.tolist() for data in seen)
    assert bag == [whole[i] for i in draw_lists(24, 0.5, 1)]
    assert len(seen[1]["vali"]) == 8
    one, other = (load_checkpoint(tmp_path / name / "last.pt") for name in ("null", "0.5"))
    assert [one[key] for key in ("data", "transform")] == [other["data"], other["transform"]]
