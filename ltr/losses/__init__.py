"""Ranking losses: pure functions of ``(scores, labels, mask)`` that return one value per list.

``scores`` are the model's output; higher is better. ``labels`` are relevance grades; 0 means not
relevant. ``mask`` is True where an item exists. All three tensors are ``[batch, list]``; numbers on
padding are never read. The values, ``[batch]``, are to be minimised. They are float64 if the scores
are float64, otherwise float32. For a list without items, the value and its gradient are 0.
``mean_over_batch`` averages the values. The keyword arguments of a loss are called its knobs; a
value that is unknown or out of range raises ``ConfigError``.

In the formulas, s_j is the score of item j, y_j its label, g_j = g(y_j) its gain, n the number of
items of the list, and d(r) = 1/log2(1 + r) the discount of rank r. maxDCG@k is the DCG@k of the
items in descending order of gain.

In most losses, a label below 0 makes the value of its list NaN. There is no error, because a check
would have to wait for the GPU. Losses that use only the order of the labels, or treat labels as
plain numbers, accept labels below 0. So do ``bce`` and ``ordinal``, which compare labels with
thresholds.

``labels`` and ``teacher`` (another model's scores, ``[batch, list]``) get no gradient. A loss that
draws random numbers takes a ``generator``. None means torch's own generator of the device, which
the trainer seeds from ``seed`` and saves in its checkpoints.

Second derivatives are those of the plain PyTorch formula. Only ``plrank``, and ``rankprop`` with
isotonic targets, have no second derivative; they raise ``NotImplementedError``. Under torch.func
and in forward mode, all derivatives are those of the plain formula. Under vmap, a loss that draws
random numbers needs vmap's argument ``randomness``. Under torch.compile, only first derivatives are
available.

On the CPU, the losses that compare items run as compiled loops (``ltr.kernels``), in float64 and on
up to ``torch.get_num_threads()`` threads. They need memory in proportion to the number of items;
some also need memory, in each thread, for a part of the item-by-item matrix of one list.
torch.compile keeps the loops in its graph. On a GPU, or without Numba, the same formulas run on
whole tensors, and nothing waits for the GPU. There are these exceptions:

- ``networkndcg`` has no compiled loop.
- ``neuralndcg`` and ``otndcg`` have a kernel for NVIDIA GPUs.
- ``softndcg`` and ``softsortndcg`` copy GPU tensors to the CPU, because the compiled loops are
  faster; under torch.compile they stay on the GPU.
- The assignments of ``svmndcg`` and the isotonic targets of ``rankprop`` are computed on the CPU.
"""

from ltr.losses.batch import mean_over_batch
from ltr.losses.distil import distil_loss
from ltr.losses.listwise import listmle_loss, listnet_loss, p_listmle_loss
from ltr.losses.mix import mix_loss
from ltr.losses.neuralmetrics import (
    neural_err_loss,
    neural_map_loss,
    neural_mrr_loss,
    neural_precision_loss,
)
from ltr.losses.pairwise import (
    lambda_loss,
    lambdarank_loss,
    rankboost_loss,
    ranknet_loss,
    ranksvm_loss,
)
from ltr.losses.plrank import plrank_loss
from ltr.losses.pointwise import bce_loss, mse_loss, ordinal_loss, rmse_loss
from ltr.losses.ragged import pad_lists
from ltr.losses.rankprop import rankprop_loss
from ltr.losses.soft_permutation import neural_ndcg_loss, ot_ndcg_loss, softsort_ndcg_loss
from ltr.losses.soft_ranks import approx_ndcg_loss, lap_ndcg_loss, sodeep_loss, soft_ndcg_loss
from ltr.losses.sorting_network import network_ndcg_loss
from ltr.losses.structured_hinge import svm_map_loss, svm_ndcg_loss

__all__ = [
    "approx_ndcg_loss",
    "bce_loss",
    "distil_loss",
    "lambda_loss",
    "lambdarank_loss",
    "lap_ndcg_loss",
    "listmle_loss",
    "listnet_loss",
    "mean_over_batch",
    "mix_loss",
    "mse_loss",
    "network_ndcg_loss",
    "neural_err_loss",
    "neural_map_loss",
    "neural_mrr_loss",
    "neural_ndcg_loss",
    "neural_precision_loss",
    "ordinal_loss",
    "ot_ndcg_loss",
    "p_listmle_loss",
    "pad_lists",
    "plrank_loss",
    "rankboost_loss",
    "ranknet_loss",
    "rankprop_loss",
    "ranksvm_loss",
    "rmse_loss",
    "sodeep_loss",
    "soft_ndcg_loss",
    "softsort_ndcg_loss",
    "svm_map_loss",
    "svm_ndcg_loss",
]
