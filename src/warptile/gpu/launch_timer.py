"""Times of single launches in a running program: events that nobody waits for."""

from __future__ import annotations

from warptile.gpu import driver

MOST_SPARE = 64
"""Pairs of events that are kept for later launches on a GPU."""

_spare: dict[int, list[tuple[driver.Event, driver.Event]]] = {}


class LaunchTimer:
    """Two events around one launch. Work with it in the context of its GPU.

    Args:
        ordinal: CUDA ordinal of the GPU.
        stream: the launch's stream, which gets the first event now.

    Attributes:
        queued: the GPU had not reached the first event when the launch and the second one were in the stream's queue,
            so the time between them contains nothing of the host's. Known once it is stopped.
    """

    def __init__(self, ordinal: int, stream: int) -> None:
        self._ordinal, self.queued = ordinal, False
        try:
            self._events = _spare.setdefault(ordinal, []).pop()
        except IndexError:
            self._events = driver.Event(), driver.Event()
        self._events[0].record(stream)

    def stop(self, stream: int) -> None:
        """Record the second event: called behind the launch."""
        self._events[1].record(stream)
        self.queued = not self._events[0].passed()

    def elapsed_ms(self) -> float | None:
        """Milliseconds between the events, asked for once; None while the GPU has not passed both, without waiting."""
        start, end = self._events
        if not end.passed():
            return None
        elapsed_ms = start.elapsed_ms(end)
        spare = _spare[self._ordinal]
        if len(spare) < MOST_SPARE:
            spare.append(self._events)
        return elapsed_ms
