"""Every exception that warptile raises on purpose.

Each message says which operand or file, what was given, what is needed, and a call that would work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class WarptileError(Exception):
    """Root of all errors raised on purpose by warptile."""


class ArgumentError(WarptileError, ValueError):
    """An argument whose value is never legal, whatever the arrays are."""


class ArgumentTypeError(WarptileError, TypeError):
    """An argument of the wrong Python type, or one that the function does not have."""


class ShapeError(WarptileError, ValueError):
    """Operand shapes that do not multiply, broadcast or match."""


class DTypeError(WarptileError, TypeError):
    """An element type that is unknown, or a combination that no kernel takes."""


class LayoutError(WarptileError, ValueError):
    """Strides, alignment or memory that an operation cannot use as it is."""


class EpilogueError(WarptileError, ValueError):
    """An epilogue expression that cannot be traced or fused."""


class UnsupportedError(WarptileError, NotImplementedError):
    """A legal request that this rung, architecture or backend does not take."""


class CompileError(WarptileError, RuntimeError):
    """NVRTC or ptxas refused a source, or a rung compiled with a defect it must not have.

    Attributes:
        log: the compiler's whole log.
        line: the first source line that the log names, as ``file(line)``, or None.
    """

    def __init__(self, message: str, log: str = "", line: str | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.line = line


class SlowCodeError(CompileError):
    """A kernel compiled to machine code that is right and slower than its source says: registers spill, or ``wgmma`` is
    serialised. Builds and measurements refuse such a kernel; a call that has planned it runs it."""


class DeviceError(WarptileError, RuntimeError):
    """The CUDA driver returned an error.

    Attributes:
        driver_name: the driver's own name for it, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``, or None.
        context_lost: the GPU's context answers nothing from now on; only a new process can use that GPU.
    """

    def __init__(self, message: str, driver_name: str | None = None, *, context_lost: bool = False) -> None:
        super().__init__(message)
        self.driver_name = driver_name
        self.context_lost = context_lost


class NoDeviceError(DeviceError):
    """A GPU was asked for and there is none (no driver, or no device)."""


class CommunicationError(WarptileError, RuntimeError):
    """Ranks of a process group that did not answer: one has died, has called something else, or cannot be reached.

    Attributes:
        group: name of the process group.
        ranks: the ranks of the group that are known to be missing; empty where the transport names none.
    """

    def __init__(self, message: str, *, group: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.group = group
        self.ranks = ranks


@dataclass(frozen=True)
class SourceLocation:
    """Location of an instruction: its PTX line and, from ``.loc``, its CUDA line.

    Attributes:
        callers: of an inlined function, file and line of the call, and of the call around it, outwards.
    """

    ptx_line: int
    file: str | None = None
    line: int | None = None
    callers: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        ptx = f"PTX line {self.ptx_line}"
        if not (self.file and self.line):
            return ptx
        called = "".join(f", called at {file}:{line}" for file, line in self.callers)
        return f"{self.file}:{self.line}{called} ({ptx})"


class EmulationError(WarptileError, RuntimeError):
    """The emulated program did something that is not allowed.

    Attributes:
        check: name of the check in `warptile.emulator.findings.CHECKS` that finds it; empty where it says nothing about
            the kernel, as an instruction that the emulator does not know.
        said: the message without kernel and location.
        kernel: entry name of the kernel, or None while a module is being read.
        location: the instruction, or None when no single one is to blame.
        first: of two accesses, location of the one that came first; ``location`` is that of the second.
        missing: of two accesses, what would have ordered them.
        fix: what to do about it, where that depends on the case.
    """

    check: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        location: SourceLocation | None = None,
        first: SourceLocation | None = None,
        missing: str = "",
        fix: str = "",
    ) -> None:
        where = "".join(
            f" {part}" for part in (f"in {kernel}" if kernel else "", f"at {location}" if location else "") if part
        )
        super().__init__(f"{message}{' [' + where.strip() + ']' if where else ''}")
        self.said = message
        self.kernel = kernel
        self.location = location
        self.first = first
        self.missing = missing
        self.fix = fix


class PtxSyntaxError(EmulationError, ValueError):
    """PTX text that cannot be read."""


class UnknownInstruction(EmulationError):
    """An instruction or modifier that the emulator does not know. It never guesses."""


class IllegalAddress(EmulationError):
    """An access outside every buffer, or outside its state space."""

    check = "addresses"


class MisalignedAccess(EmulationError):
    """An access that is not a multiple of its own size."""

    check = "alignment"


class IllegalInstruction(EmulationError):
    """An instruction with operands at which the hardware raises "illegal instruction"."""

    check = "instructions"


class UninitializedRead(EmulationError):
    """A read of memory or of a register that nothing has written, or of a copy that has not been waited for."""

    check = "uninitialised"


class AccumulatorOverflow(EmulationError):
    """A tensor core made an infinity of finite numbers: the accumulator's type is too narrow."""

    check = "overflow"


class ParameterMismatch(EmulationError):
    """Arguments of a launch whose number or sizes are not those of the kernel's parameters."""


class UnwrittenOutput(EmulationError):
    """An output element that the kernel never wrote."""

    check = "writes"


class DirtyWorkspace(EmulationError):
    """A workspace that a kernel finds full of zeros and has to leave so, and did not."""


class ConflictingWrites(EmulationError):
    """An output element written twice with different values."""

    check = "writes"


class DivergentCollective(EmulationError):
    """A warp-wide instruction that not all of its lanes executed together."""

    check = "collectives"


class DataRace(EmulationError):
    """Two accesses to the same bytes, at least one a write, with nothing that orders them.

    Attributes:
        kind: what came first and what second: ``write-read``, ``read-write`` or ``write-write``; ``start-access`` and
            ``exit-access`` where a block's shared memory is used by another that does not know it to be there;
            ``launch-access`` and ``launch-end`` where a thread has not waited for the launch before its own.
    """

    check = "races"

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        location: SourceLocation | None = None,
        kind: str = "",
        first: SourceLocation | None = None,
        missing: str = "",
        fix: str = "",
    ) -> None:
        super().__init__(message, kernel=kernel, location=location, first=first, missing=missing, fix=fix)
        self.kind = kind


class MemoryLeak(EmulationError):
    """Memory from `malloc` that no kernel has freed."""

    check = "leaks"


class RedundantStore(EmulationError):
    """Two stores of the same value to the same bytes, with nothing that orders them."""

    check = "redundant-stores"


class MbarrierMisuse(EmulationError):
    """An mbarrier used against its rules: not initialised, too many arrivals, a phase that cannot be waited for."""

    check = "mbarriers"


class ClusterMisuse(EmulationError):
    """A cluster's barrier used against its rules: waited for without an arrival, or arrived at twice."""

    check = "clusters"


class RegisterMisuse(EmulationError):
    """``setmaxnreg`` to fewer registers upwards, or to more downwards."""

    check = "registers"


class Deadlock(EmulationError):
    """No thread can make progress."""

    check = "deadlock"


class KernelTrap(EmulationError):
    """The kernel executed ``trap``, or an assertion in it failed."""

    check = "trap"
