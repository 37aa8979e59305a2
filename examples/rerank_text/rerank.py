"""Train a cross-encoder on the lists of ``cranfield.py``.

    python rerank.py OUT start=ENCODER        # on titles, without judgments: where all others begin
    python rerank.py OUT neuralndcg listnet   # on the judgments, five folds; without a name: all

The lower layers stay as they are, so they are computed once for each text and kept. Writes the
scores of each system under ``OUT/scores``, and its seconds and memory to ``OUT/costs.jsonl``.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cranfield import FOLDS, write_scores
from datasets import Dataset
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    losses,
)
from torch import nn

from ltr.text import ListLoss

TOKENS = 64  # of question and document together
FROZEN = 4  # of MiniLM's six layers
LISTS = 4  # in a batch
ITEMS = 20  # of a list that is trained on: its relevant documents, and others at random
CHUNK = 16  # pairs computed at once, ours and the library's

SYSTEMS: dict[str, Callable[[CrossEncoder], nn.Module]] = {
    "theirs_bce": losses.BinaryCrossEntropyLoss,
    "theirs_lambdaloss": lambda model: losses.LambdaLoss(model, mini_batch_size=CHUNK),
    "theirs_listnet": lambda model: losses.ListNetLoss(model, mini_batch_size=CHUNK),
    **{
        name: lambda model, name=name: ListLoss(model, name, mini_batch_size=CHUNK)  # type: ignore[misc]
        for name in ("listnet", "lambdarank", "neuralndcg", "lapndcg", "approxndcg")
    },
}


class Below(nn.Module):
    """The embeddings and lower layers of a BERT, frozen, in the place of its embeddings."""

    def __init__(self, bert: nn.Module, layers: int) -> None:
        super().__init__()
        self.embeddings, self.layers = bert.embeddings, bert.encoder.layer[:layers]
        self.requires_grad_(False)
        self.kept: dict[bytes, torch.Tensor] = {}  # tokens and their types -> [tokens, width]
        bert.embeddings, bert.encoder.layer = self, bert.encoder.layer[layers:]

    def restore(self, bert: nn.Module) -> None:
        """Give ``bert`` its layers back."""
        bert.embeddings, bert.encoder.layer = self.embeddings, self.layers + bert.encoder.layer

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        """Return what the lower layers make of the tokens, ``[batch, tokens, width]``."""
        lengths = (input_ids != 0).sum(-1).tolist()  # 0 is padding
        rows = zip(input_ids, token_type_ids, lengths, strict=True)
        keys = [torch.stack([ids[:n], types[:n]]).numpy().tobytes() for ids, types, n in rows]
        if new := [i for i, key in enumerate(keys) if key not in self.kept]:
            with torch.no_grad():
                x = self.embeddings(input_ids=input_ids[new], token_type_ids=token_type_ids[new])
                hidden = torch.where(input_ids[new] == 0, -1e9, 0.0)[:, None, None, :]
                for layer in self.layers.eval():
                    x = layer(x, hidden)
            for i, row in zip(new, x, strict=True):
                self.kept[keys[i]] = row[: lengths[i]].bfloat16()
        found = [self.kept[key] for key in keys]
        out = found[0].new_zeros(*input_ids.shape, found[0].shape[-1])
        for row, values in zip(out, found, strict=True):
            row[: len(values)] = values
        return out.float()


def train(
    model: CrossEncoder, rows: list[dict[str, Any]], loss: nn.Module, batch: int, epochs: int
) -> None:
    """Train with settings that are the same for all systems; none was tuned."""
    settings = CrossEncoderTrainingArguments(
        output_dir="unused", num_train_epochs=epochs, per_device_train_batch_size=batch,
        learning_rate=1e-4, warmup_steps=0.1, weight_decay=0.01, bf16=True, use_cpu=True, seed=1,
        save_strategy="no", report_to="none", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = Dataset.from_list(rows)
    CrossEncoderTrainer(model=model, args=settings, train_dataset=data, loss=loss).train()


def loaded(path: str) -> CrossEncoder:
    """Return the cross-encoder at ``path``, whose scores are not squeezed between 0 and 1."""
    torch.manual_seed(1)
    scores = nn.Identity()
    return CrossEncoder(path, num_labels=1, max_length=TOKENS, device="cpu", activation_fn=scores)


def start(encoder: str, out: Path) -> None:
    """Train on titles: among eight documents, which is the one with this title?"""
    rows = []
    for found in json.loads((out / "lists.json").read_text())["titles"]:
        docs, labels = with_bm25(found["docs"], found["bm25"]), [1.0] + [0.0] * 7
        rows.append({"query": found["query"], "docs": docs, "labels": labels})
    model = loaded(encoder)
    below = Below(model.model.bert, FROZEN)
    train(model, rows, ListLoss(model, "listnet"), LISTS, epochs=2)
    below.restore(model.model.bert)
    model.save_pretrained(str(out / "start"))


def with_bm25(docs: list[str], scores: list[float]) -> list[str]:
    """Return the documents, each after its BM25 score as a whole number (Askari et al., 2023)."""
    return [f"{score:.0f} {doc}" for doc, score in zip(docs, scores, strict=True)]


def texts_of(lists: dict[str, Any], q: int) -> list[str]:
    """Return what the model reads of the documents of a question."""
    return with_bm25([lists["documents"][d] for d in lists["found"][q]], lists["bm25"][q])


def rows_of(lists: dict[str, Any], chosen: np.ndarray, pairs: bool) -> list[dict[str, Any]]:
    """Return the lists that are trained on, those with a relevant document, or their pairs."""
    rows = []
    for q in np.flatnonzero(chosen & [any(row) for row in lists["labels"]]):
        grades = lists["labels"][q]
        others = np.random.default_rng(int(q)).random(len(grades))  # below 1
        items = np.argsort([-2 if y else x for x, y in zip(others, grades, strict=True)])[:ITEMS]
        texts = texts_of(lists, q)
        docs, labels = [texts[i] for i in items], [float(grades[i]) for i in items]
        query = {"query": lists["questions"][q]}
        if pairs:
            both = zip(docs, labels, strict=True)
            rows += [{**query, "doc": doc, "label": y / 4} for doc, y in both]
        else:
            rows.append({**query, "docs": docs, "labels": labels})
    return rows


def megabytes(loss: nn.Module, rows: list[dict[str, Any]]) -> float:
    """Return what is kept of a forward pass over ``rows`` for its backward pass, in MB."""
    sizes: dict[int, int] = {x.data_ptr(): 0 for x in loss.parameters()}

    def pack(x: torch.Tensor) -> torch.Tensor:
        sizes.setdefault(x.data_ptr(), x.nbytes)
        return x

    *inputs, labels = ([row[name] for row in rows] for name in rows[0])
    made = [torch.tensor(y) for y in labels]
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        loss(inputs, torch.stack(made) if made[0].dim() == 0 else made)
    return sum(sizes.values()) / 1e6


def rerank(system: str, lists: dict[str, Any], out: Path, kept: dict[bytes, torch.Tensor]) -> None:
    """Train ``system`` on four folds and score the fifth, for each fold; write scores and costs."""
    fold, questions = np.array(lists["fold"]), lists["questions"]
    scores: list[Any] = [None] * len(questions)
    seconds = memory = 0.0
    for k in range(FOLDS):
        model = loaded(str(out / "start"))
        Below(model.model.bert, FROZEN).kept = kept
        test = np.flatnonzero(fold == k)
        if system != "start":
            loss, pairs = SYSTEMS[system](model), system == "theirs_bce"
            rows, batch = rows_of(lists, fold != k, pairs), LISTS * (ITEMS if pairs else 1)
            memory = megabytes(loss.train(), rows[:batch])
            begun = time.process_time()
            train(model, rows, loss, batch, epochs=2)
            seconds += time.process_time() - begun
        for q in test:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                pairs_of = [(questions[q], text) for text in texts_of(lists, q)]
                scores[q] = model.predict(pairs_of, batch_size=64)
    write_scores(out, system, scores, fold)
    if system == "start":
        return
    cost = {"system": system, "seconds": round(seconds, 1), "megabytes": round(memory, 2)}
    with (out / "costs.jsonl").open("a") as file:
        file.write(json.dumps(cost) + "\n")
    print(cost, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, given = Path(sys.argv[1]), sys.argv[2:]
    if given and given[0].startswith("start="):
        start(given[0].removeprefix("start="), folder)
    else:
        done = {path.parent.name for path in folder.glob(f"scores/*/fold{FOLDS}.txt")}
        texts: dict[bytes, torch.Tensor] = {}  # "start", the first, fills it outside the times
        left = [name for name in given or SYSTEMS if name not in done]
        for name in ["start", *left] if left else []:
            rerank(name, json.loads((folder / "lists.json").read_text()), folder, texts)
