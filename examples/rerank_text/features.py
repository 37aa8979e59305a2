"""Train ``Ranker`` on the seven features of each document: python features.py OUT."""

import sys
from pathlib import Path

import numpy as np
from cranfield import FOLDS
from sklearn.datasets import load_svmlight_file

from ltr import Ranker

if __name__ == "__main__":
    out = Path(sys.argv[1])
    (out / "scores" / "ranker").mkdir(parents=True, exist_ok=True)
    for fold in range(1, FOLDS + 1):
        parts = {}
        for part in ("train", "vali", "test"):
            x, y, qid = load_svmlight_file(str(out / f"Fold{fold}" / f"{part}.txt"), query_id=True)
            parts[part] = x.toarray(), y, qid
        ranker = Ranker("mlp", "neuralndcg", epochs=15, random_state=1, threads=1, verbose=0)
        ranker.set_params(optimizer="adamw", **{"optimizer.weight_decay": 5, "optimizer.lr": 0.002})
        ranker.fit(*parts["train"], eval_set=[parts["vali"]])
        x, _, qid = parts["test"]
        np.savetxt(out / "scores" / "ranker" / f"fold{fold}.txt", ranker.predict(x, qid), "%.9g")
