"""Import, once, what the commands of the project need: the server of forks preloads this module."""

import atexit
import gc
import os
import warnings
from contextlib import suppress

os.environ |= {"TQDM_DISABLE": "1", "MPLBACKEND": "agg"}

import sklearn.preprocessing  # noqa: F401
import torch
import tqdm
from numba.core.registry import cpu_target

from ltr.cli.compose import composed
from ltr.cli.keys import resolved
from ltr.experiment.identity import identity_without_data


def end_at_once(server: int) -> None:
    """End the server, not its children, without the ends of libraries, which print."""
    if os.getpid() == server:
        os._exit(0)


atexit.register(end_at_once, os.getpid())
tqdm.tqdm.monitor_interval = 0  # no thread of its own: forks must find one thread
MODULES = (
    "lightgbm", "xgboost", "catboost", "matplotlib.figure", "matplotlib.backends.backend_agg",
    "jinja2", "pyarrow.pandas_compat", "tensorboard.compat.proto.event_pb2",
    "tensorboard.summary.writer.record_writer", "ltr.kernels.neuralndcg", "ltr.kernels.pairs",
    "ltr.kernels.letor", "ltr.experiment.commands", "ltr.experiment.job", "ltr.experiment.run",
    "ltr.experiment.sweep", "ltr.inference.evaluate", "ltr.inference.predict",
    "ltr.lab.auto.command", "ltr.lab.search.command", "ltr.lab.tables.table", "ltr.pages.report",
)  # fmt: skip
for module in MODULES:
    with suppress(ImportError):
        __import__(module)
with suppress(ImportError):
    import optuna

    optuna.storages.RDBStorage("sqlite://")  # imports as much as optuna itself
for context in (cpu_target.typing_context, cpu_target.target_context):
    context.refresh()  # half a second, for the first kernel of every child
torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])  # imports a second's worth
for model in ("mlp", "adarank"):
    identity_without_data(resolved(composed("train", f"model={model}")), {})  # a second, every run
# Python warns where a library has threads, none of which a child needs
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
gc.collect()
gc.freeze()  # a collection in a child would copy every page
