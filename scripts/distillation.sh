#!/usr/bin/env bash
# results/tables/distillation_synthetic.md: a small network that learns from a transformer.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

ltr table table=distillation dataset.queries=300 seeds=3 "$@"
