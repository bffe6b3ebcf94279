"""Memory that launches need beside their operands, kept for each stream: made once, used by one launch after the other.

cuBLAS keeps its workspace in the same way, for the same reason: work in one stream is in order, so one piece of
memory serves all of it, and a captured graph finds the memory where it was when it was captured. For that reason two
graphs that were captured from one stream must not run at the same time.

**How long it lives.** The driver tells nobody that a stream is destroyed, and a kernel of a destroyed stream may still
run. So memory is never freed for a stream that may be gone; instead there is a bound on how many streams have some:

- Streams are told apart by the driver's identifiers, not by handles, which are used again. A new stream never gets the
  memory of a destroyed one whose last kernels may still run.
- The first `MOST_STREAMS` streams of a GPU have memory of their own, for the life of the process.
- All others share one piece. Each use of it waits, on the GPU, for the one before (an event), so that kernels which
  need workspaces run one after the other there. It is the only memory that is given back when more is needed.
- What launches are given that are captured on a stream's handle is apart from what they are given otherwise, and stays
  for the life of the process: a graph has its address, and may outlive the stream.
- `forget` gives back the memory of a stream whose owner says that it is done; `free` all that no graph can use.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from warptile.gpu import driver, stream_state
from warptile.launch.workspace import Workspace

ALIGNMENT_BYTES = 256
"""Alignment of every workspace, as of memory that the driver allocates."""

MOST_STREAMS = 32
"""Streams of a GPU that have workspaces of their own, those of graphs not counted: as many as torch's pool of streams
has."""

UNKNOWN = 0xFF
"""What `Workspaces.spoil` writes: NaN in every floating-point type, -1 in integers."""


class _Arena:
    """Memory that every launch divides into its workspaces. When it grows, the old memory is kept: graphs may use
    it."""

    def __init__(self, *, zero: bool) -> None:
        self._zero = zero
        self._pieces: list[driver.Allocation] = []

    @property
    def newest(self) -> driver.Allocation | None:
        """The memory that the next launch is given."""
        return self._pieces[-1] if self._pieces else None

    def addresses(self, wanted: Sequence[Workspace]) -> dict[str, int]:
        """Device address of each workspace."""
        starts, top = {}, 0
        for each in wanted:
            starts[each.name] = top
            top += -(-each.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if not top:
            return {}
        newest = self.newest
        if newest is None or newest.size_bytes < top:
            newest = self._grown(max(top, 2 * newest.size_bytes if newest is not None else 0))
        return {name: newest.address + start for name, start in starts.items()}

    def _grown(self, size_bytes: int) -> driver.Allocation:
        with driver.outside_captures():
            made = driver.Allocation(size_bytes)
            if self._zero:
                with driver.Stream() as apart:
                    made.fill(0, apart.handle)
        self._pieces.append(made)
        return made

    @property
    def has_grown(self) -> bool:
        """Whether there is memory that the next launch is not given."""
        return len(self._pieces) > 1

    def drop_old(self) -> None:
        """Give back all memory but the newest; nothing uses it any more."""
        for each in self._pieces[:-1]:
            each.close()
        del self._pieces[:-1]

    def close(self) -> None:
        for each in self._pieces:
            each.close()
        self._pieces.clear()


class Workspaces:
    """The workspaces of one stream.

    Attributes:
        lock: held from asking for pointers until all launches that use them are queued: launches of another thread in
            between would overwrite a copied operand.
        captured: it is for launches that are captured: a graph has its addresses.
        closed: the memory has been given back; addresses from before mean nothing.
        lasting: addresses stay good until it is closed.
    """

    lasting = True

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.captured = self.closed = False
        self._unknown, self._zeros = _Arena(zero=False), _Arena(zero=True)

    @contextmanager
    def used_on(self, stream: int) -> Iterator[None]:
        """Ask for pointers and queue the launches that use them, on this stream, inside."""
        with self.lock:
            yield

    def pointers(self, wanted: Sequence[Workspace]) -> dict[str, int]:
        """Device addresses by name, in the current context. Memory is allocated only if there was never as much; then
        too while a stream is being captured."""
        found = self._unknown.addresses([each for each in wanted if not each.zero])
        return found | self._zeros.addresses([each for each in wanted if each.zero])

    def spoil(self) -> None:
        """Fill what may hold anything, so that a kernel that relies on it goes wrong. Waits for the GPU."""
        if self._unknown.newest is not None:
            self._unknown.newest.fill(UNKNOWN)

    def leftovers(self) -> int:
        """Bytes that kernels should have left zero and did not; they are cleared. Waits for the GPU."""
        newest = self._zeros.newest
        if newest is None:
            return 0
        found = int(np.count_nonzero(newest.to_host(np.empty(newest.size_bytes, np.uint8))))
        if found:
            newest.fill(0)
        return found

    def close(self) -> None:
        """Give the memory back; launches and graphs that use it must have ended."""
        self.closed = True
        self._unknown.close()
        self._zeros.close()


class SharedWorkspaces(Workspaces):
    """One piece of memory for many streams: each use waits on the GPU for the one before."""

    lasting = False

    def __init__(self) -> None:
        super().__init__()
        self._last: driver.Event | None = None

    @contextmanager
    def used_on(self, stream: int) -> Iterator[None]:
        """As of `Workspaces`; the stream then waits for the use before, and the next use for this one."""
        with self.lock:
            if self._last is None:
                self._last = driver.Event()
            else:
                driver.wait_for_event(stream, self._last)
            try:
                yield
            finally:  # also if a launch was refused: another may have been queued before it
                self._last.record(stream)

    def pointers(self, wanted: Sequence[Workspace]) -> dict[str, int]:
        """As of `Workspaces`. Memory that is too small is given back, once the use before has ended."""
        found = super().pointers(wanted)
        if self._unknown.has_grown or self._zeros.has_grown:
            assert self._last is not None, "inside used_on"
            self._last.synchronize()
            self._unknown.drop_old()
            self._zeros.drop_old()
        return found

    def close(self) -> None:
        """As of `Workspaces`."""
        super().close()
        if self._last is not None:
            self._last.close()
            self._last = None


_OF_STREAM: dict[tuple[int, int], Workspaces] = {}
"""By the GPU's ordinal and the stream's state."""
_SHARED: dict[int, SharedWorkspaces] = {}
_MAKING = threading.Lock()


def of_stream(ordinal: int, stream: int, state: int | None = None) -> Workspaces:
    """The workspaces of one stream of one GPU, or those that many streams share. Use them inside `Workspaces.used_on`.

    Args:
        ordinal: of the GPU, whose context is current.
        stream: handle.
        state: of the stream (`warptile.gpu.stream_state`), if it is known.

    Raises:
        DeviceError: there is no such stream.
    """
    if state is None:
        state = stream_state.state_function()(stream)
    if state == stream_state.UNKNOWN:
        state = stream_state.asked(stream)  # raises, with the reason
    captured = stream_state.is_captured(state)
    key = ordinal, state
    with _MAKING:
        own = _OF_STREAM.get(key)
        if own is None:
            streams = sum(1 for (gpu, _), each in _OF_STREAM.items() if gpu == ordinal and not each.captured)
            if streams >= MOST_STREAMS and not captured:
                return _SHARED.setdefault(ordinal, SharedWorkspaces())
            own = _OF_STREAM[key] = Workspaces()
            own.captured = captured
        return own


def forget(ordinal: int, stream: int) -> None:
    """Give back the workspaces of a stream that still exists, whose work has ended and which was never captured."""
    key = ordinal, stream_state.state_function()(stream)
    with _MAKING:
        own = _OF_STREAM.pop(key, None)
    if own is not None:
        with own.lock:
            own.close()


def free() -> None:
    """Wait for all GPUs and give back all workspaces that no graph can use. No other thread may multiply meanwhile, and
    no stream be captured."""
    with _MAKING:
        unused = {key: each for key, each in _OF_STREAM.items() if not each.captured}
        for key in unused:
            del _OF_STREAM[key]
        done = [(ordinal, each) for (ordinal, _), each in unused.items()] + list(_SHARED.items())
        _SHARED.clear()
    for ordinal, each in done:
        with driver.on_device(ordinal), each.lock:
            driver.synchronize()
            each.close()
