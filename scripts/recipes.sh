#!/usr/bin/env bash
# results/tables/recipes_yandex.md (the table of README), recipes_synthetic.md, and docs/how-to/auto.md.
# Needs Yandex's lists as data/yandex/train.tsv.gz and test.tsv.gz, and MQ2008 for the last command.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
yandex=(
  dataset=table 'dataset.split={train:yandex/train.tsv.gz,test:yandex/test.tsv.gz}' dataset.header=false
  dataset.query=1 dataset.label=2 'dataset.id=[3,4]' dataset.labels=real
)

ltr table table=recipes "${yandex[@]}" seeds=3 "$@"
ltr table table=recipes dataset=synthetic dataset.queries=2000 seeds=3 "$@"
ltr auto "${yandex[@]}" seeds=3 "$@" # the last row of the table of README
ltr auto "${yandex[@]}" "$@"
ltr auto dataset=synthetic dataset.queries=300 "$@"
ltr auto dataset=mq2008 "$@"
