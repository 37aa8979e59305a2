#!/bin/sh
# Is a loss of your own better? Check it, train it beside two others with three seeds, and test.
#
#   sh examples/new_loss/run.sh [any override, such as dataset=mq2008 data_dir=~/letor]
#
# my_losses.py holds the loss, configs/loss/gain_pairs.yaml gives it a name. The sweep goes on where
# it was stopped; the last command says for every pair of losses: better, worse or undecided.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
ltr check_loss my_losses.gain_pairs_loss
ltr train --config-dir "$here/configs" -m loss=gain_pairs,ranknet,listnet seed=1,2,3 model=mlp sweep=new_loss "$@"
ltr compare outputs/new_loss
