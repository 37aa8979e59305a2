"""Ranking losses: pure functions of ``(scores, labels, mask)``, one value per list, smaller better.

``scores`` are the model's output, higher is better; ``labels`` are graded relevance, 0 = not
relevant; ``mask`` is True where an item exists; all three are ``[batch, list]``. Padding is never
read. The values, ``[batch]``, are float64 for float64 scores, else float32, and 0 without gradient
for a list of no items; ``ltr.losses.batch`` averages them. A knob that is unknown or out of range
raises ``ConfigError``.

A loss and its config share a name: ``loss=lambdarank`` is ``configs/loss/lambdarank.yaml`` and
``ltr/losses/lambdarank.py``; four metrics by NeuralSort stand together in ``neuralmetrics.py``.

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

from ltr.losses.approxndcg import approx_ndcg_loss as approx_ndcg_loss
from ltr.losses.batch import mean_over_batch as mean_over_batch
from ltr.losses.bce import bce_loss as bce_loss
from ltr.losses.distil import distil_loss as distil_loss
from ltr.losses.lambdaloss import lambda_loss as lambda_loss
from ltr.losses.lambdarank import lambdarank_loss as lambdarank_loss
from ltr.losses.lapndcg import lap_ndcg_loss as lap_ndcg_loss
from ltr.losses.listmle import listmle_loss as listmle_loss
from ltr.losses.listnet import listnet_loss as listnet_loss
from ltr.losses.mix import mix_loss as mix_loss
from ltr.losses.mse import mse_loss as mse_loss
from ltr.losses.neuralmetrics import neural_err_loss as neural_err_loss
from ltr.losses.neuralmetrics import neural_map_loss as neural_map_loss
from ltr.losses.neuralmetrics import neural_mrr_loss as neural_mrr_loss
from ltr.losses.neuralmetrics import neural_precision_loss as neural_precision_loss
from ltr.losses.neuralndcg import neural_ndcg_loss as neural_ndcg_loss
from ltr.losses.ordinal import ordinal_loss as ordinal_loss
from ltr.losses.otndcg import ot_ndcg_loss as ot_ndcg_loss
from ltr.losses.p_listmle import p_listmle_loss as p_listmle_loss
from ltr.losses.plrank import plrank_loss as plrank_loss
from ltr.losses.rankboost import rankboost_loss as rankboost_loss
from ltr.losses.ranknet import ranknet_loss as ranknet_loss
from ltr.losses.rankprop import rankprop_loss as rankprop_loss
from ltr.losses.ranksvm import ranksvm_loss as ranksvm_loss
from ltr.losses.rmse import rmse_loss as rmse_loss
from ltr.losses.sodeep import sodeep_loss as sodeep_loss
from ltr.losses.softndcg import soft_ndcg_loss as soft_ndcg_loss
from ltr.losses.softsortndcg import softsort_ndcg_loss as softsort_ndcg_loss
from ltr.losses.svmmap import svm_map_loss as svm_map_loss
from ltr.losses.svmndcg import svm_ndcg_loss as svm_ndcg_loss
