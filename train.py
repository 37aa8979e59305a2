"""Train a ranker: ``python train.py loss=neuralndcg dataset=web30k``. See ``--help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("train")
