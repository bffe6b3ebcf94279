"""The GPU that a program sees: memory, modules, launches, errors, and what the checks have found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from warptile.bench.profiling.source_files import files_of
from warptile.codegen.file_names import files_of as named_files
from warptile.codegen.file_names import renamed, short_names
from warptile.codegen.kernel_names import instance_name
from warptile.device import DeviceLimits, usual
from warptile.emulator import DeviceMemory, EmulationFinding, EmulationReport, emulate
from warptile.emulator.findings import Findings
from warptile.errors import EmulationError, UnsupportedError
from warptile.launch.params import StructBytes
from warptile.launch.spec import LaunchSpec
from warptile.launch.texture import Texture
from warptile.programs.fat_binary import FatPtx, chosen
from warptile.programs.graphs import ProgramGraph
from warptile.programs.library_calls import SUCCESS, CallError
from warptile.ptx import parse
from warptile.ptx.instruction import PtxFunction, Variable
from warptile.runtime.kernel_file import KernelFile
from warptile.user_kernels.kernel_report import KernelReport

INVALID_CONFIGURATION, INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, NO_KERNEL_IMAGE = 9, 98, 13, 209
LAUNCH_FAILURE = 719

STICKY = {
    "IllegalAddress": 700, "MisalignedAccess": 716, "IllegalInstruction": 715, "KernelTrap": 710, "Deadlock": 702,
}  # fmt: skip
"""The ``cudaError_t`` that a kernel leaves behind which ends early, by what ended it; any other is `LAUNCH_FAILURE`."""


NO_STATUS = frozenset(
    {"cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorName", "cudaGetErrorString", "cudaCreateChannelDesc"}
)
"""Functions of the runtime that return no result of their own."""


@dataclass
class ProgramModule:
    """A fat binary that the program registered or loaded.

    Attributes:
        candidates: its PTX, for each architecture.
        file: what was chosen for the GPU, parsed; made when it is first needed.
    """

    candidates: list[FatPtx]
    file: KernelFile | None = None


@dataclass
class KernelTotals:
    """What the launches of one kernel have come to; ``last`` is the last one."""

    name: str
    launches: int = 0
    warp_instructions: int = 0
    findings: int = 0
    last: tuple[KernelFile, LaunchSpec, EmulationReport] | None = None


@dataclass
class ProgramOptions:
    """How a program's kernels are emulated: as of `warptile.emulator.emulate`, and whether calls are listed."""

    arch: str
    schedule: str
    checks: frozenset[str]
    trace: bool = False


class EmulatedGpu:
    """State that all calls share.

    Attributes:
        options: how kernels are emulated.
        runtime: version of the CUDA runtime that the program was built for.
        limits: the GPU that it stands for.
        memory: global memory.
        shared: allocations that the host reads and writes too, which hold what the host's memory holds between
            launches: address and size.
        variable_pages: pages of the process that hold managed variables.
        modules, functions, variables: what the program has registered: by handle; kernels (module and name) and
            variables (module, name, size) by the address of what stands for them on the host.
        names: where the program keeps the name of a kernel, by the address of its host function.
        configurations: of launches whose kernel is not called yet.
        pinned: those among them that cudaMallocHost or cudaHostAlloc has made.
        registered: memory of the host that cudaHostRegister was told of, by address: its bytes, and where its copy on
            the device begins, which holds the same between launches; 0 before the program has asked for that.
        dynamic_shared: bytes that a kernel was allowed, by the address of its host function.
        events: when each was recorded.
        totals: by kernel.
        findings: of all launches, each once.
        capture: the graph of what was given since a stream is captured, ``captured_stream``; None where none is.
        graphs: by handle; ``launched_graph`` is the one whose work is being done.
        graph_memory: addresses of what graphs allocate, and the graph that has allocated it last.
        arrays: of ``cudaMallocArray`` and ``cudaMalloc3DArray``, by handle.
        pools: attributes of each memory pool, by handle; the first is the default one, ``pool`` another one that is
            used in its place.
        last_error: what ``cudaGetLastError`` returns.
        sticky: an error of a kernel, which all later calls return.
        unknown: CUDA functions that the program called and that nothing answers.
        refused: launches that were not made, by kernel, and calls that would have reached beyond memory, by function:
            how often. A GPU refuses them too, or the emulator lacks something; in both cases what the program goes on
            to do is not what was meant to be checked.
    """

    def __init__(self, options: ProgramOptions, say: Callable[[str], None], runtime: int = 13) -> None:
        self.options = options
        self.runtime = runtime
        self.limits: DeviceLimits = usual(options.arch)
        self.memory = DeviceMemory()
        self.shared: dict[int, int] = {}
        self.pinned: set[int] = set()
        self.registered: dict[int, tuple[int, int]] = {}
        self.variable_pages: set[int] = set()
        self.modules: dict[int, ProgramModule] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.names: dict[int, int] = {}
        self.variables: dict[int, tuple[int, str, int]] = {}
        self.configurations: list[tuple[int, ...]] = []
        self.dynamic_shared: dict[int, int] = {}
        self.totals: dict[str, KernelTotals] = {}
        self.findings: dict[tuple[object, ...], EmulationFinding] = {}
        self.events: dict[int, float | None] = {}
        self.capture: ProgramGraph | None = None
        self.captured_stream = 0
        self.graphs: dict[int, ProgramGraph] = {}
        self.launched_graph: ProgramGraph | None = None
        self.graph_memory: dict[int, ProgramGraph | None] = {}
        self.arrays: dict[int, Texture] = {}
        self.pools: dict[int, dict[int, int]] = {}
        self.pool = 0
        self.last_error = SUCCESS
        self.sticky = SUCCESS
        self.unknown: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self._say = say
        self._names = 0
        self._noted: set[tuple[str, str]] = set()
        self._handles = 0x1000

    @property
    def failed(self) -> bool:
        """Whether kernels did anything that is more than a warning, or did nothing because a call was refused."""
        return bool(self.sticky) or bool(self.refused) or any(each.fails for each in self.findings.values())

    def handle(self) -> int:
        """A new number that stands for an object."""
        self._handles += 16
        return self._handles

    def allocation_name(self, what: str) -> str:
        """What messages call a new allocation: ``cudaMalloc 3``."""
        self._names += 1
        return f"{what} {self._names}"

    def returned(self, status: int, function: str) -> int:
        """Note down what a call returns."""
        if self.options.trace:
            self._say(f"{function} returned {status}")
        if status and function.startswith("cuda") and function not in NO_STATUS:
            self.last_error = status
        return status

    def refuse(self, what: str) -> None:
        """Count a launch of a kernel, or a call of a function, that is `refused`."""
        self.refused[what] = self.refused.get(what, 0) + 1

    def note(self, function: str, why: str) -> None:
        """Say why a call returns an error, the first time."""
        if why and (function, why) not in self._noted:
            self._noted.add((function, why))
            self._say(f"{function.removeprefix('__')}: {why}")

    def warn(self, function: str, why: str) -> None:
        """Say something that may be meant, the first time."""
        self.note(function, f"warning: {why}")

    def check(self) -> None:
        """Raise what an earlier kernel left behind, as a call that waits for the GPU returns it.

        Raises:
            CallError: there is something.
        """
        if self.sticky:
            raise CallError(self.sticky)

    # --- modules -----------------------------------------------------------------------------------------------------

    def file_of(self, handle: int) -> KernelFile:
        """The module of a handle, loaded.

        Raises:
            CallError: none of its PTX is for this GPU.
        """
        module = self.modules[handle]
        if module.file is None:
            capability = self.limits.generation.capability
            found = chosen(module.candidates, capability)
            if found is None:
                targets = ", ".join(each.target for each in module.candidates) or "no architecture"
                raise CallError(
                    NO_KERNEL_IMAGE,
                    f"there is PTX for {targets} and none that {self.options.arch} runs; --arch names another GPU, and "
                    f"nvcc -gencode arch=compute_{capability},code=compute_{capability} adds PTX",
                )
            names = short_names(named_files(found.text))
            text = renamed(found.text, names).decode()
            parsed = parse(text)
            module.file = KernelFile(
                Path("program.ptx"), next(iter(parsed.entries), ""), text, parsed,
                {name: Path(file) for file, name in names.items()}, names,
            )  # fmt: skip
            self.memory.load(parsed)
        return module.file

    def kernel_of(self, function: int) -> KernelFile:
        """The kernel that the address of a host function stands for, and its module.

        Raises:
            CallError: it is no kernel.
        """
        if function not in self.functions:
            raise CallError(INVALID_DEVICE_FUNCTION, f"{function:#x} is no kernel that the program has registered")
        handle, name = self.functions[function]
        file = self.file_of(handle)
        if name not in file.module.functions:
            raise CallError(INVALID_DEVICE_FUNCTION, f"its PTX has no kernel {instance_name(name)}")
        return replace(file, entry=name)

    def kernel_name(self, function: int) -> str:
        """What messages call the kernel of a host function."""
        return instance_name(self.functions[function][1]) if function in self.functions else "an unknown kernel"

    def symbol(self, variable: int) -> tuple[int, int]:
        """Device address and size of the variable that a host variable stands for.

        Raises:
            CallError: it is none.
        """
        if variable not in self.variables:
            raise CallError(INVALID_SYMBOL, f"{variable:#x} is no variable that the program has registered")
        handle, name, size = self.variables[variable]
        symbols = self.memory.load(self.file_of(handle).module)
        if name not in symbols:
            raise CallError(INVALID_SYMBOL, f"the program's PTX has no variable {name}")
        return symbols[name], size

    # --- launches ----------------------------------------------------------------------------------------------------

    def launch(self, kernel: KernelFile, spec: LaunchSpec) -> str:
        """Emulate a launch, whose arguments are bytes; returns what the kernel has printed.

        Raises:
            CallError: the launch itself is refused.
        """
        name = instance_name(kernel.entry)
        totals = self.totals.setdefault(kernel.entry, KernelTotals(name))
        totals.launches += 1
        try:
            found = emulate(
                kernel.module, spec, {}, arch=self.options.arch, schedule=self.options.schedule,
                checks=self.options.checks, device=self.memory, collect=True,
            )  # fmt: skip
        except UnsupportedError as error:
            self.refuse(f"launch of {name}")
            raise CallError(INVALID_CONFIGURATION, f"{name}: {error}") from None
        except EmulationError as error:
            self._say(f"{name}: {type(error).__name__}: {error}")
            totals.findings += 1
            self.sticky = LAUNCH_FAILURE
            return ""
        totals.warp_instructions += int(found.counters["warp_instructions"])
        totals.last = kernel, spec, found
        self._list(kernel.entry, totals, found.findings)
        if not found.finished:
            stopped = next((each.kind for each in reversed(found.findings) if each.stopped), "")
            self.sticky = STICKY.get(stopped, LAUNCH_FAILURE)
        return found.output

    def report(self, error: EmulationError) -> None:
        """A call has found an error that a kernel has made in an earlier launch."""
        assert error.kernel is not None
        findings = Findings(collect=True, schedule=self.options.schedule)
        findings.report(error)
        self._list(error.kernel, self.totals[error.kernel], findings.all())

    def _list(self, entry: str, totals: KernelTotals, found: tuple[EmulationFinding, ...]) -> None:
        """Say what has been found of a kernel, each finding once."""
        totals.findings += len(found)
        new = tuple(each for each in found if (entry, each.key) not in self.findings)
        self.findings |= {(entry, each.key): each for each in new}
        if new and totals.last is not None:
            kernel, spec, launch = totals.last
            options, launch = self.options, replace(launch, findings=new)
            report = KernelReport(totals.name, spec, options.arch, options.schedule, launch, files_of(kernel))
            self._say(report.findings_text())


def parameter_sizes(function: PtxFunction) -> list[int]:
    """Bytes of each parameter of a kernel."""
    return [each.size_bytes for each in function.parameters if isinstance(each, Variable)]


def parameter_offsets(function: PtxFunction) -> list[int]:
    """Where each parameter of a kernel begins, in bytes from the first."""
    offsets, top = [], 0
    for each in function.parameters:
        if isinstance(each, Variable):
            offsets.append(-(-top // each.alignment_bytes) * each.alignment_bytes)
            top = offsets[-1] + each.size_bytes
    return offsets


def arguments_of(content: list[bytes]) -> tuple[StructBytes, ...]:
    """Arguments of a launch that are known as bytes."""
    return tuple(StructBytes(each) for each in content)
