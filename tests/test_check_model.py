"""The battery of models: ours hold, and each planted fault is caught by the property named."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ltr.battery import DOES_NOT_APPLY, FAILS, HOLDS, MODEL_PROPERTIES, ModelSubject, Verdict, judge
from ltr.checks.models import checked
from ltr.console.compose import typed
from ltr.errors import ConfigError
from ltr.models import MLP, ContextAwareTransformer, Linear

BY_NAME = {prop.__name__: prop for prop in MODEL_PROPERTIES}
AWARE, RANKS = "an_item_is_scored_by_its_own_features_alone", "the_given_ranks_mean_nothing"


class Right(nn.Module):
    """A right one, pointwise; the faults are made from it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(width, 4), nn.Linear(4, 1)

    def scored(self, features: Tensor, mask: Tensor) -> Tensor:
        hidden = self.inner(features.masked_fill(~mask[..., None], 0)).tanh()
        return self.last(hidden).squeeze(-1).masked_fill(~mask, 0)

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(features, mask)


class OfPadding(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(features - features.mean(1, keepdim=True), mask)


class MeanOverPlaces(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        real = features.masked_fill(~mask[..., None], 0)
        return self.scored(features - real.mean(1, keepdim=True), mask)


class Coupled(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        scores = self.scored(features, mask)
        return (scores - scores[mask].mean()).masked_fill(~mask, 0)


class OfTheBatch(Right):
    """Coupled in training alone, as batch norm is."""

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        scores = self.scored(features, mask)
        return (scores - self.training * scores[mask].mean()).masked_fill(~mask, 0)


class OfPlaces(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        places = torch.arange(mask.shape[1]) / mask.shape[1]
        return (self.scored(features, mask) + places).masked_fill(~mask, 0)


class ScoredPadding(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(features, mask) - 1e9 * ~mask


class Unmasked(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.last(self.inner(features).tanh()).squeeze(-1).masked_fill(~mask, 0)


class UnmaskedWithoutGradients(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self.scored(features, mask)
        return self.scored(features, mask) + 0 * features.sum()


class Leak(torch.autograd.Function):
    """A clearing of padding whose backward gives padding a gradient."""

    forward = staticmethod(lambda ctx, x, mask: x.masked_fill(~mask[..., None], 0))
    backward = staticmethod(lambda ctx, grad: (grad + 1, None))


class Leaking(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(Leak.apply(features, mask), mask)


class Unused(Right):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.spare = nn.Linear(width, 4)


class NaNAlone(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        scores = self.scored(features, mask)
        return scores / scores.std(-1, correction=0, keepdim=True)


class Noisy(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return nn.functional.dropout(self.scored(features, mask), 0.5)


class Forgetful(Right):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.offset = torch.randn(())  # no buffer: it is not saved

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return (self.scored(features, mask) + self.offset).masked_fill(~mask, 0)


class OwnSeed(Right):
    made = 0

    def __init__(self, width: int) -> None:
        super().__init__(width)
        OwnSeed.made += 1
        nn.init.constant_(self.last.bias, OwnSeed.made)


class Changing(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(features.mul_(2), mask)


class TwoScores(Right):
    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.inner(features)


CAUGHT: dict[type[Right], tuple[str, str]] = {
    TwoScores: ("there_is_one_score_per_item", "not one score per item, [4, 9]"),
    ScoredPadding: ("there_is_one_score_per_item", "masked_fill"),
    OfPadding: ("padding_is_never_read", "padding is read"),
    MeanOverPlaces: ("more_padding_and_its_place_change_nothing", "9 behind"),
    Coupled: ("a_list_alone_is_scored_as_in_a_batch", "score of list 0, item 0, changed"),
    OfTheBatch: ("lists_do_not_see_each_other", "in training mode"),
    OfPlaces: ("the_order_of_the_items_means_nothing", "in another order"),
    Unmasked: ("the_gradient_is_finite_and_reaches_every_parameter", "nan with NaN on padding"),
    UnmaskedWithoutGradients: ("padding_is_never_read", "padding is read"),
    Leaking: ("the_gradient_is_finite_and_reaches_every_parameter", "features on padding"),
    Unused: ("the_gradient_is_finite_and_reaches_every_parameter", "reaches spare.weight"),
    NaNAlone: ("lists_of_any_size_are_scored", "of a list of 1 items"),
    Noisy: ("evaluation_is_deterministic", "at a second call"),
    Forgetful: ("the_state_dict_holds_the_model", "register a buffer"),
    OwnSeed: ("a_seed_gives_the_model", "under the same seed"),
    Changing: ("inputs_are_left_as_they_are", "the features were changed"),
}


@pytest.mark.parametrize("fault", CAUGHT, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_caught(fault: type[Right]) -> None:
    prop, seen = CAUGHT[fault]
    assert judge(BY_NAME[prop], ModelSubject(Right)).outcome == HOLDS
    verdict = judge(BY_NAME[prop], ModelSubject(fault))
    assert verdict.outcome == FAILS, verdict
    assert seen in verdict.seen
    assert "\n" not in verdict.seen


def test_a_training_that_resumes_otherwise_is_caught() -> None:
    def trained(epochs: Sequence[int]) -> dict[str, Tensor]:
        return {"weight": torch.tensor([0.1] * sum(epochs)) * (1 + 1e-7 * len(epochs))}

    prop = BY_NAME["a_resumed_training_gives_the_same_weights"]
    assert judge(prop, ModelSubject(Right, trained=trained)).outcome == FAILS
    same = ModelSubject(Right, trained=lambda epochs: {"weight": torch.ones(sum(epochs))})
    assert judge(prop, same).outcome == HOLDS


def of(name: str, subject: ModelSubject) -> Verdict:
    return judge(BY_NAME[name], subject)


def transformer(width: int, position: str | None = None) -> nn.Module:
    return ContextAwareTransformer(
        width, fc_sizes=(8,), feed_forward=8, blocks=1, position=position
    )


def test_it_says_what_a_model_is() -> None:
    assert of(AWARE, ModelSubject(Linear)).seen == "the model is pointwise"
    verdict = of(AWARE, ModelSubject(transformer))
    assert verdict.outcome == DOES_NOT_APPLY
    assert "list-aware" in verdict.seen
    for make, said in ((MLP, True), (transformer, False)):
        assert of(AWARE, ModelSubject(make, list_aware=said)).outcome == FAILS
        assert of(AWARE, ModelSubject(make, list_aware=not said)).outcome != FAILS
    assert of(RANKS, ModelSubject(transformer)).outcome == HOLDS
    positions = ModelSubject(lambda width: transformer(width, "fixed"))
    assert "positions" in of(RANKS, positions).seen
    assert of("the_order_of_the_items_means_nothing", positions).outcome == HOLDS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from ltr.models import Linear\n"
        "class Counting(Linear):\n"
        "    calls = 0\n"
        "    def __init__(self, width, *, step=0.0):\n"
        "        super().__init__(width)\n"
        "        self.step = step\n"
        "    def forward(self, features, mask, ranks=None):\n"
        "        Counting.calls += self.training\n"
        "        return super().forward(features, mask, ranks) * (1 + self.step * self.calls)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mine", None)


@pytest.mark.slow
def test_a_model_is_trained_and_resumed(here: None) -> None:
    text, sound = checked(typed("check_model", ["mine.Counting", "step=0.1"]))
    assert not sound
    assert "when the training was resumed" in " ".join(text.split())


@pytest.mark.slow
def test_boosted_trees_are_grown_first() -> None:
    pytest.importorskip("lightgbm")
    text, sound = checked(typed("check_model", ["lightgbm", "num_leaves=4"]))
    assert sound, text
    assert "no parameters" in " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("lineer", "model=lineer: no such choice"),
        ("mlp hiden=3", "model.hiden: no such key; model has"),
        ("mlp dropout=2", "dropout=2 is out of range"),
        ("mine.Countin", "mine has no Countin; it has Counting"),
        ("mine.Counting stop=3", "model.stop: Counting has no such parameter; it has step"),
        ("mlp list_aware=maybe", "list_aware=maybe: write true or false"),
        ("mlp width=0", "width=0: give a whole number >= 1"),
    ],
)
def test_a_mistake_is_one_line(here: None, arguments: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(typed("check_model", arguments.split()))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
