"""The kernels of tests/found_bugs: bugs like those of docs/found-bugs.md, arranged so that a GPU has a chance to show
them. Run it to print the table of what an H200 did, in Markdown:

    PYTHONPATH=src:tests/support python tests/support/found_bugs.py
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import warptile as wt
from warptile.bench.report.markdown import count, markdown
from warptile.user_kernels.user_kernel import UserKernel

FOLDER = Path(__file__).parents[1] / "found_bugs"
RECORD_FILE = FOLDER.parent / "data" / "found_bugs_h200.json"
"""Recorded by `tests/gpu/try_found_bugs.py`."""
HEADERS = Path(wt.__file__).parent / "kernels"
ARCH = "sm_90a"
UNWRITTEN = 0xFFFFFFFF

_HEADER = re.compile(r"^// (Bug|Provoked by|Fix): (.*(?:\n// (?!Provoked by: |Fix: ).*)*)", re.M)
_REPORTED = re.compile(r"//.*\bREPORTED: (.*)$")


@dataclass(frozen=True)
class Size:
    """How large a launch is.

    Attributes:
        blocks: CTAs of the grid.
        rounds: how often each of them does what may go wrong; 1 where the kernel has no such loop.
        late: clock cycles by which a thread is late.
    """

    blocks: int
    rounds: int = 1
    late: int = 0


@dataclass(frozen=True)
class Attempt:
    """The arguments of one launch, and what its first one, the result, must hold afterwards."""

    arguments: tuple[Any, ...]
    expected: np.ndarray

    @property
    def result(self) -> np.ndarray:
        """What the kernel writes."""
        found: np.ndarray = self.arguments[0]
        return found

    def wrong(self) -> int:
        """Elements of the result that are not what they must be."""
        return int(np.count_nonzero(self.result != self.expected))


@dataclass(frozen=True)
class Pattern:
    """One kernel ``pattern<CORRECTED>``.

    Attributes:
        name: its file without the suffix.
        found_in: whose kernels have such a bug: a heading of docs/found-bugs.md or a part of one.
        check: the emulator's check that reports it.
        message: what the finding must match.
        threads: of a CTA.
        prepare: the arguments of a launch.
        small: a launch for the emulator.
        full: one for an H200.
        shared_bytes: dynamic shared memory of a CTA in the full launch, which only keeps other CTAs off the SM.
    """

    name: str
    found_in: str
    check: str
    message: str
    threads: int
    prepare: Callable[[Size], Attempt]
    small: Size
    full: Size
    shared_bytes: int = 0

    @property
    def path(self) -> Path:
        """The kernel's file."""
        return FOLDER / f"{self.name}.cu"

    @cached_property
    def header(self) -> dict[str, str]:
        """The first comment of the file: ``Bug``, ``Provoked by`` and ``Fix``."""
        found = _HEADER.findall(self.path.read_text())
        return {key: re.sub(r"\s*\n// ", " ", text).strip() for key, text in found}

    @cached_property
    def reported_lines(self) -> dict[str, int]:
        """Lines that end in ``REPORTED: role``, by role: the finding names all of them."""
        lines = enumerate(self.path.read_text().splitlines(), 1)
        return {found[1].strip(): number for number, line in lines if (found := _REPORTED.search(line))}

    def kernel(self, corrected: bool, backend: str, schedule: str = "latest") -> UserKernel:
        """The kernel, with its bug or corrected."""
        return wt.kernel(
            self.path, f"pattern<{str(corrected).lower()}>", arch=ARCH, include_folders=(FOLDER, HEADERS),
            backend=backend, schedule=schedule,
        )  # fmt: skip


def try_pattern(
    pattern: Pattern, *, corrected: bool, backend: str, launches: int, seconds: float
) -> dict[str, int | float | str]:
    """Launch a kernel until a number of launches or a time is reached, and count what went wrong.

    Args:
        pattern: what is launched, in full on a GPU and small on the emulator.
        corrected: without its bug.
        backend: ``"gpu"`` or ``"emulator"``.
        launches: at most.
        seconds: after which no launch is begun, counted from the end of the first, which compiles the kernel.

    Returns:
        ``launches``, ``wrong_launches``, ``elements`` of all launches, ``wrong_elements``, and ``seconds`` from the end
        of the first one; ``error`` where a launch failed, which is the last one then and counts in none of the others.
    """
    size = pattern.full if backend == "gpu" else pattern.small
    shared_bytes = pattern.shared_bytes if backend == "gpu" else 0
    launch = pattern.kernel(corrected, backend)[size.blocks, pattern.threads, None, shared_bytes]
    counts: dict[str, int | float | str] = {}
    done = wrong_launches = elements = wrong_elements = 0
    start = time.monotonic()
    while done < launches and (not done or time.monotonic() - start < seconds):
        attempt = pattern.prepare(size)
        try:
            launch(*attempt.arguments)
        except wt.DeviceError as error:
            counts["error"] = error.driver_name or str(error)
            break
        wrong = attempt.wrong()
        if not done:
            start = time.monotonic()
        done += 1
        elements += attempt.expected.size
        wrong_launches += wrong > 0
        wrong_elements += wrong
    return {
        "launches": done, "wrong_launches": wrong_launches, "elements": elements, "wrong_elements": wrong_elements,
        "seconds": round(time.monotonic() - start, 2), **counts,
    }  # fmt: skip


def _counted(words: int) -> np.ndarray:
    """0, 1, 2 ...: kernels that store the index of each word leave it in the result."""
    return np.arange(words, dtype=np.uint32)


def _unwritten(words: int) -> np.ndarray:
    return np.full(words, UNWRITTEN, np.uint32)


def _arrival(size: Size) -> Attempt:
    words = size.blocks * 32
    return Attempt((_unwritten(words), size.late), np.zeros(words, np.uint32))


def _stores(tile_words: int) -> Callable[[Size], Attempt]:
    """A tile of each CTA, in each round, to a place of its own."""

    def prepare(size: Size) -> Attempt:
        words = size.blocks * size.rounds * tile_words
        return Attempt((_unwritten(words), size.rounds), _counted(words))

    return prepare


def _last_stores(size: Size) -> Attempt:
    words = size.blocks * 8192
    return Attempt((_unwritten(words),), _counted(words))


def _wgmma(size: Size) -> Attempt:
    shape = (size.blocks, size.rounds)
    b = np.random.default_rng(5).integers(1, 100, (*shape, 2, 8, 8)).astype(np.float16)  # half of K, column, K
    columns = b.sum(axis=(2, 4), dtype=np.float32)
    # Of each row of D a thread has two columns, and of two rows the same ones.
    pairs = columns.reshape(*shape, 1, 4, 1, 2)
    expected = np.broadcast_to(pairs, (*shape, 32, 4, 2, 2)).reshape(-1)
    out = np.full(expected.size, np.nan, np.float32)
    return Attempt((out, b.view(np.uint16).reshape(-1), size.rounds, size.late), expected)


def _maximum(size: Size) -> Attempt:
    rows = np.random.default_rng(6).integers(1, 1 << 20, (size.blocks * size.rounds, 128)).astype(np.uint32)
    expected = rows.max(axis=1, keepdims=True) - rows
    return Attempt((_unwritten(rows.size), rows.reshape(-1), size.rounds, size.late), expected.reshape(-1))


def _last_block(size: Size) -> Attempt:
    groups, lines = size.blocks // 16, 2
    sums = np.zeros(groups * lines * 32, np.float32)
    out, counters = np.full_like(sums, np.nan), np.zeros(groups * 32, np.uint32)
    return Attempt((out, sums, counters), np.full_like(sums, 32 * 8 * 16 // lines))  # times, warps, blocks


def _polled(size: Size) -> Attempt:
    pairs = size.blocks // 2
    words = pairs * size.rounds * 32
    data, flags, taken = (np.zeros(pairs * 32, np.uint32) for _ in range(3))
    return Attempt((_unwritten(words), data, flags, taken, size.rounds), _counted(words))


def _lanes(size: Size) -> Attempt:
    words = size.blocks * size.rounds * 16
    return Attempt((_unwritten(words), size.rounds, size.late), _counted(words))


def _copies(size: Size) -> Attempt:
    words = size.blocks * size.rounds * 128
    return Attempt((_unwritten(words), _unwritten(4 * words), size.rounds, size.late), _counted(words))


PATTERNS = (
    Pattern(
        "arrival_after_exit", "fast.cu", "races", "may have exited by then", 32, _arrival,
        small=Size(4), full=Size(16384, late=4000),
    ),
    Pattern(
        "store_without_proxy_fence", "fast.cu", "races", r"no fence\.proxy\.async stands between", 64, _stores(2048),
        small=Size(2, 2), full=Size(264, 4),
    ),
    Pattern(
        "store_waited_by_one_thread", "fast.cu", "races", r"read-write race on shared memory, tile.*cp\.async\.bulk",
        256, _stores(8192), small=Size(2, 2), full=Size(132, 2),
    ),
    Pattern(
        "exit_before_store", "fast.cu", "bulk-exit", "ends before this copy has read", 512, _last_stores,
        small=Size(2), full=Size(792), shared_bytes=70 << 10,
    ),
    Pattern(
        "wgmma_before_barrier", "CuTe", "races", "has waited for its copy, but no barrier", 128, _wgmma,
        small=Size(2, 3), full=Size(132, 16, late=2000),
    ),
    Pattern(
        "maximum_overwritten", "llm.c, softmax", "races", "no barrier", 128, _maximum,
        small=Size(2, 2), full=Size(264, 16, late=2000),
    ),
    Pattern(
        "last_block_without_fences", "llm.c, layernorm", "races", "a flag orders them", 256, _last_block,
        small=Size(32), full=Size(1024),
    ),
    Pattern(
        "polled_without_acquire", "CUTLASS", "races", "a flag was read, but no fence", 32, _polled,
        small=Size(4, 3), full=Size(128, 32),
    ),
    Pattern(
        "lanes_without_syncwarp", "llm.c, attention", "races", "no __syncwarp", 32, _lanes,
        small=Size(2, 4), full=Size(1056, 16, late=500),
    ),
    Pattern(
        "copies_never_waited", "TLX", "races", "has not waited for its own copy", 128, _copies,
        small=Size(2, 2), full=Size(264, 8, late=4000),
    ),
)  # fmt: skip


def table(record: Mapping[str, Any]) -> str:
    """What a GPU did, by the record of `tests/gpu/try_found_bugs.py`, in Markdown."""
    rows = []
    for pattern in PATTERNS:
        found = record["patterns"].get(pattern.name)
        if found is not None:
            faulty, corrected = found["faulty"], found["corrected"]
            rows.append(
                (f"`{pattern.name}`", pattern.found_in, _launches(faulty), _elements(faulty), _launches(corrected))
            )
    header = ("kernel", "like the bug in", "wrong launches", "wrong elements", "wrong launches, corrected")
    about = f"{record['gpu']}, driver {record['driver']}, {record['compiler']}, {record['date'][:10]}"
    return f"{markdown(header, rows, right=2)}\n{about}.\n"


def _launches(found: Mapping[str, Any]) -> str:
    """How many launches of a kernel were wrong, and how the last one failed."""
    said = f"{count(found['wrong_launches'])} of {count(found['launches'])}" if found.get("launches") else ""
    error = found.get("error")
    shown = f"`{error}`" if error and error.startswith("CUDA") else error
    return ", then ".join(each for each in (said, shown) if each)


def _elements(found: Mapping[str, Any]) -> str:
    """How many elements were wrong, in all launches that ended."""
    return f"{count(found['wrong_elements'])} of {count(found['elements'])}" if found.get("elements") else count(None)


if __name__ == "__main__":
    print(table(json.loads(RECORD_FILE.read_text())), end="")
