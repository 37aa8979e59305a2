"""The edge between the command line and the library: Hydra's entry, one-line errors, run folders.

Importing this must stay cheap (no torch): ``--help`` and shell completion go through it.
"""

import difflib
import functools
import os
import re
import secrets
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.errors import CheckpointError, ConfigError, LTRError
from ltr.experiment.sweep_names import job_dir, sweep_dir
from ltr.training.interruption import Interrupted

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

# Hydra 1.4 instantiates only what is listed; 1.3 asks for the behaviour of a version instead.
_HYDRA_MAIN: dict[str, Any] = (
    {"version_base": "1.3"}
    if tuple(int(n) for n in hydra.__version__.split(".")[:2]) < (1, 4)
    else {"execution_whitelist": ["ltr.*", "torch.nn.*", "torch.optim.*"]}
)


def command(config_name: str) -> Callable[[Callable[[DictConfig], Any]], Callable[[], None]]:
    """Decorator: make ``function(cfg)`` a command configured by ``configs/<config_name>.yaml``.

    A mistake of the user ends in one line on stderr and exit status 2; anything else is a bug of
    ours and keeps its traceback. HYDRA_FULL_ERROR=1 shows the traceback in every case.
    """

    def decorate(function: Callable[[DictConfig], Any]) -> Callable[[], None]:
        @functools.wraps(function)
        def task(cfg: DictConfig) -> Any:
            try:
                return function(cfg)
            except LTRError as error:
                raise _Stop(error) from error

        def main() -> None:
            full = os.environ.get("HYDRA_FULL_ERROR") == "1"
            os.environ["HYDRA_FULL_ERROR"] = "1"  # hand every exception to us
            register_resolvers()
            sys.argv[1:] = [with_quotes(arg) for arg in sys.argv[1:]]
            try:
                hydra.main(config_path=str(CONFIGS), config_name=config_name, **_HYDRA_MAIN)(task)()
            except (_Stop, HydraException, OmegaConfBaseException) as error:
                if full:
                    raise
                print(f"error: {explain(error, config_name)}", file=sys.stderr)
                sys.exit(2)
            except BrokenPipeError:  # | head has read enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(141)
            except Interrupted as stop:
                sys.exit(128 + stop.signum)
            except KeyboardInterrupt:
                sys.exit(130)

        return main

    return decorate


class _Stop(BaseException):
    """A user's mistake on its way out; not an Exception, or Hydra would print its own lines too."""


# What a run that goes on writes to in its folder without putting a new file in the place.
_WRITTEN_THROUGH = (
    ".lock", "train.log", "error.txt", ".hydra", ".hydra/resumed",
    *(f".hydra/resumed/{name}.yaml" for name in ("config", "hydra", "overrides")),
)  # fmt: skip


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    if resume is not None:
        folder = run_folder(resume)
        if not (folder / "last.pt").is_file():  # before Hydra makes the folder
            raise CheckpointError(
                f"resume={resume}: {folder / 'last.pt'} is not there; give the folder of a run of "
                "train.py, such as outputs/<run>"
            )
        for path in [folder / name for name in _WRITTEN_THROUGH]:
            if path.is_symlink():
                raise CheckpointError(
                    f"resume={resume}: {path} is a link, which train.py does not make, and writing "
                    "would follow it: remove it if you know where the run comes from"
                )
        return str(folder)
    name = name.replace("-None-", "-")  # a group without a choice
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return str(Path(output_dir) / f"{now}_{name}_{secrets.token_hex(2)}")


def run_folder(path: str) -> Path:
    """The run folder of ``path``, which is that folder or a checkpoint in it."""
    given = Path(path)
    return given.parent if given.suffix == ".pt" else given


def register_resolvers() -> None:
    """Make the resolvers that the configs use known; calling again changes nothing.

    A run folder is named by time, choices and four random digits, so that two runs started in the
    same second do not collide; ``resume`` goes on in its own folder without touching what Hydra
    wrote there. Folders of sweeps are named by what is asked for (``ltr.experiment.sweep_names``).
    """
    OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True)
    OmegaConf.register_new_resolver(
        "hydra_subdir",
        lambda resume: ".hydra" if resume is None else ".hydra/resumed",
        replace=True,
    )
    OmegaConf.register_new_resolver("sweep_dir", sweep_dir, replace=True)
    OmegaConf.register_new_resolver("job_dir", job_dir, replace=True)
    OmegaConf.register_new_resolver("keys_of", _keys_of, replace=True)
    OmegaConf.register_new_resolver("choices", _choices, replace=True)
    OmegaConf.register_new_resolver("preset", _preset, replace=True)


def _preset(key: str, *, _root_: DictConfig) -> Any:
    """The value of ``key`` in the convention that ``metrics_as`` names (its node has the name)."""
    chosen = _root_.get("metrics_as") or {}
    if len(chosen) != 1:
        raise ConfigError(
            f"metrics_as=[{','.join(chosen)}]: training takes one convention; "
            "scripts/evaluate.py compares several"
        )
    (convention,) = chosen.values()
    return convention[key]


_PATHS = (
    "resume", "checkpoint", "input", "output", "archive", "scores", "data", "write", "only",
    "data_dir", "cache_dir", "output_dir",
)  # fmt: skip
_PLAIN = re.compile(r"[\w./%+@*?|$-]*", re.ASCII)  # what Hydra reads as it is


def with_quotes(arg: str) -> str:
    """``KEY=PATH`` so that Hydra takes the path as it is, whatever signs are in it.

    >>> with_quotes("resume=outputs/a,b"), with_quotes("resume=outputs/a"), with_quotes("seed=1,2")
    ("resume='outputs/a,b'", 'resume=outputs/a', 'seed=1,2')
    """
    key, _, value = arg.partition("=")
    if key not in _PATHS or _PLAIN.fullmatch(value) or value[0] in "'\"[":
        return arg
    return f"{key}={quoted(value)}"


def quoted(value: str) -> str:
    """``value`` as Hydra's grammar quotes it: backslashes count only before a quote.

    >>> print(quoted("/home/o'neil/a#b"))
    '/home/o\\'neil/a#b'
    """
    inside = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{inside}'"


def _keys_of(config_name: str) -> str:
    """The keys of a root config as its file has them, comments included, for ``--help``."""
    text = (CONFIGS / f"{config_name}.yaml").read_text()
    keys = text.split("\n\n", 1)[1].split("\nhydra:\n")[0].split("\nsuggested:")[0].rstrip() + "\n"
    return keys.replace("$", "$$")  # Hydra fills the help in as a template


def explain(error: BaseException, config_name: str) -> str:
    """One line that says what is wrong and what to do, for an error of Hydra or of this project."""
    if isinstance(error, MissingConfigException):
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        options = sorted(error.options or (path.stem for path in (CONFIGS / group).glob("*.yaml")))
        if group and options:
            return (
                f"{group}={choice}: no such choice; {group} is one of {', '.join(options)}"
                + hint(choice, options)
            )
    mistake = user_error(error)
    if mistake is not None:
        return str(mistake)
    text = " ".join(str(error).split())
    cause = error.__cause__
    if text.startswith("Could not override '"):
        key = text.split("'")[1]
        return _explain_key(key, config_name)
    if cause is not None:
        text = f"{text} {' '.join(str(cause).split())}"
    return text


def user_error(error: BaseException) -> LTRError | None:
    """The error of this project behind one of Hydra or OmegaConf, if there is one."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, LTRError):
        below = below.__cause__ or below.__context__
    return below


def _explain_key(key: str, config_name: str) -> str:
    """``key`` is not in the config: name the keys that are, composed with the same choices."""
    parent, _, last = key.rpartition(".")
    names: list[str] = []
    try:
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = hydra.compose(config_name, overrides=_group_choices())
        node = OmegaConf.select(cfg, parent) if parent else cfg
        if node is None and parent in _groups():
            return f"{key}: no {parent} is chosen; add {parent}=CHOICE"
        names = [str(name) for name in node] if isinstance(node, DictConfig) else []
    except (HydraException, OmegaConfBaseException):
        pass  # the choices themselves are wrong; say what is known
    names = [name for name in names if not name.startswith("_")]
    place = f"{parent} has" if parent else "the keys are"
    known = f"; {place} {', '.join(sorted(names))}" if names else ""
    return f"{key}: no such key{known}" + hint(last, names)


def _group_choices() -> list[str]:
    return [arg for arg in sys.argv[1:] if arg.split("=")[0] in _groups() and "," not in arg]


def _groups() -> list[str]:
    """The groups that a run is composed from; ``table`` and ``search`` are data of scripts."""
    folders = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())
    return [name for name in folders if name not in ("hydra", "table", "search")]


def _choices() -> str:
    """A line per group with its choices, for ``--help``."""
    lines = (
        f"{group}: {', '.join(sorted(path.stem for path in (CONFIGS / group).glob('*.yaml')))}\n"
        for group in _groups()
    )
    return "".join(lines)


def hint(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
