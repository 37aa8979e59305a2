"""One bit flipped, or the file cut, at a random place."""

from pathlib import Path
from random import Random


def damage(path: Path, rng: Random) -> str:
    """Damage a file, three of four times by a bit, else by a cut; say how."""
    whole = path.read_bytes()
    if rng.random() < 0.75:
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        path.write_bytes(flipped)
        return f"bit {bit} of byte {place}"
    length = rng.randrange(len(whole))
    path.write_bytes(whole[:length])
    return f"cut to {length} of {len(whole)} bytes"
