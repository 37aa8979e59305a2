"""What trees boost with: any loss of the registry, or an objective of the library."""

import numpy as np
import pytest
import torch
from conftest import make_lists
from made_trees import a_loss, after, needed, tensors

from ltr.data.batches import ItemTensors
from ltr.errors import DataError, TrainingError
from ltr.models.rounds import LightGBM, LossObjective, XGBoost
from ltr.training.evaluation import padded_batches


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "loss"), [(LightGBM, "neuralndcg"), (XGBoost, "plrank")])
def test_a_loss_as_objective_lowers_itself_on_train(kind, loss) -> None:
    needed(kind.library)
    torch.manual_seed(0)
    data = tensors(make_lists([12, 1, 7, 20, 9], empty=(2,)))
    knobs = {"min_data_in_leaf": 3} if kind is LightGBM else {"max_depth": 3}
    last = after(kind(5, **knobs), data, 12, loss=a_loss(loss, "dataset=mq2008"))
    objective = LossObjective(a_loss(loss, "dataset=mq2008"), data)
    values = []
    for scores in (np.zeros(len(data.labels)), last.scores["train"]):
        objective(scores)
        values.append(objective.value)
    assert values[1] < values[0] - 0.02 * abs(values[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", ["rmse", "listnet", "lambdarank", "neuralndcg", "svmmap", "plrank"]
)
def test_the_gradient_is_autograd_s_of_the_sum_over_lists(loss) -> None:
    lists = make_lists([12, 1, 7, 20, 9], empty=(2,))
    data, function = tensors(lists), a_loss(loss, "dataset=mq2008")
    objective = LossObjective(function, data, items=20)  # so that the lists are in several batches
    scores = np.random.default_rng(0).normal(size=lists.items)
    torch.manual_seed(0)
    gradient, curvature = objective(scores)
    torch.manual_seed(0)
    expected, total = np.zeros(lists.items), 0.0
    for i in np.argsort(lists.lengths, kind="stable")[::-1]:  # as the batches are: some losses draw
        start, end = lists.offsets[i : i + 2]
        given = torch.from_numpy(scores[None, start:end]).requires_grad_()
        labels = torch.from_numpy(lists.labels[None, start:end]).double()
        value = function(given, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
        expected[start:end] = torch.autograd.grad(value, given)[0][0]
        total += value.item()
    if loss != "plrank":  # it draws by batch
        np.testing.assert_allclose(gradient, expected * objective.unit, rtol=1e-4, atol=1e-6)
        assert objective.value == pytest.approx(total / len(lists))
    assert (curvature >= 0).all()
    assert (curvature[gradient != 0] > 0).all()
    assert np.isfinite(curvature).all()


def test_the_curvature_is_that_of_the_docstring() -> None:
    rng = np.random.default_rng(3)
    square = rng.normal(size=(6, 6))
    hessian, slope = square @ square.T / 6, rng.normal(size=6)

    def quadratic(scores, labels, mask):
        h, b = torch.from_numpy(hessian), torch.from_numpy(slope)
        return torch.einsum("bi,ij,bj->b", scores, h, scores) / 2 - scores @ b

    objective = LossObjective(quadratic, tensors(make_lists([6])), seed=11)
    draws = np.random.default_rng(11)
    unit = 0.0
    for scores in rng.normal(size=(4, 6)):
        v = draws.choice([-1.0, 1.0], 6)
        moves, g = np.abs(hessian @ v), hessian @ scores - slope
        curvature = np.maximum(moves, np.abs(g))
        assert 0 < (moves > np.abs(g)).sum() < 6  # each of the two counts somewhere
        unit = unit or 1 / curvature.mean()
        got = objective(scores)
        np.testing.assert_allclose(got[0], g * unit, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[1], curvature * unit, rtol=1e-5)
        assert objective.unit == pytest.approx(unit)


def test_pairs_of_a_batch_are_bounded_and_change_no_value() -> None:
    data, seen = tensors(make_lists([300] * 10 + [40, 2, 700])), []

    def pairwise(scores, labels, mask):
        seen.append(tuple(scores.shape))
        both = mask[:, :, None] & mask[:, None, :]
        differences = scores[:, :, None] - scores[:, None, :] - labels[:, :, None]
        return (differences.tanh() * both).sum((1, 2))

    scores = np.random.default_rng(0).normal(size=data.offsets[-1])
    few = LossObjective(pairwise, data, items=3000).gradient(scores)
    assert seen == [(1, 700), (8, 300), (4, 300)], "at most 240 pairs for each of 3000 items"
    many = LossObjective(pairwise, data, items=10**6).gradient(scores)
    np.testing.assert_allclose(few, many, rtol=1e-9, atol=1e-9)
    (alone, *_) = padded_batches(data, items=3000, pairs=1)  # a list longer than that
    assert alone.mask.shape == (1, 700)


def test_lists_weigh_the_same_and_empty_ones_can_be_left_out() -> None:
    data = tensors(make_lists([8, 8], empty=(1,)))
    scores = np.linspace(0, 1, 16)
    keep = LossObjective(a_loss("listnet"), data)
    skip = LossObjective(a_loss("listnet"), data, empty="skip")
    assert np.any(keep(scores)[0][8:])
    gradient, curvature = skip(scores)
    assert not np.any(gradient[8:])
    assert not np.any(curvature[8:])
    assert (keep.lists, skip.lists) == (2, 1)


def test_a_gradient_that_is_not_finite_names_the_list() -> None:
    data = tensors(make_lists([3, 4]))

    def broken(scores, labels, mask):
        return (scores * torch.where(labels.sum(-1, keepdim=True) >= 0, torch.nan, 1.0)).sum(-1)

    with pytest.raises(TrainingError, match=r"not finite on lists with query id q1, q0: lower"):
        LossObjective(broken, data)(np.zeros(7))


def test_a_loss_that_draws_and_long_lists_boost() -> None:
    data = tensors(make_lists([10_050, 3]))
    torch.manual_seed(0)
    loss = a_loss("listmle")
    assert after(LightGBM(5, num_leaves=2), data, loss=loss).columns["trees"] == 1


def with_labels(labels: list[float]) -> ItemTensors:
    lists = make_lists([len(labels)])
    lists.labels[:] = labels
    return tensors(lists)


def test_labels_and_lists_that_an_objective_cannot_take() -> None:
    with pytest.raises(
        DataError, match=r"lambdarank takes whole labels .* 0\.5: boost with a loss"
    ):
        after(LightGBM(5), with_labels([0, 0.5]))
    after(LightGBM(5), with_labels([0, 40, 32, 5]))  # beyond LightGBM's own 31
    after(LightGBM(5), with_labels([0, 1022]))
    with pytest.raises(DataError, match=r"from 0 to 1022, train has 1023: boost with a loss"):
        after(LightGBM(5), with_labels([0, 1023]))
    after(LightGBM(5), with_labels([0, 0.5]), loss=a_loss("ranknet"))
    needed("xgboost")
    with pytest.raises(DataError, match=r"rank:ndcg takes whole labels from 0 to 31, .* 32: set"):
        after(XGBoost(5), with_labels([0, 32]))
    after(XGBoost(5, objective="rank:pairwise"), with_labels([0, 32.5]))
