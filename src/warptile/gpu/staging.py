"""Copies of host operands on a GPU, in memory that is kept from call to call.

An allocation and its release cost more than a small product: the release waits for the whole GPU. So each thread that
multiplies host arrays borrows a *staging area*: a stream, device memory, and pinned host memory. Small operands are
packed into the pinned memory and cross the bus in one copy; large ones are copied from where they are.

Areas are kept for the life of the process, at most `MOST_AREAS` a GPU and `KEPT_BYTES` of device memory in each; what a
call needs beyond that is allocated for the call. `free` gives all of it back.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from warptile.errors import DeviceError
from warptile.gpu import driver, workspaces

ALIGNMENT_BYTES = 256
"""Distance between operands in a staging area."""

PINNED_BYTES = 1 << 20
"""Operands that together are no larger go through pinned memory: the host copies them faster than the driver starts
another transfer."""

KEPT_BYTES = 64 << 20
"""Device memory that an area keeps."""

MOST_AREAS = 4
"""Areas that are kept for each GPU; as many threads can multiply host arrays without allocating."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of one operand.

    Attributes:
        start: distance from the beginning of the area.
        size_bytes: how many.
        before: bytes from the lowest one to the operand's first element.
    """

    start: int
    size_bytes: int
    before: int


def layout(operands: Sequence[tuple[int, int, int]]) -> tuple[list[Span], int]:
    """Where operands lie in an area, one behind the other; and the size of all.

    Args:
        operands: of each, its address and how many bytes it reaches before and behind that (the latter one past the
            last). In the area, addresses have the same remainder modulo 16, which plans depend on.
    """
    spans, top = [], 0
    for address, low, high in operands:
        start = top + ((address + low) & 15)
        spans.append(Span(start, high - low, -low))
        top = -(-(start + high - low) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return spans, top


class Area:
    """A stream, and memory on both sides of the bus, of one GPU, whose context is current."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._stream = driver.Stream()
        self.stream = self._stream.handle
        self._device: driver.Allocation | None = None
        self._pinned: driver.PinnedMemory | None = None

    def device_memory(self, size_bytes: int) -> int:
        """Address of device memory of a size at least."""
        if self._device is None or self._device.size_bytes < size_bytes:
            grown = max(PINNED_BYTES, 1 << (size_bytes - 1).bit_length()) if size_bytes <= KEPT_BYTES else size_bytes
            self._release()
            self._device = driver.Allocation(grown)
        return self._device.address

    def pinned_memory(self) -> int:
        """Address of `PINNED_BYTES` of pinned memory."""
        if self._pinned is None:
            self._pinned = driver.PinnedMemory(PINNED_BYTES)
        return self._pinned.address

    def copy_in(self, addresses: Sequence[int], spans: Sequence[Span], size_bytes: int) -> int:
        """Queue the copies of operands from the host; returns the area's device address.

        Args:
            addresses: host address of the lowest byte of each.
            spans: where each goes.
            size_bytes: of the whole area, that of the result included.
        """
        device = self.device_memory(size_bytes)
        if size_bytes > PINNED_BYTES:
            for address, span in zip(addresses, spans, strict=True):
                if span.size_bytes:
                    driver.copy_to_device(device + span.start, address, span.size_bytes, self.stream)
        elif spans:
            pinned = self.pinned_memory()
            for address, span in zip(addresses, spans, strict=True):
                ctypes.memmove(pinned + span.start, address, span.size_bytes)
            last = spans[-1]
            if last.start + last.size_bytes:
                driver.copy_to_device(device, pinned, last.start + last.size_bytes, self.stream)
        return device

    def copy_out(self, address: int, span: Span, size_bytes: int) -> None:
        """Wait for the result and bring it home.

        Args:
            address: host address of its lowest byte.
            span: where it is.
            size_bytes: as given to `copy_in`.
        """
        device = self.device_memory(size_bytes)
        target = address if size_bytes > PINNED_BYTES else self.pinned_memory() + span.start
        driver.copy_to_host(target, device + span.start, span.size_bytes, self.stream)
        driver.synchronize_stream(self.stream)
        if target != address:
            ctypes.memmove(address, target, span.size_bytes)

    def trim(self) -> None:
        """Give back device memory beyond what is kept. All work in the stream has ended."""
        if self._device is not None and self._device.size_bytes > KEPT_BYTES:
            self._release()

    def _release(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def close(self) -> None:
        """Wait for the stream and give everything back."""
        driver.synchronize_stream(self.stream)
        workspaces.forget(self._ordinal, self.stream)
        self._release()
        if self._pinned is not None:
            self._pinned.close()
        self._stream.close()


_KEPT: dict[int, list[Area]] = {}
"""Areas that nobody has borrowed, by the GPU's ordinal."""
_LENDING = threading.Lock()


@contextmanager
def area(ordinal: int) -> Iterator[Area]:
    """An area that nobody else uses meanwhile, on a GPU whose context is current. Work in its stream has ended at the
    end of the block; if it raises, the stream is waited for and the area given back."""
    with _LENDING:
        kept = _KEPT.setdefault(ordinal, [])
        lent = kept.pop() if kept else None
    if lent is None:
        lent = Area(ordinal)
    try:
        yield lent
        lent.trim()
    except BaseException:
        with suppress(DeviceError):  # after a fatal error nothing can be given back
            lent.close()
        raise
    with _LENDING:
        if len(kept) < MOST_AREAS:
            kept.append(lent)
            return
    lent.close()


def free() -> None:
    """Give back all areas that nobody has borrowed."""
    with _LENDING:
        areas = [(ordinal, each) for ordinal, kept in _KEPT.items() for each in kept]
        for kept in _KEPT.values():
            kept.clear()
    for ordinal, each in areas:
        with driver.on_device(ordinal):
            each.close()
