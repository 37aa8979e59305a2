"""Train on two sides, and compare how well both rank: ``what=quality``, ``what=precision``.

Beside ours stand allRank, and ours in TF32, bfloat16 and compiled. Both sides have the same lists,
model, sizes, optimiser, schedule and epochs, and the weights of the last epoch are tested, by our
evaluation. A run that ended is kept: what was stopped goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ltr.benchmark import comparison, peers, training
from ltr.benchmark.comparison import ABSENT, FAILED, MEASURED, Row, now
from ltr.benchmark.kept import Kept
from ltr.benchmark.training import LOSSES, VARIANTS, config_of, trainee
from ltr.benchmark.worker import OURS, Answer, Case, Work
from ltr.console.keys import Kind, without
from ltr.data.batches import ItemTensors
from ltr.data.synthetic import SyntheticLists
from ltr.experiment.build import build
from ltr.experiment.identity import code_digest, code_hash
from ltr.metrics.spec import parse_metric
from ltr.statistics import SystemValues, compare_systems, rule
from ltr.training.evaluation import metrics_of_scores, predict

METRICS = ("ndcg@5", "ndcg@10")
ALPHA = 0.05


def cases(sizes: DictConfig) -> list[Case]:
    """A case for each loss, beside allRank; a run of it has a seed beside these settings."""
    common = _common(sizes, "quality")
    return [
        Case(f"{loss}, {_told(common)}", {"loss": loss, **common}, (OURS, "allrank"))
        for loss in LOSSES
    ]


def of_precision(sizes: DictConfig) -> list[Case]:
    """NeuralNDCG beside each variant; all are compared with the same runs in float32."""
    settings = {"loss": "neuralndcg", **_common(sizes, "precision")}
    return [Case(f"{each}, {_told(settings)}", settings, (OURS, each)) for each in VARIANTS]


CASES = {"quality": cases, "precision": of_precision}


def _common(sizes: DictConfig, subject: str) -> dict[str, int]:
    names = "lists", "test_lists", "epochs", "list_size", "batch_size"
    common = {name: int(sizes[f"{subject}_{name}"]) for name in names}
    common["queries"] = common.pop("lists")
    return common


def _told(settings: Mapping[str, Any]) -> str:
    return f"{settings['queries']:,} lists, {settings['epochs']} epochs"


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """A whole training of one side, and its metrics of every test list."""
    cfg = config_of(settings, device, cache_dir, side)
    experiment = build(cfg)
    lists = experiment.dataset.split("train")
    transform = experiment.fit_transform(lists)
    seed, epochs = int(settings["seed"]), int(settings["epochs"])
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (allRank subsamples long lists with it)
    trained = trainee(side, settings, cfg, experiment, lists, transform)
    scorer = _Scorer(trained.model) if side == "allrank" else trained.model

    def answer() -> Answer:
        test = _test_lists(settings, cache_dir)
        data = ItemTensors(test, transform, experiment.device)
        precision, convention = experiment.settings.precision, experiment.convention
        scores = predict(scorer, data, precision=precision)
        metrics = [parse_metric(name) for name in METRICS]
        found = metrics_of_scores(data, scores, metrics, convention)
        return {name: values.tolist() for name, values in found.items()}

    call, amount = (lambda: trained.train(epochs)), len(lists) * epochs
    return Work(call, answer, amount, "lists", trained.note, close=trained.close)


def _test_lists(settings: Mapping[str, Any], cache_dir: str) -> Any:
    """More test lists than the set trained on has: a third of a larger one, drawn alike."""
    queries = 3 * int(settings["test_lists"])
    return SyntheticLists(queries=queries, seed=0, cache_dir=cache_dir).split("test")


class _Scorer(nn.Module):
    """allRank's model, called as ours."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor | None = None) -> Tensor:
        scores: Tensor = self.model.score(features, ~mask, ranks)  # type: ignore[operator]
        return scores.masked_fill(~mask, 0)


def measured(
    subject: str,
    cases: Sequence[Case],
    options: Mapping[str, Any],
    sizes: DictConfig,
    kept: Kept,
    say: Callable[[str], object],
) -> list[Row]:
    """Train every case with every seed on each side, as far as ``kept`` does not have it.

    Args:
        subject: of ``CASES``, which give the cases.
        options: of ``Side``.
        sizes: of ``configs/benchmark.yaml``, for the number of seeds and the margin.
        kept: has a piece for each run.
        say: gets a line for each run.

    Returns:
        A row for each case and side; its samples are the seconds of the runs.
    """
    rows = [(case, Row(subject, case.name, side)) for case in cases for side in case.sides]
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        case.name: {side: [] for side in case.sides} for case in cases
    }
    with closing(_Sides(options, kept)) as sides:
        for seed in range(1, int(sizes[f"{subject}_seeds"]) + 1):
            for case, row in rows:  # a seed of all cases: what is stopped is balanced
                if row.status == MEASURED and (run := sides.run(row, case, seed)):
                    runs[case.name][row.side].append(run)
                    row.seconds.append(run["seconds"])
                    found = ", ".join(f"{m} {np.mean(run[m]):.4f}" for m in METRICS)
                    say(f"{case.name}, {row.side}, seed {seed}: {found}, {run['seconds']:.0f} s")
    for case, row in rows:
        if row.side == OURS and all(runs[case.name].values()):
            margin = float(sizes.quality_margin)
            row.verdicts = verdicts(case.name, runs[case.name], margin)
    return [row for _, row in rows]


class _Sides:
    """The processes that train, and the files of the runs that have ended."""

    def __init__(self, options: Mapping[str, Any], kept: Kept) -> None:
        self.options, self.kept = options, kept
        self._sides: dict[str, comparison.Side] = {}

    def close(self) -> None:
        """End the processes."""
        while self._sides:
            self._sides.popitem()[1].close()

    def run(self, row: Row, case: Case, seed: int) -> dict[str, Any] | None:
        """What a run of ``row``'s side gave, or None; ``row`` then says why."""
        settings = {**case.settings, "seed": seed}
        name = f"{settings['loss']} {row.side} seed{seed}"
        depends_on = self._depends_on(row.side, settings)
        found: dict[str, Any] | None = self.kept.get(name, depends_on)
        if found is not None:
            pass
        elif row.side in peers.NEEDS and not peers.installed(row.side):
            row.status, row.text = ABSENT, peers.ABSENT
            return None
        else:
            found = self._trained(row.side, settings)
            if "failed" in found:
                row.status, row.text = FAILED, str(found["failed"])
                return None
            found["date"] = now()
            self.kept.put(name, depends_on, found)
        for key in ("amount", "unit", "note", "threads", "date"):
            setattr(row, key, found[key])
        return found

    def _trained(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, the seconds and the metrics of a run, or ``{"failed": why}``."""
        side = self._sides.setdefault(name, comparison.Side(__name__, name, self.options))
        found = dict(settings)
        for do, more in (
            ("prepare", {"settings": found.copy()}),
            ("time", {"times": 1}),
            ("answer", {}),
        ):
            reply = side.ask(do, **more)
            if "failed" in reply:
                return reply
            found |= reply.get("answer", reply)
        return found

    def _depends_on(self, side: str, settings: Mapping[str, Any]) -> Any:
        """What a run depends on; a peer's code is known by its version."""
        code = peers.versions()[side] if side in peers.NEEDS else code_digest(rounds=False)
        own = code_hash(Path(file).read_text() for file in (__file__, training.__file__))
        device, cache_dir = self.options["device"], self.options["cache_dir"]
        config: Any = OmegaConf.to_container(
            config_of(settings, device, cache_dir, side), resolve=True
        )
        place = {key: self.options[key] for key in ("device", "threads")}
        plain = without(config, Kind.PLACE)
        return [dict(settings), place, code, own, plain, torch.__version__]


def verdicts(
    case: str, runs: Mapping[str, Sequence[Mapping[str, Any]]], margin: float
) -> list[tuple[str, ...]]:
    """The cells under ``sections.VERDICT_HEAD``, a row for each metric.

    Args:
        case: its name.
        runs: of ours and of the peer, in this order; each has the lists' values of every metric.
        margin: the largest difference that does not matter.
    """
    cells: list[tuple[str, ...]] = []
    for metric in METRICS:
        values = {side: np.array([run[metric] for run in some]) for side, some in runs.items()}
        queries = [(None, str(i)) for i in range(values[OURS].shape[1])]
        systems = {side: SystemValues(each, queries) for side, each in values.items()}
        (found,) = compare_systems(systems, margin=margin, alpha=ALPHA)
        means = [each.mean(1) for each in values.values()]
        spread = [f" ± {each.std(ddof=1):.4f}" if len(each) > 1 else "" for each in means]
        told = [f"{each.mean():.4f}{after}" for each, after in zip(means, spread, strict=True)]
        between = "{:+.4f} to {:+.4f}".format(*found.interval)
        counts = " and ".join(str(len(each)) for each in means)
        word = f"{found.word}; {found.note}" if found.note else found.word
        name = "" if cells else case
        cells.append((name, metric, *told, counts, f"{found.difference:+.4f}", between, word))
    return cells


def footnote(sizes: DictConfig) -> str:
    """What the table of verdicts says, and by which rule."""
    return (
        f"Means over the same {int(sizes.quality_test_lists):,} test lists, which no training saw; "
        "an empty list counts 1. ± is the standard deviation over seeds, the interval that of "
        f"{1 - ALPHA:.0%}. {rule(float(sizes.quality_margin), ALPHA)}."
    )
