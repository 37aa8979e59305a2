"""Tables of the losses, made from ``configs/loss/``."""

import inspect

from tabulate import tabulate

from ltr.experiment.check_loss import imported
from ltr.experiment.loss_configs import LossConfig, loss_config, loss_names


def table(*, markdown: bool = False) -> str:
    """Every loss: its name, function, what it is with its paper, and its knobs with defaults."""
    rows = []
    for config in map(loss_config, loss_names()):
        knobs = [f"{knob.name}={knob.value}" for knob in config.knobs]
        rows.append([config.name, config.function, config.title, " ".join(knobs) or "-"])
    headers = ["loss=", "function in ltr.losses", "what, and its paper", "loss.KNOB=default"]
    if markdown:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    return tabulate(
        rows, headers, disable_numparse=True, maxcolwidths=[None, None, 50, 40], tablefmt="simple"
    )


def details(name: str) -> str:
    """One loss in full: formula, knobs with what they mean, and a command that uses it.

    Raises:
        ConfigError: there is no such loss.
    """
    config = loss_config(name)
    rows = [[f"loss.{knob.name}", knob.value, knob.comment] for knob in config.knobs]
    knobs = tabulate(rows, tablefmt="plain", disable_numparse=True) if rows else "none"
    function = imported(config.target)
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    plain = signature.replace(parameters=bare, return_annotation=signature.empty)
    parts = [
        f"{name}: {config.title}",
        f"{config.target}{plain}",
        inspect.getdoc(function) or "It has no docstring.",
        f"Knobs and their defaults\n{knobs}",
        f"For example\n  {_example(config)}",
    ]
    return "\n\n".join(parts)


def _example(config: LossConfig) -> str:
    chosen = config.knobs[0] if config.knobs else None
    if chosen is None:
        return f"python train.py loss={config.name}"
    value = "5" if chosen.name == "k" else chosen.value
    return f"python train.py loss={config.name} loss.{chosen.name}={value}"
