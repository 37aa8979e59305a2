"""``loss=mix``: a weighted sum whose parts, weights and knobs are named in the config."""

import pytest
import torch
from conftest import compose
from folders import refused
from ragged import ragged, value_and_gradient

from ltr.errors import ConfigError
from ltr.losses import listmle_loss, mix_loss, neural_ndcg_loss, rmse_loss
from ltr.scorers.parts import make
from ltr.scorers.trust import config_to_keep, trusted


def test_it_is_the_sum_of_its_parts() -> None:
    given = [
        *("loss=mix", "suggested.levels=7", "loss.parts.rmse=0.5", "loss.parts.listnet=0"),
        *("loss.parts.neuralndcg=2", "+loss.knobs.neuralndcg.temperature=0.1"),
    ]
    found = value_and_gradient(make(compose(*given).loss, "loss"), *ragged())

    def by_hand(*data):
        return 2 * neural_ndcg_loss(*data, temperature=0.1) + 0.5 * rmse_loss(*data, levels=7)

    torch.testing.assert_close(found, value_and_gradient(by_hand, *ragged()))


def test_its_parts_draw_from_its_generator() -> None:
    data = ragged()
    drawn = [torch.Generator().manual_seed(3) for _ in range(2)]
    found = mix_loss(*data, parts={"listmle": 2.0}, generator=drawn[0])
    assert torch.equal(found, 2 * listmle_loss(*data, generator=drawn[1]))


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"parts": {"listnte": 1}}, "listnte: no such part of a mix; there are approxndcg, bce, "),
        ({"parts": {"mix": 1}}, "mix: no such part of a mix; there are approxndcg, "),
        ({"knobs": {"neuralndcg": {"sigma": 1}}}, "knobs.neuralndcg.sigma: neuralndcg has no such"),
        ({"knobs": {"lambdarank": {"k": 3}}}, "knobs.lambdarank: lambdarank is no part of this"),
        ({"parts": {"listnet": -1}}, "parts.listnet=-1 is no weight: write a finite number >= 0"),
        ({"parts": {"listnet": 0}}, "no part of the mix has a weight: set loss.parts.NAME=1"),
    ],
)
def test_what_is_wrong_is_named(knobs, said: str) -> None:
    assert refused(lambda: mix_loss(*ragged(), **knobs), ConfigError).startswith(said)


def test_a_kept_mix_names_no_other_code(tmp_path) -> None:
    kept = config_to_keep(compose("loss=mix", "+loss.knobs.listnet={}"), tmp_path)
    assert make(trusted(kept, ["loss"]).loss, "loss") is not None
    kept["loss"]["knobs"]["listnet"] = {"_target_": "os.system", "command": "true"}
    assert "trust=[MODULE]" in refused(lambda: trusted(kept, ["loss"]), ConfigError)
