"""The network of ``loss=sodeep``: how well it sorts, its file, and the command that teaches it."""

import sys
from pathlib import Path

import pytest
import torch
from conftest import compose

from ltr.errors import ConfigError
from ltr.experiment.identity import _parts
from ltr.losses import sodeep_loss
from ltr.metrics.ordering import rank_of_item
from ltr.relaxations import learned_ranks, learned_sorter
from ltr.relaxations.learned_sorter import SHIPPED

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from teach_sorter import main


def quick(output: Path, *more: str) -> None:
    main([str(output), "--steps=3", "--items=64", "--longest=8", *more])


@pytest.mark.parametrize("size", [2, 10, 100, 1000])
def test_the_ranks_are_near_those_of_sorting(size: int) -> None:
    scores = torch.randn(4, size, generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[0, size // 2 :] = False
    for given in (scores, 100 * scores - 7):  # neither unit nor shift matters
        found = learned_ranks(given, mask)
        error = (found - rank_of_item(scores, mask)).abs()[mask].mean().item()
        assert error < 0.1 + 0.03 * size
        assert found[mask].min() >= 1
        assert (found[0] <= max(1, size // 2)).all()


def test_reading_the_network_draws_nothing() -> None:
    before = torch.get_rng_state()
    for function in (learned_sorter._read, learned_sorter._cast):
        function.cache_clear()
    learned_ranks(torch.ones(1, 3), torch.ones(1, 3) > 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mix_is_known_by_its_sorter(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(SHIPPED.read_text() + " ")
    mix = ["loss=mix", "loss.parts.sodeep=1"]
    given = compose(*mix, f"+loss.knobs.sodeep.sorter={mine}")
    assert _parts(compose(*mix))["origins"] == _parts(compose("loss=sodeep"))["origins"]
    assert _parts(given)["origins"] != _parts(compose(*mix))["origins"]


def test_the_same_seed_teaches_the_same_network_which_the_loss_takes(tmp_path: Path) -> None:
    quick(tmp_path / "new" / "a.json")
    quick(tmp_path / "b.json")
    quick(tmp_path / "c.json", "--seed=1")
    a, b, c = ((tmp_path / name).read_bytes() for name in ("new/a.json", "b.json", "c.json"))
    assert a == b != c
    data = torch.randn(2, 5), torch.tensor([[1.0, 0, 2, 0, 0]]).expand(2, 5), torch.ones(2, 5) > 0
    paths = None, str(tmp_path / "b.json"), str(tmp_path / "c.json")
    values = [sodeep_loss(*data, sorter=path) for path in paths]
    assert len({value.sum().item() for value in values}) == 3
    # a file that becomes another is read anew, and a run with it is another run
    cfg = compose("loss=sodeep", f"loss.sorter={paths[1]}")
    before = _parts(cfg)
    (tmp_path / "b.json").write_bytes(c + b" ")
    assert torch.equal(sodeep_loss(*data, sorter=paths[1]), values[2])
    assert before != _parts(cfg)
    assert _parts(compose("loss=sodeep"))["origins"] != before["origins"]
    with pytest.raises(SystemExit):
        quick(tmp_path / "b.json")


def test_a_file_that_cannot_be_read_says_how_to_make_it(tmp_path: Path) -> None:
    for number, content in enumerate(("{", '{"weights": {"item.weight": [[1.0]]}}')):
        (tmp_path / f"{number}.json").write_text(content)
    for path in (tmp_path / "0.json", tmp_path / "1.json", tmp_path / "none", "/dev/zero", "."):
        with pytest.raises(ConfigError, match=r"^sorter=.* cannot be read .*teach_sorter"):
            learned_ranks(torch.zeros(1, 2), torch.ones(1, 2) > 0, sorter=path)
