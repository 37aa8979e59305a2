"""Type aliases for NumPy arrays."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Reals = NDArray[np.floating]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.str_]
