"""Parameters of a ``Ranker`` as overrides of the config of ``train.py``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ltr.console.arguments import quoted
from ltr.errors import ConfigError

# Keys of the config that say where lists come from or a run goes to.
_OF_COMMAND = ("dataset", "data_dir", "cache_dir", "output_dir", "sweep", "resume", "hydra")
# Parameters that are no keys of the config, or have another name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")
_WORD = re.compile(r"[A-Za-z_][\w./@-]*", re.ASCII)
_VALUES = ("null", "true", "false", "inf", "nan")  # words that are no text in Hydra's grammar


def overrides_of_ranker(params: Mapping[str, Any]) -> list[str]:
    """What the command line would be given for the parameters of a ``Ranker``.

    Raises:
        ConfigError: one is wrong, or a key is not for an estimator.
        ValueError: ``random_state`` is no seed.
    """
    keys = {name: value for name, value in params.items() if name not in _OWN}
    for name in ("model", "loss", "epochs"):
        if keys[name] is None:
            del keys[name]
    if not isinstance(verbose := params["verbose"], (int, np.integer)):
        raise ConfigError(f"verbose={verbose}: give 0, 1 or 2")
    if (seed := params["random_state"]) is not None:
        if "seed" in keys:
            raise ConfigError("seed and random_state: give one of them")
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        keys["seed"] = seed
    return ["dataset=memory", *overrides_of(keys)]


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
