"""Score lists with RankLib's own classes, and compare runs exported to=ranklib with them.

    python tests/ranklib_scores.py RANKLIB outputs/RUN ... [split=test]

RANKLIB is RankLib's jar, or a folder of its compiled classes (RankLib 2.10 and later); Java 11 or
later runs them. The table has the largest difference of a score from the model's own.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.errors import LTRError
from ltr.export.command import _lists, export_kept
from ltr.scorers.scorer import load_model
from ltr.training.evaluation import predict

from export_engines import restored  # isort: skip

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "export.yaml"
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


def java() -> str | None:
    """Java, if it is installed."""
    return shutil.which("java")


def scores_of(ranklib: Path, model: Path, features: np.ndarray) -> np.ndarray:
    """The scores, ``[items]`` float64, that RankLib gives to ``features`` by the text ``model``."""
    with tempfile.TemporaryDirectory() as folder:
        main, items, out = (Path(folder) / name for name in ("Score.java", "items", "scores"))
        main.write_text(MAIN)
        rows = (" ".join(f"{i}:{x!s}" for i, x in enumerate(row, 1)) for row in features)
        items.write_text("".join(f"0 qid:1 {row}\n" for row in rows))
        command = [str(java()), "-XX:TieredStopAtLevel=1", "-cp", str(ranklib), str(main)]
        subprocess.run([*command, str(model), str(items), str(out)], check=True)
        return np.array(out.read_text().split(), float)


def compared(ranklib: Path, run: str, split: str) -> tuple[Lists, float, float]:
    """The lists, the largest difference of RankLib's scores from the model's, the largest score."""
    cfg = OmegaConf.load(CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "exported"
        for key, value in (("checkpoint", run), ("to", "ranklib"), ("output", str(output))):
            OmegaConf.update(cfg, key, value)
        export_kept(cfg)
        cfg.split = split
        kept = load_model(run, torch.device("cpu"))
        lists, _ = _lists(cfg, kept)
        data = ItemTensors(lists, kept.transform, torch.device("cpu"))
        ours = predict(kept.model, data).numpy().astype(float)
        theirs = scores_of(ranklib, output / "model.txt", np.asarray(lists.features))
        notes = json.loads((output / "manifest.json").read_text())["notes"]
        theirs = restored(theirs, notes["score"]) if "score" in notes else theirs
    return lists, float(np.abs(theirs - ours).max()), float(np.abs(ours).max())


def main(ranklib: str, *runs: str) -> None:
    """Print the table."""
    split = next((run.removeprefix("split=") for run in runs if run.startswith("split=")), "test")
    rows = []
    for run in runs:
        if run.startswith("split="):
            continue
        try:
            lists, difference, most = compared(Path(ranklib), run, split)
        except LTRError as error:
            print(f"{run}: {error}", file=sys.stderr)
            continue
        rows.append([Path(run).name, lists.items, f"{difference:.1e}", f"{most:.3g}"])
    head = ["run", f"items of {split}", "largest difference", "largest score"]
    print(tabulate(rows, head, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
