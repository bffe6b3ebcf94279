"""One call of a program to the CUDA library, and the functions that answer calls, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warptile.errors import IllegalAddress
from warptile.programs.elf_file import ElfFile
from warptile.programs.process_memory import ProcessMemory

if TYPE_CHECKING:
    from warptile.programs.emulated_gpu import EmulatedGpu
    from warptile.programs.graphs import NodeType

REGISTER_ARGUMENTS = 6

SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 801
"""Results: enumerators of ``cudaError_t``, which the driver's ``CUresult`` shares."""

Handler = Callable[..., int | None]

Work = Callable[["Call"], object]
"""Work that a program gives a stream: done at once, or kept in a graph and done by the call that launches it."""

CALLS: dict[str, Handler] = {}
"""What answers each function of the CUDA runtime and driver: of the arguments that follow the call itself, the integers
and pointers as C passes them; a ``dim3`` is two of them. Returns what the function does, None for success."""


def answers(*names: str) -> Callable[[Handler], Handler]:
    """The function below answers calls to the CUDA functions of these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in CALLS, name
            CALLS[name] = handler
        return handler

    return register


class CallError(Exception):
    """A CUDA function returns an error.

    Attributes:
        status: what it returns.
    """

    def __init__(self, status: int, why: str = "") -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Call:
    """One call, whose caller waits.

    Attributes:
        gpu: the emulated GPU.
        memory: of the calling process.
        function: the name of the CUDA function.
        registers: integer arguments that are passed in registers.
        stack: address of the others.
        room: address of writable memory of the stand-in library in the calling process.
        addresses: where the functions of the stand-in libraries are in the calling process.
        system_call: makes a system call there and returns its result.
        call_back: calls a function of the program.
    """

    gpu: EmulatedGpu
    memory: ProcessMemory
    function: str
    registers: tuple[int, ...]
    stack: int
    room: int
    addresses: Callable[[str], int | None]
    system_call: Callable[..., int]
    call_back: Callable[..., int]

    def arguments(self, count: int) -> list[int]:
        """The first arguments as unsigned 64-bit integers."""
        found = list(self.registers[:count])
        if count > REGISTER_ARGUMENTS:
            found += self.memory.unpack(f"<{count - REGISTER_ARGUMENTS}Q", self.stack)
        return found

    def answer(self) -> int:
        """What the function returns.

        Raises:
            OSError: the program passed an address that it has no memory at.
        """
        handler = CALLS[self.function]
        try:
            found = handler(self, *self.arguments(_arity(handler)))
            return self.gpu.returned(SUCCESS if found is None else found, self.function)
        except CallError as error:
            self.gpu.note(self.function, str(error))
            return self.gpu.returned(error.status, self.function)
        except IllegalAddress as error:
            self.gpu.refuse(self.function)
            self.gpu.note(self.function, str(error))
            return self.gpu.returned(INVALID_VALUE, self.function)

    def do(self, work: Work, kind: NodeType | None = None) -> None:
        """Do work of a stream, or keep it while a stream is captured; ``kind`` of its node is a copy if not said."""
        if self.gpu.capture is None:
            work(self)
        else:
            self.gpu.capture.append(self, kind, work)

    def flush_output(self) -> None:
        """Let the program write out what its C library has buffered, so that what a kernel prints comes behind it."""
        flush = _flush_of(self.memory)
        if flush is not None:
            self.call_back(flush, 0)

    def int32(self, address: int, *values: int) -> None:
        """Write values of ``int``."""
        self.memory.pack(f"<{len(values)}i", address, *values)

    def int64(self, address: int, *values: int) -> None:
        """Write values of ``size_t`` or pointers."""
        self.memory.pack(f"<{len(values)}Q", address, *values)


def _flush_of(memory: ProcessMemory) -> int | None:
    """Address of ``fflush`` in a process, whose C library is glibc or musl."""
    for path, base in memory.libraries().items():
        if path.name.startswith(("libc.so", "libc-", "ld-musl")):
            offset = _offset_of_flush(path)
            return None if offset is None else base + offset
    return None


@cache
def _offset_of_flush(library: Path) -> int | None:
    return ElfFile(library.read_bytes(), str(library)).defined.get("fflush")


_ARITIES: dict[Any, int] = {}


def _arity(handler: Handler) -> int:
    """Arguments that a handler takes besides the call."""
    if handler not in _ARITIES:
        _ARITIES[handler] = len(inspect.signature(handler).parameters) - 1
    return _ARITIES[handler]


def signed(value: int, bits: int = 32) -> int:
    """The lower bits of an argument as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int) -> int:
    """The lower 32 bits of an argument, as ``unsigned int``."""
    return value & 0xFFFFFFFF
