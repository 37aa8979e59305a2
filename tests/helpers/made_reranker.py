"""A tiny cross-encoder with lists of text, and its training.

``made_reranker.py ENCODER OUT batch=N chunk=N`` prints some of the trained weights, a line of JSON;
the processes of torchrun train together.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

WORDS = ["wing", "flow", "heat", "shell", "plate", "jet", "shock", "layer", "drag", "lift", "mach"]
QUERIES = ["wing lift", "heat shock", "jet flow", "plate drag", "flow mach", "shell layer"]
DOCUMENTS = [
    ["wing flow lift", "shell plate", "jet shock heat drag"],
    ["heat layer", "shock heat"],
    ["flow"],
    ["plate drag shell", "lift", "mach", "wing shell layer"],
    ["mach flow", "jet"],
    ["flow", "heat"],
]
LABELS = [[2, 0, 1], [0, 1], [0], [3, 0, 0, 1], [1, 0], [0, 2]]


def make_encoder(folder: Path, dropout: float = 0.0) -> None:
    """Write a random BERT of two small layers and its tokenizer to ``folder``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    vocabulary = {
        word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    BertTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, num_labels=1, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)


def train(folder: Path, out: Path, batch: int = 6, steps: int = 2, **knobs: Any) -> Any:
    """Train the encoder of ``folder`` and return the trainer."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )

    from ltr.text import ListLoss

    rows = {"query": QUERIES, "docs": DOCUMENTS, "weight": [1.0, 2, 1, 1, 0.5, 1], "labels": LABELS}
    given = {"bf16": knobs.pop("bf16", False), "prompts": knobs.pop("prompts", None)}
    model = CrossEncoder(str(folder), num_labels=1, device="cpu")
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=batch, optim="sgd",
        learning_rate=0.1, max_grad_norm=0, lr_scheduler_type="constant", report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no", seed=1, **given,
    )  # fmt: skip
    trainer = CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_dict(rows),
        loss=ListLoss(model, **knobs),
    )  # fmt: skip
    trainer.train()
    return trainer


def some_weights(model: torch.nn.Module) -> list[list[float]]:
    """The first weights of each parameter."""
    return [parameter.flatten()[:50].tolist() for parameter in model.parameters()]


if __name__ == "__main__":
    settings = dict(text.split("=") for text in sys.argv[3:])
    batch, chunk = int(settings.pop("batch")), int(settings.pop("chunk"))
    trained = train(
        Path(sys.argv[1]), Path(sys.argv[2]), batch, mini_batch_size=chunk, empty="skip"
    )
    if trained.args.process_index == 0:
        print(json.dumps(some_weights(trained.model)))
