"""Every command of the table has its config, its script and its function."""

from importlib import import_module

import pytest

from ltr.__main__ import COMMANDS
from ltr.console.configs import CONFIGS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_parts(name: str) -> None:
    module, _, function = COMMANDS[name][0].partition(":")
    assert callable(getattr(import_module(module), function))
    assert (CONFIGS / f"{name}.yaml").is_file()
    script = "train.py" if name == "train" else f"scripts/{name}.py"
    assert f'main("{name}")' in (CONFIGS.parent / script).read_text()
