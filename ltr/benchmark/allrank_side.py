"""allRank's model, lists and loops, set as ours are."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from scipy.sparse import csr_matrix
from torch import nn

from ltr.benchmark import peers
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform

# Its losses as its own config files name them for the paper's runs.
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "neuralndcg": ("neuralNDCG", {}),
    "lambdarank": ("lambdaLoss", {"weighing_scheme": "lambdaRank_scheme"}),
    "listnet": ("listNet", {}),
}


def model_of(cfg: DictConfig, width: int) -> nn.Module:
    """Its model with the sizes of ours: the same number of layers, heads and hidden units."""
    model, config = peers.need("allrank.models.model"), peers.need("allrank.config")
    activation = cfg.model.output_activation
    made: nn.Module = model.make_model(
        fc_model={
            "sizes": list(cfg.model.fc_sizes),
            "input_norm": cfg.model.input_norm,
            "activation": None,
            "dropout": cfg.model.fc_dropout,
        },
        transformer=config.TransformerConfig(
            N=cfg.model.blocks,
            d_ff=cfg.model.feed_forward,
            h=cfg.model.heads,
            positional_encoding=None,
            dropout=cfg.model.dropout,
        ),
        post_model={
            "d_output": 1,
            "output_activation": None if activation is None else activation.capitalize(),
        },
        n_features=width,
    )
    return made


def loader(
    lists: Lists, transform: FeatureTransform, *, batch_size: int, list_size: int | None
) -> Any:
    """Its data loader, in its own process; ``list_size`` None: padded to the longest, unshuffled.

    Every list of training is padded or cut to ``list_size``, every list of evaluation padded to the
    longest of all, as its ``load_libsvm_dataset_role`` has it.
    """
    loading = peers.need("allrank.data.dataset_loading")
    qids = [i for i, length in enumerate(lists.lengths) for _ in range(length)]
    data = loading.LibSVMDataset(csr_matrix(transform(lists.features)), lists.labels.copy(), qids)
    if list_size is None:
        data.transform = loading.fix_length_to_longest_slate(data)
    else:
        data.transform = loading.transforms.Compose(
            [loading.FixLength(list_size), loading.ToTensor()]
        )
    return torch.utils.data.DataLoader(
        data, batch_size=batch_size, shuffle=list_size is not None, num_workers=0
    )


def train_epoch(
    model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, batches: Any, device: str
) -> None:
    """The steps of one epoch by its ``loss_batch``, without its evaluations."""
    step = peers.need("allrank.training.train_utils").loss_batch
    model.train()
    for features, labels, ranks in batches:
        on = features.to(device), labels.to(device), ranks.to(device)
        step(model, loss, *on, None, optimizer)


@torch.no_grad()
def evaluated(model: nn.Module, batches: Any, cutoffs: Sequence[int], device: str) -> Any:
    """NDCG at all cutoffs by its ``compute_metrics``."""
    compute = peers.need("allrank.training.train_utils").compute_metrics
    model.eval()
    return compute({"ndcg": list(cutoffs)}, model, batches, torch.device(device))
