#!/usr/bin/env bash
# results/tables/relaxations_mq2008.md and relaxations_yandex.md, with the settings of their searches.
# budget=10 (MQ2008) and budget=20 (Yandex) in place of found_settings=... search them again.
# Needs MQ2008, and Yandex's lists as data/yandex/train.tsv.gz and test.tsv.gz.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
yandex=(
  dataset=table 'dataset.split={train:yandex/train.tsv.gz,test:yandex/test.tsv.gz}' dataset.header=false
  dataset.query=1 dataset.label=2 'dataset.id=[3,4]' dataset.labels=real
)

ltr table table=relaxations seeds=3 found_settings=results/searches/relaxations_mq2008.yaml "$@"
ltr table table=relaxations "${yandex[@]}" seeds=5 found_settings=results/searches/relaxations_yandex.yaml "$@"
