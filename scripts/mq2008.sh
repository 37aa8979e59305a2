#!/usr/bin/env bash
# results/tables/letor4_mq2008.md, letor4_mq2008_budget.md, letor4_baselines.md and ranknet_report_mq2008.md.
# Needs LETOR 4.0 MQ2008: ltr prepare_data dataset=mq2008 archive=PATH/MQ2008.rar
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

ltr table table=letor4_mq2008 seeds=3 "$@"
# with the settings of its searches; budget=20 in place of found_settings=... searches them again
ltr table table=letor4_mq2008 seeds=5 found_settings=results/searches/letor4_mq2008_budget.yaml "$@"
ltr table table=letor4_baselines "$@"
ltr table table=ranknet_report dataset=mq2008 "$@"
