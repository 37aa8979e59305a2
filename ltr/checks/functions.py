"""What the checks of parts share: import a function, read its knobs, print the verdicts.

Importing this is cheap: torch is imported where a part is checked.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate

from ltr.console.configs import hint
from ltr.errors import ConfigError

if TYPE_CHECKING:  # imports torch
    from ltr.battery import Property, Verdict


def judged(properties: Sequence["Property"], subject: Any) -> tuple[str, bool]:
    """The verdicts on a subject, and whether none fails."""
    from ltr.battery import FAILS, judge

    verdicts = [judge(prop, subject) for prop in properties]
    return report(verdicts), all(verdict.outcome != FAILS for verdict in verdicts)


def report(verdicts: Sequence["Verdict"]) -> str:
    """The verdicts as a table, and how many of each there are."""
    rows = [[verdict.outcome, verdict.name, verdict.seen] for verdict in verdicts]
    text = tabulate(rows, tablefmt="plain", maxcolwidths=[None, 46, 68])
    outcomes = [verdict.outcome for verdict in verdicts]
    words = {"holds": "hold", "FAILS": "fail", "does not apply": "do not apply"}
    counts = [f"{outcomes.count(outcome)} {word}" for outcome, word in words.items()]
    return f"{text}\n\n{len(verdicts)} properties: {', '.join(counts)}"


def read_knobs(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse ``knob=value`` as on the command line of ``train.py``, values in YAML.

    Raises:
        ConfigError: an argument is not of this form.

    >>> read_knobs(["k=5", "tol=1e-3", "pairs=both", "temperature=null"])
    {'k': 5, 'tol': 0.001, 'pairs': 'both', 'temperature': None}
    """
    knobs: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        try:
            read: Any = OmegaConf.to_container(OmegaConf.create(f"value: {value}"), resolve=True)
        except (OmegaConfBaseException, ValueError) as error:
            raise ConfigError(f"{argument}: write knob=value, such as k=5") from error
        except Exception as error:  # a YAML error, whose class is of a library we do not name
            raise ConfigError(f"{argument}: {value} is not a value in YAML") from error
        if not equals or not name:
            raise ConfigError(f"{argument}: write knob=value, such as k=5")
        knobs[name] = read["value"]
    return knobs


def imported(
    name: str, what: str = "a loss is (scores, labels, mask) -> [batch]"
) -> Callable[..., Any]:
    """The function ``module.function``, of which ``what`` says what it must be.

    Raises:
        ConfigError: it cannot be imported.
    """
    module_name, _, function_name = name.rpartition(".")
    if not module_name.strip(".") or not function_name:
        raise ConfigError(f"{name}: write module.function, such as my.module.my_loss")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"{name}: there is no module {missing}; start in the folder that holds it, or name "
                "that folder with PYTHONPATH=FOLDER"
            ) from error
        raise ConfigError(f"{module_name} needs {missing}, which is not installed") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{module_name} cannot be imported, mend it first: {type(error).__name__}: {text}"
        ) from error
    function = getattr(module, function_name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value)]
        functions = [key for key in functions if not key.startswith("_")]
        close = difflib.get_close_matches(function_name, functions, n=3, cutoff=0.5)
        there = ", ".join(close or functions[:20]) or "no function"
        raise ConfigError(f"{module_name} has no {function_name}; it has {there}")
    if not callable(function):
        raise ConfigError(f"{name} is no function: {what}")
    return function


def check_signature(
    name: str, function: Callable[..., Any], knobs: dict[str, Any], part: str = "loss"
) -> None:
    """See that a loss or metric takes scores, labels and mask, and these knobs, and no more.

    Raises:
        ConfigError: it does not.
    """
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise ConfigError(f"{name} has no signature: write a function in Python") from error
    parameters = list(signature.parameters.values())
    data = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:3]
    if len(data) < 3:
        raise ConfigError(
            f"{name}{signature}: a {part} takes (scores, labels, mask, *, knobs) and returns "
            "one value per list; wrap yours in such a function"
        )
    known = [p.name for p in parameters[3:] if p.kind is not p.VAR_KEYWORD]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for knob in knobs:
        if knob not in known and not takes_any:
            raise ConfigError(
                f"{knob}: {name} has no such knob; it has {', '.join(known) or 'none'}"
                + hint(knob, known)
            )
    for p in parameters[3:]:
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in knobs:
            raise ConfigError(f"{name} needs a value of {p.name}: add {p.name}=VALUE")
