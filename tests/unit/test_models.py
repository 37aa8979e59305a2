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
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import Tensor, nn

from ltr.data.batches import Batch, ItemTensors
from ltr.data.transforms import fit_transform, no_transform
from ltr.errors import ConfigError
from ltr.kernels.attention import keep_factors
from ltr.losses import lambdarank_loss
from ltr.losses.batch import mean_over_batch
from ltr.models import DASALC, MLP, ContextAwareTransformer, Linear, TabM
from ltr.models.dasalc import ItemNorm
from ltr.models.layers import Dropout, Packing, attend
from ltr.parts.components import build_model, build_settings
from ltr.testing.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.testing.subject import DOES_NOT_APPLY, HOLDS, judge
from ltr.training.trainer import TrainingStep
from tests.helpers.made_columns import mixed
from tests.helpers.packed_lists import SIZE, packed_lists
from tests.helpers.paths import ROOT
from tests.helpers.runs import compose

WIDTH = 5
Make = Callable[[], nn.Module]
_FILES = sorted((ROOT / "configs" / "model").glob("*.yaml"))
CONFIGS = [path for path in _FILES if "_target_: ltr.boosting" not in path.read_text()]

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
    """Run the test with both layouts of the items; dense is that of the GPU."""
    if request.param == "dense":
        dense = classmethod(lambda cls, mask: cls(mask, None))
        monkeypatch.setattr(Packing, "from_mask", dense)


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
def test_models_have_all_model_properties(name: str) -> None:
    make = MODELS[name]
    subject = ModelSubject(lambda width: make(), width=WIDTH)
    inapplicable = set()
    if isinstance(make(), ContextAwareTransformer | DASALC):
        inapplicable.add("an_item_is_scored_by_its_own_features_alone")
    if name.endswith(("fixed", "learned")):
        inapplicable.add("the_given_ranks_mean_nothing")
    wrong = []
    for prop in MODEL_PROPERTIES:
        verdict = judge(prop, subject)
        expected = DOES_NOT_APPLY if prop.__name__ in inapplicable else HOLDS
        if verdict.outcome != expected:
            wrong.append(verdict)
    assert not wrong


def test_transformer_in_bfloat16_does_not_tie_items() -> None:
    model = built(partial(small, output_activation="tanh"))
    features = torch.randn(1, 300, WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(features, torch.ones(1, 300, dtype=torch.bool))
    assert len(scores.unique()) > 290, "eight bits would leave a few dozen values"


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_models_in_bfloat16_and_float64_agree_with_float32(make: Make) -> None:
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
def test_transformer_with_a_position_uses_the_ranks(position: str) -> None:
    features, mask, ranks = batch()
    swapped = ranks.clone()
    swapped[0, :2] = ranks[0, [1, 0]]
    model = built(partial(small, position=position, max_rank=6))
    expected = model(features, mask, ranks)
    assert not torch.allclose(model(features, mask, swapped), expected)
    beyond = torch.where(ranks > 6, 1000, ranks)  # they share the last learned vector
    assert torch.equal(model(features, mask, beyond), expected) == (position == "learned")
    with pytest.raises(
        ConfigError, match=r"but ranks is None: pass ranks, or write position=null$"
    ):
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
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    def norm(x: Tensor) -> Tensor:  # weights are 1 and biases 0 at the start
        centered = x - x.mean(-1, keepdim=True)
        return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    block = "encoder.blocks.0"
    x = nn.functional.elu(linear(features[1, real], "layers.0"))
    in_proj = norm(x) @ parameters[f"{block}.in_proj.weight"].T
    query, key, value = in_proj.chunk(3, dim=-1)  # their biases are 0 at the start
    attended = (query @ key.T / math.sqrt(8)).softmax(-1) @ value
    x = x + linear(attended, f"{block}.out_proj")
    x = x + linear(linear(norm(x), f"{block}.linear1").relu(), f"{block}.linear2")
    expected = linear(norm(x), "head.linear").squeeze(-1).tanh()
    torch.testing.assert_close(model(features, mask)[1, real], expected)


def test_xavier_uniform_initialises_every_matrix() -> None:
    torch.manual_seed(0)
    model = ContextAwareTransformer(136, position="learned")
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        matrices = parameter.chunk(3) if name.endswith("in_proj.weight") else [parameter]
        for matrix in matrices:
            bound = math.sqrt(6 / sum(matrix.shape))
            assert matrix.abs().max() <= bound, name
            assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1), name
    first, second = model.encoder.blocks
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


BAD: list[tuple[Callable[[], Any], str]] = [
    (partial(MLP, 5, activation="Tanh"), r"^'Tanh' is not an activation: .* relu, .*, none$"),
    (partial(small, heads=3), r"^heads=3 does not divide the hidden size 8: change heads, or the"),
    (partial(small, heads=0), r"^heads=0 is out of range: write an integer >= 1$"),
    (partial(small, fc_sizes=(8, 0)), r"^fc_sizes\[1\]=0 is out of range: write an integer >= 1$"),
    (partial(small, dropout=1.0), r"^dropout=1.0 is out of range: write a number in \[0, 1\)$"),
    (partial(small, position="sine"), r"^position=sine is not known: choose one of fixed, learned"),
    (partial(small, position="learned", max_rank=0), r"^max_rank=0 is out of range"),
    (partial(small, fc_sizes=(7,), heads=1, position="fixed"), r"make the last of fc_sizes even"),
    (partial(DASALC, 5, hidden_sizes=()), r"write at least one size, or use model=linear$"),
    (partial(Linear, 0), r"^width=0 is out of range: write an integer >= 1$"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_models_refuse_bad_settings_with_the_remedy(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_model_configs_hold_every_setting_and_build(path: Path) -> None:
    assert path.read_text().startswith("# ")
    root = OmegaConf.create(
        {"model": OmegaConf.load(path), "suggested": {"fc_sizes": [8], "output_activation": "tanh"}}
    )
    settings = root.model.get("model", root.model)  # with other keys, such as a transform
    assert settings.pop("_partial_") is True
    model_class = get_class(settings.pop("_target_"))
    width, *parameters = inspect.signature(model_class).parameters.values()
    assert width.name == "width"
    assert set(settings) == {parameter.name for parameter in parameters}
    suggested = {"fc_sizes", "output_activation", "embedding"}  # None: as its kind is in the file
    for parameter in parameters:
        name = parameter.name
        value = tuple(settings[name]) if name.endswith("_sizes") else settings[name]
        assert name in suggested or value == parameter.default, name
    original = copy.deepcopy(settings)
    features, mask, ranks = batch()
    torch.manual_seed(0)
    model = model_class(WIDTH, **settings)
    scores = model(features, mask, ranks)
    assert scores.shape == mask.shape
    assert (scores.abs() <= 1).all()  # tanh
    assert settings == original
    rate = settings.get("dropout", 0)
    assert torch.equal(model(features, mask, ranks), scores) == (not rate), "dropout in training"


MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=torch.bool)


@both_layouts
def test_item_norm_is_pytorchs_batch_norm_over_the_real_items() -> None:
    torch.manual_seed(0)
    packing = Packing.from_mask(MASK)
    ours = ItemNorm(3)
    theirs = nn.BatchNorm1d(3)
    for norm in (ours, theirs):
        nn.init.constant_(norm.weight, 2.0)
        nn.init.constant_(norm.bias, 0.5)
    for _ in range(3):
        padded = torch.randn(4, 4, 3) * 5 + 2
        items = packing.pack(padded).requires_grad_()
        normalised = packing.unpack(ours(items, packing))[MASK]
        torch.testing.assert_close(normalised, theirs(padded[MASK]))
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.variance, theirs.running_var)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(packing.unpack(ours(items, packing))[MASK], theirs(padded[MASK]))


@both_layouts
@pytest.mark.parametrize("items", [0, 1])
def test_item_norm_of_fewer_than_two_items_uses_running_moments(items: int) -> None:
    norm = ItemNorm(3)
    mask = torch.tensor([[items > 0, False]])
    norm.mean.fill_(1.0)
    packing = Packing.from_mask(mask)
    padded = torch.full((1, 2, 3), 4.0)
    normalised = packing.unpack(norm(packing.pack(padded), packing))[mask]
    torch.testing.assert_close(normalised, torch.full((items, 3), 3.0), rtol=1e-4, atol=0)
    assert norm.mean.tolist() == norm.variance.tolist() == [1, 1, 1]


def test_dasalc_scores_the_latent_cross() -> None:
    torch.manual_seed(0)
    model = DASALC(5, hidden_sizes=(6, 8, 8), feed_forward=16).eval()
    features = torch.randn(4, 4, 5)
    items = features[MASK]
    packing = Packing.from_mask(MASK)
    hidden = items
    for layer, residual in zip(model.layers, (False, False, True), strict=True):
        dense = (layer.linear(hidden) / (1 + 1e-5) ** 0.5).relu()  # the norm is new
        hidden = hidden + dense if residual else dense
    context = model.cross(model.encoder(model.entry(items), packing))
    expected = model.head.linear((1 + context) * hidden).squeeze(-1)
    torch.testing.assert_close(model(features, MASK)[MASK], expected)


small_tabm = partial(TabM, members=3, hidden_sizes=(6, 4), dropout=0.0)


def lists_batch() -> Batch:
    lists = replace(mixed(9, weights=True), columns=None)
    lists.labels[: lists.offsets[1]] = 0  # an empty list
    batch = ItemTensors(lists, no_transform(lists)).batch(np.arange(9))
    return replace(batch, weights=torch.tensor(lists.weights))


@pytest.mark.slow
@pytest.mark.parametrize("mini", [False, True])
def test_tabm_member_is_a_network_with_scaled_weights(mini: bool, monkeypatch) -> None:
    torch.manual_seed(0)
    model = small_tabm(4, mini=mini).eval()
    assert model.layers[0].scale.unique().tolist() == [-1, 1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    data = lists_batch()
    parameters = dict(model.named_parameters())
    member_scores = model.member_scores(data.features, data.mask)
    for i in range(3):

        def member_parameter(name: str, size: int, i: int = i) -> torch.Tensor:
            return parameters[name].view(3, size)[i]

        x = data.features * member_parameter("layers.0.scale", 4)
        if mini:
            x = (x @ parameters["layers.1.weight"].T + parameters["layers.1.bias"]).relu()
            x = (x @ parameters["layers.4.weight"].T + parameters["layers.4.bias"]).relu()
        else:
            x = x @ parameters["layers.1.linear.weight"].T
            x = x * member_parameter("layers.1.scaling.scale", 6)
            x = (x + member_parameter("layers.1.bias", 6)).relu()
            x = x * member_parameter("layers.4.scale", 6)
            x = x @ parameters["layers.5.linear.weight"].T
            x = x * member_parameter("layers.5.scaling.scale", 4)
            x = (x + member_parameter("layers.5.bias", 4)).relu()
        head = parameters["heads.weight"][i]
        expected = (x @ head + parameters["heads.bias"][i]) * data.mask
        torch.testing.assert_close(member_scores[i], expected, rtol=1e-4, atol=1e-5)
    for _ in ("all items at once", "in chunks"):
        scores = model(data.features, data.mask)
        torch.testing.assert_close(scores, member_scores.mean(0), rtol=0, atol=1e-6)
        monkeypatch.setattr("ltr.models.tabm._MAX_ROWS", 21)


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["keep", "skip"])
def test_step_of_tabm_minimises_the_mean_of_the_members_losses(empty: str) -> None:
    torch.manual_seed(0)
    data = lists_batch()
    model = small_tabm(4)
    settings = build_settings(
        compose("model=tabm", "batch_size=64", f"empty_lists={empty}", "l2=0.1")
    )
    member_losses = [
        mean_over_batch(
            lambdarank_loss(scores, data.labels, data.mask),
            data.labels,
            data.mask,
            empty=empty,
            weights=data.weights,
        )
        for scores in model.member_scores(data.features, data.mask)
    ]
    matrices = [model.layers[1].linear.weight, model.layers[5].linear.weight, model.heads.weight]
    objective = sum(member_losses) / 3
    penalty = 0.1 / 2 * sum(weight.square().sum() for weight in matrices)
    (objective + penalty).backward()
    expected = {
        name: parameter.detach() - 0.5 * parameter.grad
        for name, parameter in model.named_parameters()
    }
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    stepper = TrainingStep(model, lambdarank_loss, optimizer, settings)
    stepper(data)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)
    ((value, weight, _),) = stepper.flush(1, 1, np.array(["q"] * 9))
    assert value == pytest.approx(objective.item(), rel=1e-5)
    counted = data.weights if empty == "keep" else data.weights[(data.labels > 0).any(-1)]
    assert weight == pytest.approx(counted.sum().item(), rel=1e-6)


def test_with_embeddings_passes_on_member_scores() -> None:
    lists = mixed(9)
    network = build_model(small_tabm, fit_transform(lists)).eval()
    data = ItemTensors(lists, fit_transform(lists)).batch(np.arange(9))
    members = network.member_scores(data.features, data.mask)
    assert members.shape == (3, *data.mask.shape)
    torch.testing.assert_close(network(data.features, data.mask), members.mean(0))


@pytest.mark.slow
def test_attend_agrees_on_packed_and_padded_items() -> None:
    packed, padded, values = packed_lists()
    values.requires_grad_()
    outputs = []
    gradients = []
    for packing in (packed, padded):
        attended = attend(packing.pack(values), packing, heads=3, rate=0.0)
        output = packing.unpack(attended).masked_fill(~packing.mask[..., None], 0)
        outputs.append(output)
        gradients += torch.autograd.grad(output.sin().sum(), values)
    torch.testing.assert_close(*outputs, atol=1e-12, rtol=0)
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)
    assert outputs[0].abs().sum() > 1


@pytest.mark.slow
def test_attend_with_dropout_has_the_gradient_of_differences() -> None:
    packed, _, values = packed_lists()
    items = packed.pack(values)[:6].requires_grad_()  # the lists of 5 items and of 1

    def attended(items: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)  # the same masks every time
        return attend(items, packed._replace(lengths=[5, 0, 1]), heads=2, rate=0.4)

    assert torch.autograd.gradcheck(attended, items)


def test_attend_applies_dropout_to_the_attention_weights() -> None:
    packed, _, values = packed_lists()
    items = packed.pack(values)
    torch.manual_seed(1)
    attended = attend(items, packed, heads=1, rate=0.5)
    torch.manual_seed(1)
    factors = keep_factors((5 * 5 + 1 + 7 * 7,), 0.5).double()[:25].view(5, 5)
    query, key, value = items[:5].chunk(3, -1)
    weights = (query @ key.T / math.sqrt(SIZE)).softmax(-1)
    torch.testing.assert_close(attended[:5], (weights * factors) @ value, atol=1e-12, rtol=0)


def test_keep_factors_have_their_rate_and_expected_value() -> None:
    torch.manual_seed(0)
    count = 10**6
    rate = 0.3
    factors = keep_factors((1000, 1000), rate)
    dropped = (factors == 0).double()
    assert abs(dropped.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / count)
    assert factors.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-4)
    for shift, dim in ((1, 1), (4, 1), (1, 0)):  # neighbours; four values share 64 bits
        both_dropped = (dropped * (factors.roll(shift, dim) == 0)).mean()
        assert abs(both_dropped - rate**2) < 5 * math.sqrt(rate**2 / count)


def test_dropout_follows_the_seed_of_torch_in_training_alone() -> None:
    torch.manual_seed(5)
    first = keep_factors((50,), 0.5)
    second = keep_factors((50,), 0.5)
    torch.manual_seed(5)
    assert torch.equal(keep_factors((50,), 0.5), first)
    assert not torch.equal(first, second)
    values = torch.ones(100)
    assert Dropout(0.5).eval()(values) is Dropout(0.0)(values) is values
    assert Dropout(0.5)(values).unique().tolist() == [0, 2]
    gradients = []
    for inplace in (True, False):
        torch.manual_seed(2)
        linear = nn.Linear(3, 4)
        Dropout(0.4, inplace=inplace)(linear(torch.ones(2, 3))).relu_().sum().backward()
        gradients.append(linear.weight.grad)
    assert torch.equal(*gradients)
