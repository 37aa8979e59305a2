#!/usr/bin/env bash
# results/selection.md: how far the best epoch on vali is too high, by simulation and on LETOR 4.0 MQ2008.
# The last part needs MQ2008: ltr prepare_data dataset=mq2008 archive=PATH/MQ2008.rar
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

python examples/paper_figures/selection.py

ltr train -m dataset=mq2008 dataset.fold=1,2,3,4,5 seed=1,2 convention=letor4 'metrics=[mean_ndcg,map]' \
  select_on=mean_ndcg model=mlp loss=neuralndcg transform=none,standardise model.output_activation=null,tanh \
  optimizer=adamw optimizer.lr=0.002 optimizer.weight_decay=0,1,5 epochs=15,60 threads=1 sweep=selection "$@"
python - <<'PYTHON'
import pandas as pd

runs = pd.read_csv("outputs/selection/summary.csv").drop(columns=["run", "seed", "dataset.fold"])
settings = ["transform", "model.output_activation", "optimizer.weight_decay", "epochs"]
means = runs.groupby(settings, dropna=False).mean(numeric_only=True)
print(means.corr("spearman").filter(like="test mean", axis=0).round(2).T)
PYTHON
