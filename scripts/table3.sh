#!/usr/bin/env bash
# results/tables/neuralndcg_table3_synthetic.md and neuralndcg_table3_synthetic_best.md: Table 3 of NeuralNDCG
# (Pobrotyn and Bialobrzeski, 2021), its 17 rows on synthetic lists. On MSLR-WEB30K: make table3
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

ltr table table=neuralndcg_table3 dataset=synthetic dataset.queries=2000 select=last seeds=3 "$@"
ltr table table=neuralndcg_table3 dataset=synthetic dataset.queries=2000 select=best seeds=3 "$@"
