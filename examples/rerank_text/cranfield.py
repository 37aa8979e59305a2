"""Make the lists of this example from the Cranfield collection and an encoder.

    python cranfield.py CRANFIELD ENCODER OUT

A list has the best 50 documents of BM25 for a question. Writes under OUT: ``lists.json`` (texts,
labels, folds), ``Fold1`` to ``Fold5`` (features as LETOR text), and the scores of BM25 and of the
cosine of the encoder's vectors.
"""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

DEPTH, FOLDS = 50, 5


def records(path: Path) -> list[tuple[str, str]]:
    """Return title and text of each record."""
    with gzip.open(path, "rt") as file:
        found = re.split(r"^\.I ", file.read(), flags=re.M)[1:]
    fields = [re.split(r"^\.([A-Z])\n", record, flags=re.M)[1:] for record in found]
    by_name = [
        dict(zip(x[::2], (" ".join(y.split()) for y in x[1::2]), strict=True)) for x in fields
    ]
    return [(x.get("T", ""), x["W"]) for x in by_name]


def bm25(counts: sparse.csr_matrix, k1: float = 1.5, b: float = 0.75) -> sparse.csr_matrix:
    """Return what each word adds to the score of each document, ``[document, word]``."""
    n, containing = counts.shape[0], np.asarray((counts > 0).sum(0)).ravel()
    rarity = np.log(1 + (n - containing + 0.5) / (containing + 0.5))
    length = np.asarray(counts.sum(1)).ravel()
    weights = counts.tocoo().astype(float)
    penalty = k1 * (1 - b + b * length[weights.row] / length.mean())
    weights.data = rarity[weights.col] * weights.data * (k1 + 1) / (weights.data + penalty)
    return weights.tocsr()


def write_scores(out: Path, name: str, scores: list[np.ndarray], fold: np.ndarray) -> None:
    """Write the scores of the test lists of each fold, one number a line."""
    (out / "scores" / name).mkdir(parents=True, exist_ok=True)
    for k in range(FOLDS):
        lines = [f"{x:.9g}\n" for q in np.flatnonzero(fold == k) for x in scores[q]]
        (out / "scores" / name / f"fold{k + 1}.txt").write_text("".join(lines))


def main(collection: Path, encoder: str, out: Path) -> None:
    """Make all files under ``out``."""
    torch.set_num_threads(1)
    documents = records(collection / "cran.all.1400.gz")
    questions = [text for _, text in records(collection / "cran.qry.gz")]
    texts = [text for _, text in documents]
    grades = {}  # the codes run from 1, a complete answer, to 4; -1 is of no interest
    with gzip.open(collection / "cranqrel.gz", "rt") as file:
        for question, document, code in (map(int, line.split()) for line in file):
            grades[question - 1, document - 1] = 5 - code if code > 0 else 0
    reader = CountVectorizer(stop_words="english", token_pattern="[a-z]{2,}")
    counts, asked = reader.fit_transform(texts), reader.transform(questions)
    words = bm25(counts)
    first = (asked @ words.T).toarray()
    found = [np.argsort(-row, kind="stable")[:DEPTH] for row in first]
    rng = np.random.default_rng(0)
    fold = np.empty(len(questions), int)
    fold[rng.permutation(len(questions))] = np.arange(len(questions)) % FOLDS

    model = SentenceTransformer(encoder, device="cpu")
    of_text, of_question = (model.encode(x, normalize_embeddings=True) for x in (texts, questions))
    tfidf = TfidfTransformer(sublinear_tf=True).fit(counts)
    near = (tfidf.transform(asked) @ tfidf.transform(counts).T).toarray()
    titles = normalize(reader.transform([title for title, _ in documents]))
    of_title = (normalize(asked) @ titles.T).toarray()
    shared = (normalize((asked > 0).astype(float), "l1") @ (counts > 0).astype(float).T).toarray()
    lengths = np.log1p(np.asarray(counts.sum(1)).ravel())
    labels, features = [], []
    for q, best in enumerate(found):
        columns = [
            first[q, best],
            near[q, best],
            of_question[q] @ of_text[best].T,
            of_title[q, best],
            shared[q, best],
            lengths[best],
            np.full(len(best), np.log1p(asked[q].sum())),
        ]
        features.append(np.stack(columns, -1))
        labels.append([grades.get((q, d), 0) for d in best])

    out.mkdir(parents=True, exist_ok=True)
    kept = {
        "questions": questions,
        "documents": texts,
        "labels": labels,
        "fold": fold.tolist(),
        "found": [best.tolist() for best in found],
        "bm25": [first[q, best].tolist() for q, best in enumerate(found)],
        "titles": title_lists(documents, reader),
    }
    (out / "lists.json").write_text(json.dumps(kept))
    for k in range(FOLDS):
        folder = out / f"Fold{k + 1}"
        folder.mkdir(exist_ok=True)
        parts = {"test": fold == k, "vali": fold == (k + 1) % FOLDS}
        parts["train"] = ~(parts["test"] | parts["vali"])
        for part, chosen in parts.items():
            lines = []
            for q in np.flatnonzero(chosen):
                for d, y, row in zip(found[q], labels[q], features[q], strict=True):
                    numbers = " ".join(f"{i}:{x:.6g}" for i, x in enumerate(row, 1))
                    lines.append(f"{y} qid:{q + 1} {numbers} # {d + 1}\n")
            (folder / f"{part}.txt").write_text("".join(lines))
    write_scores(out, "bm25", [x[:, 0] for x in features], fold)
    write_scores(out, "cosine", [x[:, 2] for x in features], fold)
    judged = sum(y > 0 for row in labels for y in row)
    print(f"{len(found)} questions, {judged} relevant of {len(found) * DEPTH:,} candidates; "
          f"{sum(not any(row) for row in labels)} questions have none")  # fmt: skip


def title_lists(
    documents: list[tuple[str, str]], reader: CountVectorizer, size: int = 8
) -> list[dict[str, Any]]:
    """Return lists that need no judgment: for each title, its own text and the nearest others.

    The texts are without their titles; the first of each list is the right one.
    """
    bodies = [text.removeprefix(title).strip(" .") for title, text in documents]
    titles = [title for title, _ in documents]
    scores = (reader.transform(titles) @ bm25(reader.transform(bodies)).T).toarray()
    lists = []
    for i, row in enumerate(scores):
        if len(titles[i].split()) >= 3 and len(bodies[i].split()) >= 10:
            near = [j for j in np.argsort(-row, kind="stable")[:size] if j != i]
            items = [i, *near[: size - 1]]
            docs = [bodies[j] for j in items]
            lists.append({"query": titles[i], "docs": docs, "bm25": row[items].tolist()})
    return lists


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
