"""What tuning found, looked up when a plan is made: this user's own table first, then the one that ships.

A user's table is one JSON document a line in ``tuned/<gpu>.jsonl`` below ``WARPTILE_CACHE_DIR`` or the platform's data
folder; lines are appended with one write each, so a search can be stopped at any moment and several can run. A line
that cannot be read is skipped. Its entries count for one GPU model and one content of the rung's source files.

The table that ships (`warptile.shipped`) outlives edits of the kernel: its configurations are used for as long as they
are legal, whatever the kernel's source has become; what it says of speed is of the commit that it names. It was taken
on one GPU model and serves all others that run the rung.

A problem that was not tuned takes what was best for the nearest one that was (`distance`), made for its own extents
(`Rung.adapted`), where that is predicted to be little slower than the planner's own choice.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import msgspec

from warptile import shipped
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.headers import KERNELS, reachable
from warptile.plan import cost, default_config
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs import rung as rung_named
from warptile.rungs.rung import Config, Rung

SCHEMA = "warptile.tuned/1"
MODES = ("off", "cached", "on")
NEAR = 2.0
"""How far a tuned problem may be from the one asked for: `distance`."""

FILLS_A_GPU = 2048 * 2048
"""Elements of D from which every GPU has many tiles to each multiprocessor."""

GROWTH = 1 / 8
"""Weight of an extent that is larger than the tuned one, once the tuned problem filled the GPU: more of the same tiles
changes little in which tile is the best."""

DEPTH = 1 / 2
"""Weight of K: of the extents the one that changes least in which tile is the best."""

OTHER_MAJORS = 1.0
"""Distance of a problem whose A or B lies the other way: the same tiles, from other boxes of memory."""

FEW = (8, 16, 32, 64, 128)
"""Rows or columns of a small D: up to each of them is a class of its own, for which instructions are as wide."""

LIKE = {"float16": "bfloat16", "float8_e5m2": "float8_e4m3", "uint8": "int8"}
"""Types that cost what another costs."""

TRIED = 3
"""Neighbours that are looked at, the nearest first."""

WORSE = 1.1
"""What a neighbour's configuration may lose here: its predicted time over that of the planner's own choice may be so
many times what it was for the neighbour, where it was measured to be the better one whatever was predicted."""


DOUBT = 0.03
"""Of two neighbours the farther one has to lose less, by so much for each unit of distance."""


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

    def problem(self, *, sparse: bool = False) -> Problem:
        """The contiguous problem of this class, as badly aligned as it."""
        problem = Problem.dense(
            self.m, self.n, self.k, DTYPES[self.dtype], out=DTYPES[self.out], accumulator=DTYPES[self.accumulator],
            a_major=self.a_major, b_major=self.b_major, with_c=self.with_c, sparse=sparse, batch=self.batch,
        )  # fmt: skip
        return replace(
            problem,
            a=replace(problem.a, alignment_bytes=self.a_alignment),
            b=replace(problem.b, alignment_bytes=self.b_alignment),
            d=replace(problem.d, alignment_bytes=self.d_alignment),
        )

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """M, N, K and the matrices of a batch."""
        return self.m, self.n, self.k, self.batch

    @property
    def kind(self) -> tuple[object, ...]:
        """What neighbours have in common: types that cost the same, a C or none, what is aligned, few rows or columns
        and how few."""
        aligned = (each == MAX_ALIGNMENT_BYTES for each in (self.a_alignment, self.b_alignment, self.d_alignment))
        names = (LIKE.get(name, name) for name in (self.dtype, self.accumulator, self.out))
        return (*names, self.with_c, *aligned, _few(self.m), _few(self.n))

    def distance(self, other: ProblemClass) -> float:
        """How far ``other``, which is asked for, is from this tuned problem of the same kind: 0 for the same extents.

        The sum of |log2| of the ratios of extents, with `GROWTH`, `DEPTH` and `OTHER_MAJORS` as their weights; the rows
        and columns of a small D do not count.
        """
        if min(*self.extents, *other.extents) < 1:
            return math.inf
        growth = GROWTH if self.batch * self.m * self.n >= FILLS_A_GPU else 1.0

        def steps(mine: int, its: int) -> float:
            step = math.log2(its / mine)
            return growth * step if step > 0 else -step

        found = DEPTH * abs(math.log2(other.k / self.k)) + steps(self.batch, other.batch)
        found += sum(steps(mine, its) for mine, its in ((self.m, other.m), (self.n, other.n)) if not _few(mine))
        return found + OTHER_MAJORS * ((self.a_major, self.b_major) != (other.a_major, other.b_major))


def _few(extent: int) -> int:
    """The class of a small extent, or 0."""
    return next((most for most in FEW if extent <= most), 0)


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
    return _folder(os.environ.get("WARPTILE_CACHE_DIR") or None)


@lru_cache(maxsize=8)
def _folder(chosen: str | None) -> Path:
    if chosen is not None:
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

    def stamp(self) -> tuple[int, int] | None:
        """What changes when the file does: time and size; None where there is no file."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


# --- looking up ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A configuration from a table.

    Attributes:
        config: legal for the problem that was asked for.
        origin: where it comes from, for `Plan.explain`.
    """

    config: Config
    origin: str


@dataclass(frozen=True, eq=False)
class Known:
    """The outcome of one search: for which problem, the configuration, and where it was found, in words."""

    problem: ProblemClass
    config: Config
    source: str


@dataclass
class Index:
    """Outcomes by problem, and by kind of problem."""

    exact: dict[ProblemClass, Known] = field(default_factory=dict)
    kinds: dict[tuple[object, ...], list[Known]] = field(default_factory=dict)

    @staticmethod
    def of(outcomes: Iterable[Known]) -> Index:
        """Those outcomes, of which later ones of one problem replace earlier ones."""
        index = Index({known.problem: known for known in outcomes})
        for known in index.exact.values():
            index.kinds.setdefault(known.problem.kind, []).append(known)
        return index


@lru_cache(maxsize=32)
def _users(path: Path, gpu: str, rung: str, stamp: tuple[int, int]) -> Index:
    """This user's outcomes for one rung, from a file as it was at ``stamp``."""
    source = source_of(rung_named(rung))
    table = Table(gpu, path.parent)
    return Index.of(
        Known(entry.search.problem, entry.config, f"on this {gpu}")
        for entry in table.entries()
        if entry.winner and entry.search.rung == rung and entry.search.source == source
    )


@lru_cache(maxsize=32)
def _shipped(rung: str) -> Index:
    """What ships for one rung."""
    table = shipped.table(rung)
    if table is None:
        return Index()
    return Index.of(
        Known(ProblemClass(*entry.problem), dict(zip(table.keys, entry.config, strict=True)), table.words(entry))
        for entry in table.entries
    )


def lookup(
    rung: Rung, problem: Problem, gpu: str, where: Path | None = None, max_sms: int | None = None
) -> Found | None:
    """The configuration that tuning found for ``problem``, or for the nearest that was tuned, on a GPU of model
    ``gpu``; None where nothing was, and where ``WARPTILE_AUTOTUNE`` is ``off``.

    Args:
        rung: whose configuration.
        problem: what is to be computed.
        gpu: model of the GPU that computes it.
        where: folder of the user's table, by default `folder`.
        max_sms: the most multiprocessors that it may take, or None for all. What was tuned on more of them counts as a
            neighbour's.
    """
    if mode() == "off":
        return None
    table = _table(gpu, where or folder())
    return _lookup(rung.name, problem, gpu, table.path, table.stamp(), max_sms)


@lru_cache(maxsize=64)
def _table(gpu: str, where: Path) -> Table:
    return Table(gpu, where)


@lru_cache(maxsize=4096)
def _lookup(
    name: str, problem: Problem, gpu: str, path: Path, stamp: tuple[int, int] | None, max_sms: int | None
) -> Found | None:
    rung, wanted = rung_named(name), ProblemClass.of(problem)
    indices = [_users(path, gpu, name, stamp)] if stamp is not None else []
    indices.append(_shipped(name))
    for index in indices:
        known = index.exact.get(wanted)
        config = _made_legal(rung, problem, known) if known is not None else None
        if known is not None and config is not None and _fits(rung, problem, config, max_sms):
            return Found(config, f"tuned for this problem {known.source}")
    near = [(known.problem.distance(wanted), known) for index in indices for known in index.kinds.get(wanted.kind, ())]
    near = sorted((each for each in near if each[0] <= NEAR), key=lambda each: each[0])[:TRIED]
    if not near:
        return None
    own, best = _predicted(rung, problem, default_config(rung, problem, max_sms)), None
    for distance, known in near:
        config = _made_legal(rung, problem, known, max_sms)
        if config is not None and _fits(rung, problem, config, max_sms):
            loss = _predicted(rung, problem, config) / own / _share(rung, known, problem.a.sparse)
            if loss <= WORSE and (best is None or loss * (1 + DOUBT * distance) < best[0]):
                best = loss * (1 + DOUBT * distance), known, config
    if best is None:
        return None
    m, n, k, _ = best[1].problem.extents
    nearness = "on more multiprocessors" if best[1].problem == wanted else "a neighbour"
    return Found(best[2], f"tuned for {m} x {n} x {k}, {nearness}, {best[1].source}")


def _fits(rung: Rung, problem: Problem, config: Config, max_sms: int | None) -> bool:
    """Whether the launch has no more blocks than multiprocessors that it may take."""
    return max_sms is None or math.prod(rung.grid(problem, config)) <= max_sms


def _predicted(rung: Rung, problem: Problem, config: Config) -> float:
    """By the rung's own sum or, where it has none, as any plan is predicted."""
    return rung.weigh(problem, config) if rung.weigh is not None else cost((rung, config), problem).time_ms


@lru_cache(maxsize=1024)
def _share(rung: Rung, known: Known, sparse: bool) -> float:
    """Predicted time of what was tuned, for the problem that it was tuned for, over that of the planner's own choice
    there; at least 1."""
    there = known.problem.problem(sparse=sparse)
    if rung.illegal(there, known.config) is not None:
        return 1.0
    own = _predicted(rung, there, rung.default_config(there))
    return max(_predicted(rung, there, known.config) / own, 1.0)


def _made_legal(rung: Rung, problem: Problem, known: Known, max_sms: int | None = None) -> Config | None:
    """The configuration for this problem, on at most so many multiprocessors, or None where it is illegal. What it does
    not know of the rung's tunables is as by default: an edit that adds one leaves the table in use."""
    config: Mapping[str, int] = known.config
    here = known.problem.extents == (problem.m, problem.n, problem.k, problem.batch)
    if here and rung.illegal(problem, config) is None and _fits(rung, problem, config, max_sms):
        return config
    own = rung.default_config(problem)
    if config.keys() != own.keys():
        config = {key: config.get(key, value) for key, value in own.items()}
    config = rung.adapted(problem, config, known.problem.extents, max_sms)
    return config if rung.illegal(problem, config) is None else None


def config_for(rung: Rung, problem: Problem, gpu: str, where: Path | None = None) -> Config | None:
    """The configuration that `lookup` finds, or None."""
    found = lookup(rung, problem, gpu, where)
    return found.config if found is not None else None
