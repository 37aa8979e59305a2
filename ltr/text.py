"""Train text rerankers, or any model that scores single items, with a loss over whole lists.

``ListLoss`` is a loss for the ``CrossEncoderTrainer`` of sentence-transformers, which is one of the
optional dependencies ``text``. ``chunked_loss`` does the same for your own training loop, and for
the ``Trainer`` of transformers. However long the lists are, both keep the activations of only one
chunk of items at a time. To do so, they compute each chunk again when its gradient is needed
(gradient caching, Gao et al., 2021).
"""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ltr.cli.configs import CONFIGS
from ltr.errors import ConfigError
from ltr.knobs import positive_int
from ltr.losses import pad_lists
from ltr.losses.batch import sum_over_batch
from ltr.losses.mix import losses_by_name
from ltr.metrics.cumulative_gain import checked_gains
from ltr.typing import Loss


def chunked_loss(
    score: Callable[[Any], Tensor],
    chunks: Iterable[Any],
    labels: Sequence[Any],
    loss: str | Loss = "neuralndcg",
    *,
    weights: Tensor | None = None,
    empty: str = "keep",
    last: Callable[[Any], Tensor] | None = None,
    **knobs: Any,
) -> Tensor:
    """Return the mean loss of the lists, a scalar whose backward pass computes each chunk again.

    ``score`` is called twice for each chunk: first without keeping activations, and again in
    ``backward``. Both calls use the same random numbers, so dropout is the same. The last chunk is
    computed only once. The gradient is that of the plain loss. Autocast and ``GradScaler`` work as
    for any loss. If several processes train together (``torch.distributed``), the mean is over the
    lists of all processes; this fits ``DistributedDataParallel``, which averages gradients.

    Args:
        score: returns the scores of a chunk, ``[items of the chunk]`` or ``[items, 1]``, and does
            not change the chunk.
        chunks: the items of all lists, one list after another, cut anywhere. A chunk may be a
            tensor, strings, or anything that ``score`` takes.
        labels: the labels of the items of each list.
        loss: the name that ``loss=`` takes on the command line (``neuralndcg_t`` is ``neuralndcg``
            with ``transposed=True``), or a function of ``ltr.losses``, such as ``mix_loss``.
        weights: ``[batch]``, >= 0, the weight of each list; None: all equal.
        empty: ``"keep"`` includes lists without a relevant item, ``"skip"`` leaves them out (see
            ``ltr.losses.mean_over_batch``).
        last: the function that scores the last chunk; None: ``score``. If your model is a
            ``DistributedDataParallel``, let ``last`` call the model and ``score`` call its
            ``module``. Then the gradients are exchanged only once.
        knobs: keyword arguments of the loss.

    Raises:
        ConfigError: the loss is unknown or has no such knob, the numbers of scores and labels
            differ, or a table of gains lacks a label.

    >>> model, x = torch.nn.Linear(3, 1), torch.ones(5, 3)  # five items in lists of 2 and 3
    >>> value = chunked_loss(model, x.split(2), [[1, 0], [0, 2, 1]], "listnet")
    >>> value.backward()
    >>> model.weight.grad.shape
    torch.Size([1, 3])
    """
    list_loss = _bound(loss, knobs)
    chunks = list(chunks)
    if not chunks:
        raise ConfigError("the lists of this batch have no items: leave out lists without items")
    *first_chunks, last_chunk = chunks
    training = torch.is_grad_enabled()
    chunk_scores = [
        checkpoint(score, chunk, use_reentrant=False) if training else score(chunk)
        for chunk in first_chunks
    ]
    chunk_scores.append((last or score)(last_chunk))
    scores, padded, mask = pad_lists(torch.cat([x.reshape(-1) for x in chunk_scores]), labels)
    checked_gains(scores, padded, mask, gain=knobs.get("gain", "exp2"))
    with torch.autocast(scores.device.type, enabled=False):
        values = list_loss(scores, padded, mask)
    if weights is not None:
        weights = torch.as_tensor(weights, device=scores.device)
    total, count = sum_over_batch(values, padded, mask, empty=empty, weights=weights)
    if training and dist.is_available() and dist.is_initialized():
        count = count.float() / dist.get_world_size()
        dist.all_reduce(count)
    return total / torch.where(count > 0, count, 1)


class ListLoss(nn.Module):
    """Any loss of this project, for the ``CrossEncoderTrainer`` of sentence-transformers.

    Each row of the data set is a list: a query, its documents, optionally the weight of the list,
    and the labels of the documents. Lists may have different numbers of documents. The value is the
    mean over the lists, which ``chunked_loss`` computes.

    Args:
        model: a ``CrossEncoder`` with one output.
        loss: a name (see ``ltr list_losses``) or a function, as for ``chunked_loss``.
        mini_batch_size: how many pairs of a query and a document are computed at once, >= 1; None:
            all pairs. A smaller number takes less memory; the gradient does not depend on it.
        activation_fn: a function that is applied to the scores before the loss; None: the identity.
            The ``temperature`` of NeuralNDCG and similar losses is in units of the scores:
            ``torch.nn.Tanh()`` keeps the scores between -1 and 1, as in the paper.
        empty: ``"keep"`` includes lists without a relevant item, and ``"skip"`` leaves them out.
        knobs: keyword arguments of the loss, such as ``k=10`` or ``temperature=0.1``.

    Raises:
        ConfigError: the loss is unknown or has no such knob, or the model has several outputs.
    """

    def __init__(
        self,
        model: Any,
        loss: str | Loss = "neuralndcg",
        *,
        mini_batch_size: int | None = 32,
        activation_fn: nn.Module | None = None,
        empty: str = "keep",
        **knobs: Any,
    ) -> None:
        super().__init__()
        if model.num_labels != 1:
            raise ConfigError(
                f"expected a model with one output, got one with {model.num_labels} outputs: "
                "set num_labels=1"
            )
        _bound(loss, knobs)
        if mini_batch_size is not None:
            positive_int("mini_batch_size", mini_batch_size)
        self.model = model
        self.loss = loss
        self.mini_batch_size = mini_batch_size
        self.activation_fn = activation_fn or nn.Identity()
        self.empty = empty
        self.knobs = knobs

    def forward(
        self,
        inputs: list[list[Any]],
        labels: list[Tensor],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Return the mean loss of the lists, a scalar.

        Args:
            inputs: the queries, the documents of each query and, optionally, the list weights.
            labels: the labels of the documents of each query.
            prompt, task: the trainer's arguments for the model's ``preprocess``.
        """
        if len(inputs) not in (2, 3) or isinstance(labels, Tensor):
            raise ConfigError(
                "expected a query, a list of documents, an optional weight, and a list of labels "
                f"in each row of the data set, got {len(inputs)} columns and labels of type "
                f"{type(labels).__name__}"
            )
        queries, documents, *weights = inputs
        for row, (texts, grades) in enumerate(zip(documents, labels, strict=True)):
            if len(texts) != len(grades):
                raise ConfigError(
                    f"list {row} of the batch has {len(texts)} documents but {len(grades)} labels: "
                    "give one label for each document"
                )
        pairs = [(q, d) for q, texts in zip(queries, documents, strict=True) for d in texts]
        size = self.mini_batch_size or max(len(pairs), 1)
        device = next(self.model.parameters()).device
        chunks = []
        for start in range(0, len(pairs), size):
            tokens = self.model.preprocess(pairs[start : start + size], prompt=prompt, task=task)
            chunks.append({name: _moved(value, device) for name, value in tokens.items()})
        bare = self.model
        if isinstance(bare, DistributedDataParallel):
            bare = bare.module
        return chunked_loss(
            partial(self._score, bare),
            chunks,
            labels,
            self.loss,
            weights=torch.tensor(weights[0]) if weights else None,
            empty=self.empty,
            last=partial(self._score, self.model),
            **self.knobs,
        )

    def _score(self, model: nn.Module, tokens: dict[str, Any]) -> Tensor:
        return self.activation_fn(model(dict(tokens))["scores"].reshape(-1).float())

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings of the loss for the model card."""
        name = self.loss if isinstance(self.loss, str) else getattr(self.loss, "__name__", None)
        shown = {
            "loss": name or str(self.loss),
            **self.knobs,
            "activation_fn": type(self.activation_fn).__name__,
        }
        return {**shown, "mini_batch_size": self.mini_batch_size, "empty": self.empty}

    @property
    def citation(self) -> str:
        """The BibTeX entries of the papers of the loss, for the model card."""
        return cited(self.loss) if isinstance(self.loss, str) else ""


def cited(loss: str) -> str:
    """Return the BibTeX entries of the papers named in the first line of ``loss/LOSS.yaml``.

    >>> cited("listnet").splitlines()[0]
    '@inproceedings{cao2007,'
    """
    about = re.findall(r"^# [^@].*", (CONFIGS / "loss" / f"{loss}.yaml").read_text(), re.M)[0]
    homes = (CONFIGS.parent / "references.bib", CONFIGS.parent / "docs" / "references.bib")
    entries = re.findall(
        r"^@\w+\{.+?^\}", next(filter(Path.exists, homes)).read_text(), re.M | re.S
    )
    names = {entry: re.match(r"@\w+\{([a-z]+)(\d{4}),", entry) for entry in entries}
    return "\n".join(
        entry
        for entry, key in names.items()
        if key and re.search(rf"(?i)\b{key[1]}\b.*{key[2]}", about)
    )


def _bound(loss: str | Loss, knobs: dict[str, Any]) -> Loss:
    """Return the loss with its ``knobs`` bound.

    Raises ``ConfigError`` if the loss or a knob is unknown.
    """
    if isinstance(loss, str):
        losses = losses_by_name()
        if loss not in losses:
            raise ConfigError(f"loss={loss} is not known: choose one of {', '.join(losses)}")
        loss = losses[loss]
    parameters = list(inspect.signature(loss).parameters)[3:]
    if wrong := [knob for knob in knobs if knob not in parameters]:
        raise ConfigError(
            f"{wrong[0]}: the loss has no such knob (knobs: {', '.join(parameters) or 'none'})"
        )
    return partial(loss, **knobs)


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
