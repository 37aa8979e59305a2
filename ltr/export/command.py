"""Export a kept model: one folder with its files, or none."""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from ltr.console.values import required, text
from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Lists
from ltr.errors import ConfigError, OutputError
from ltr.experiment.engines import ENGINES, LUCENE, check_engine, is_dense
from ltr.experiment.kept import KeptModel, load_kept
from ltr.export.boosters import trees_of
from ltr.export.dense import Dense, dense_of
from ltr.export.form import IDENTIFIER, ExportContext, Exported, Scores
from ltr.export.manifest import manifest, model_card, results_of
from ltr.export.native import native
from ltr.export.onnx import (
    BATCHES,
    LENGTHS,
    NAME,
    check_padding,
    made_lists,
    onnx_of_network,
    onnx_of_trees,
)
from ltr.export.parity import parity
from ltr.export.plugins import plugin
from ltr.export.ranklib import ranklib
from ltr.export.solr import solr
from ltr.export.trees import Trees, before_transform
from ltr.export.vespa import with_profile
from ltr.rounds import RankBoost, RoundModel
from ltr.scoring.own_lists import lists_for, own_config
from ltr.scoring.predict import read_input, set_threads
from ltr.training.checkpoint import selected_checkpoint
from ltr.training.evaluation import predict
from ltr.trees import BoostedTrees
from ltr.whole import make_folder, write_whole


def export_kept(cfg: DictConfig) -> str:
    """Export the model ``cfg.checkpoint`` to ``cfg.to`` as the folder ``cfg.output``.

    The folder is written beside its place, checked there, and then moved: a failed parity check
    writes nothing.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: one line that says what to mend.
    """
    _check(cfg)
    output, engine = Path(cfg.output), str(cfg.to)
    set_threads(cfg)
    kept = load_kept(cfg.checkpoint, torch.device("cpu"), cfg.trust)
    check_engine(engine, kept.model, kept.transform, key="to")
    lists, split = _lists(cfg, kept)
    results = results_of(str(cfg.checkpoint))
    of_train = {} if results is None else results["data"].get("train", {})
    missing = lists.missing + int(of_train.get("missing_values", 0))
    check_engine(engine, kept.model, kept.transform, missing, key="to")
    ours = _scores(kept, lists, cfg.evaluation_items)
    context = ExportContext(_name(cfg), _features(kept), lists, ours, absent_is_zero=not missing)
    exported = _exported(engine, kept, context, text(cfg, "format"))

    make_folder("output", output.parent)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".part-{output.name[:40]}-", dir=output.parent))
    except OSError as error:
        raise OutputError(f"output={output} cannot be written ({error.strerror})") from error
    try:
        for name, content in exported.files.items():
            write_whole(part / name, content)
        compared = _compared(cfg, kept, context, exported, part) | {"split": split}
        file, selected = selected_checkpoint(Path(cfg.checkpoint))
        described = manifest(
            kept, file, selected["data"], results, engine, context.features, exported
        )
        _write(part / "manifest.json", described)
        _write(part / "parity.json", compared)
        write_whole(part / "MODEL_CARD.md", model_card(described, compared, results))
        part.chmod(0o755)
        if output.exists():
            output.rmdir()
        part.rename(output)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    sizes = ", ".join(f"{n} {(output / n).stat().st_size:,} bytes" for n in exported.files)
    return (
        f"{sizes}\n{compared['lists']:,} lists of {split}, {compared['items']:,} items, run by "
        f"{exported.ran_by}: largest difference {compared['largest_difference']:.1e}, no list "
        f"changes its order\nkept in {output}"
    )


def _check(cfg: DictConfig) -> None:
    """Raise ``ConfigError`` for what is wrong before anything is read."""
    required(cfg, "checkpoint", "to", "output")
    output = Path(cfg.output)
    for key, known in (("to", ENGINES), ("split", SPLITS)):
        if cfg[key] not in known:
            raise ConfigError(f"{key}={cfg[key]}: choose one of {', '.join(known)}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"output={output} is there already: give the name of a new folder")
    if cfg.format is not None and cfg.to not in LUCENE:
        raise ConfigError(f"format={cfg.format}: it is for to={' or '.join(LUCENE)}: leave it out")


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _lists(cfg: DictConfig, kept: KeptModel) -> tuple[Lists, str]:
    """The lists of ``cfg.input``, or of ``cfg.split`` of the run's own data set, and their name."""
    if cfg.input is not None:
        return read_input(cfg, kept).lists, str(cfg.input)
    _, lists = lists_for(kept, own_config(cfg, kept, ["dataset"]).dataset, cfg.split)
    return lists, str(cfg.split)


def _scores(kept: KeptModel, lists: Lists, items: int) -> Scores:
    """The model's scores in float32, whatever precision its run had."""
    data = ItemTensors(lists, kept.transform, torch.device("cpu"))
    return predict(kept.model, data, items=items).numpy()


def _name(cfg: DictConfig) -> str:
    """The name of the model in the engine."""
    name = str(cfg.name or Path(cfg.output).name)
    if not IDENTIFIER.fullmatch(name):
        if cfg.name is not None:
            raise ConfigError(f"name={name}: write letters, digits and _, a letter first")
        name = re.sub(r"\W", "_", f"ltr_{name}", flags=re.ASCII)
    return name


def _features(kept: KeptModel) -> tuple[str, ...]:
    if kept.columns is not None:
        return kept.columns.names
    return tuple(f"f{number}" for number in range(1, kept.transform.width + 1))


def _exported(engine: str, kept: KeptModel, context: ExportContext, kind: str | None) -> Exported:
    """The files of the model for ``engine``."""
    model, transform = kept.model, kept.transform
    if engine == "native":
        assert isinstance(model, RoundModel)
        return native(model, transform)
    form: Trees | Dense | None = None
    if isinstance(model, BoostedTrees | RankBoost):
        form = before_transform(trees_of(model), transform)
    if engine in ("onnx", "vespa"):
        by_item = engine == "vespa"
        if isinstance(form, Trees):
            graph = onnx_of_trees(form, transform.width, by_item=by_item)
        else:
            graph = onnx_of_network(model, transform, by_item=by_item)
        return with_profile(graph, context.name, context.features) if by_item else graph
    if form is None:
        assert is_dense(model)
        form = dense_of(model, transform)
    if engine in LUCENE:
        files, notes = plugin(form, context, kind)
    else:
        files, notes = solr(form, context) if engine == "solr" else ranklib(form, context.scores)
    written = "trees" if isinstance(form, Trees) else "layers"
    return Exported(
        files,
        lambda _, lists: form.scores(lists.features),
        f"ltr on the {written} that the text was written from",
        {**notes, "format": "held by tests/test_export.py, not run in the engine"},
    )


def _compared(
    cfg: DictConfig, kept: KeptModel, context: ExportContext, exported: Exported, part: Path
) -> dict[str, Any]:
    """The parity of the files in ``part``, as the parity file has it.

    Raises:
        ConfigError: they do not score as the model does.
    """
    what, lists = f"to={cfg.to}", context.lists
    compared = {
        "to": str(cfg.to),
        "ran_by": exported.ran_by,
        **parity(lists, context.scores, exported.run(part, lists), what),
    }
    if cfg.to == "onnx":
        check_padding(part, kept.transform.width)
        compared["sizes"] = []
        for length, batch in product(LENGTHS, BATCHES):
            made = made_lists(lists, length, batch)
            ours = _scores(kept, made, cfg.evaluation_items)
            one = parity(made, ours, exported.run(part, made), what)
            compared["sizes"].append(
                {"length": length, "batch": batch}
                | {key: one[key] for key in ("largest_difference", "largest_difference_of_unit")}
            )
        compared["bytes"] = (part / NAME).stat().st_size
    return compared
