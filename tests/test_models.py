"""Models: padding, order and company of items, formulas, and what each config promises."""

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import compose
from hydra.utils import get_class
from made_columns import mixed
from omegaconf import OmegaConf
from torch import Tensor, nn

from ltr.checks.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.checks.subject import DOES_NOT_APPLY, HOLDS, judge
from ltr.data.batches import Batch, ItemTensors
from ltr.data.transforms import fit_transform, no_transform
from ltr.errors import ConfigError
from ltr.kernels.attention import keep_factors
from ltr.losses import lambdarank_loss
from ltr.losses.batch import mean_over_batch
from ltr.models import DASALC, MLP, ContextAwareTransformer, Linear, TabM
from ltr.models.dasalc import ItemNorm
from ltr.models.layers import Dropout, Packing, attend
from ltr.scorers.parts import make_settings, model_for
from ltr.training.trainer import TrainingStep

WIDTH = 5
Make = Callable[[], nn.Module]
_FILES = sorted((Path(__file__).parents[1] / "configs" / "model").glob("*.yaml"))
CONFIGS = [path for path in _FILES if "_target_: ltr.models.rounds" not in path.read_text()]

small = partial(ContextAwareTransformer, WIDTH, fc_sizes=(8,), heads=2, feed_forward=16)
MODELS: dict[str, Make] = {
    "linear": partial(Linear, WIDTH),
    "mlp": partial(MLP, WIDTH, dropout=0.2, input_norm=True),
    "mlp-periodic": partial(MLP, WIDTH, embedding={"kind": "periodic", "size": 3, "sigma": 1.0}),
    "mlp-piecewise": partial(MLP, WIDTH, embedding="piecewise"),
    "mlp-sigmoid": partial(MLP, WIDTH, output_activation="sigmoid"),
    "tabm": partial(TabM, WIDTH, members=3, hidden_sizes=(8, 8)),
    "tabm-mini": partial(TabM, WIDTH, members=3, hidden_sizes=(8,), mini=True,
                         embedding="piecewise"),
    "dasalc": partial(DASALC, WIDTH, hidden_sizes=(6, 8, 8), feed_forward=16),
    "transformer": small,
    "transformer-tanh": partial(small, input_norm=True, fc_activation="relu", fc_dropout=0.2,
                                output_activation="tanh"),
    "transformer-raw": partial(ContextAwareTransformer, WIDTH, fc_sizes=(), feed_forward=16),
    "transformer-piecewise": partial(small, embedding="piecewise"),
    "transformer-fixed": partial(small, position="fixed"),
    "transformer-learned": partial(small, position="learned", max_rank=6),
}  # fmt: skip


@pytest.fixture(params=["packed", "dense"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for both ways to lay out the items, the GPU's included."""
    if request.param == "dense":
        monkeypatch.setattr(Packing, "from_mask", classmethod(lambda cls, mask: cls(mask, None)))


both_layouts = pytest.mark.usefixtures("layout")


def built(make: Make, training: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return make().train(training)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Features, mask and ranks of lists of 9, 4, 1 and 0 items, padded on every side."""
    features, ranks, mask = ModelSubject(nn.Identity, width=WIDTH).lists()
    return features, mask, ranks


@pytest.mark.slow
@both_layouts
@pytest.mark.parametrize("name", MODELS)
def test_battery(name: str) -> None:
    make = MODELS[name]
    aware = isinstance(make(), ContextAwareTransformer | DASALC)
    subject = ModelSubject(lambda width: make(), width=WIDTH)
    not_so = {"an_item_is_scored_by_its_own_features_alone"} if aware else set()
    not_so |= {"the_given_ranks_mean_nothing"} if name.endswith(("fixed", "learned")) else set()
    wrong = []
    for prop in MODEL_PROPERTIES:
        verdict = judge(prop, subject)
        if verdict.outcome != (DOES_NOT_APPLY if prop.__name__ in not_so else HOLDS):
            wrong.append(verdict)
    assert not wrong


def test_bfloat16_does_not_tie_items() -> None:
    model = built(partial(small, output_activation="tanh"))
    features = torch.randn(1, 300, WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(features, torch.ones(1, 300, dtype=torch.bool))
    assert len(scores.unique()) > 290, "eight bits would leave a few dozen values"


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_bfloat16_autocast_and_float64(make: Make) -> None:
    features, mask, ranks = batch()
    model = built(make)
    expected = model(features, mask, ranks)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(features, mask, ranks)
    torch.testing.assert_close(rounded.float(), expected, atol=0.1, rtol=0.1)
    exact = model.double()(features.double(), mask, ranks)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), expected, atol=1e-5, rtol=0)


@both_layouts
@pytest.mark.parametrize("position", ["fixed", "learned"])
def test_ranks_matter_with_a_position(position: str) -> None:
    features, mask, ranks = batch()
    swapped = ranks.clone()
    swapped[0, :2] = ranks[0, [1, 0]]
    model = built(partial(small, position=position, max_rank=6))
    expected = model(features, mask, ranks)
    assert not torch.allclose(model(features, mask, swapped), expected)
    beyond = torch.where(ranks > 6, 1000, ranks)  # they share the last learned vector
    assert torch.equal(model(features, mask, beyond), expected) == (position == "learned")
    with pytest.raises(ConfigError, match=r"none is given: pass ranks, or write position=null$"):
        model(features, mask)


def test_fixed_position_is_sines_and_cosines() -> None:
    model = built(partial(small, position="fixed"))
    assert isinstance(model.position, nn.Module)
    vector = model.position(torch.tensor([[1, 4]]))[0]
    expected = [f(3 / 10000 ** (i / 8)) for i in (0, 2, 4, 6) for f in (math.sin, math.cos)]
    assert vector[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert vector[1].tolist() == pytest.approx(expected, abs=1e-6)


@both_layouts
def test_transformer_is_pre_norm_attention_and_feed_forward() -> None:
    model = built(partial(small, heads=1, blocks=1, fc_activation="elu", output_activation="tanh"))
    features, mask, _ = batch()
    real = mask[1]
    part = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ part[f"{name}.weight"].T + part[f"{name}.bias"]

    def norm(x: Tensor) -> Tensor:  # weights are 1 and biases 0 at the start
        centered = x - x.mean(-1, keepdim=True)
        return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    block = "encoder.blocks.0"
    x = nn.functional.elu(linear(features[1, real], "layers.0"))
    in_proj = norm(x) @ part[f"{block}.in_proj.weight"].T
    query, key, value = in_proj.chunk(3, dim=-1)  # their biases are 0 at the start
    attended = (query @ key.T / math.sqrt(8)).softmax(-1) @ value
    x = x + linear(attended, f"{block}.out_proj")
    x = x + linear(linear(norm(x), f"{block}.linear1").relu(), f"{block}.linear2")
    expected = linear(norm(x), "head.linear").squeeze(-1).tanh()
    torch.testing.assert_close(model(features, mask)[1, real], expected)


def test_weights_start_from_xaviers_distribution() -> None:
    torch.manual_seed(0)
    model = ContextAwareTransformer(136, position="learned")
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        parts = parameter.chunk(3) if name.endswith("in_proj.weight") else [parameter]
        for part in parts:
            bound = math.sqrt(6 / sum(part.shape))
            assert part.abs().max() <= bound, name
            assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1), name
    first, second = model.encoder.blocks
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


BAD: list[tuple[Callable[[], Any], str]] = [
    (partial(MLP, 5, activation="Tanh"), r"^'Tanh' is not an activation: .* relu, .*, none$"),
    (partial(small, heads=3), r"^heads=3 does not divide the hidden size 8: change heads or the"),
    (partial(small, heads=0), r"^heads=0 is out of range: write an integer >= 1$"),
    (partial(small, fc_sizes=(8, 0)), r"^fc_sizes\[1\]=0 is out of range: write an integer >= 1$"),
    (partial(small, dropout=1.0), r"^dropout=1.0 is out of range: write a number in \[0, 1\)$"),
    (partial(small, position="sine"), r"^position=sine is not known: choose one of fixed, learned"),
    (partial(small, position="learned", max_rank=0), r"^max_rank=0 is out of range"),
    (partial(small, fc_sizes=(7,), heads=1, position="fixed"), r"make the last of fc_sizes even"),
    (partial(DASALC, 5, hidden_sizes=()), r"name a size, or use model=linear$"),
    (partial(Linear, 0), r"^width=0 is out of range: write an integer >= 1$"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_settings_end_with_the_remedy(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_holds_every_setting_and_builds(path: Path) -> None:
    assert path.read_text().startswith("# ")
    root = OmegaConf.create(
        {"model": OmegaConf.load(path), "suggested": {"fc_sizes": [8], "output_activation": "tanh"}}
    )
    settings = root.model.get("model", root.model)  # with other keys, such as a transform
    assert settings.pop("_partial_") is True
    model_class = get_class(settings.pop("_target_"))
    width, *parameters = inspect.signature(model_class).parameters.values()
    assert width.name == "width"
    assert set(settings) == {one.name for one in parameters}
    suggested = {"fc_sizes", "output_activation", "embedding"}  # None: as its kind is in the file
    for one in parameters:
        value = settings[one.name]
        value = tuple(value) if one.name.endswith("_sizes") else value
        assert one.name in suggested or value == one.default, one.name
    before = copy.deepcopy(settings)
    features, mask, ranks = batch()
    torch.manual_seed(0)
    model = model_class(WIDTH, **settings)
    scores = model(features, mask, ranks)
    assert scores.shape == mask.shape
    assert (scores.abs() <= 1).all()  # tanh
    assert settings == before
    rate = settings.get("dropout", 0)
    assert torch.equal(model(features, mask, ranks), scores) == (not rate), "dropout in training"


MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=torch.bool)


@both_layouts
def test_batch_norm_is_pytorchs_over_the_real_items() -> None:
    torch.manual_seed(0)
    packing, ours, theirs = Packing.from_mask(MASK), ItemNorm(3), nn.BatchNorm1d(3)
    for norm in (ours, theirs):
        nn.init.constant_(norm.weight, 2.0), nn.init.constant_(norm.bias, 0.5)
    for _ in range(3):
        padded = torch.randn(4, 4, 3) * 5 + 2
        items = packing.pack(padded).requires_grad_()
        found = packing.unpack(ours(items, packing))[MASK]
        expected = theirs(padded[MASK])
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.variance, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(packing.unpack(ours(items, packing))[MASK], theirs(padded[MASK]))


@both_layouts
@pytest.mark.parametrize("items", [0, 1])
def test_fewer_than_two_items_are_normalised_by_the_running_numbers(items: int) -> None:
    norm, mask = ItemNorm(3), torch.tensor([[items > 0, False]])
    norm.mean.fill_(1.0)
    packing = Packing.from_mask(mask)
    got = packing.unpack(norm(packing.pack(torch.full((1, 2, 3), 4.0)), packing))[mask]
    torch.testing.assert_close(got, torch.full((items, 3), 3.0), rtol=1e-4, atol=0)
    assert norm.mean.tolist() == norm.variance.tolist() == [1, 1, 1]


def test_the_score_is_of_the_latent_cross() -> None:
    torch.manual_seed(0)
    model = DASALC(5, hidden_sizes=(6, 8, 8), feed_forward=16).eval()
    features, mask = torch.randn(4, 4, 5), MASK
    items, packing = features[mask], Packing.from_mask(mask)
    hidden = items
    for layer, residual in zip(model.layers, (False, False, True), strict=True):
        dense = (layer.linear(hidden) / (1 + 1e-5) ** 0.5).relu()  # the norm is new
        hidden = hidden + dense if residual else dense
    context = model.cross(model.encoder(model.entry(items), packing))
    expected = model.head.linear((1 + context) * hidden).squeeze(-1)
    torch.testing.assert_close(model(features, mask)[mask], expected)


small_tabm = partial(TabM, members=3, hidden_sizes=(6, 4), dropout=0.0)


def lists_batch() -> Batch:
    lists = replace(mixed(9, weights=True), columns=None)
    lists.labels[: lists.offsets[1]] = 0  # an empty list
    found = ItemTensors(lists, no_transform(lists)).batch(np.arange(9))
    return replace(found, weights=torch.tensor(lists.weights))


@pytest.mark.slow
@pytest.mark.parametrize("mini", [False, True])
def test_a_member_is_a_network_with_scaled_weights(mini: bool, monkeypatch) -> None:
    torch.manual_seed(0)
    model = small_tabm(4, mini=mini).eval()
    assert model.layers[0].scale.unique().tolist() == [-1, 1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    data, part = lists_batch(), dict(model.named_parameters())
    got = model.member_scores(data.features, data.mask)
    for i in range(3):

        def own(name: str, size: int, i: int = i) -> torch.Tensor:
            return part[name].view(3, size)[i]

        x = data.features * own("layers.0.scale", 4)
        if mini:
            x = (x @ part["layers.1.weight"].T + part["layers.1.bias"]).relu()
            x = (x @ part["layers.4.weight"].T + part["layers.4.bias"]).relu()
        else:
            x = (x @ part["layers.1.linear.weight"].T) * own("layers.1.scaling.scale", 6)
            x = (x + own("layers.1.bias", 6)).relu() * own("layers.4.scale", 6)
            x = (x @ part["layers.5.linear.weight"].T) * own("layers.5.scaling.scale", 4)
            x = (x + own("layers.5.bias", 4)).relu()
        expected = (x @ part["heads.weight"][i] + part["heads.bias"][i]) * data.mask
        torch.testing.assert_close(got[i], expected, rtol=1e-4, atol=1e-5)
    for _ in "whole", "in parts":
        found = model(data.features, data.mask)
        torch.testing.assert_close(found, got.mean(0), rtol=0, atol=1e-6)
        monkeypatch.setattr("ltr.models.tabm._MAX_ROWS", 21)


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["keep", "skip"])
def test_a_step_takes_the_mean_of_the_members_losses(empty: str) -> None:
    torch.manual_seed(0)
    data, model = lists_batch(), small_tabm(4)
    settings = make_settings(
        compose("model=tabm", "batch_size=64", f"empty_lists={empty}", "l2=0.1")
    )
    each = [
        mean_over_batch(
            lambdarank_loss(scores, data.labels, data.mask),
            data.labels, data.mask, empty=empty, weights=data.weights,
        )
        for scores in model.member_scores(data.features, data.mask)
    ]  # fmt: skip
    matrices = [model.layers[1].linear.weight, model.layers[5].linear.weight, model.heads.weight]
    objective = sum(each) / 3
    penalty = 0.1 / 2 * sum(weight.square().sum() for weight in matrices)
    (objective + penalty).backward()
    expected = {name: p.detach() - 0.5 * p.grad for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    stepper = TrainingStep(model, lambdarank_loss, optimizer, settings)
    stepper(data)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)
    ((value, weight, _),) = stepper.flush(1, 1, np.array(["q"] * 9))
    assert value == pytest.approx(objective.item(), rel=1e-5)
    counted = data.weights if empty == "keep" else data.weights[(data.labels > 0).any(-1)]
    assert weight == pytest.approx(counted.sum().item(), rel=1e-6)


def test_with_categories_the_members_are_seen_too() -> None:
    lists = mixed(9)
    network = model_for(small_tabm, fit_transform(lists)).eval()
    data = ItemTensors(lists, fit_transform(lists)).batch(np.arange(9))
    members = network.member_scores(data.features, data.mask)
    assert members.shape == (3, *data.mask.shape)
    torch.testing.assert_close(network(data.features, data.mask), members.mean(0))


SIZE = 6


def lists() -> tuple[Packing, Packing, torch.Tensor]:
    """The same lists packed and padded, and the padded projections ``[batch, list, 3 * size]``."""
    mask = torch.arange(8) < torch.tensor([5, 0, 1, 7])[:, None]
    mask[3] = mask[3].roll(1)  # padding in front
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 8, 3 * SIZE, dtype=torch.float64, generator=generator)
    return Packing.from_mask(mask), Packing(mask), values


@pytest.mark.slow
def test_packed_and_padded_attention_agree() -> None:
    packed, padded, values = lists()
    values.requires_grad_()
    found, slopes = [], []
    for packing in (packed, padded):
        attended = attend(packing.pack(values), packing, heads=3, rate=0.0)
        found.append(packing.unpack(attended).masked_fill(~packing.mask[..., None], 0))
        slopes += torch.autograd.grad(found[-1].sin().sum(), values)
    torch.testing.assert_close(*found, atol=1e-12, rtol=0)
    torch.testing.assert_close(*slopes, atol=1e-12, rtol=0)
    assert found[0].abs().sum() > 1


@pytest.mark.slow
def test_gradient_of_packed_attention_with_dropout() -> None:
    packed, _, values = lists()
    items = packed.pack(values)[:6].requires_grad_()  # the lists of 5 items and of 1

    def attended(items: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)  # the same masks every time
        return attend(items, packed._replace(lengths=[5, 0, 1]), heads=2, rate=0.4)

    assert torch.autograd.gradcheck(attended, items)


def test_dropout_falls_on_the_attention_weights() -> None:
    packed, _, values = lists()
    items = packed.pack(values)
    torch.manual_seed(1)
    found = attend(items, packed, heads=1, rate=0.5)
    torch.manual_seed(1)
    keep = keep_factors((5 * 5 + 1 + 7 * 7,), 0.5).double()[:25].view(5, 5)
    query, key, value = items[:5].chunk(3, -1)
    weights = (query @ key.T / math.sqrt(SIZE)).softmax(-1)
    torch.testing.assert_close(found[:5], (weights * keep) @ value, atol=1e-12, rtol=0)


def test_dropout_keeps_its_rate_and_the_expected_value() -> None:
    torch.manual_seed(0)
    count, rate = 10**6, 0.3
    keep = keep_factors((1000, 1000), rate)
    dropped = (keep == 0).double()
    assert abs(dropped.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / count)
    assert keep.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-4)
    for other in (keep.roll(1, 1), keep.roll(4, 1), keep.roll(1, 0)):  # neighbours, same 64 bits
        both = (dropped * (other == 0)).mean()
        assert abs(both - rate**2) < 5 * math.sqrt(rate**2 / count)


def test_the_seed_of_torch_governs_dropout_in_training_alone() -> None:
    torch.manual_seed(5)
    first, second = keep_factors((50,), 0.5), keep_factors((50,), 0.5)
    torch.manual_seed(5)
    assert torch.equal(keep_factors((50,), 0.5), first)
    assert not torch.equal(first, second)
    values = torch.ones(100)
    assert Dropout(0.5).eval()(values) is Dropout(0.0)(values) is values
    assert Dropout(0.5)(values).unique().tolist() == [0, 2]
    slopes = []
    for inplace in (True, False):
        torch.manual_seed(2)
        linear = nn.Linear(3, 4)
        Dropout(0.4, inplace=inplace)(linear(torch.ones(2, 3))).relu_().sum().backward()
        slopes.append(linear.weight.grad)
    assert torch.equal(*slopes)
