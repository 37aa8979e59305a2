"""What the files in ``configs/loss/`` say about each loss. No torch here."""

import re
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from ltr.console.configs import CONFIGS, hint
from ltr.errors import ConfigError

_KNOB = re.compile(r"\s*(?P<name>[a-z_0-9]+): *(?P<value>.*?)(?: +# *(?P<comment>.*))?")


@dataclass(frozen=True)
class Knob:
    """A knob as its file has it: name, default as it is written, and the comment beside it."""

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class LossConfig:
    """A file of ``configs/loss/``.

    Attributes:
        name: of the file, as in ``loss=NAME``.
        target: the function, ``ltr.losses.neural_ndcg_loss``.
        title: the first comment, which names the paper.
        knobs: in the order of the file.
    """

    name: str
    target: str
    title: str
    knobs: tuple[Knob, ...]

    @property
    def function(self) -> str:
        """The name of the function, without its module."""
        return self.target.rpartition(".")[2]

    def values(self) -> dict[str, Any]:
        """The knobs' values; what the data decide is as for the public web data sets."""
        root = OmegaConf.create({"suggested": _suggested(), "loss": _node(self.name)})
        values: Any = OmegaConf.to_container(root.loss, resolve=True)
        return {name: value for name, value in values.items() if not name.startswith("_")}


def loss_names() -> list[str]:
    """The names that ``loss=`` takes, sorted."""
    return sorted(path.stem for path in (CONFIGS / "loss").glob("*.yaml"))


def loss_config(name: str) -> LossConfig:
    """The config of the loss ``name``.

    Raises:
        ConfigError: there is no such file; the message names those there are.
    """
    if name not in loss_names():
        raise ConfigError(
            f"{name}: no such loss; there are {', '.join(loss_names())}" + hint(name, loss_names())
        )
    node = _node(name)
    lines = (CONFIGS / "loss" / f"{name}.yaml").read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and "@package" not in line]
    written = {match["name"]: match for match in map(_KNOB.fullmatch, lines) if match}
    knobs = [written[str(key)] for key in node if not str(key).startswith("_")]
    return LossConfig(
        name=name,
        target=str(node["_target_"]),
        title=comments[0] if comments else "",
        knobs=tuple(_knob(knob["name"], knob["value"], knob["comment"] or "") for knob in knobs),
    )


def _knob(name: str, value: str, comment: str) -> Knob:
    if value.startswith("${suggested."):
        value = str(_suggested()[value[len("${suggested.") : -1]])
        comment += "; the data set's own where it has another, else found in its labels"
    return Knob(name, value, comment)


def _suggested() -> Any:
    """What ``train.yaml`` suggests, with grades as for the public web data sets."""
    suggested = OmegaConf.load(CONFIGS / "train.yaml").suggested
    return OmegaConf.merge(suggested, {"levels": 5})


def _node(name: str) -> Any:
    """The part of a file that is the loss; a file may set other parts of a config beside it."""
    config: Any = OmegaConf.load(CONFIGS / "loss" / f"{name}.yaml")
    return config.get("loss", config)
