#!/bin/sh
# Boosted trees with their own objective and with NeuralNDCG: is there a difference?
#
#   sh examples/trees_with_neuralndcg.sh [any override, such as dataset=mq2008 data_dir=~/letor]
set -eu
ltr train -m model=lightgbm seed=1,2,3 sweep=trees_own "$@"
ltr train -m model=lightgbm loss=neuralndcg,lambdarank seed=1,2,3 sweep=trees_losses "$@"
ltr compare outputs/trees_own outputs/trees_losses
