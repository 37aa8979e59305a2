#!/bin/sh
# Table 3 of Pobrotyn and Bialobrzeski (2021) in small: its 17 rows on 60 made lists, one epoch each.
#
#   sh examples/paper_table.sh [any override]
#
# The whole of it, on MSLR-WEB30K in data/, is: make table3
set -eu
ltr table table=neuralndcg_table3 dataset=synthetic dataset.queries=60 epochs=1 workers=2 "$@"
