"""Every loss of ``configs/loss`` under torch.compile, and grad, jacrev and vmap of torch.func.

The numbers are those of the plain formula, or an error says in one line what is not supported.
"""

import os
import sys

import pytest
import torch
from torch import Tensor

from ltr.testing.list_losses import loss_names
from tests.helpers import processes
from tests.helpers.loss_cases import default_loss, draws
from tests.helpers.paths import ROOT
from tests.helpers.ragged import plain, ragged

DRAWN = ["listmle", "p_listmle", "plrank"]  # vmap refuses them without randomness=
# They break the graph: mix looks names up, plrank refuses a second derivative, sodeep reads a file.
SEVERAL_GRAPHS = ["mix", "plrank", "sodeep"]
OPERATORS = {
    "approxndcg": "sigmoid_ranks",
    "lambdaloss": "sum_over_pairs",
    "lambdarank": "sum_over_pairs",
    "lapndcg": "laplace_ranks",
    "listmle": "listmle",
    "mix": "neural_dcg",
    "neuralerr": "neurally_sorted",
    "neuralmap": "neurally_sorted",
    "neuralmrr": "neurally_sorted",
    "neuralndcg": "neural_dcg",
    "neuralndcg_t": "neural_dcg",
    "neuralprecision": "neurally_sorted",
    "otndcg": "neural_dcg",
    "p_listmle": "listmle",
    "rankboost": "sum_over_pairs",
    "ranknet": "sum_over_pairs",
    "ranksvm": "sum_over_pairs",
    "softndcg": "expected_dcg",
    "softsortndcg": "soft_sort_dcg",
    "svmmap": "hinge_map",
    "svmndcg": "worst_ranks",
}
COMPILED = """
import sys
import pytest, torch
from torch._dynamo import lookup_backend
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from ltr.testing.list_losses import loss_names
from tests.helpers.loss_cases import default_loss, draws
from tests.helpers.ragged import plain, random_lists, value_and_gradient

calls = {}

class RecordOperators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "ltr":
            calls[func] = args
        return func(*args, **(kwargs or {}))

def backend(graph, inputs):
    compiled = lookup_backend("aot_eager")(graph, inputs)
    def run(*inputs):
        with RecordOperators():
            return compiled(*inputs)
    return run

for name in loss_names():
    calls.clear()
    torch._dynamo.reset()  # all losses behind one decorator share its code
    loss = default_loss(name)
    scores, labels, mask = random_lists(1, torch.float64, size=6)
    if draws(loss):
        mask = torch.ones_like(mask)  # torch.compile draws numbers for padding too
    with pytest.MonkeyPatch.context() as patch:
        plain(patch)
        expected = value_and_gradient(loss, scores, labels, mask)
    compiled = torch.compile(loss, backend=backend, fullgraph=name not in sys.argv[1:])
    actual = value_and_gradient(compiled, scores, labels, mask)
    torch.testing.assert_close(actual, expected, atol=1e-11, rtol=1e-9)
    print(name, *(operator.__name__ for operator in calls))
    for operator, args in calls.items():
        checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
        opcheck(operator, args, test_utils=checks)

torch._dynamo.reset()
for name in ("ranknet", "approxndcg"):
    leaf = scores.clone().requires_grad_()
    value = torch.compile(default_loss(name), backend="eager")(leaf, labels, mask).sum()
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    try:
        gradient.square().sum().backward()
    except NotImplementedError as error:
        print(error)

from tests.helpers.some_steps import graphs
for row in graphs():
    print(*row)
"""
REFUSED = "a loss has no second derivative under torch.compile: call the loss without torch.compile"


@pytest.mark.slow
def test_losses_compile_with_their_kernels() -> None:
    # in a process of its own, where shapes are not checked: the checks themselves do not compile
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = processes.run(COMPILED, *SEVERAL_GRAPHS, env={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    names = loss_names()
    operators = {
        name: [f"{OPERATORS[name]}.default"] if name in OPERATORS else [] for name in names
    }
    assert [line.split() for line in lines[: len(names)]] == [
        [name, *operators[name]] for name in names
    ]
    steps = [f"{name} 1 0" for name in ("listnet_loss", "lambdarank_loss", "neural_ndcg_loss")]
    assert lines[len(names) :] == [REFUSED, REFUSED, *steps]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("name", loss_names())
def test_losses_in_torch_func_give_their_formula_or_refuse(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = default_loss(name)
    scores, labels, mask = ragged()
    batch = torch.stack([scores, -scores])

    def values(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        return loss(scores, labels, mask)

    with monkeypatch.context() as patch:
        plain(patch)
        expected = torch.stack([values(batch_scores) for batch_scores in batch])
        leaf = scores.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(values(leaf).sum(), leaf)

    func_gradient, total = torch.func.grad_and_value(lambda scores: values(scores).sum())(scores)
    assert_near(total, expected[0].sum())
    assert_near(func_gradient, gradient)
    # lists do not affect each other
    jacobian = torch.diag_embed(gradient.T).permute(1, 2, 0)
    assert_near(torch.func.jacrev(values)(scores), jacobian)
    assert draws(loss) == (name in DRAWN)
    if name in DRAWN:
        with pytest.raises(NotImplementedError, match=r"^this loss draws .*randomness='same'.*$"):
            torch.func.vmap(values)(batch)
    randomness = "same" if name in DRAWN else "error"
    assert_near(torch.func.vmap(values, randomness=randomness)(batch), expected)


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Compare in float64."""
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)
