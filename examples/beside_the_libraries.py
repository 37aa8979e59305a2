"""The made shop: our rankers beside those of LightGBM, XGBoost and CatBoost, with verdicts.

    python examples/beside_the_libraries.py [--queries 5000] [--rounds 500] [overrides]

Everyone trains on the same rows, stops by ndcg@5 of the same vali rows, and takes missing cells and
categories in its own way. Ours are trained with three seeds; then ``ltr compare`` reads the scores
of all of them for the same test rows. The libraries come with: pip install 'ltr-torch[gbdt]'
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from catboost import CatBoostRanker, Pool
from lightgbm import LGBMRanker, early_stopping
from own_table import CATEGORIES, ltr, write_splits
from xgboost import XGBRanker

PATIENCE = 50


def prepared(part: pd.DataFrame, train: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, pd.Series]:
    """Features with categories of train, labels, and the search of each row; searches together."""
    part = part.sort_values("search", kind="stable")
    X = part.drop(columns=["search", "product", "grade"])
    for name in CATEGORIES:
        known = sorted(train[name].dropna().unique())
        X[name] = pd.Categorical(X[name].where(X[name].isin(known)), known)
    return X, part["grade"].to_numpy(), part["search"]


def theirs(parts: dict[str, pd.DataFrame], rounds: int) -> dict[str, np.ndarray]:
    """The scores of each library for the test rows, after at most so many rounds."""
    (X, y, search), (Xv, yv, search_v), (Xt, _, _) = (
        prepared(parts[split], parts["train"]) for split in ("train", "vali", "test")
    )
    sizes, sizes_v = (s.value_counts(sort=False).to_numpy() for s in (search, search_v))
    scores = {}
    light = LGBMRanker(n_estimators=rounds, random_state=1, verbosity=-1)
    light.fit(
        X, y, group=sizes, eval_X=Xv, eval_y=yv, eval_group=[sizes_v], eval_at=[5],
        callbacks=[early_stopping(PATIENCE, verbose=False)],
    )  # fmt: skip
    scores["LGBMRanker"] = light.predict(Xt)
    extreme = XGBRanker(
        n_estimators=rounds, early_stopping_rounds=PATIENCE, eval_metric="ndcg@5", random_state=1,
        learning_rate=0.1, enable_categorical=True,
    )  # fmt: skip
    codes, codes_v = (pd.factorize(s)[0] for s in (search, search_v))
    extreme.fit(X, y, qid=codes, eval_set=[(Xv, yv)], eval_qid=[codes_v], verbose=False)
    scores["XGBRanker"] = extreme.predict(Xt)

    def texts(X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(**{name: X[name].astype(object).fillna("missing") for name in CATEGORIES})

    cat = CatBoostRanker(
        iterations=rounds, learning_rate=0.1, early_stopping_rounds=PATIENCE, random_seed=1,
        eval_metric="NDCG:top=5;type=Exp", allow_writing_files=False, verbose=False,
    )  # fmt: skip
    pool, pool_v = (
        Pool(texts(a), b, group_id=c, cat_features=CATEGORIES)
        for a, b, c in ((X, y, codes), (Xv, yv, codes_v))
    )
    cat.fit(pool, eval_set=pool_v)
    scores["CatBoostRanker"] = cat.predict(texts(Xt))
    return scores


def main() -> None:
    """Train everyone, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--folder", type=Path, default=Path("shop"))
    parser.add_argument("--rounds", type=int, default=500, help="of their trees, at most")
    parser.add_argument("--seeds", type=int, default=3, help="of ours")
    parser.add_argument("overrides", nargs="*", default=[])
    given = parser.parse_args()
    folder = given.folder
    folder.mkdir(exist_ok=True)
    parts = write_splits(given.queries, folder)

    files = []
    for name, scores in theirs(parts, given.rounds).items():
        path = folder / f"{name}.csv"
        test = parts["test"].sort_values("search", kind="stable")
        rows = test.index.to_numpy() + 1  # of test.parquet
        table = pd.DataFrame({"row": rows, "qid": test["search"], "score": scores})
        table.to_csv(path, index=False)
        files.append(f"{name}:{path}")
    seeds = ",".join(str(seed) for seed in range(1, given.seeds + 1))
    ours = {
        "ours": ["model=lightgbm,catboost"],
        "ours_with_losses": ["model=lightgbm", "loss=neuralndcg,lambdarank"],
        "ours_network": ["model=transformer", "loss=neuralndcg", "epochs=30"],
    }
    for sweep, choices in ours.items():
        ltr(
            "train", "-m", *choices, f"seed={seeds}", f"sweep={sweep}", f"output_dir={folder}",
            "dataset=table", f"data_dir={folder}", f"cache_dir={folder}/cache",
            "dataset.query=search", "dataset.label=grade", "dataset.id=[product]",
            f"dataset.categories={CATEGORIES}",
            "dataset.split={train:train.parquet,vali:vali.parquet,test:test.parquet}",
            *given.overrides,
        )  # fmt: skip
    ltr(
        "compare", *(str(folder / sweep) for sweep in ours), f"scores={{{','.join(files)}}}",
        f"data_dir={folder}", f"cache_dir={folder}/cache",
    )  # fmt: skip


if __name__ == "__main__":
    main()
