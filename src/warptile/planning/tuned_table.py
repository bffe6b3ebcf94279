"""What tuning found, looked up when a plan is made: this user's own table first, then the one that ships.

A user's table is one JSON document a line in ``tuned/<gpu>.jsonl`` below ``WARPTILE_CACHE_DIR`` or the platform's data
folder; lines are appended with one write each, so a search can be stopped at any moment and several can run. A line
that cannot be read is skipped. Its entries count for one GPU model and one content of the rung's source files.

The table that ships (`warptile.planning.shipped_table`) stays in use when the kernel changes: its configurations are
used as long as they are legal; its speeds are those of the commit that it names. It was measured on one GPU model and
serves all others that run the rung.

A table answers for the problems that are in it and for those of types that cost the same. All others are predicted:
another problem's configuration, however near, was found to be a worse guess than the cost model.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import msgspec

from warptile.codegen.headers import KERNELS, reachable
from warptile.decoding import decoded
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.folders import CHOSEN, user_folder
from warptile.planning import shipped_table
from warptile.problem import Problem
from warptile.rungs import rung as rung_named
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung

SCHEMA = "warptile.tuned/1"
ON, ON_ANY = "on", "on,any"
"""Modes that tune in the running program: among configurations whose results have the same bits as the planned one's
(`warptile.planning.accumulation_order`), and among all."""

MODES = ("off", "cached", ON, ON_ANY)
WORTH_LEAVING_TUNED = 0.02
"""A configuration that was tuned is left where what its search did not have adds so much more of its time than to the
predicted one: an epilogue, or later kernels."""

LOOK_S = 1.0
"""A running process looks for outcomes that others added to the user's table at most this often."""

LIKE = {"float16": "bfloat16", "float8_e5m2": "float8_e4m3", "uint8": "int8"}
"""Types that cost what another costs."""


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
            problem.reads_matrix_c, problem.a.major, problem.batch,
        )  # fmt: skip

    def problem(self, *, sparse: bool = False) -> Problem:
        """The contiguous problem of this class, with the same alignment."""
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
    def alike(self) -> ProblemClass:
        """The class that stands for all that cost what this one does: `LIKE`."""
        dtype, accumulator, out = (LIKE.get(name, name) for name in (self.dtype, self.accumulator, self.out))
        return msgspec.structs.replace(self, dtype=dtype, accumulator=accumulator, out=out)


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
    ``online``: measured by a running program, in its own calls (`warptile.runtime.online_tuning`).
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
    online: bool = False


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
    return _folder(os.environ.get(CHOSEN))


@lru_cache(maxsize=8)
def _folder(_chosen: str | None) -> Path:
    return user_folder("data") / "tuned"


def mode() -> str:
    """``WARPTILE_AUTOTUNE``: ``off``; ``cached`` (the default): use what was tuned before; ``on``: also tune in the
    running program, among configurations whose results have the same bits; ``on,any``: among all.

    Raises:
        UnsupportedError: it is something else.
    """
    value = os.environ.get("WARPTILE_AUTOTUNE") or "cached"
    if value not in MODES:
        raise UnsupportedError(f"WARPTILE_AUTOTUNE: got {value!r}; it takes off, cached, on or on,any, such as cached")
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
                entry = decoded(line, Entry)
            except msgspec.MsgspecError:
                continue
            if entry.schema == SCHEMA:
                yield entry

    def append(self, *entries: Entry) -> None:
        """Add entries with one write, after ending a line that a killed process left unfinished.

        Raises:
            UnsupportedError: the file cannot be written to.
        """
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, (b"\n" if unfinished else b"") + lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UnsupportedError(
                f"tuned results cannot be kept in {self.path} ({error.strerror or error}); make room there or set "
                "WARPTILE_CACHE_DIR to a folder that can be written to"
            ) from error
        _looks.pop(self.path, None)
        for listener in list(_listeners):
            listener()

    def of(self, search: Search) -> list[Entry]:
        """Entries of one search, oldest first. What running programs measured is none of a search's own."""
        return [entry for entry in self.entries() if entry.search == search and not entry.online]

    def winner(self, search: Search) -> Entry | None:
        """The newest outcome of exactly this search, or None."""
        return next((entry for entry in reversed(self.of(search)) if entry.winner), None)

    def outcomes(self) -> str:
        """A digest of the outcomes in the file; empty where there are none.

        The file is looked at every `LOOK_S` at most, or once this process added to it, and read where it has changed. A
        search that is under way adds to it all the time; what was planned is planned anew only when a search ends.
        """
        now, last = time.monotonic(), _looks.get(self.path)
        if last is not None and now - last.at_s < LOOK_S:
            return last.digest
        try:
            found = self.path.stat()
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            if last is not None and last.stamp == stamp:
                digest = last.digest
            else:
                lines = [line for line in self.path.read_bytes().splitlines() if b'"winner"' in line]
                digest = hashlib.sha256(b"\n".join(lines)).hexdigest() if lines else ""
        except OSError:
            stamp, digest = None, ""
        _looks[self.path] = _Look(now, stamp, digest)
        return digest


@dataclass(frozen=True)
class _Look:
    """When a table's file was looked at, its time, size and inode then, and the digest of its outcomes."""

    at_s: float
    stamp: tuple[int, int, int] | None
    digest: str


_looks: dict[Path, _Look] = {}
"""The last look at each table's file."""


_listeners: list[Callable[[], None]] = []


def tell_of_outcomes(listener: Callable[[], None]) -> None:
    """Call ``listener`` whenever this process adds to a table, from then on."""
    _listeners.append(listener)


def outcomes(gpu: str, where: Path | None = None) -> str:
    """What changes when this user's table for GPUs of model ``gpu`` gets another outcome: `Table.outcomes`."""
    return _table(gpu, where or folder()).outcomes()


# --- looking up ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedConfig:
    """A configuration from a table.

    Attributes:
        config: legal for the problem that was asked for.
        origin: where it comes from, for `Plan.explain`.
        of_user: it comes from this user's table.
    """

    config: Config
    origin: str
    of_user: bool = False


@dataclass(frozen=True, eq=False)
class TunedOutcome:
    """The outcome of one search: the problem, the best configuration, where it was found in words, on which GPU, and
    whether this user's table has it."""

    problem: ProblemClass
    config: Config
    source: str
    tuned_on: DeviceLimits = REFERENCE
    of_user: bool = False


Outcomes = Mapping[ProblemClass, TunedOutcome]
"""Outcomes by their problem, and by `ProblemClass.alike` where that one itself was not tuned."""


def _by_problem(outcomes: Iterable[TunedOutcome]) -> Outcomes:
    """Those outcomes, of which later ones of one problem replace earlier ones."""
    known = list(outcomes)
    return {each.problem.alike: each for each in known} | {each.problem: each for each in known}


@lru_cache(maxsize=32)
def _users(path: Path, gpu: str, rung: str, outcomes: str, tuned_on: DeviceLimits) -> Outcomes:
    """This user's outcomes for one rung, from a file whose outcomes have the digest ``outcomes``."""
    source = source_of(rung_named(rung))
    table = Table(gpu, path.parent)
    return _by_problem(
        TunedOutcome(entry.search.problem, entry.config, _words(entry, gpu), tuned_on, of_user=True)
        for entry in table.entries()
        if entry.winner and entry.search.rung == rung and entry.search.source == source
    )


def _words(entry: Entry, gpu: str) -> str:
    """Where an outcome of this user's table was found."""
    return f"on this {gpu}, measured in a running program (WARPTILE_AUTOTUNE)" if entry.online else f"on this {gpu}"


@lru_cache(maxsize=32)
def _shipped(rung: str) -> Outcomes:
    """What ships for one rung."""
    table = shipped_table.table(rung)
    if table is None:
        return {}
    return _by_problem(
        TunedOutcome(
            ProblemClass(*entry.problem),
            dict(zip(table.keys, entry.config, strict=True)),
            table.words(entry),
            KNOWN.get(table.gpu, REFERENCE),
        )
        for entry in table.entries
    )


def is_outdated(problem: Problem, rung: Rung, tuned: Config, predicted: Config, device: DeviceLimits) -> bool:
    """Whether a tuned configuration is predicted to be clearly slower than the rung's own choice by what its search did
    not have: an epilogue, or kernels as they are now."""
    if not rung.estimates or (problem.epilogue is None and not rung.changed_since_searches(problem)):
        return False
    searched_us = rung.searched_us(problem, tuned, device)
    added_us = rung.estimate_us(problem, tuned, device) - searched_us
    otherwise_us = rung.estimate_us(problem, predicted, device) - rung.searched_us(problem, predicted, device)
    return added_us - otherwise_us > WORTH_LEAVING_TUNED * searched_us


def lookup(
    rung: Rung, problem: Problem, gpu: str, where: Path | None = None, device: DeviceLimits = REFERENCE
) -> TunedConfig | None:
    """The configuration that tuning found for ``problem`` on a GPU of model ``gpu``; None where nothing was, and where
    ``WARPTILE_AUTOTUNE`` is ``off``.

    Args:
        rung: whose configuration.
        problem: what is to be computed.
        gpu: model of the GPU that computes it.
        where: folder of the user's table, by default `folder`.
        device: the GPU, or the part of it that the launch may occupy. What was tuned on another number of SMs does not
            count.
    """
    if mode() == "off":
        return None
    table = _table(gpu, where or folder())
    return _lookup(rung.name, problem, gpu, table.path, table.outcomes(), device)


@lru_cache(maxsize=64)
def _table(gpu: str, where: Path) -> Table:
    return Table(gpu, where)


@lru_cache(maxsize=4096)
def _lookup(
    name: str, problem: Problem, gpu: str, path: Path, outcomes: str, device: DeviceLimits
) -> TunedConfig | None:
    rung, wanted = rung_named(name), ProblemClass.of(problem)
    indices = [_users(path, gpu, name, outcomes, device.occupying(None))] if outcomes else []
    indices.append(_shipped(name))
    for index in indices:
        known = index.get(wanted) or index.get(wanted.alike)
        if known is None or known.tuned_on.multiprocessors != device.multiprocessors:
            continue  # how tiles fill waves of other SMs was not measured: it has to be predicted
        config = _made_legal(rung, problem, known, device)
        if config is not None:
            return TunedConfig(config, f"tuned for this problem {known.source}", known.of_user)
    return None


def _fits(rung: Rung, problem: Problem, config: Config, device: DeviceLimits) -> bool:
    """Whether the launch has no more CTAs than it may."""
    return device.max_ctas is None or rung.resolve(problem, config, device).ctas <= device.max_ctas


def _made_legal(rung: Rung, problem: Problem, known: TunedOutcome, device: DeviceLimits) -> Config | None:
    """The configuration for this problem on this device, or None where it is illegal. Tunables that it does not know
    are as by default: an edit that adds one leaves the table in use."""
    config: Mapping[str, int] = known.config
    if rung.illegal(problem, config, device) is not None:
        own = rung.default_config(problem, device)
        if config.keys() == own.keys():
            return None
        config = {key: config.get(key, value) for key, value in own.items()}
    legal = rung.illegal(problem, config, device) is None and _fits(rung, problem, config, device)
    return config if legal else None


def config_for(rung: Rung, problem: Problem, gpu: str, where: Path | None = None) -> Config | None:
    """The configuration that `lookup` finds, or None."""
    found = lookup(rung, problem, gpu, where)
    return found.config if found is not None else None
