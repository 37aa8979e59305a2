"""Read the table that ``ltr predict`` scores."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Columns
from ltr.data.roles import ending
from ltr.errors import ConfigError, DataError
from ltr.experiment.scorer import Scorer

if TYPE_CHECKING:
    from ltr.data.rows import TableLists

_OF_RUN = ("query", "id", "header", "names")  # what a run on tables says for its input too
_RESERVED = ("row", "score", "rank")
# Messages name keys of a data set: those that are the command's too; the others are for training.
_SHARED = re.compile(
    r"(?<!name it in )(?<! or )\bdataset\.(?=(?:query|id|features|header|names)\b)"
)


def is_table(path: Path) -> bool:
    """Whether ``path`` is a table by its name, or a folder of shards."""
    return path.is_dir() or ending(path) is not None


def read_table(cfg: DictConfig, kept: Scorer) -> "TableLists":
    """The lists of the table ``cfg.input``, with the features that ``kept`` was trained on.

    Features are found by name. A model whose features have no names takes ``cfg.features``, in the
    order in which it was trained. The roles that ``cfg`` does not name are those of the run.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    from ltr.data.roles import Roles
    from ltr.data.rows import lists_of
    from ltr.data.table_sources import Form, Source

    node: Any = kept.config["dataset"]
    of_run = node if str(node.get("_target_", "")).endswith("TableFiles") else {}
    own: Any = OmegaConf.to_object(cfg)
    given = {key: of_run.get(key) if own[key] is None else own[key] for key in _OF_RUN}
    if given["query"] is None:
        raise ConfigError(f"give query=COLUMN, the column of the query ids in {cfg.input}")
    columns = kept.columns
    if columns is None:
        names = own["features"] or []
        if len(names) != kept.transform.width:
            raise ConfigError(
                f"features={names}: the features of this model have no names; give its "
                f"{kept.transform.width} columns of {cfg.input}, in the order of its training"
            )
        columns = Columns(tuple(map(str, names)))
    elif own["features"] is not None:
        raise ConfigError("features: this model finds its features by name; leave features=null")
    try:
        roles = Roles.of({**given, "features": columns.names})
        reserved = [*_RESERVED, *(["qid"] if roles.query != "qid" else [])]
        if taken := [name for name in roles.id if name in reserved]:
            raise ConfigError(f"id: a column {taken[0]!r} would stand twice in the output; drop it")
        names = given["names"]
        form = Form(given["header"] is not False, None if names is None else tuple(map(str, names)))
        source = Source(Path(cfg.input), form)
        return lists_of(source, roles, columns=columns, labelled=False)
    except (ConfigError, DataError) as error:
        raise type(error)(_SHARED.sub("", str(error))) from None
