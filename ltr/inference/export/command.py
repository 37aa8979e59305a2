"""Export a kept model: one folder with its files, or none."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder, writing
from ltr.console.values import required, text
from ltr.data.lists import SPLITS, Lists
from ltr.errors import ConfigError
from ltr.experiment.engines import ENGINES, LUCENE, check_engine, is_dense
from ltr.inference.export.boosters import native, trees_of
from ltr.inference.export.context import IDENTIFIER, ExportContext, Scores, json_text, parity
from ltr.inference.export.dense import Dense, dense_of
from ltr.inference.export.manifest import manifest, model_card, results_of, sha256
from ltr.inference.export.onnx import onnx, try_sizes, vespa
from ltr.inference.export.plugins import plugin
from ltr.inference.export.ranklib import ranklib
from ltr.inference.export.solr import solr
from ltr.inference.export.trees import Trees, before_transform
from ltr.models.rounds import BoostedTrees, RankBoost
from ltr.scorers.inputs import read_input, set_threads
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.checkpoint import selected_checkpoint

_WRITERS = {
    "onnx": onnx, "vespa": vespa, "native": native, "solr": solr, "ranklib": ranklib,
    **dict.fromkeys(LUCENE, plugin),
}  # fmt: skip


def export_model(cfg: DictConfig) -> str:
    """Export the model ``cfg.checkpoint`` to ``cfg.to`` as the folder ``cfg.output``.

    The folder is written beside its place, checked there, and then moved: a failed parity check
    writes nothing.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: one line that says what to mend.
    """
    required(cfg, "checkpoint", "to", "output")
    output, engine = Path(cfg.output), str(cfg.to)
    for key, known in (("to", ENGINES), ("split", SPLITS)):
        if cfg[key] not in known:
            raise ConfigError(f"{key}={cfg[key]}: choose one of {', '.join(known)}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"output={output} is there already: give the name of a new folder")
    if cfg.format is not None and engine not in LUCENE:
        raise ConfigError(f"format={cfg.format}: it is for to={' or '.join(LUCENE)}: leave it out")
    set_threads(cfg)
    scorer = load_model(cfg.checkpoint, trust=cfg.trust)
    if cfg.input is not None:
        lists, split = read_input(cfg, scorer).lists, str(cfg.input)
    else:
        own, split = scorer.own_config(cfg, ["dataset"]), str(cfg.split)
        _, lists = scorer.read(own.dataset, split)
    # scores are those of float32, whatever precision its run had
    scorer = replace(scorer, config=scorer.config | {"precision": "float32"})
    results = results_of(str(cfg.checkpoint))
    of_train = results.get("data", {}).get("train", {})
    missing = lists.missing + int(of_train.get("missing_values", 0))
    check_engine(engine, scorer.model, scorer.transform, missing, key="to")

    def score(given: Lists) -> Scores:
        return scorer.scores(given, items=cfg.evaluation_items).numpy()

    context = ExportContext(
        name=_name(cfg), lists=lists, scores=score(lists), scorer=scorer,
        form=_form(engine, scorer), absent_is_zero=not missing, format=text(cfg, "format"),
    )  # fmt: skip
    exported = _WRITERS[engine](context)

    make_folder("output", output.parent)
    with writing(output):
        beside = tempfile.TemporaryDirectory(prefix=f".part-{output.name[:40]}-", dir=output.parent)
    with beside:
        (part := Path(beside.name, output.name)).mkdir()
        for name, content in exported.files.items():
            atomic_write(part / name, content)
        compared = {
            "to": engine,
            "ran_by": exported.ran_by,
            **parity(lists, context.scores, exported.run(part, lists), f"to={engine}"),
        }
        if engine == "onnx":
            compared |= try_sizes(part, lists, score)
        compared["split"] = split
        file, selected = selected_checkpoint(Path(cfg.checkpoint))
        digests = {"checkpoint": sha256(file.read_bytes()), "data": dict(selected["data"])}
        described = manifest(engine, context, exported, results, digests)
        atomic_write(part / "manifest.json", json_text(described, 2))
        atomic_write(part / "parity.json", json_text(compared, 2))
        atomic_write(part / "MODEL_CARD.md", model_card(described, compared, results))
        part.rename(output)
    sizes = ", ".join(f"{n} {(output / n).stat().st_size:,} bytes" for n in exported.files)
    return (
        f"{sizes}\n{compared['lists']:,} lists of {split}, {compared['items']:,} items, run by "
        f"{exported.ran_by}: largest difference {compared['largest_difference']:.1e}, no list "
        f"changes its order\nkept in {output}"
    )


def _name(cfg: DictConfig) -> str:
    """The name of the model in the engine."""
    name = str(cfg.name or Path(cfg.output).name)
    if not IDENTIFIER.fullmatch(name):
        if cfg.name is not None:
            raise ConfigError(f"name={name}: write letters, digits and _, a letter first")
        name = re.sub(r"\W", "_", f"ltr_{name}", flags=re.ASCII)
    return name


def _form(engine: str, scorer: Scorer) -> Trees | Dense | None:
    model = scorer.model
    if engine != "native" and isinstance(model, BoostedTrees | RankBoost):
        return before_transform(trees_of(model), scorer.transform)
    if engine in ("solr", "ranklib", *LUCENE):
        assert is_dense(model)
        return dense_of(model, scorer.transform)
    return None
