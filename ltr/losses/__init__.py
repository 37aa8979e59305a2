"""Ranking losses: pure functions of ``(scores, labels, mask)``, one value per list, smaller better.

``scores`` are the model's output, higher is better; ``labels`` are graded relevance, 0 = not
relevant; ``mask`` is True where an item exists; all three are ``[batch, list]``. Padding is never
read. The values, ``[batch]``, are float64 for float64 scores, else float32, and 0 without gradient
for a list of no items; ``ltr.losses.batch`` averages them. A knob that is unknown or out of range
raises ``ConfigError``.

A loss and its config share a name: ``loss=lambdarank`` is ``configs/loss/lambdarank.yaml`` and
``ltr/losses/lambdarank.py``.

On the CPU the losses that compare items with items, RankNet to NeuralNDCG, run in compiled loops
(``ltr.kernels``): real items only, on ``torch.get_num_threads()`` threads, in float64 whatever the
dtype, value and gradient together, memory in proportion to the items; those
of a soft permutation and SoftNDCG keep one list's matrix, or a part of it, for each thread. Numba
compiles them for some seconds at their first use and keeps them on the disk. On a GPU, under
torch.compile and without Numba, the same formulas run on whole tensors and do not wait for the GPU.
The exceptions are NeuralNDCG and OT-NDCG, which have a kernel on an NVIDIA GPU and keep that of the
CPU under torch.compile, and SVM-NDCG, whose assignments are found on the CPU. Tests hold that all
paths agree. A gradient asked for with ``create_graph=True`` takes the plain path, so that second
derivatives are there, or raises ``NotImplementedError`` (``plrank``). ``labels`` and ``teacher``
are constants.

A loss that learns from another model takes its scores as ``teacher``, ``[batch, list]``.

A loss that draws takes a ``generator``. None is torch's own generator of the device, which
``torch.manual_seed`` seeds: the trainer seeds it from ``seed`` and keeps its state in the
checkpoints, so that a resumed run draws the same numbers.
"""

from ltr.losses.approxndcg import approx_ndcg_loss
from ltr.losses.batch import mean_over_batch
from ltr.losses.bce import bce_loss
from ltr.losses.distil import distil_loss
from ltr.losses.lambdaloss import lambda_loss
from ltr.losses.lambdarank import lambdarank_lambdas, lambdarank_loss
from ltr.losses.lapndcg import lap_ndcg_loss
from ltr.losses.listmle import listmle_loss
from ltr.losses.listnet import listnet_loss
from ltr.losses.mix import mix_loss
from ltr.losses.mse import mse_loss
from ltr.losses.neuralerr import neural_err_loss
from ltr.losses.neuralmap import neural_map_loss
from ltr.losses.neuralmrr import neural_mrr_loss
from ltr.losses.neuralndcg import neural_ndcg_loss
from ltr.losses.neuralprecision import neural_precision_loss
from ltr.losses.ordinal import ordinal_loss
from ltr.losses.otndcg import ot_ndcg_loss
from ltr.losses.p_listmle import p_listmle_loss
from ltr.losses.plrank import plrank_loss
from ltr.losses.rankboost import rankboost_loss
from ltr.losses.ranknet import ranknet_loss
from ltr.losses.rankprop import rankprop_loss
from ltr.losses.ranksvm import ranksvm_loss
from ltr.losses.rmse import rmse_loss
from ltr.losses.sodeep import sodeep_loss
from ltr.losses.softndcg import soft_ndcg_loss
from ltr.losses.softsortndcg import softsort_ndcg_loss
from ltr.losses.svmmap import svm_map_loss
from ltr.losses.svmndcg import svm_ndcg_loss

__all__ = [
    "approx_ndcg_loss",
    "bce_loss",
    "distil_loss",
    "lambda_loss",
    "lambdarank_lambdas",
    "lambdarank_loss",
    "lap_ndcg_loss",
    "listmle_loss",
    "listnet_loss",
    "mean_over_batch",
    "mix_loss",
    "mse_loss",
    "neural_err_loss",
    "neural_map_loss",
    "neural_mrr_loss",
    "neural_ndcg_loss",
    "neural_precision_loss",
    "ordinal_loss",
    "ot_ndcg_loss",
    "p_listmle_loss",
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
