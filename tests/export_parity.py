"""Print how exported forms of some runs compare with the model: a table, and the refusals.

    python tests/export_parity.py outputs/RUN outputs/OTHER ...
    python tests/export_parity.py ranklib=RANKLIB outputs/RUN ... [split=test]

A cell is the largest difference of two scores over ``max(1, largest |score| of the list)``, for a
text by the interpreter of its format in ``export_engines.py``. With ``ranklib=``, RankLib's jar or
a folder of its compiled classes (2.10 and later, run by Java 11 and later), its own classes score.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ltr.console.compose import typed
from ltr.errors import LTRError
from ltr.experiment.engines import ENGINES
from ltr.inference.export.command import export_model

from export_engines import parity_in_engine  # isort: skip

MAIN = """
import ciir.umass.edu.learning.*;
import java.nio.file.*;

public class Score {
    public static void main(String[] args) throws Exception {
        Ranker ranker = new RankerFactory().loadRankerFromFile(args[0]);
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[1])))
            out.append(ranker.eval(new DenseDataPoint(line))).append('\\n');
        Files.writeString(Path.of(args[2]), out.toString());
    }
}
"""


def ranklib_scores(ranklib: Path, text: str, features: np.ndarray) -> np.ndarray:
    """The scores, ``[items]`` float64, that RankLib gives to ``features`` by the model ``text``."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("Score.java", "model.txt", "items", "scores")
        main, model, items, out = (Path(folder) / name for name in names)
        rows = (" ".join(f"{i}:{x!s}" for i, x in enumerate(row, 1)) for row in features)
        main.write_text(MAIN), model.write_text(text)
        items.write_text("".join(f"0 qid:1 {row}\n" for row in rows))
        command = [str(shutil.which("java")), "-XX:TieredStopAtLevel=1", "-cp", str(ranklib)]
        subprocess.run([*command, *map(str, (main, model, items, out))], check=True)
        return np.array(out.read_text().split(), float)


def differences(arguments: list[str], engine: str, jar: str | None) -> dict[str, Any]:
    """The parity file of an export, or of its text as RankLib or an interpreter reads it."""
    score = jar and (lambda text, features: ranklib_scores(Path(jar), text, features))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "exported"
        cfg = typed("export", [*arguments, f"to={engine}", f"output={output}"])
        export_model(cfg)
        if engine not in ("onnx", "vespa", "native"):
            return parity_in_engine(cfg, score or None)
        found: dict[str, Any] = json.loads((output / "parity.json").read_text())
        return found


def main(arguments: list[str]) -> None:
    """Export each run to every engine."""
    options = [one for one in arguments if "=" in one]
    jar = next((one.partition("=")[2] for one in options if one.startswith("ranklib=")), None)
    options = [one for one in options if not one.startswith("ranklib=")]
    rows, refusals, engines = [], dict[str, str](), ("ranklib",) if jar else ENGINES
    for run in (one for one in arguments if "=" not in one):
        row = [Path(run).name]
        for engine in engines:
            try:
                found = differences([*options, f"checkpoint={run}"], engine, jar)
            except LTRError as error:
                refusals.setdefault(str(error), Path(run).name)
                row.append("refused")
                continue
            row.append(f"{found['largest_difference_of_unit']:.1e}")
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    print(tabulate(rows, ["run", *engines], tablefmt="github", disable_numparse=True))
    for text, run in refusals.items():
        print(f"- {run}: `{text}`")


if __name__ == "__main__":
    main(sys.argv[1:])
