"""What tuning found, kept on disk for each GPU, and looked up when a plan is made.

One JSON document a line in ``tuned/<gpu>.jsonl`` below ``WARPTILE_CACHE_DIR`` or the platform's data folder; lines are
appended with one write each, so a search can be stopped at any moment and several can run. A line that cannot be read
is skipped. Entries are valid for one GPU model, one compiler and one content of the rung's source files.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from warptile.errors import UnsupportedError
from warptile.headers import KERNELS, reachable
from warptile.problem import Problem
from warptile.rungs.rung import Config, Rung

SCHEMA = "warptile.tuned/1"
MODES = ("off", "cached", "on")
NEAR = 1.0
"""How far a tuned problem may be from the one asked for, as the sum of |log2| of the ratios of M, N and K."""

FILLS_A_GPU = 2048 * 2048
"""Elements of D from which every GPU has many tiles to each multiprocessor."""

GROWTH = 1 / 8
"""Weight of an extent that is larger than the tuned one, once the tuned problem filled the GPU: more of the same tiles
changes little in which tile is the best."""


class ProblemClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a problem a tuned configuration depends on."""

    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    out: str
    b_major: str
    a_alignment: int
    b_alignment: int
    d_alignment: int
    with_c: bool
    a_major: str = "row"
    batch: int = 1

    @staticmethod
    def of(problem: Problem) -> ProblemClass:
        """The class of a problem."""
        return ProblemClass(
            problem.m, problem.n, problem.k, problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name,
            problem.b.major, problem.a.alignment_bytes, problem.b.alignment_bytes, problem.d.alignment_bytes,
            problem.c is not None, problem.a.major, problem.batch,
        )  # fmt: skip

    def distance(self, other: ProblemClass) -> float:
        """How far ``other``, which is asked for, is from this tuned problem: 0 for the same one, infinite when types,
        order or alignment differ, else as `NEAR` and `GROWTH` say."""
        mine, its = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        if mine[3:10] != its[3:10] or self.a_major != other.a_major or min(*mine[:3], *its[:3]) < 1:
            return math.inf
        growth = GROWTH if self.batch * self.m * self.n >= FILLS_A_GPU else 1.0
        sizes = zip((*mine[:3], self.batch), (*its[:3], other.batch), strict=True)
        steps = [math.log2(b / a) for a, b in sizes]
        return sum(growth * step if step > 0 else -step for step in steps)


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a search is of: entries of the same search belong together."""

    gpu: str
    compiler: str
    rung: str
    source: str
    problem: ProblemClass


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One measured configuration, or (``winner``) the outcome of a search.

    ``stage`` numbers the search's stages from 0; ``time_ms`` is None when it failed, and ``failed`` says why.
    """

    schema: str = SCHEMA
    search: Search
    config: dict[str, int]
    stage: int
    time_ms: float | None
    rounds_ms: tuple[float, ...] = ()
    failed: str | None = None
    winner: bool = False
    date: str = ""


def source_of(rung: Rung) -> str:
    """A hash of the rung's kernel file and of every file of ours that it includes."""
    return _hash_of(rung.file)


@lru_cache(maxsize=64)
def _hash_of(file: str) -> str:
    own = reachable(f'#include "{file}"\n', KERNELS).own
    digest = hashlib.sha256()
    for name in sorted(own):
        digest.update(f"{name}\0{len(own[name])}\0".encode() + own[name])
    return digest.hexdigest()[:16]


def folder() -> Path:
    """Where tuned results are kept; read from the environment at each call."""
    chosen = os.environ.get("WARPTILE_CACHE_DIR")
    if chosen:
        return Path(chosen) / "tuned"
    import platformdirs

    return Path(platformdirs.user_data_dir("warptile")) / "tuned"


def mode() -> str:
    """``WARPTILE_AUTOTUNE``: ``off``, ``cached`` (the default: use what was tuned before) or ``on``.

    Raises:
        UnsupportedError: it is something else.
    """
    value = os.environ.get("WARPTILE_AUTOTUNE") or "cached"
    if value not in MODES:
        raise UnsupportedError(f"WARPTILE_AUTOTUNE: got {value!r}; it takes off, cached or on, such as cached")
    return value


class Table:
    """The tuned results of one GPU model."""

    def __init__(self, gpu: str, where: Path | None = None) -> None:
        self.gpu = gpu
        name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") or "unknown"
        self.path = (where or folder()) / f"{name}.jsonl"

    def entries(self) -> Iterator[Entry]:
        """Every entry that can be read, oldest first."""
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError:
                continue
            if entry.schema == SCHEMA:
                yield entry

    def append(self, entry: Entry) -> None:
        """Add an entry with one write, after ending a line that a killed process left unfinished."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if unfinished else b"") + msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(descriptor)

    def of(self, search: Search) -> list[Entry]:
        """Entries of one search, oldest first."""
        return [entry for entry in self.entries() if entry.search == search]

    def winner(self, search: Search) -> Entry | None:
        """The newest outcome of exactly this search, or None."""
        return next((entry for entry in reversed(self.of(search)) if entry.winner), None)

    def nearest(self, rung: Rung, problem: Problem, compiler: str | None = None) -> Entry | None:
        """The outcome for this problem, else for the nearest one within `NEAR`, else None."""
        wanted, source = ProblemClass.of(problem), source_of(rung)
        best: tuple[float, Entry] | None = None
        for entry in self.entries():
            search = entry.search
            if not entry.winner or search.rung != rung.name or search.source != source:
                continue
            if compiler is not None and search.compiler != compiler:
                continue
            distance = search.problem.distance(wanted)
            if distance <= NEAR and (best is None or distance <= best[0]):
                best = distance, entry
        return best[1] if best else None


def config_for(rung: Rung, problem: Problem, gpu: str, where: Path | None = None) -> Config | None:
    """The configuration that tuning found for ``problem`` on a GPU of model ``gpu``, or None.

    None also when ``WARPTILE_AUTOTUNE`` is ``off``, and when the configuration is illegal for this very problem.
    """
    if mode() == "off":
        return None
    entry = Table(gpu, where).nearest(rung, problem)
    if entry is None or rung.illegal(problem, entry.config) is not None:
        return None
    return entry.config
