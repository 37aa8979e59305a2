"""NeuralNDCG's GPU kernel, counted from its machine code, and the time that it implies.

No GPU is needed: Triton compiles ahead of time. ``make bench ARGS=what=kernel`` prints the table of
all variants.
"""

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.errors import ConfigError
from ltr.losses.neuralndcg_gpu import launch_options

CLOCK = 1.755e9  # Hz, of an H100 under load
SCHEDULERS = 4  # of a multiprocessor; each issues one instruction of a warp per cycle
HEAD = (
    "architecture", "size", "dtype", "transposed", "registers", "spilled bytes", "shared bytes",
    "instructions a tile", "shuffles", "barriers", "ms a list, at least", "seconds to compile",
)  # fmt: skip
_TYPES = {torch.float32: "fp32", torch.float64: "fp64"}
_INDICES = ("order_ptr", "sizes_ptr")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


class Loop(NamedTuple):
    """A loop of the machine code: its place, and how often each instruction stands in it."""

    start: int
    end: int
    found: Counter[str]

    def holds(self, other: "Loop") -> bool:
        """Whether the other loop lies in this one."""
        return self != other and self.start <= other.start and other.end <= self.end


class Code(NamedTuple):
    """A compiled variant. Loops stand in their order; ``stack`` and ``shared`` are bytes."""

    registers: int
    stack: int
    shared: int
    loops: list[Loop]
    size: int
    cut: dict[str, int]
    seconds: float

    @property
    def sweeps(self) -> list[Loop]:
        """The loops over tiles in the iterations, scaling first, then its gradient."""
        inner = [a for a in self.loops if not any(a.holds(b) for b in self.loops)]
        big = [a for a in inner if a.found.total() > 60]
        return [a for a in big if sum(b.holds(a) for b in self.loops) == 1][:2]

    def milliseconds(self, max_iter: int = 30) -> float:
        """Issue slots of a list of ``size`` items over the clock, at least; float32 alone.

        Sum over loops of instructions x turns, x warps / schedulers / clock: tiles of ``ROWS`` rows
        in each pass, ``max_iter`` passes each way, and at the end ``SLOPE_ROWS`` with ``max_iter``
        outer products each.
        """
        rows, slope_rows, warps = (self.cut[x] for x in ("ROWS", "SLOPE_ROWS", "num_warps"))
        turns = -(-self.size // rows)
        slots = 0.0
        for loop in self.loops:
            if any(other.holds(loop) for other in self.loops):
                continue
            inside = sum(a.found.total() for a in self.loops if loop.holds(a))
            own = loop.found.total() - inside
            if not inside:
                slots += turns * own
            elif any(a.found["MUFU.EX2"] for a in self.loops if loop.holds(a)):
                slots += max_iter * (own + turns * inside)
            else:
                slots += -(-self.size // slope_rows) * (own + max_iter * inside)
        return 1e3 * slots * warps / SCHEDULERS / CLOCK


def code_of(
    size: int, dtype: torch.dtype = torch.float32, *, transposed: bool = False, capability: int = 90
) -> Code:
    """Compile the kernel for lists of ``size`` places and a GPU of a compute capability.

    Raises:
        ConfigError: Triton is not installed.
    """
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise ConfigError("Triton is not installed: pip install triton") from error
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    options = launch_options(size, dtype, transposed=transposed)
    names = neural_ndcg_list.arg_names
    constants = {name: options[name] for name in names if name in options}
    types = {"size": "i32", "max_iter": "i32", "tol": "fp32", "scores_ptr": "*fp64"}
    types |= dict.fromkeys(_INDICES, "*i64") | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, f"*{_TYPES[dtype]}") for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n.endswith("_ptr")}
    before = sum(os.times()[:4])
    compiled = triton.compile(
        ASTSource(neural_ndcg_list, signature, constants, aligned),  # torch's tensors are
        target=GPUTarget("cuda", capability, 32),
        options={name: value for name, value in options.items() if name not in constants},
    )
    seconds = sum(os.times()[:4]) - before
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        listing = subprocess.run(
            [tools / "cuobjdump", "-sass", "-res-usage", file.name],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    used = {name: int(x) for name, x in re.findall(r"(REG|STACK|LOCAL):(\d+)", listing)}
    return Code(
        used["REG"], used["STACK"] + used["LOCAL"], compiled.metadata.shared, _loops(listing),
        size, options, seconds,
    )  # fmt: skip


def _loops(listing: str) -> list[Loop]:
    """What lies between a branch and its earlier target, up to the exit: rare cases lie behind."""
    lines = [(int(at, 16), *rest) for at, *rest in _LINE.findall(listing)]
    exit_at = min(at for at, condition, name, _ in lines if name == "EXIT" and not condition)
    found = []
    for end, _, name, operands in lines:
        target = re.search(r"0x([0-9a-f]+)", operands) if name.startswith("BRA") else None
        if target and (start := int(target[1], 16)) < end < exit_at:
            names = [name for at, _, name, _ in lines if start <= at <= end]
            plain = [name if name == "MUFU.EX2" else name.partition(".")[0] for name in names]
            found.append(Loop(start, end, Counter(plain)))
    return sorted(found)


def table(
    sizes: Sequence[int] = (64, 240, 1024, 2048), capabilities: Sequence[int] = (80, 90)
) -> str:
    """The counts of all variants; those of a tile are of the scaling's and its gradient's pass."""
    rows = []
    for capability, size, dtype, transposed in product(capabilities, sizes, _TYPES, (False, True)):
        code = code_of(size, dtype, transposed=transposed, capability=capability)
        each = [
            ", ".join(
                str(loop.found.total() if name is None else loop.found[name])
                for loop in code.sweeps
            )
            for name in (None, "SHFL", "BAR")
        ]
        least = f"{code.milliseconds():.3g}" if dtype == torch.float32 else ""
        rows.append((
            f"sm_{capability}", size, _TYPES[dtype], transposed, code.registers, code.stack,
            code.shared, *each, least, f"{code.seconds:.1f}",
        ))  # fmt: skip
    return tabulate(rows, HEAD, tablefmt="github", disable_numparse=True)


def counted_kernel(cfg: DictConfig) -> str:
    """The table of what ``make bench ARGS=what=kernel`` counts, for the terminal."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TRITON_CACHE_DIR"] = empty  # what is kept would take no time to compile
        return table((240,)) if cfg.quick else table()
