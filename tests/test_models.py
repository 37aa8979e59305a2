"""Models: padding, order and company of the items, and what each configuration promises."""

import copy
import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ltr.checks.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.checks.subject import DOES_NOT_APPLY, HOLDS, judge
from ltr.errors import ConfigError
from ltr.models import DASALC, MLP, ContextAwareTransformer, Linear, TabM
from ltr.models.layers import Packing

WIDTH = 5
Make = Callable[[], nn.Module]
_FILES = sorted((Path(__file__).parents[1] / "configs" / "model").glob("*.yaml"))
CONFIGS = [path for path in _FILES if re.search(r"_target_: ltr.models.[A-Z]", path.read_text())]

small = partial(ContextAwareTransformer, WIDTH, fc_sizes=(8,), heads=2, feed_forward=16)
MODELS: dict[str, Make] = {
    "linear": partial(Linear, WIDTH),
    "mlp": partial(MLP, WIDTH, dropout=0.2, input_norm=True),
    "mlp-periodic": partial(MLP, WIDTH, embedding={"kind": "periodic", "size": 3, "sigma": 1.0}),
    "mlp-piecewise": partial(MLP, WIDTH, embedding={"kind": "piecewise", "lite": True}),
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
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@pytest.fixture(params=["packed", "dense"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for both ways to lay out the items, the GPU's included."""
    if request.param == "dense":
        monkeypatch.setattr(Packing, "of", classmethod(lambda cls, mask: cls(mask, None)))


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
    subject = ModelSubject(lambda width: make(), width=WIDTH, list_aware=aware)
    not_so = {"a_resumed_training_gives_the_same_weights"}  # of none: nothing trains it here
    not_so |= {"an_item_is_scored_by_its_own_features_alone"} if aware else set()
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


@both_layouts
@every_model
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
    model = built(partial(small, position=position))
    assert not torch.allclose(model(features, mask, swapped), model(features, mask, ranks))
    with pytest.raises(ConfigError, match=r"none is given: pass ranks, or write position=null$"):
        model(features, mask)


@both_layouts
def test_ranks_beyond_the_learned_ones_share_the_last() -> None:
    features, mask, ranks = batch()
    model = built(partial(small, position="learned", max_rank=6))
    beyond = torch.where(ranks > 6, 1000, ranks)
    assert torch.equal(model(features, mask, beyond), model(features, mask, ranks))
    fixed = built(partial(small, position="fixed", max_rank=6))
    assert not torch.allclose(fixed(features, mask, beyond), fixed(features, mask, ranks))


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
    (partial(small, output_activation="swish"), r"^'swish' is not an activation: choose one of"),
    (partial(MLP, 5, activation="Tanh"), r"choose one of relu, .*, leaky_relu, none$"),
    (partial(small, heads=3), r"^heads=3 does not divide the hidden size 8: change heads or the"),
    (partial(small, heads=0), r"^heads=0 is out of range: write an integer >= 1$"),
    (partial(small, fc_sizes=(8, 0)), r"^fc_sizes\[1\]=0 is out of range: write an integer >= 1$"),
    (partial(small, dropout=1.0), r"^dropout=1.0 is out of range: write a number in \[0, 1\)$"),
    (partial(small, position="sine"), r"^position=sine is not known: choose one of fixed, learned"),
    (partial(small, position="learned", max_rank=0), r"^max_rank=0 is out of range"),
    (partial(small, fc_sizes=(7,), heads=1, position="fixed"), r"make the last of fc_sizes even"),
    (partial(MLP, 5, hidden_sizes=()), r"name a size, or use model=linear$"),
    (partial(Linear, 0), r"^width=0 is out of range: write an integer >= 1$"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_settings_end_with_the_remedy(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def read_config(path: Path) -> tuple[Callable[..., nn.Module], DictConfig]:
    """The class and the settings of a model config, with the root's ``suggested``."""
    root = OmegaConf.create(
        {"model": OmegaConf.load(path), "suggested": {"fc_sizes": [8], "output_activation": "tanh"}}
    )
    settings = root.model.get("model", root.model)  # with other keys, such as a transform
    assert settings.pop("_partial_") is True
    module, _, name = settings.pop("_target_").rpartition(".")
    return resolve_name(f"{module}:{name}"), settings


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_holds_every_setting_and_builds(path: Path) -> None:
    assert path.read_text().startswith("# ")
    model_class, settings = read_config(path)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(model_class).parameters.items()
        if name != "width"
    }
    assert set(settings) == set(defaults)
    suggested = {"fc_sizes", "output_activation", "embedding"}  # None: as its kind is in the file
    for name in set(settings) - suggested:
        value = settings[name]
        assert (tuple(value) if name.endswith("_sizes") else value) == defaults[name], name
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
