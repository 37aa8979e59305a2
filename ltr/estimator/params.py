"""Parameters of a ``Ranker`` as overrides of the config of ``train.py``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ltr.console.arguments import quoted
from ltr.errors import ConfigError

# Keys of the config that say where lists come from or a run goes to.
_OF_COMMAND = ("dataset", "data_dir", "cache_dir", "output_dir", "sweep", "resume", "hydra")
_WORD = re.compile(r"[A-Za-z_][\w./@-]*", re.ASCII)
_VALUES = ("null", "true", "false", "inf", "nan")  # words that are no text in Hydra's grammar


def overrides_of(keys: Mapping[str, Any]) -> list[str]:
    """``KEY=VALUE`` for each of ``keys``.

    Raises:
        ConfigError: a key is not for an estimator.

    >>> overrides_of({"loss": "listnet", "optimizer": {"lr": 0.01}, "model.hidden_sizes": [8, 4]})
    ['loss=listnet', 'optimizer.lr=0.01', 'model.hidden_sizes=[8,4]']
    >>> overrides_of({"patience": None, "compile": True, "metrics": ("ndcg@5",), "select": "a b"})
    ['patience=null', 'compile=true', 'metrics=[ndcg@5]', "select='a b'"]
    """
    for key in keys:
        if re.split(r"[./@]", key.lstrip("+~"))[0] in _OF_COMMAND:
            raise ConfigError(
                f"{key}: a Ranker takes its lists from fit and keeps files by save alone; leave "
                "it out"
            )
    return [f"{key}={_text(value)}" for key, value in _flat(keys)]


def _flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in keys.items():
        whole = f"{prefix}{key}"
        if isinstance(value, Mapping):
            more = "++" if whole.endswith(".options") else ""  # its keys are the library's
            yield from _flat(value, f"{more}{whole}.")
        else:
            yield whole, value


def _text(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_text(one)}' for key, one in value.items())}}}"
    text = str(value)
    return text if _WORD.fullmatch(text) and text not in _VALUES else quoted(text)
