"""The figures draw what the papers describe, and the files are those that were asked for."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import processes
import pytest
import torch
from conftest import compose

from ltr.errors import ConfigError, OutputError
from ltr.figures.architecture import architecture, rooms
from ltr.figures.draw import draw_figures
from ltr.figures.neuralndcg_paper import PRINTED as PAPERS
from ltr.figures.neuralndcg_paper import computed, figure1, figure2, table1
from ltr.figures.rank_distributions import distributions
from ltr.relaxations import neural_sort, sinkhorn

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["figure1", "figure2", "table1", "rank_distribution", "selection", "architecture"]
PAPER_1 = {"labels": [2, 1, 0, 0, 0], "scores": [4, 1, 0, 0], "x": [-1, 6], "points": 141}
PAPER_2 = {"labels": [1, 2, 3, 4, 5], "scores": [1, 2, 3, 4], "x": [0, 6], "points": 121}


def draw(*overrides: str) -> str:
    return draw_figures(compose(*overrides, config="figures"))


def log2(rank: int) -> float:
    return math.log2(1 + rank)


def test_figure_1_steps_where_x_passes_an_item_with_a_gain() -> None:
    data = figure1(**PAPER_1, temperature=1.0).data
    best = 3 + 1 / log2(2)
    for low, high, dcg in [
        (-1, 1, best),  # zeros may stand in any order
        (1, 4, 3 + 1 / log2(3)),
        (4, 6, 3 / log2(2) + 1 / log2(3)),
    ]:
        piece = data.ndcg[(data.x > low + 1e-9) & (data.x < high - 1e-9)]
        assert len(piece) > 10
        np.testing.assert_allclose(piece, dcg / best, rtol=1e-12)


def test_figure_1_shows_what_sinkhorn_scaling_mends() -> None:
    data = figure1(**PAPER_1, temperature=1.0).data
    without = data.neuralndcg_without_sinkhorn[(data.x >= 0) & (data.x <= 1)]
    assert without.max() > without.iloc[0] + 0.02  # it rises towards the step
    assert without.max() > without.iloc[-1] + 0.005  # before it falls
    assert np.diff(data.neuralndcg).max() < 1e-5  # the scaling stops after 30 iterations
    one = torch.tensor([[4.0, 1, 0, 0, data.x[40]]], dtype=torch.float64)
    mask, gains = torch.ones(1, 5, dtype=torch.bool), torch.tensor([3.0, 1, 0, 0, 0]).double()
    of_rank = torch.tensor([1 / log2(r) for r in range(1, 6)], dtype=torch.float64)
    soft = neural_sort(one, mask)
    for column, matrix in (
        ("neuralndcg", sinkhorn(soft, mask)),
        ("neuralndcg_without_sinkhorn", soft),
    ):
        value = (of_rank @ matrix[0] @ gains).item() / (3 + 1 / log2(2))
        assert data[column][40] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("figure", "settings", "steps", "column"),
    [
        (figure1, PAPER_1 | {"temperature": 1e-3}, [0, 1, 4], "neuralndcg"),
        (figure1, PAPER_1 | {"temperature": 1e-3}, [0, 1, 4], "neuralndcg_without_sinkhorn"),
        (figure2, PAPER_2 | {"temperatures": [1e-3]}, [1, 2, 3, 4], "neuralndcg_0.001"),
    ],
)
def test_at_temperature_0_a_curve_is_the_step_function(figure, settings, steps, column) -> None:
    data = figure(**settings).data
    far = np.abs(data.x.to_numpy()[:, None] - np.array(steps)).min(-1) > 0.03
    assert far.sum() > 100
    np.testing.assert_allclose(data[column][far], data.ndcg[far], atol=1e-9)


def test_figure_2_a_lower_temperature_is_nearer() -> None:
    data = figure2(**PAPER_2, temperatures=[0.1, 1, 10]).data
    gains = {y: 2**y - 1 for y in range(1, 6)}
    best = sum(gains[6 - r] / log2(r) for r in range(1, 6))
    last_first = sum(gains[y] / log2(r) for r, y in enumerate([4, 3, 2, 1, 5], 1))
    np.testing.assert_allclose(data.ndcg[data.x < 0.99], last_first / best, rtol=1e-12)
    np.testing.assert_allclose(data.ndcg[data.x > 4.01], 1, rtol=1e-12)
    far = [(data[f"neuralndcg_{t}"] - data.ndcg).abs().mean() for t in ("0.1", "1", "10")]
    assert 3 * far[0] < far[1] < far[2] / 3


# The NeuralNDCG paper, Table 1, as printed; the last number of a row is the sum that it prints.
PRINTED = """
0    4      4      3      2      1       0          14
0.01 4      4      3      2      0.99992 0.00012339 14.00004339
0.1  3.9995 3.8909 2.8239 1.9730 0.9989  0.3136     13.9998
1    3.3893 2.9820 2.4965 2.0191 1.6097  1.2815     10.388
"""


def test_table_1_has_the_entries_that_the_paper_prints() -> None:
    data = computed()
    for line in PRINTED.split("\n")[1:-1]:
        temperature, *printed = line.split()
        rows = data[data.temperature == float(temperature)]
        assert rows.paper.tolist() == printed
        for value, text in zip(rows.value, printed[:-1], strict=False):
            digits = len(text.partition(".")[2]) or 4
            assert abs(value - float(text)) <= 0.5 * 10.0**-digits
        assert rows.value.iloc[-1] == pytest.approx(sum(rows.value[:-1]), abs=1e-12)
    assert data[data["rank"] != "sum"].agrees.all()
    assert data[data["rank"] == "sum"].agrees.tolist() == [True, False, False, False]


def test_table_1_says_what_is_wrong_with_the_sums_of_the_paper() -> None:
    text = table1().text
    assert "24 of 24 entries round to what the paper prints" in text
    assert "0.01, 14.00004339, adds up the rounded entries" in text
    assert "1, 10.388, is not that of its entries, 13.7781 (10.3888 without the first)" in text
    assert text.splitlines()[4].split() == [
        "0.1", "3.9995", "3.8909", "2.8239", "1.9730", "0.9989", "0.3136", "13.99971", "13.9998",
    ]  # fmt: skip


def test_table_1_does_not_call_a_wrong_entry_equal(monkeypatch) -> None:
    monkeypatch.setitem(PAPERS, 0.1, [*PAPERS[0.1][:4], "0.9988", "0.3136", "14"])
    assert computed().groupby("temperature").agrees.sum().tolist() == [7, 6, 5, 6]


SCORES = torch.tensor([[2.0, 1.2, 1.0, 0.4, 0.0]], dtype=torch.float64)


def exact_by_quadrature(means: list[float], sigma: float) -> np.ndarray:
    """Given an item's own score the contests are independent: integrate over that score."""
    steps = np.linspace(-8, 8, 801)
    weights = np.exp(-0.5 * steps**2) / np.exp(-0.5 * steps**2).sum()
    columns = []
    for item, mean in enumerate(means):
        others = [m for i, m in enumerate(means) if i != item]
        column = np.zeros(len(means))
        for step, weight in zip(steps, weights, strict=True):
            chances = [0.5 * math.erfc((mean - m + sigma * step) / sigma / 2**0.5) for m in others]
            found = np.ones(1)
            for chance in chances:
                found = np.convolve(found, [1 - chance, chance])
            column += weight * found
        columns.append(column)
    return np.stack(columns, -1)


def test_the_exact_rank_distribution_is_what_an_integral_gives() -> None:
    n = 50_000
    found = distributions(SCORES, sigma=0.7, n_samples=n, seed=0)["exact"].numpy()
    expected = exact_by_quadrature(SCORES[0].tolist(), 0.7)
    error = 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-5
    assert (np.abs(found - expected) < error).all()


def test_rank_distributions_sum_to_one_and_the_scaled_one_is_nearer() -> None:
    found = distributions(SCORES, sigma=0.7, n_samples=20_000, seed=0)
    ones = torch.ones(5, dtype=torch.float64)
    for name, matrix in found.items():
        torch.testing.assert_close(matrix.sum(0), ones, atol=1e-4, rtol=0)
        if name != "rank_binomial":
            torch.testing.assert_close(matrix.sum(1), ones)
    far = {
        name: 0.5 * (matrix - found["exact"]).abs().sum(0).mean().item()
        for name, matrix in found.items()
    }
    assert far["exact"] == 0 < far["scaled"] < far["rank_binomial"] < 0.25
    ranks = torch.arange(1.0, 6, dtype=torch.float64)  # the expected rank needs no independence
    torch.testing.assert_close(
        ranks @ found["rank_binomial"], ranks @ found["exact"], atol=0.05, rtol=0
    )


def test_rank_distributions_without_noise_are_the_permutation() -> None:
    for matrix in distributions(SCORES, sigma=1e-3, n_samples=100, seed=0).values():
        torch.testing.assert_close(matrix, torch.eye(5, dtype=torch.float64))


def test_the_number_of_draws_is_what_was_asked_for() -> None:
    for n in (1, 7, 1500):
        counts = n * distributions(SCORES, sigma=0.7, n_samples=n, seed=0)["exact"]
        torch.testing.assert_close(counts, counts.round())
        torch.testing.assert_close(counts.sum(), torch.tensor(5.0 * n).double())


@pytest.mark.slow
def test_the_picture_of_the_imports_has_them_all_and_no_other() -> None:
    known = {name: room.imports for name, room in rooms().items() if not name.startswith("__")}
    data = architecture().data
    edges = {(row.room, row.imports): row.drawn for row in data.itertuples() if row.imports}
    assert set(edges) == {(name, other) for name, others in known.items() for other in others}

    def reached(name: str) -> set[str]:
        ends = {end for (start, end), drawn in edges.items() if drawn and start == name}
        return ends.union(*map(reached, ends))

    left_out = {end for start, end in edges if end not in reached(start)}
    assert left_out == {"errors", "typing"}


@pytest.mark.slow
def test_all_figures_are_written_and_the_same_at_every_run(tmp_path) -> None:
    less = ["rank_distribution.n_samples=2000", "dpi=50"]
    less += ["selection.lists=[10,20]", "selection.draws=2", "selection.epochs=3"]
    text = draw(*less, f"output={tmp_path / 'one'}")
    import matplotlib

    own = {"font.size": 30, "svg.hashsalt": "mine", "xtick.direction": "in"}
    with matplotlib.rc_context(own):
        draw(*less, f"output={tmp_path / 'two'}")
        assert {key: matplotlib.rcParams[key] for key in own} == own  # they come back
    for name in NAMES:
        for kind in ("png", "svg", "csv"):
            one, two = (tmp_path / run / f"{name}.{kind}" for run in ("one", "two"))
            assert str(one) in text
            assert one.read_bytes() == two.read_bytes(), one.name
        assert (tmp_path / "one" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(tmp_path / "one" / f"{name}.svg")
        assert len(pd.read_csv(tmp_path / "one" / f"{name}.csv")) >= (28, 2)[name == "selection"]


def test_the_csv_has_what_is_drawn(tmp_path) -> None:
    draw("only=figure2", "figure2.temperatures=[0.5]", "figure2.points=25", f"output={tmp_path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figure2.csv", "figure2.png", "figure2.svg",
    ]  # fmt: skip
    expected = figure2(**PAPER_2 | {"points": 25}, temperatures=[0.5]).data
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "figure2.csv"), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("only=figure3", "figure3 is no figure: choose only= from figure1, figure2, table1, rank_"),
        ("only=[table1,tabel]", "tabel is no figure: choose only= from figure1, "),
        ("only=[]", r"only=\[\] is no figure: choose"),
        ("dpi=0", "dpi=0: write a whole number >= 1"),
        ("figure1.temperature=0", "figure1: temperature=0 is out of range: write a finite number"),
        ("figure1.x=[3,1]", "figure1: x=.3, 1.: write the first and the last value, such as"),
        ("figure1.points=1", "figure1: points=1: write a whole number >= 2"),
        ("figure1.scores=[1]", r"figure1: scores=\[1\] with .*: write one score less than labels"),
        ("figure2.labels=[a,b]", "figure2: labels=.*: write a list of 2 or more finite numbers"),
        ("figure2.temperatures=1", r"figure2: temperatures=1: write a list of 1 or more"),
        ("figure2.temperatures=[1,2,3,4,5,6]", "figure2: temperatures=.*: write at most 5 of them"),
        ("rank_distribution.sigma=0", "rank_distribution: sigma=0 is out of range: write"),
        ("rank_distribution.n_samples=0", "rank_distribution: n_samples=0: write a whole number"),
        ("rank_distribution.scores=[1]", "rank_distribution: scores=.*: write a list of 2 or more"),
        ("selection.lists=[1]", "selection: lists=1: write a whole number >= 2"),
        ("selection.lists=[9.5]", "selection: lists=9.5: write a whole number >= 2"),
        (f"selection.lists=[{10**309}]", "selection: lists=.*: write a list of 1 or more finite"),
        ("~figure1.x", "figure1: missing a required argument: 'x'; its keys are labels, scores"),
        ("+figure1.k=2", "figure1: got an unexpected keyword argument 'k'; its keys are labels"),
        ("output=pyproject.toml/x", "output=.* cannot be written .*: give another folder"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(override, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    name = override.lstrip("+~").split(".")[0]
    only = f"only={name if name in NAMES else 'table1'}"
    with pytest.raises((ConfigError, OutputError), match=message) as error:
        draw(f"output={tmp_path}", only, override)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_help_names_every_figure_without_importing_torch_or_matplotlib() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['scripts/figures.py', '--help']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code]
    got = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert got.stderr == ""
    assert "heavy: []" in got.stdout
    for name in NAMES:
        assert f"\n{name}:" in got.stdout


@pytest.mark.slow
def test_a_wrong_name_on_the_command_line_is_one_line(tmp_path) -> None:
    got = processes.run("scripts/figures.py", "only=figure3", f"output={tmp_path / 'out'}")
    assert got.returncode == 2
    assert got.stdout == ""
    assert got.stderr == (f"error: figure3 is no figure: choose only= from {', '.join(NAMES)}\n")
    assert not (tmp_path / "out").exists()
