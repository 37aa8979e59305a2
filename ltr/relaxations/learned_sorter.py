"""SoDeep: soft ranks from a network that was trained to sort."""

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from ltr.errors import ConfigError
from ltr.metrics.per_list import promoted
from ltr.relaxations.optimal_transport import standardise_scores
from ltr.typing import Mask, Scores

HIDDEN = 32
SHIPPED = Path(__file__).with_name("sorter.json")


class Sorter(nn.Module):
    """Estimates, for each item, the fraction of the other items that are ranked above it.

    Engilberge et al. (2019, "SoDeep: a Sorting Deep net to learn ranking loss surrogates") use an
    LSTM or a CNN. This network combines functions of one item with means over the other items
    (Zaheer et al., 2017, "Deep Sets"), so the order of the items does not matter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.item = nn.Linear(1, HIDDEN)
        # The layers are named as in the files of weights.
        self.given = nn.Linear(HIDDEN, HIDDEN)  # what an item adds to the mean for each other item
        self.asked = nn.Linear(HIDDEN, HIDDEN)  # the gate by which an item multiplies that mean
        self.first = nn.Linear(2 * HIDDEN + 1, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.share = nn.Linear(HIDDEN, 1)
        # The steps of tanh are spread over the whole range of standardised scores.
        nn.init.uniform_(self.item.weight, -4, 4)
        nn.init.uniform_(self.item.bias, -6, 6)

    def forward(self, scores: Scores, mask: Mask) -> Tensor:
        """Return each item's estimated fraction, in (0, 1), for finite standardised scores.

        The result is ``[batch, list]``, and undefined on padding.
        """
        real = mask.unsqueeze(-1)
        n_others = (mask.sum(-1) - 1).clamp(min=1)[:, None, None].to(scores.dtype)
        item = self.item(scores.unsqueeze(-1)).tanh()
        value = self.given(item).tanh().masked_fill(~real, 0)
        mean_of_others = (value.sum(-2, keepdim=True) - value) / n_others
        size = (1 / n_others).expand(*scores.shape, 1)
        gated = mean_of_others * self.asked(item)
        hidden = self.first(torch.cat([gated, item, size], -1)).tanh()
        share: Tensor = self.share(self.second(hidden).tanh()).squeeze(-1).sigmoid()
        return share


def learned_ranks(scores: Scores, mask: Mask, *, sorter: str | Path | None = None) -> Scores:
    r"""Return the soft rank of each item, estimated by a network that was trained to sort.

    .. math::
        r_j = 1 + (n - 1) \, u_j

    where n is the number of items, and u_j is the network's estimate of the fraction of the other
    items that are ranked above j. Items with equal scores have equal ranks.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        sorter: a file written by ``examples/teach_sorter.py``; None: the network in this package.

    Returns:
        The ranks, ``[batch, list]``, between 1 (highest score) and n; 1 on padding.

    Raises:
        ConfigError: the file cannot be read, or contains a different kind of network.

    Source: Engilberge et al. (2019), but with a different network (see ``Sorter``).

    >>> scores = torch.tensor([[0.1, 0.9, 0.5, 0.3]])
    >>> learned_ranks(scores, scores > 0).round().tolist()
    [[4.0, 1.0, 2.0, 3.0]]
    """
    scores = promoted(scores)  # in float16 the sums in ``standardise_scores`` would overflow
    path = SHIPPED if sorter is None else Path(sorter)
    try:
        modified = path.stat().st_mtime_ns
        network = _read(path, modified, scores.dtype, scores.device)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:80]
        raise ConfigError(
            f"sorter={path} cannot be read ({reason}): create the file with python "
            "examples/teach_sorter.py, or write sorter=null"
        ) from error
    device_type = scores.device.type
    has_autocast = torch.amp.is_autocast_available(device_type)  # the meta device has none
    # half precision would change ranks
    with torch.autocast(device_type, enabled=False) if has_autocast else nullcontext():
        shares = network(standardise_scores(scores, mask), mask)
    ranks = 1 + (mask.sum(-1, keepdim=True) - 1).clamp(min=0) * shares
    return ranks.masked_fill(~mask, 1)


@functools.cache
def _read(path: Path, modified: int, dtype: torch.dtype, device: torch.device) -> Sorter:
    """Return the network in the file ``path``; it is read in a separate thread and cached.

    Inference mode, a torch.func transform and a default device apply to the caller's thread only. A
    network that is read in that thread would stay bound to them after they end.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_load, path, dtype, device).result()


def _load(path: Path, dtype: torch.dtype, device: torch.device) -> Sorter:
    """Return the network with the weights in the file ``path``."""
    if not path.is_file():  # reading from a device may never end
        raise ValueError("it is not a file")
    with torch.device("meta"):  # initial weights would use up random numbers
        sorter = Sorter()
    weights = json.loads(path.read_text())["weights"]
    state = {name: torch.tensor(x, dtype=torch.float32) for name, x in weights.items()}
    sorter.load_state_dict(state, assign=True)
    return sorter.requires_grad_(False).to(device=device, dtype=dtype)
