"""Time some losses with kernels, forward and backward, in microseconds of CPU time.

    python benchmarks/calls.py [TREE] [rounds=5]

It prints a call by autograd's Function, as in eager mode, and one by the operator of torch.library,
as in torch.compile. With TREE, another checkout of the repository, it also prints the time there;
processes of both take turns.
"""

import json
import os
import subprocess
import sys
import timeit
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from unittest import mock

import torch
from torch import Tensor

from ltr import losses

SHAPES = ((8, 20), (64, 240))
NAMES = ("approx_ndcg", "neural_ndcg", "ranknet", "svm_map")
SECONDS = 0.005  # of a sample
SAMPLES = 20


def main(arguments: list[str]) -> None:
    """Print the table, or the times of this process alone as JSON."""
    if arguments == ["times"]:
        print(json.dumps(times()))
        return
    trees = {"new": Path(__file__).parents[1]}
    rounds = 5
    for argument in arguments:
        if argument.startswith("rounds="):
            rounds = int(argument.removeprefix("rounds="))
        else:
            trees["old"] = Path(argument)
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for tree in sorted(trees, reverse=number % 2 == 0):
            for case, microseconds in times_in(trees[tree]).items():
                samples[case][tree].append(microseconds)
    print("| loss | old | new | new / old | operator | operator / new |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in [case for case in samples if not case.endswith("operator")]:
        new = samples[case]["new"]
        old = samples[case]["old"] or new
        operator = samples[f"{case} operator"]["new"]
        print(
            f"| {case} | {median(old):.0f} | {median(new):.0f} | {ratio(new, old):.2f} "
            f"| {median(operator):.0f} | {ratio(operator, new):.2f} |"
        )


def ratio(numerators: list[float], denominators: list[float]) -> float:
    """Return the median of the ratios of each round."""
    return median(a / b for a, b in zip(numerators, denominators, strict=True))


def times_in(tree: Path) -> dict[str, float]:
    """Return the ``times`` of a process that imports the package of ``tree``."""
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).absolute()), "times"]
    return json.loads(subprocess.check_output(command, env=env, cwd=tree, text=True))


def times() -> dict[str, float]:
    """Return the microseconds of each case, the fastest of some samples."""
    microseconds = {}
    for name in NAMES:
        for shape in SHAPES:
            call = call_of(name, shape)
            case = f"{name} {list(shape)}"
            microseconds[case] = fastest(call)
            with mock.patch("torch.compiler.is_compiling", compiles):
                microseconds[f"{case} operator"] = fastest(call)
    return microseconds


def compiles() -> bool:
    """Choose the operators."""
    return True


def call_of(name: str, shape: tuple[int, int]) -> Callable[[], None]:
    """Return a function that computes a loss and its gradient; half of the lists is padding."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator).requires_grad_()
    labels = torch.randint(0, 5, shape, generator=generator).float()
    sizes = torch.randint(2, shape[1] + 1, (shape[0], 1), generator=generator)
    mask: Tensor = torch.arange(shape[1]) < sizes
    loss = getattr(losses, f"{name}_loss")

    def call() -> None:
        scores.grad = None
        loss(scores, labels, mask).sum().backward()

    return call


def fastest(call: Callable[[], None]) -> float:
    """Return the microseconds of a call in the fastest of the samples."""
    call()
    timer = timeit.Timer(call, timer=process_time)  # other processes may be running
    number = max(1, round(SECONDS / timer.timeit(1)))
    return 1e6 / number * min(timer.repeat(SAMPLES, number))


if __name__ == "__main__":
    main(sys.argv[1:])
