"""What is wrong with a tree model's settings, found before any data is read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import CheckpointError, ConfigError
from ltr.training.settings import Settings
from ltr.trees.boosting import Order
from ltr.trees.model import WRONG_TYPE, BoostedTrees, values_in
from ltr.trees.objective import LossObjective
from ltr.typing import Loss

# Settings of the neural trainer that trees cannot obey, as they are when left alone.
_UNUSED: dict[str, Any] = {
    "warmup": 0, "clip": None, "l1": 0, "l2": 0, "compile": False, "precision": "float32",
}  # fmt: skip


def check_trees(model: BoostedTrees, loss: Loss | None, settings: Settings) -> None:
    """Boost ``model`` twice on tiny lists and keep the first round, as a run would.

    ``model`` is one made for this: it is given as many features as its options are for.

    Raises:
        ConfigError: the library refuses a setting, or one asks for what trees do not have.
    """
    given = [name for name, value in _UNUSED.items() if getattr(settings, name) != value]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: boosted trees have no such thing, leave it out; model.* are "
            "their settings"
        )
    if loss is not None and not model.takes_losses:
        raise ConfigError(
            f"{model.title} does not boost with a loss of ltr.losses: leave out loss=... for its "
            f"own {model.own_objective()}, or choose model=lightgbm or model=xgboost"
        )
    if loss is not None and model.objective is not None:
        raise ConfigError(
            f"model.objective={model.objective} and a loss: give one of them; leave out loss=... "
            "for the objective, or model.objective for the loss"
        )
    if loss is None and settings.empty_lists != "keep":
        raise ConfigError(
            f"empty_lists={settings.empty_lists}: {model.title}'s own {model.own_objective()} "
            "takes every list; leave it out, or boost with a loss, such as loss=lambdarank"
        )
    model.width = _columns(model.options)
    two = np.array([[0, 1], [1, 0], [2, 1], [0, 3]], np.float32)
    lists = Lists(
        features=np.tile(two, (1, model.width))[:, : model.width],
        labels=np.array([0, 1, 1, 0], np.float32),
        offsets=np.array([0, 2, 4]),
        qids=np.array(["1", "2"]),
    )
    data = ItemTensors(lists, no_transform(lists))
    order = Order(
        data={"train": data},
        derivatives=None if loss is None else LossObjective(loss, data),
        rounds=2,
        seed=settings.seed,
        threads=1,
        device="cpu",
        stop=lambda: False,
    )
    with model.complaints(*WRONG_TYPE):
        boosting = model.boost(order)
        boosting.round()
        boosting.round()
        kept = boosting.content(1) if boosting.trees else b""
    known = boosting.parameters()
    unknown = [] if known is None else sorted(model.options.keys() - known)
    if unknown:
        raise ConfigError(
            f"model.options.{unknown[0]}: {model.title} {model.version} has no parameter of that "
            "name (other names for one are not taken): see its documentation"
        )
    try:
        model.take(kept)
    except CheckpointError as error:
        raise ConfigError(
            f"{model.title} does not read the trees again that it grows with these settings: leave "
            "out some of model.options"
        ) from error


def _columns(options: Mapping[str, Any]) -> int:
    """Features that tiny lists need so that ``options`` can be tried on them, at least two.

    >>> _columns({"feature_contri": [1, 1, 0.5]}), _columns({"path_smooth": 1})
    (3, 2)
    """
    return max([2, *map(values_in, options.values())])
