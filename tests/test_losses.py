"""One battery over every loss in ``configs/loss/``, then what each loss promises by itself."""

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import references
import torch
from ragged import ragged, value_and_gradient
from test_fast_paths import NAMES, plain
from torch import Tensor

from ltr import losses, metrics
from ltr.checks.list_losses import import_function, loss_config
from ltr.checks.loss_properties import GOES_TO, LOSS_PROPERTIES, the_sharp_limit_is_minus_the_metric
from ltr.checks.subject import DOES_NOT_APPLY, HOLDS, Subject, judge
from ltr.errors import ConfigError
from ltr.losses.batch import counted_lists
from ltr.losses.mix import OF_RUN, losses_by_name
from ltr.losses.pairs import label_weight, ordered_pairs, weight_matrix
from ltr.metrics import Metric

CHOICES = {
    "variant": ["ndcg1", "ndcg2"],
    "weight": ["log2"],
    "pair_weight": ["ndcg_beta"],
    "discount": ["sqrt_log2", "linear"],
    "pairs": ["both"],
    "targets": ["isotonic"],
}
VARIANTS: dict[str, dict[str, Any]] = {"neuralndcg_t": {"transposed": True}}
CONFIGS = sorted((Path(__file__).parents[1] / "configs" / "loss").glob("*.yaml"))


def read_config(path: Path) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """The function and the knobs of a loss config."""
    config = loss_config(path.stem)
    return import_function(config.target), config.values


def variants() -> list[Any]:
    """Every loss as configured, and with a cutoff and each switch turned where it has them."""
    found = []
    as_configured = [read_config(path) for path in CONFIGS]
    for path, (loss, knobs) in zip(CONFIGS, as_configured, strict=True):
        changes: list[dict[str, Any]] = [{}]
        changes += [{"k": 3}] if "k" in knobs else []
        changes += [{knob: not on} for knob, on in knobs.items() if isinstance(on, bool)]
        changes += [{knob: value} for knob in knobs for value in CHOICES.get(knob, [])]
        for change in changes:
            name = "-".join([path.stem, *(f"{knob}={value}" for knob, value in change.items())])
            changed = {**knobs, **change}
            if not change or (loss, changed) not in as_configured:  # another config may be that
                found.append(pytest.param(partial(loss, **changed), id=name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_names_its_paper_and_holds_every_knob_with_its_default(path: Path) -> None:
    lines = path.read_text().splitlines()
    title = lines[1] if lines[0] == "# @package _global_" else lines[0]
    assert title.startswith("# ")
    assert "_partial_: true" in [line.strip() for line in lines]
    loss, knobs = read_config(path)
    assert loss.__name__.endswith("_loss")
    name, stem = loss.__name__.replace("_", ""), path.stem
    if path.stem in VARIANTS:
        stem = stem.rpartition("_")[0]
    assert name.removesuffix("loss") == stem.replace("_", "").removesuffix("loss")
    parameters = list(inspect.signature(loss).parameters.values())
    assert [p.name for p in parameters[:3]] == ["scores", "labels", "mask"]
    assert {p.kind for p in parameters[3:]} <= {inspect.Parameter.KEYWORD_ONLY}
    # a generator is no setting: it is made by who calls
    defaults = {p.name: p.default for p in parameters[3:] if p.name not in OF_RUN}
    if path.stem in VARIANTS:
        defaults |= VARIANTS[path.stem]
    if "parts" in knobs:  # the names of others stand there with the weight 0
        assert set(knobs["parts"]) == set(losses_by_name())
        knobs["parts"] = {name: weight for name, weight in knobs["parts"].items() if weight}
    assert knobs == defaults


@pytest.mark.slow
@pytest.mark.parametrize("loss", variants())
def test_battery(loss: partial[Tensor]) -> None:
    subject = Subject(loss, metric=GOES_TO.get(loss.func.__name__))
    wrong = []
    for prop in LOSS_PROPERTIES:
        verdict = judge(prop, subject)
        expected = HOLDS if applies(prop.__name__, loss) else DOES_NOT_APPLY
        if verdict.outcome != expected or (expected == DOES_NOT_APPLY and not verdict.seen):
            wrong.append(verdict)
    assert not wrong


def applies(prop: str, loss: partial[Tensor]) -> bool:
    """Whether a property means something for a loss, from what is known of our losses."""
    name, knobs = loss.func.__name__, loss.keywords
    normalised = {
        *("neural_ndcg", "approx_ndcg", "lap_ndcg", "soft_ndcg", "ot_ndcg", "softsort_ndcg"),
        "plrank",
    }
    with_metric = normalised | {"neural_map", "neural_mrr", "neural_err", "neural_precision"}
    known = name.removesuffix("_loss")
    return {
        "a_cutoff_below_1_is_refused": "k" in knobs,
        "a_cutoff_beyond_the_list_is_none": "k" in knobs,
        "the_cutoff_is_honoured": "k" in knobs,
        "the_best_order_is_the_bound_at_every_cutoff": known in normalised,
        "the_sharp_limit_is_minus_the_metric": known in with_metric
        and knobs.get("discount", "log2") == "log2",
        "what_is_drawn_comes_from_the_generator": draws(known, knobs),
        "the_order_of_the_items_means_nothing_on_average_over_draws": draws(known, knobs),
    }.get(prop, True)


def draws(name: str, knobs: dict[str, Any]) -> bool:
    return name in ("listmle", "p_listmle", "plrank") or bool(knobs.get("stochastic"))


def test_losses_and_metrics_take_the_same_labels_for_relevant() -> None:
    scores, labels, mask = ragged()
    given = scores.float(), labels.float(), mask
    above = 1.00000001  # float32 has no number between it and 1
    for loss in losses_by_name().values():
        if "relevant" in inspect.signature(loss).parameters:
            assert torch.equal(loss(*given, relevant=above), loss(*given, relevant=2))
            assert not torch.equal(loss(*given, relevant=above), loss(*given, relevant=1))
    for metric in (metrics.precision, metrics.recall, metrics.map, metrics.mrr):
        assert torch.equal(metric(*given, k=2, relevant=above), metric(*given, k=2, relevant=2))


# NeuralNDCG


def test_neuralndcg_stopped_early_is_another_value() -> None:
    data = ragged()
    converged = losses.neural_ndcg_loss(*data)
    once = losses.neural_ndcg_loss(*data, max_iter=1)
    assert not torch.allclose(once, converged, atol=1e-6)
    assert torch.equal(losses.neural_ndcg_loss(*data, tol=1e3), once)


def test_stochastic_neuralndcg_is_the_mean_over_draws() -> None:
    data = ragged()

    def draw(n: int, generator: torch.Generator) -> Tensor:
        return losses.neural_ndcg_loss(*data, stochastic=True, n_samples=n, generator=generator)

    generator = torch.Generator().manual_seed(0)
    single = torch.stack([draw(1, generator) for _ in range(300)])
    many = draw(300, torch.Generator().manual_seed(1))
    assert (single.std(0) > 1e-3).all()
    error = single.std(0) * math.sqrt(2 / 300)
    assert ((many - single.mean(0)).abs() < 4 * error).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("teacher", [False, True])
def test_labels_and_a_teacher_are_constants(name: str, teacher: bool) -> None:
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, math.nan).requires_grad_()
    given = {"teacher": labels} if teacher and name == "distil_loss" else {}
    values = getattr(losses, name)(scores.requires_grad_(), labels, mask, **given)
    by_scores, by_labels = torch.autograd.grad(values.sum(), (scores, labels), allow_unused=True)
    assert by_scores.isfinite().all()
    assert by_labels is None


# Limits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "knobs"),
    [
        (losses.neural_ndcg_loss, {"stochastic": True, "transposed": True}),
        (losses.neural_map_loss, {"relevant": 2}),
        (losses.neural_mrr_loss, {"relevant": 3}),
        (losses.neural_precision_loss, {"relevant": 2}),
        (losses.neural_err_loss, {"levels": 7}),
        (losses.soft_ndcg_loss, {"sigma": 1e-4, "normalise": True}),
    ],
)
def test_the_limit_with_other_knobs_is_the_metric_with_them(
    loss: Callable[..., Tensor], knobs: dict[str, Any]
) -> None:
    subject = Subject(partial(loss, **knobs), metric=GOES_TO[loss.__name__])
    verdict = judge(the_sharp_limit_is_minus_the_metric, subject)
    assert verdict.outcome == HOLDS, verdict


@pytest.mark.parametrize("name", sorted(set(GOES_TO) - {"plrank_loss"}))
def test_the_limit_is_approached(name: str) -> None:
    """Ten times sharper is nearer, unless both are exact."""
    loss, exact = getattr(losses, name), Metric(GOES_TO[name], 3)
    if "cut_slope" in inspect.signature(loss).parameters:
        loss = partial(loss, cut_slope=100.0)
    knob = "sigma" if name == "soft_ndcg_loss" else "temperature"
    start = 0.01 if name == "ot_ndcg_loss" else 1.0
    data = ragged()
    errors = [
        (loss(*data, k=3, **{knob: softness}) + exact(*data)).abs().sum().item()
        for softness in (start, start / 10, start / 100)
    ]
    assert errors[0] > errors[1] >= errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize("name", sorted({*GOES_TO, "ranknet_loss", "lambdarank_loss"}))
def test_a_list_of_one_grade_without_relevant_items_has_no_gradient(name: str) -> None:
    scores, _, mask = ragged()
    for knobs in ({}, {"stochastic": True}) if name == "neural_ndcg_loss" else ({},):
        loss = partial(getattr(losses, name), **knobs)
        value, gradient = value_and_gradient(loss, scores, torch.zeros(3, 8), mask)
        assert value.tolist() == [0, 0, 0]
        assert (gradient == 0).all()


# Scores far apart, close together, or equal


@pytest.mark.parametrize("gap", [50.0, 1e3, 1e4])
@pytest.mark.parametrize(
    ("loss", "weight"),
    [(losses.ranknet_loss, 1.0), (losses.lambdarank_loss, 1 - 1 / math.log2(1 + 2))],
)
def test_logistic_pairs_are_exact_at_any_difference(
    loss: Callable[..., Tensor], weight: float, gap: float
) -> None:
    labels = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    wrong = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    for scores, expected, slope in (
        (wrong, weight * gap, weight),
        (-wrong, weight * math.exp(-gap), weight * math.exp(-gap)),
    ):
        value, gradient = value_and_gradient(loss, scores, labels, labels >= 0)
        assert value.item() == pytest.approx(expected, rel=1e-12)
        assert gradient.tolist()[0] == pytest.approx([-slope, slope], rel=1e-12)


def test_bce_is_exact_at_any_score() -> None:
    scores = torch.tensor([[1e4, -1e4]], dtype=torch.float64)
    labels = torch.tensor([[0.0, 1.0]])
    value, gradient = value_and_gradient(losses.bce_loss, scores, labels, labels >= 0)
    assert value.item() == 1e4
    assert gradient.tolist() == [[0.5, -0.5]]


def test_rmse_of_exactly_0_has_gradient_0() -> None:
    data = torch.zeros(1, 2), torch.tensor([[2.5, 2.5]]), torch.ones(1, 2, dtype=torch.bool)
    value, gradient = value_and_gradient(losses.rmse_loss, *data)
    assert value.item() == 0
    assert gradient.tolist() == [[0, 0]]


@pytest.mark.parametrize("gap", [29.0, 31.0, 1e4])
def test_rankboost_goes_on_as_its_tangent(gap: float) -> None:
    labels = torch.tensor([[1.0, 0.0]])
    wrong = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(losses.rankboost_loss, wrong, labels, labels >= 0)
    slope = math.exp(min(gap, 30))
    assert value.item() == pytest.approx(slope * (1 + max(0, gap - 30)), rel=1e-13)
    assert gradient.tolist()[0] == pytest.approx([-slope, slope], rel=1e-13)


COSTS = {
    "ranksvm_loss": losses.ranksvm_loss,
    "ranksvm_loss squared": partial(losses.ranksvm_loss, squared=True),
    "rankboost_loss": losses.rankboost_loss,
}
both_paths = pytest.mark.parametrize("path", ["kernel", "plain"])


@pytest.mark.parametrize("cost", COSTS)
@both_paths
def test_only_pairs_of_some_weight_count(
    cost: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "plain":
        plain(monkeypatch)
    labels, mask = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    for far in (1e26, 3e38):  # the cost of the pair (j, i), and s_j - s_i itself, overflow
        scores = torch.tensor([[far, -far]])
        value, gradient = value_and_gradient(COSTS[cost], scores, labels, mask)
        assert value.tolist() == [0]
        assert (gradient == 0).all()


@both_paths
def test_the_slope_of_lapndcg_exists_at_ties(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores = torch.tensor([[0.5, 0.5, -1.0, 0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    labels, mask = torch.tensor([[0.0, 2, 1, 3, 0]]).double(), torch.ones(1, 5, dtype=torch.bool)
    torch.autograd.gradcheck(lambda s: losses.lap_ndcg_loss(s, labels, mask), scores, atol=1e-6)


def test_lapndcg_of_a_list_of_100000_items() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=100_000), rng.integers(0, 5, 100_000).astype(float)
    few = rng.choice(100_000, 20, replace=False)  # only these are relevant: their pairs are few
    labels[np.setdiff1d(np.arange(100_000), few)] = 0
    data = (torch.tensor(x)[None] for x in (scores, labels, np.ones(100_000, dtype=bool)))
    loss = partial(losses.lap_ndcg_loss, temperature=0.1)
    value, gradient = value_and_gradient(loss, *data)
    near = np.exp(-np.abs(scores[:, None] - scores[few]) / 0.1) / 2
    ranks = 0.5 + np.where(scores[:, None] < scores[few], near, 1 - near).sum(0)
    gains = 2 ** labels[few] - 1
    best = (np.sort(gains)[::-1] / np.log2(2 + np.arange(20))).sum()
    assert value.item() == pytest.approx(-(gains / np.log2(1 + ranks)).sum() / best, rel=1e-11)
    assert abs(gradient.sum().item()) < 1e-12  # a shift of all scores changes nothing


# Pairs


@both_paths
def test_ndcg_loss_1_bounds_the_ndcg_cost(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    generator = torch.Generator().manual_seed(0)
    for size in range(1, 11):
        shape = (2000, size)
        scores = torch.randn(shape, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 5, shape, generator=generator).double()
        mask = torch.ones(shape, dtype=torch.bool)
        best = metrics.dcg(labels, labels, mask)
        best = best.masked_fill(best == 0, 1)
        cost = ((2**labels - 1).sum(-1) - metrics.dcg(scores, labels, mask)) / best
        bound = losses.lambda_loss(scores, labels, mask, variant="ndcg1") / math.log(2)
        assert (bound >= cost - 1e-12).all()


def test_weights_of_the_pairs_in_the_wrong_order_add_up_to_the_lost_ndcg_beta() -> None:
    """Equation 12 of the RankNet report, and its bounds."""
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, 0)
    lost = 1 - metrics.ndcg_beta(scores, labels, mask)
    weights = weight_matrix(label_weight(labels, mask, "ndcg_beta")) * ordered_pairs(labels, mask)
    found = (weights * (scores.unsqueeze(-1) < scores.unsqueeze(-2))).sum((-2, -1))
    torch.testing.assert_close(found, lost, atol=1e-14, rtol=0)
    for cost in COSTS.values():
        assert (cost(scores, labels, mask, pair_weight="ndcg_beta") >= lost).all()


@pytest.mark.parametrize(
    "loss",
    [
        partial(losses.ranknet_loss, sigma=0.7),
        partial(losses.ranknet_loss, k=2, pairs="both"),
        partial(losses.lambdarank_loss, sigma=2.0),
        partial(losses.lambdarank_loss, k=2),
        losses.lambda_loss,
        partial(losses.lambda_loss, variant="ndcg1", k=3),
    ],
)
def test_value_and_slope_in_one_pass_are_those_of_the_kernels(
    loss: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ragged()
    expected = value_and_gradient(loss, *data)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # off the CPU
    for found, wanted in zip(value_and_gradient(loss, *data), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-10)


# ListMLE


@pytest.mark.parametrize("loss", [losses.listmle_loss, losses.p_listmle_loss])
def test_a_shift_of_all_scores_costs_no_digits(
    loss: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch)
    scores, _, mask = ragged(torch.float32)
    scores = (32 * scores).round() / 32  # exact near the shift too
    labels = torch.arange(8.0).expand(3, 8)
    for shift in (1e5, -1e5):
        found = value_and_gradient(loss, scores + shift, labels, mask)
        torch.testing.assert_close(found, value_and_gradient(loss, scores, labels, mask))


def test_p_listmle_stays_finite_on_the_longest_lists() -> None:
    scores = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(1000.0)[None]
    value, gradient = value_and_gradient(losses.p_listmle_loss, scores, labels, labels >= 0)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_ties_are_drawn_evenly_among_the_orders_that_the_labels_allow() -> None:
    repeats, scores = 6000, torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    mask = torch.ones(repeats, 4, dtype=torch.bool)
    labels = torch.tensor([0.0, 1, 0, 0])
    generator = torch.Generator().manual_seed(0)
    found = losses.listmle_loss(
        scores.expand(repeats, 4), labels.expand(repeats, 4), mask, generator=generator
    )
    orders = [[1, *rest] for rest in itertools.permutations([0, 2, 3])]
    expected = [references.listmle(scores[x].numpy(), np.arange(4.0, 0, -1)) for x in orders]
    counts = [((found - value).abs() < 1e-9).sum().item() for value in expected]
    assert sum(counts) == repeats
    deviation = math.sqrt(repeats * 1 / 6 * 5 / 6)
    assert max(abs(count - repeats / 6) for count in counts) < 4 * deviation


# Ordinal regression


def test_ordinal_counts_a_label_between_two_grades_as_both() -> None:
    scores = torch.tensor([[0.3, -1.0, 2.0, 9.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 2.0, 0.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])

    def found(x: float) -> Tensor:
        more = torch.tensor([x, 0.0, x, 0.0])
        return losses.ordinal_loss(scores, labels + more, mask, levels=5, sigma=1.5)

    expected = 0.75 * found(0.0) + 0.25 * found(1.0)
    torch.testing.assert_close(found(0.25), expected, rtol=1e-14, atol=0)
    share = torch.tensor([[0.61]])  # a label below the first grade is not 0
    two = partial(losses.ordinal_loss, levels=2)
    _, gradient = value_and_gradient(two, torch.tensor([[0.5]]), share, share > 0)
    assert gradient.item() == pytest.approx(0.5 - 0.61, abs=1e-6)  # sigmoid(s - 1/2) - y


# Knobs and reduction

ABOVE_0 = "is out of range: write a finite number above 0"
WITH_K = [name for name in NAMES if "k" in inspect.signature(getattr(losses, name)).parameters]
WRONG = [
    *((name, {"k": 0}, "k=0 is not a cutoff: write an integer k >= 1") for name in WITH_K),
    ("lambdarank_loss", {"k": -1}, "k=-1 is not a cutoff: write an integer k >= 1"),
    ("lambda_loss", {"k": True}, "k=True is not a cutoff"),
    ("neural_ndcg_loss", {"temperature": 0.0}, f"temperature=0.0 {ABOVE_0}"),
    ("approx_ndcg_loss", {"temperature": 0.0}, f"temperature=0.0 {ABOVE_0}"),
    ("approx_ndcg_loss", {"cut_slope": 0.0}, f"cut_slope=0.0 {ABOVE_0}"),
    ("ranknet_loss", {"sigma": 0.0}, f"sigma=0.0 {ABOVE_0}"),
    ("lambdarank_loss", {"sigma": -1.0}, f"sigma=-1.0 {ABOVE_0}"),
    ("ordinal_loss", {"sigma": 0.0}, f"sigma=0.0 {ABOVE_0}"),
    ("lambda_loss", {"mu": -1.0}, f"mu=-1.0 {ABOVE_0}"),
    ("rmse_loss", {"levels": 0}, f"levels=0 {ABOVE_0}"),
    ("neural_err_loss", {"levels": 0}, f"levels=0 {ABOVE_0}"),
    ("bce_loss", {"relevant": 0}, f"relevant=0 {ABOVE_0}"),
    ("neural_map_loss", {"relevant": 0}, f"relevant=0 {ABOVE_0}"),
    ("neural_mrr_loss", {"relevant": 0}, f"relevant=0 {ABOVE_0}"),
    ("neural_precision_loss", {"relevant": 0}, f"relevant=0 {ABOVE_0}"),
    ("ordinal_loss", {"levels": 1}, "levels=1 is not a number of grades: write an"),
    ("ordinal_loss", {"levels": 1001}, "levels=1001 .*loss=rmse"),
    ("neural_ndcg_loss", {"max_iter": 0}, "max_iter=0 is out of range: write an integer >= 1$"),
    ("neural_ndcg_loss", {"stochastic": True, "n_samples": 0}, "n_samples=0 is out of range: wri"),
    ("ranknet_loss", {"pairs": "all"}, "pairs=all is not known: choose one of any, both$"),
    ("lambdarank_loss", {"pairs": "all"}, "pairs=all is not known: choose one of any, both$"),
    ("lambda_loss", {"variant": "2"}, "variant=2 is not known: choose one of ndcg1, ndcg2"),
    ("p_listmle_loss", {"weight": "log"}, "weight=log is not known: choose one of exp2, log2$"),
    ("soft_ndcg_loss", {"discount": "flat"}, "discount=flat is not known: choose one of log2, sqr"),
    *(
        (name, {"pair_weight": wrong}, f"pair_weight='{wrong}' is not known: write .*None")
        for name in ("ranksvm_loss", "rankboost_loss")
        for wrong in ("ndcg", "null")
    ),
]


@both_paths
def test_bad_knobs_end_with_the_remedy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, knobs, message in WRONG:
        with monkeypatch.context() as patch:
            if path == "plain":
                plain(patch)
            with pytest.raises(ConfigError, match=f"^{message}"):
                getattr(losses, name)(*ragged(), **knobs)
    scores, labels, mask = ragged()
    with pytest.raises(ConfigError, match=r"^empty=drop is not known: choose one of keep, skip$"):
        losses.mean_over_batch(scores[:, 0], labels, mask, empty="drop")


WRONG_TYPES = """
import torch
from functools import partial
from ltr.errors import ConfigError
from ltr.losses import neural_ndcg_loss, ordinal_loss, plrank_loss
from ltr.relaxations import sampled_rank_distribution
scores = torch.tensor([[0.5, 0.2]])
mask = scores > 0
drawn = partial(neural_ndcg_loss, stochastic=True)
sampled = lambda scores, _, mask, **knobs: sampled_rank_distribution(scores, mask, **knobs)
for function, knob, least in (
    (plrank_loss, "n_samples", 1),
    (drawn, "n_samples", 1),
    (sampled, "n_samples", 1),
    (neural_ndcg_loss, "max_iter", 1),
    (ordinal_loss, "levels", 2),
):
    function(scores, scores.round(), mask, **{knob: least})
    for value in (2.5, True):
        try:
            function(scores, scores.round(), mask, **{knob: value})
        except ConfigError as error:
            assert str(error).startswith(f"{knob}={value} is ") and "write an integer" in str(error)
        else:
            raise AssertionError((function, knob, value))
"""


@pytest.mark.slow
def test_a_knob_of_another_type_is_refused() -> None:
    """In a process of its own, where no test tool checks the types first."""
    done = processes.run(WRONG_TYPES)
    assert done.returncode == 0, done.stderr


def test_reduction_counts_lists() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    labels = torch.tensor([[0.0, 2.0], [0.0, 5.0], [1.0, 1.0]])  # relevant, empty, no items
    values = torch.tensor([3.0, 1.0, math.nan], requires_grad=True)
    for empty, expected, slopes in (
        ("keep", (3 + 1) / 2, [1 / 2, 1 / 2, 0]),
        ("skip", 3, [1, 0, 0]),
    ):
        mean = losses.mean_over_batch(values, labels, mask, empty=empty)
        (gradient,) = torch.autograd.grad(mean, values)
        assert mean.item() == expected
        assert gradient.tolist() == slopes
        assert counted_lists(labels, mask, empty=empty).tolist() == [slope > 0 for slope in slopes]
