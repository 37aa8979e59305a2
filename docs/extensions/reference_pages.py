"""Parts of the reference that the code itself writes: config keys, commands, losses.

Before Sphinx reads its sources, ``config.md``, ``commands.md`` and ``losses.md`` are written into
``docs/reference/generated``; the pages of ``docs/reference`` include them. A meaning is the comment
of a key in its YAML file, a help is what ``--help`` prints, a time is what ``benchmarks.md`` has.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config_files import key_table, listed, prose, read_config, slug
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from ltr.__main__ import COMMANDS
from ltr.cli.configs import CONFIGS
from ltr.cli.help import help_of
from ltr.cli.keys import FORMER_CONVENTION
from ltr.testing.list_losses import import_function, loss_config, loss_names

GROUPS = ("model", "dataset", "transform", "optimizer", "schedule", "convention", "tracking")
BENCHMARKS = "results/benchmarks.md"
# How the time of a loss grows with the length n of a list on the CPU, at its default knobs.
GROWTH = {
    "n": "bce distil listnet mse ordinal rmse sodeep",
    "n log n": "lapndcg listmle p_listmle plrank rankprop softsortndcg",
    "n log² n": "networkndcg",
    "n²": "approxndcg lambdaloss lambdarank mix neuralerr neuralmap neuralmrr neuralndcg "
    "neuralndcg_t neuralprecision otndcg rankboost ranknet ranksvm svmmap svmndcg",
    "n³": "softndcg",
}


def config_page() -> str:
    """Every key of a run, and the choices of each group."""
    root = read_config(CONFIGS / "train.yaml")
    page = ["(config-groups)=", "## Groups", "", "| group | default |", "| --- | --- |"]
    page += [
        f"| [`{name}`](#config-{slug(name)}) | `{choice}` |"
        for name, choice in {**root.chosen, "transform": "by data set"}.items()
        if name != FORMER_CONVENTION
    ]
    page += ["", "(config-keys)=", "## Keys", *key_table(root.keys)]
    for group in (*GROUPS, "experiment"):
        page += [f"(config-{slug(group)})=", f"## `{group}=`", ""]
        for path in sorted((CONFIGS / group).glob("*.yaml")):
            page += _choice(group, path)
    page += ["(config-loss)=", "## `loss=`", "", "Each has a section in [](losses.md):", ""]
    links = (f"[`{name}`](#loss-{slug(name)})" for name in loss_names())
    return "\n".join([*page, ", ".join(links), ""])


def _choice(group: str, path: Path) -> list[str]:
    """The section of one file of a group."""
    config = read_config(path, f"{group}.")
    target = [key.default for key in config.keys if key.name.endswith("_target_")]
    keys = [key for key in config.keys if not key.name.endswith("_target_")]
    keys = [key for key in keys if key.default or key.meaning]
    part = [f"(config-{slug(group)}-{slug(path.stem)})=", f"### `{group}={path.stem}`", ""]
    part += [prose(config.about), ""]
    part += [f"It calls {{py:obj}}`{target[0]}`.", ""] if target else []
    if config.base:
        part += [f"It begins with all of {listed(config.base)}.", ""]
    if config.chosen:
        part += [f"It chooses {listed(map('='.join, config.chosen.items()))}.", ""]
    return part + (key_table(keys, path.stem) if keys else [])


def commands_page() -> str:
    """The help of every command."""
    page = ["| command | what it does |", "| --- | --- |"]
    page += [
        f"| [`ltr {name}`](#command-{slug(name)}) | {about} |"
        for name, (_, about) in COMMANDS.items()
    ]
    for name, (_, about) in COMMANDS.items():
        page += [
            "",
            f"(command-{slug(name)})=",
            f"## `ltr {name}`",
            "",
            f"{about[0].upper()}{about[1:]}.",
            "",
        ]
        page += ["```text", help_of(name).rstrip(), "```"]
    return "\n".join([*page, ""])


def measured(root: Path) -> tuple[str, dict[str, str]]:
    """The machine of the benchmark of the losses, and the time of each on [64, 240]."""
    path = root / BENCHMARKS
    whole = path.read_text().partition("Losses: forward and backward (cpu)")[2]
    section = whole.partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \[64, 240\] +\| ours +\| ([^|]+?) +\|", section, re.M)
    machine = re.search(r"device ([^,]+), cores (\d+)", section)
    if not rows or machine is None:
        raise ExtensionError(f"{path}: no times of losses on [64, 240] are found")
    return f"{machine[1]}, {machine[2]} cores", defaultdict(lambda: "not measured", rows)


def losses_page(root: Path) -> str:
    """A table of all losses, and a section for each function."""
    machine, times = measured(root)
    configs = {name: loss_config(name) for name in loss_names()}
    growth = {name: law for law, names in GROWTH.items() for name in names.split()}
    if missing := configs.keys() - growth.keys():
        raise ExtensionError(f"{__file__}: say in GROWTH how the time of {missing} grows")
    page = [
        "| `loss=` | title and paper | time grows as | 64 lists of 240 |",
        "| --- | --- | --- | --- |",
    ]
    for name, one in configs.items():
        costs = (text.replace(" ", "\u00a0") for text in (growth[name], times[name]))
        page.append(
            f"| [`{name}`](#loss-{slug(name)}) | {prose(one.title)} | {' | '.join(costs)} |"
        )
    page += ["", f"The times were measured on {machine}.", ""]
    seen = set[str]()
    for name, one in configs.items():
        config = read_config(CONFIGS / "loss" / f"{name}.yaml", "loss.")
        knobs = [key for key in config.keys if key.default or key.meaning]
        knobs = [key for key in knobs if "_target_" not in key.name]
        about = prose(config.about).replace(" Labels: ", "\n\nLabels: ")
        page += [f"(loss-{slug(name)})=", f"## `loss={name}`", "", about, ""]
        page += key_table(knobs, name) if knobs else []
        law, time = growth[name], times[name]
        page += [
            f"Cost: time grows as {law} in the length n of a list; {time} for 64 lists of 240.",
            "",
        ]
        if one.target in seen:
            page += [f"The function is {{py:func}}`{one.target}`, above.", ""]
        else:
            import_function(one.target)
            page += ["```{eval-rst}", f".. autofunction:: {one.target}", "```", ""]
        seen.add(one.target)
    return "\n".join(page)


def plain_docstring(*event: Any) -> None:
    """Escape | and * in a docstring, which mark nothing there, outside of examples and formulas."""
    lines: list[str] = event[-1]
    code = False
    formula = False
    for number, line in enumerate(lines):
        code = line.strip() != "" and (code or line.lstrip().startswith(">>>"))
        # a formula ends with an empty line
        formula = line.strip() != "" and (formula or line.lstrip().startswith(".. math::"))
        if not code and not formula:
            parts = line.split("``")
            parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
            lines[number] = "``".join(parts)


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed."""
    folder = Path(app.srcdir, "reference", "generated")
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, Callable[[], str]] = {
        "config": config_page,
        "commands": commands_page,
        "losses": lambda: losses_page(Path(app.srcdir).parent),
    }
    for name, page in pages.items():
        path, text = folder / f"{name}.md", page()
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages and the reading of docstrings."""
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
