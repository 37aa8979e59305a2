"""Parameters of a ``Ranker`` as overrides of the config of ``train.py``, and back."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ltr.console.arguments import quoted
from ltr.console.compose import values_of
from ltr.console.keys import Kind, keys
from ltr.errors import ConfigError
from ltr.scorers.parts import own_metrics
from ltr.scorers.trust import check_override

if TYPE_CHECKING:
    from ltr.estimator.trained import Trained

# Keys of the config that say where lists come from or a run goes to.
_OF_COMMAND = ("dataset", "data_dir", "cache_dir", "output_dir", "sweep", "resume", "hydra")
# Parameters that are no keys of the config, or have another name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")
_WORD = re.compile(r"(?!(null|true|false|inf|nan)$)[A-Za-z_][\w./@-]*", re.ASCII)


def overrides_of_ranker(params: Mapping[str, Any]) -> list[str]:
    """What the command line would be given for the parameters of a ``Ranker``.

    Raises:
        ConfigError: one is wrong, or a key is not for an estimator.
        ValueError: ``random_state`` is no seed.
    """
    unset = [name for name in ("model", "loss", "epochs") if params[name] is None]
    given = {name: value for name, value in params.items() if name not in (*_OWN, *unset)}
    if not isinstance(verbose := params["verbose"], (int, np.integer)):
        raise ConfigError(f"verbose={verbose}: give 0, 1 or 2")
    if (seed := params["random_state"]) is not None:
        if "seed" in given:
            raise ConfigError("seed and random_state: give one of them")
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        given["seed"] = seed
    return ["dataset=memory", *overrides_of(given)]


def overrides_of(given: Mapping[str, Any]) -> list[str]:
    """``KEY=VALUE`` for each of ``given``.

    Raises:
        ConfigError: a key is not for an estimator.

    >>> overrides_of({"loss": "listnet", "optimizer": {"lr": 0.01}, "model.hidden_sizes": [8, 4]})
    ['loss=listnet', 'optimizer.lr=0.01', 'model.hidden_sizes=[8,4]']
    >>> overrides_of({"patience": None, "compile": True, "metrics": ("ndcg@5",), "select": "a b"})
    ['patience=null', 'compile=true', 'metrics=[ndcg@5]', "select='a b'"]
    """
    for key in given:
        if _group(key) in _OF_COMMAND:
            raise ConfigError(
                f"{key}: a Ranker takes its lists from fit and keeps files by save alone; leave "
                "it out"
            )
    return [f"{key}={_text(value)}" for key, value in _flat(given)]


def _group(key: str) -> str:
    return re.split(r"[./@]", key.lstrip("+~"))[0]


def _flat(given: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
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
    return text if _WORD.fullmatch(text) else quoted(text)


def params_of(trained: "Trained") -> dict[str, Any]:
    """The parameters with which the run of a folder can be fitted again.

    Raises:
        ConfigError: the folder, which may come from elsewhere, names code that is not trusted.
    """
    choices, columns = trained.results.get("choices", {}), trained.scorer.columns
    if "members" in choices:
        return {"model": "ensemble"}  # of runs: the command makes it, ``fit`` cannot
    given = values_of(trained.overrides)
    groups = () if "experiment" in given else ("model", "loss")  # else the experiment has them
    params: dict[str, Any] = {group: str(choices[group]) for group in groups if group in choices}
    for key, value in given.items():
        if (first := _group(key)) in {*keys(Kind.PLACE), "dataset", "hydra"}:
            continue
        named = own_metrics({first: value}) if first in ("metrics", "select_on") else []
        node = {"_target_": value} if key.endswith("._target_") else value
        check_override(key, node, named, trained.trust)
        params["random_state" if key == "seed" else key] = value
    if columns is not None and columns.categories:
        params["categories"] = list(columns.categories)
    cut = trained.scorer.config["dataset"].get("cut")
    return params if cut is None else params | {"vali_fraction": cut}
