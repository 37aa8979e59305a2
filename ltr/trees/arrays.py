"""Features, labels and scores as the libraries take and give them."""

import numpy as np
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.errors import DataError


def single(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """``scores`` as float32; one too large for it is infinite, which is looked for afterwards."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def items_of(data: ItemTensors) -> NDArray[np.float32]:
    """The transformed features ``[items, width]`` on the CPU."""
    return data.features.cpu().numpy()


def labels_of(data: ItemTensors) -> NDArray[np.float32]:
    """The labels ``[items]`` on the CPU."""
    return data.labels.cpu().numpy()


def check_whole_labels(data: ItemTensors, what: str, *, most: float, instead: str) -> None:
    """Raise ``DataError`` unless all labels are whole numbers from 0 to ``most``."""
    labels = labels_of(data)
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels > most)]
    if len(wrong):
        raise DataError(
            f"{what} takes whole labels from 0 to {most:g}, train has {wrong[0]:g}: {instead}"
        )
