"""Where tries take place: lists, folders of their own, and runs that nothing disturbed."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from filelock import FileLock

from fire.children import child, program
from fire.moments import AT_WRITE, Moment
from fire.works import NETWORK_RUN, Work


@dataclass(frozen=True)
class Reference:
    """A work that nothing disturbed.

    Attributes:
        folder: where it was done; nothing in it is ever changed.
        seconds, writes: that it took.
        out: what it printed.
    """

    folder: Path
    seconds: float
    writes: int
    out: str


class Stage:
    """A scratch folder with lists, references and one folder for each try under way."""

    def __init__(self, root: Path) -> None:
        """Write the lists, where they are not there yet."""
        self.root = root
        self.data = root / "data"
        with FileLock(root / ".lock"):
            if not self.data.is_dir():
                write_lists(self.data / "mine", {"train": 24, "vali": 8, "test": 8}, width=5)
                write_lists(self.data / "more", {"train": 300, "vali": 60, "test": 60}, width=20)

    def reference(self, work: Work) -> Reference:
        """``work`` done undisturbed, once for all parts."""
        folder, note = self.root / "undisturbed" / work.name, self.root / f"{work.name}.json"
        with FileLock(self.root / f".{work.name}.lock"):
            if not note.is_file():
                self._begin(folder)
                ended = child(program(*work.begin), folder)
                if ended.status != 0:
                    raise RuntimeError(f"{work.name} fails undisturbed: {ended.out}{ended.err}")
                done = Reference(folder, ended.seconds, ended.writes, ended.out)
                note.write_text(json.dumps(asdict(done), default=str))
        kept = json.loads(note.read_text())
        return Reference(**kept | {"folder": folder})

    def cut_off(self) -> Path:
        """The folder of a network's training that was killed in its middle."""
        folder = self.root / "cut-off"
        with FileLock(self.root / ".cut-off.lock"):
            if not folder.is_dir():
                at = self.reference(NETWORK_RUN).writes * 2 // 3
                with self.empty("cut-off") as place:
                    moment = Moment(signal.SIGKILL, AT_WRITE, at)
                    child(program(*NETWORK_RUN.begin), place, moment=moment)
                    place.rename(folder)
        return folder

    @contextmanager
    def empty(self, name: str) -> Iterator[Path]:
        """A folder for one try; it holds the lists, as a link, and goes afterwards."""
        folder = self.root / "tries" / name.replace(".", "-")  # x.pt would be a checkpoint
        self._begin(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def copy_of(self, name: str, source: Path) -> Iterator[Path]:
        """As ``empty``, with all that ``source`` holds."""
        with self.empty(name) as folder:
            refill(folder, source)
            yield folder

    def _begin(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "data").symlink_to(self.data)


def refill(folder: Path, source: Path) -> None:
    """Put what ``source`` holds into ``folder`` in place of what is there."""
    for place in list(folder.iterdir()):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    shutil.copytree(source, folder, symlinks=True, dirs_exist_ok=True)


def write_lists(folder: Path, queries: dict[str, int], width: int) -> None:
    """Write random lists whose first feature tells the label, the same ones always."""
    folder.mkdir(parents=True)
    rng = Random(20)
    for split, count in queries.items():
        lines = []
        for query in range(count):
            for _ in range(rng.randint(2, 11)):
                label = rng.randrange(3)
                values = [label + rng.gauss(0, 0.3), *(rng.gauss(0, 1) for _ in range(width - 1))]
                pairs = " ".join(f"{index}:{value:.6f}" for index, value in enumerate(values, 1))
                lines.append(f"{label} qid:{query} {pairs}\n")
        (folder / f"{split}.txt").write_text("".join(lines))
