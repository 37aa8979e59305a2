"""Ranking losses: pure functions of ``(scores, labels, mask)``, one value per list, smaller better.

``scores`` are the model's output, higher is better; ``labels`` are graded relevance, 0 = not
relevant; ``mask`` is True where an item exists; all three are ``[batch, list]``. Padding is never
read. The values, ``[batch]``, are float64 for float64 scores, else float32, and 0 without gradient
for a list of no items; ``mean_over_batch`` averages them. A knob that is unknown or out of range
raises ``ConfigError``.

``labels`` and ``teacher``, another model's scores, ``[batch, list]``, are constants. A loss that
draws takes a ``generator``; None is torch's own of the device, which the trainer seeds from
``seed`` and keeps in its checkpoints. Second derivatives are those of the plain formula, or
``NotImplementedError`` is raised (``plrank``).

On the CPU the losses that compare items run in compiled loops (``ltr.kernels``), in float64 and on
``torch.get_num_threads()`` threads, in memory in proportion to the items, or to a part of one
list's matrix for each thread. On a GPU, under torch.compile and without Numba the same formulas run
on whole tensors and do not wait for the GPU. Exceptions: NeuralNDCG and OT-NDCG have a kernel on an
NVIDIA GPU and keep the CPU's under torch.compile; SVM-NDCG finds its assignments on the CPU, and
RankProp its isotonic targets.
"""

from ltr.losses.batch import mean_over_batch as mean_over_batch
from ltr.losses.distil import distil_loss as distil_loss
from ltr.losses.listwise import listmle_loss as listmle_loss
from ltr.losses.listwise import listnet_loss as listnet_loss
from ltr.losses.listwise import p_listmle_loss as p_listmle_loss
from ltr.losses.mix import mix_loss as mix_loss
from ltr.losses.neuralmetrics import neural_err_loss as neural_err_loss
from ltr.losses.neuralmetrics import neural_map_loss as neural_map_loss
from ltr.losses.neuralmetrics import neural_mrr_loss as neural_mrr_loss
from ltr.losses.neuralmetrics import neural_precision_loss as neural_precision_loss
from ltr.losses.pairwise import lambda_loss as lambda_loss
from ltr.losses.pairwise import lambdarank_loss as lambdarank_loss
from ltr.losses.pairwise import rankboost_loss as rankboost_loss
from ltr.losses.pairwise import ranknet_loss as ranknet_loss
from ltr.losses.pairwise import ranksvm_loss as ranksvm_loss
from ltr.losses.plrank import plrank_loss as plrank_loss
from ltr.losses.pointwise import bce_loss as bce_loss
from ltr.losses.pointwise import mse_loss as mse_loss
from ltr.losses.pointwise import ordinal_loss as ordinal_loss
from ltr.losses.pointwise import rmse_loss as rmse_loss
from ltr.losses.rankprop import rankprop_loss as rankprop_loss
from ltr.losses.soft_permutation import neural_ndcg_loss as neural_ndcg_loss
from ltr.losses.soft_permutation import ot_ndcg_loss as ot_ndcg_loss
from ltr.losses.soft_permutation import softsort_ndcg_loss as softsort_ndcg_loss
from ltr.losses.soft_ranks import approx_ndcg_loss as approx_ndcg_loss
from ltr.losses.soft_ranks import lap_ndcg_loss as lap_ndcg_loss
from ltr.losses.soft_ranks import sodeep_loss as sodeep_loss
from ltr.losses.soft_ranks import soft_ndcg_loss as soft_ndcg_loss
from ltr.losses.structured_hinge import svm_map_loss as svm_map_loss
from ltr.losses.structured_hinge import svm_ndcg_loss as svm_ndcg_loss
