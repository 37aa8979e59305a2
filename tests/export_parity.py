"""Print how every exported form of some runs compares with the model: a table, and the refusals.

    python tests/export_parity.py outputs/RUN outputs/OTHER ...

A cell is the largest difference of two scores over ``max(1, largest |score| of the list)``, for a
text by the interpreter of its format in ``export_engines.py``; what is printed changes no list's
order. For a search engine with several formats it is the largest of all.
The last column is the size of ``model.onnx``.
"""

import json
import sys
import tempfile
from pathlib import Path

from omegaconf import OmegaConf
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ltr.errors import LTRError
from ltr.experiment.engines import ENGINES, LUCENE
from ltr.export.command import export_kept
from ltr.export.manifest import results_of

from export_engines import parity_in_engine  # isort: skip

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "export.yaml"
FORMATS = ("linear", "xgboost+json", "ranklib")
TEXTS = ("solr", "ranklib", *LUCENE)


def main(runs: list[str]) -> None:
    """Export each run to every engine and every format of it."""
    rows, refusals = [], dict[str, str]()
    for run in runs:
        results = results_of(run)
        row, size = [Path(run).name], ""
        for engine in ENGINES:
            cells, refused = list[float](), list[str]()
            for kind in FORMATS if engine in LUCENE else (None,):
                try:
                    difference, count = compared(run, engine, kind)
                    cells.append(difference)
                    size = f"{count:,}" if count else size
                except LTRError as error:
                    if not str(error).startswith("format="):
                        refused.append(str(error))
            row.append(f"{max(cells):.1e}" if cells else "refused")
            if refused and not cells:
                refusals[f"{Path(run).name}, to={engine}"] = refused[0]
        rows.append([*row, size])
        print(row, results.get("choices", {}).get("model"), file=sys.stderr, flush=True)
    print(
        tabulate(rows, ["run", *ENGINES, "bytes"], tablefmt="github", disable_numparse=True), "\n"
    )
    for engine in ENGINES:
        told = {text: name for name, text in refusals.items() if name.endswith(f"to={engine}")}
        for text, name in told.items():
            print(f"- {name.split(',')[0]}: `{text}`")


def compared(run: str, engine: str, kind: str | None) -> tuple[float, int]:
    """The largest difference, in units of its list, and the size of an ONNX file, else 0."""
    with tempfile.TemporaryDirectory() as folder:
        cfg = OmegaConf.load(CONFIG)
        output = Path(folder) / "exported"
        given = {"checkpoint": run, "to": engine, "output": str(output), "format": kind}
        for key, value in given.items():
            OmegaConf.update(cfg, key, value)
        export_kept(cfg)
        found = json.loads((output / "parity.json").read_text())
        if engine in TEXTS:
            found = parity_in_engine(cfg)
        sizes = [one["largest_difference_of_unit"] for one in found.get("sizes", ())]
        return max([found["largest_difference_of_unit"], *sizes]), found.get("bytes", 0)


if __name__ == "__main__":
    main(sys.argv[1:])
