"""What an H200 answered to the probes: which rows each instruction got, and how the answers are kept.

Of tensor instructions that round by rules of their own, every word is kept. Where arithmetic alone gives the result
(integers, f64, conversions, rounded and packed arithmetic) a checksum of every few rows is enough. Of approximations
some words are kept too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from probes import Probe, Words
from scalar_probes import ScalarProbe
from tensor_probes import LANES, TensorProbe

DATA = Path(__file__).parents[1] / "data"
VECTORS = DATA / "instructions_h200.npz"
HEADER = DATA / "instructions_h200.json"

SEED = 20261120
TILES = 3
"""Of each kind of input of a tensor instruction; of each kind, the first is chained to a second multiplication."""

CHECKSUMS = 32
"""Of a scalar instruction: one for each part of its rows."""

APPROXIMATE_ROWS = 2048
"""Of an approximation of 32 or 64 bits: the words of its first rows are kept."""

Run = Callable[[Probe, Words], Words]
"""Runs a probe on rows of input: on the GPU, or `Probe.emulated`."""


def tensor_answers(tensor: TensorProbe, run: Run, *, tiles: int = TILES, seed: int = SEED) -> Words:
    """D of all tiles of all kinds, then of the chained ones."""
    rows = np.concatenate([tensor.tiles(kind, tiles, seed) for kind in tensor.kinds])
    found = run(tensor.probe, rows)
    if not tensor.chains:
        return found
    return np.concatenate([found, run(tensor.probe, chained_rows(tensor, rows, found, tiles))])


def chained_rows(tensor: TensorProbe, rows: Words, found: Words, tiles: int) -> Words:
    """The first tile of each kind with its D as C."""
    first = np.arange(len(rows)) // LANES % tiles == 0
    return tensor.chained(rows[first], found[first])


def scalar_answers(scalar: ScalarProbe, run: Run, *, seed: int = SEED) -> Words:
    """The results of all rows."""
    return run(scalar.probe, scalar.rows(seed))


@cache
def vectors() -> dict[str, np.ndarray]:
    """All that is stored, by instruction."""
    with np.load(VECTORS) as stored:
        found = {name: stored[name] for name in stored.files}
    names = json.loads(HEADER.read_text())["scalars"]
    return found | dict(zip(names, found.pop("scalars"), strict=True))


def kept_of_scalar(scalar: ScalarProbe, answers: Words) -> np.ndarray:
    """What is stored of a scalar instruction's answers."""
    return checksums(answers, len(answers) // CHECKSUMS) if scalar.by_checksum else answers[:APPROXIMATE_ROWS]


def checksums(words: Words, rows: int) -> np.ndarray:
    """CRC-32 of every ``rows`` rows."""
    groups = np.ascontiguousarray(words).reshape(-1, rows * words.shape[1])
    return np.array([zlib.crc32(group.astype("<u4").tobytes()) for group in groups], np.uint32)


def hexadecimal(sums: np.ndarray) -> str:
    """Checksums as text, eight digits each."""
    return "".join(f"{each:08x}" for each in sums.tolist())


def kept(tensor: TensorProbe, answers: Words) -> np.ndarray:
    """What is stored of a tensor instruction's answers."""
    return checksums(answers, LANES) if tensor.exact else answers


def kind_of(tensor: TensorProbe, tile: int, tiles: int = TILES) -> str:
    """The kind of input of a tile."""
    direct = len(tensor.kinds) * tiles
    if tile < direct:
        return tensor.kinds[tile // tiles]
    return f"{tensor.kinds[tile - direct]}, chained"
