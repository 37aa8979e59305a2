"""The command line: configs, arguments, and how a command ends."""

import sys
from pathlib import Path

# Hydra finds plugins in packages called hydra_plugins on the path.
sys.path.append(str(Path(__file__).resolve().parents[1] / "plugins"))
