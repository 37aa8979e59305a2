#!/usr/bin/env bash
# results/benchmarks.md: times and memory beside allRank, scikit-learn and LightGBM, on this machine's CPU.
# On a GPU, its sections are: scripts/benchmarks.sh device=cuda
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ " $* " == *" device=cuda "* ]]; then
  export PATH="$PWD/.venv/bin:$PATH"
  python benchmarks/losses.py device=cuda seconds=1.5 long=10
  python benchmarks/training.py device=cuda seconds=5 repeats=5
  python benchmarks/training.py device=cuda lists=3200 seconds=8 repeats=5 only=neuralndcg
  python benchmarks/training.py device=cuda lists=1280 seconds=4 repeats=5 only=listnet
  python benchmarks/evaluation.py device=cuda seconds=5
  python benchmarks/growth.py device=cuda 'losses=[neuralndcg]' \
    'lengths=[60,120,240,500,1000,2000,5000,10000]' 'lists=[]' seconds=0.4 repeats=5 long=5
  python benchmarks/growth.py device=cuda 'losses=[ranknet]' 'lengths=[60,120,240,500,1000]' \
    'lists=[]' seconds=0.4 repeats=5 long=5
  exit
fi
make bench ARGS='what=losses'
make bench ARGS='what=reader'
make bench ARGS='what=training'
make bench ARGS='what=evaluation'
make bench ARGS='what=growth picture=results/growth-cpu.png'
make bench ARGS='what=serving threads=1 trees=300'
make bench ARGS='what=quality threads=1'
