"""A table of your own, from the command line and in Python: the same numbers.

    python examples/own_table.py [--queries 5000] [--folder shop] [overrides, such as epochs=5]

The table is the made shop of ``shop.py``: unsorted rows, missing cells, three columns of
categories, text ids. Predictions of the test rows come with the ids of their products.
"""

import argparse
import json
import subprocess
from pathlib import Path

import pandas as pd
import yaml
from shop import shop

from ltr import Ranker

CATEGORIES = ["brand", "colour", "department"]
SPLITS = {"train": 0.8, "vali": 0.9, "test": 1.0}  # of the searches, the last ones for test


def write_splits(queries: int, folder: Path) -> dict[str, pd.DataFrame]:
    """The rows of each split, also written to ``folder`` as Parquet."""
    table = shop(queries)
    place = table["search"].rank(method="dense") / table["search"].nunique()
    parts, begin = {}, 0.0
    for split, end in SPLITS.items():
        parts[split] = table[(begin < place) & (place <= end)].reset_index(drop=True)
        parts[split].to_parquet(folder / f"{split}.parquet", index=False)
        begin = end
    return parts


def ltr(*arguments: str) -> None:
    """Run the command and show it."""
    print("ltr", *arguments, flush=True)
    subprocess.run(["ltr", *arguments], check=True)


def main() -> None:
    """Train twice, compare, and predict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--folder", type=Path, default=Path("shop"))
    parser.add_argument("overrides", nargs="*", default=[])
    given = parser.parse_args()
    folder = given.folder
    folder.mkdir(exist_ok=True)
    parts = write_splits(given.queries, folder)

    ltr(
        "train", "dataset=table", f"data_dir={folder}", "dataset.query=search",
        "dataset.label=grade", "dataset.id=[product]", f"dataset.categories={CATEGORIES}",
        "dataset.split={train:train.parquet,vali:vali.parquet,test:test.parquet}",
        "model=lightgbm", "loss=neuralndcg", f"cache_dir={folder}/cache",
        f"hydra.run.dir={folder}/run", *given.overrides,
    )  # fmt: skip
    ltr(
        "predict", f"checkpoint={folder}/run", f"input={folder}/test.parquet",
        f"output={folder}/ranking.csv", "order=ranked",
    )  # fmt: skip
    print(pd.read_csv(folder / "ranking.csv").head(3).to_string(index=False))

    def rows(split: str) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
        part = parts[split]
        return part.drop(columns=["search", "product", "grade"]), part["grade"], part["search"]

    config = {key: yaml.safe_load(value) for key, value in (
        text.split("=", 1) for text in given.overrides
    )}  # fmt: skip
    ranker = Ranker("lightgbm", "neuralndcg", categories=CATEGORIES, random_state=1, **config)
    X, y, qid = rows("train")
    ranker.fit(X, y, qid=qid, eval_set=[rows("vali"), rows("test")])
    command_line = json.loads((folder / "run" / "results.json").read_text())["test"]
    print("command line:", command_line)
    print("Ranker:      ", ranker.results_["test"])
    assert ranker.results_["test"] == command_line


if __name__ == "__main__":
    main()
