"""The 136 columns of the synthetic lists: what each shows of an item, and on which scale.

They follow Web30K's column list (0-based here): most come in groups of five, one for each stream
of a page (body, anchor, title, URL, whole page), that share what the stream adds. The columns
that the published Web30K preparation negates are negative, those it only standardises are bounded
or of either sign, and all others are at least 0.
"""

import numpy as np
from numpy.typing import NDArray

from ltr.data.synthetic_relevance import LATENTS, Latents

WIDTH = 136
STREAMS = 5
NOISE_OF_A_COPY = 0.1  # share of a column's own noise that a near copy draws anew
WORSE_COPY = 0.3  # how much lower a near copy's quality shows in QUALITY_COLUMNS
QUALITY_COLUMNS = (129, 130, 131, 132)
CONSTANT = {27: 0.0, 53: 0.0, 97: 1.0}

# first column, how many, shape, latent and its weight, mean and spread before the shape, weight of
# the stream, weight of the noise. A column is shape(mean + spread * (weighted sum)).
_GROUPS: tuple[tuple[int, int, str, str, float, float, float, float, float], ...] = (
    (0, 5, "count", "cover", 0.8, 0.5, 0.5, 0.5, 0.4),  # covered query terms
    (5, 5, "ratio", "cover", 0.8, 0.0, 1.5, 0.5, 0.4),  # covered query terms, ratio
    (10, 5, "count", "length", 0.9, 5.0, 1.2, 0.5, 0.4),  # stream length
    (15, 5, "positive", "query", 1.0, 1.5, 0.4, 0.0, 0.0),  # IDF: the same for a whole list
    (20, 5, "count", "match", 0.5, 2.0, 1.0, 0.5, 0.4),  # term frequency: sum, min, max, mean, var
    (25, 5, "count", "length", 0.3, -1.0, 1.0, 0.5, 0.4),
    (30, 5, "count", "match", 0.5, 1.5, 1.0, 0.5, 0.4),
    (35, 5, "positive", "length", -0.4, 1.0, 0.8, 0.5, 0.4),
    (40, 5, "positive", "length", 0.6, 3.0, 2.5, 0.5, 0.4),
    (45, 5, "positive", "shifted", 0.9, -2.0, 0.8, 0.15, 0.3),  # the same, by stream length
    (50, 5, "positive", "shifted", 0.9, -3.0, 0.8, 0.15, 0.3),
    (55, 2, "positive", "shifted", 0.9, -1.0, 0.8, 0.15, 0.3),
    (57, 2, "linear", "shifted", 0.9, -1.0, 0.8, 0.15, 0.3),
    (59, 1, "positive", "shifted", 0.9, -1.0, 0.8, 0.15, 0.3),
    (60, 2, "positive", "shifted", 0.9, -2.0, 0.8, 0.15, 0.3),
    (62, 1, "linear", "shifted", 0.9, -2.0, 0.8, 0.15, 0.3),
    (63, 2, "positive", "shifted", 0.9, -2.0, 0.8, 0.15, 0.3),
    (65, 5, "positive", "shifted", 0.9, -2.0, 1.2, 0.15, 0.3),
    (70, 5, "positive", "match", 0.7, 3.0, 1.0, 0.5, 0.4),  # tf * idf: sum, min, max, mean, var
    (75, 1, "linear", "length", 0.3, 1.0, 0.6, 0.5, 0.4),
    (76, 3, "positive", "length", 0.3, 1.0, 0.6, 0.5, 0.4),
    (79, 1, "linear", "length", 0.3, 1.0, 0.6, 0.5, 0.4),
    (80, 5, "positive", "match", 0.6, 2.0, 0.8, 0.5, 0.4),
    (85, 1, "linear", "match", 0.6, 2.0, 0.8, 0.5, 0.4),
    (86, 4, "positive", "match", 0.6, 2.0, 0.8, 0.5, 0.4),
    (90, 5, "positive", "shifted", 0.9, 4.0, 1.6, 0.15, 0.3),
    (95, 5, "yes_no", "match", 0.5, 0.0, 1.0, 0.5, 0.4),  # boolean model
    (100, 5, "ratio", "match", 0.7, 0.0, 1.0, 0.5, 0.4),  # vector space model
    (105, 5, "positive", "match", 0.9, 2.3, 0.6, 0.3, 0.3),  # BM25
    (110, 5, "negative", "match", -0.7, 2.3, 0.35, 0.5, 0.4),  # language models: log likelihoods
    (115, 5, "negative", "match", -0.7, 2.5, 0.35, 0.5, 0.4),
    (120, 1, "negative", "match", -0.6, 2.4, 0.35, 0.5, 0.4),
    (121, 2, "linear", "match", 0.6, -2.4, 2.0, 0.5, 0.4),
    (123, 2, "negative", "match", -0.6, 2.4, 0.35, 0.5, 0.4),
    (125, 1, "count", "length", 0.0, 1.0, 0.6, 0.5, 0.4),  # slashes in the URL
    (126, 1, "count", "quality", -0.6, 4.0, 0.5, 0.5, 0.4),  # length of the URL
    (127, 1, "16_bit", "popular", 0.8, 0.0, 2.0, 0.5, 0.4),  # links in
    (128, 1, "count", "length", 0.0, 2.0, 2.0, 0.5, 0.4),  # links out
    (129, 2, "16_bit", "quality", 0.8, 0.0, 2.0, 0.0, 0.5),  # page rank, site rank
    (131, 2, "count", "quality", 0.8, 3.0, 0.8, 0.0, 0.4),  # quality scores
    (133, 1, "count", "popular", 0.9, 0.5, 2.0, 0.0, 0.4),  # clicks of query and URL
    (134, 1, "count", "popular", 0.9, 3.0, 3.0, 0.0, 0.4),  # clicks of the URL
    (135, 1, "positive", "popular", 0.8, 3.0, 1.5, 0.0, 0.4),  # dwell time
)

_columns = [group for group in _GROUPS for _ in range(group[1])]
_SHAPE = np.array([group[2] for group in _columns])
_LATENT = np.array([LATENTS.index(group[3]) for group in _columns])
_WEIGHT, _MEAN, _SPREAD, _STREAM, _NOISE = np.array([group[4:] for group in _columns], np.float32).T
_STREAM_OF = np.arange(WIDTH) % STREAMS


def draw_features(rng: np.random.Generator, latents: Latents) -> NDArray[np.float32]:
    """The columns of items, ``[items, 136]``; a near copy nearly repeats the row it copies."""
    items = len(latents.copy_of)
    x = rng.standard_normal((items, WIDTH), np.float32)
    x *= _NOISE
    x += rng.standard_normal((items, STREAMS), np.float32)[:, _STREAM_OF] * _STREAM
    x += latents.table[:, _LATENT] * _WEIGHT
    copies = np.flatnonzero(latents.copy_of != np.arange(items))
    x[copies] = x[latents.copy_of[copies]]
    x[copies] += rng.standard_normal((len(copies), WIDTH), np.float32) * (NOISE_OF_A_COPY * _NOISE)
    x[copies[:, None], QUALITY_COLUMNS] -= WORSE_COPY
    x *= _SPREAD
    x += _MEAN
    return _shape(x)


def _shape(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring every column to its scale, in place."""
    linear, ratio, bits = (kind == _SHAPE for kind in ("linear", "ratio", "16_bit"))
    kept = x[:, linear].copy()
    yes_no = x[:, _SHAPE == "yes_no"] > 0
    x[:, ratio | bits] *= -1
    np.exp(x, out=x)
    x[:, linear] = kept
    x[:, _SHAPE == "yes_no"] = yes_no
    x[:, _SHAPE == "negative"] *= -1
    x[:, ratio] = 1 / (1 + x[:, ratio])
    x[:, bits] = np.floor(65535 / (1 + x[:, bits]))
    x[:, _SHAPE == "count"] = np.floor(x[:, _SHAPE == "count"])
    for column, value in CONSTANT.items():
        x[:, column] = value
    return x
