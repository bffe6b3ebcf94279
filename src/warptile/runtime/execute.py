"""The last step of the pipeline: a plan, its compiled kernel and memory, on the emulator or on the GPU.

Both backends take the same `Plan` and the same `LaunchSpec`; they differ in who reads it.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from warptile.arch import ARCHES, REFERENCE_ARCH
from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, Shape
from warptile.codegen.nvrtc import CompiledKernel, CompiledPtx
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.device import DeviceLimits
from warptile.device import usual as usual_device
from warptile.epilogue.fused_epilogue import OUTPUT, Partials
from warptile.errors import DirtyWorkspace, LayoutError, NoDeviceError, UnsupportedError
from warptile.launch.access import NOTHING, Access, Rows
from warptile.launch.spec import LaunchSpec
from warptile.planning import tuned_table
from warptile.planning.addend import Addend
from warptile.planning.gathered_plan import GatheredPlan
from warptile.planning.grouped_plan import GroupedPlan
from warptile.planning.plan import Plan, find_plan, make_plan, unlaunchable
from warptile.problem import Problem
from warptile.rungs import operand_copies
from warptile.rungs.operand_copies import OperandCopy
from warptile.runtime.compilations import Compilations, StandIns, mode

BACKENDS = ("gpu", "emulator")
NO_ELEMENT_BYTES = 16
"""Bytes given to an operand that has no element (K = 0): an address that is never used."""

NO_NUMBERS: Mapping[str, float] = {}
"""Of a plan without an epilogue."""

_log = logging.getLogger("warptile")


Launchable = Plan | Addend | GroupedPlan | GatheredPlan
"""What has a kernel and operands."""


class Place(Protocol):
    """What a plan is made for: a GPU's limits, and the model for which tuning counts, or None."""

    @property
    def device(self) -> DeviceLimits:
        """The GPU, or the one that the emulator stands for."""

    @property
    def gpu(self) -> str | None:
        """Model of the GPU whose tuned configurations count, or None."""


class Backend(Place, Protocol):
    """Where a plan runs, and its name."""

    name: str

    @property
    def arch(self) -> str:
        """Architecture to compile for."""

    def run(
        self, plan: Launchable, operands: Mapping[str, ArrayView], indices: list[Shape], alpha: float, beta: float,
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> None:  # fmt: skip
        """Run ``plan`` once for each index of the leading axes of ``operands`` ("A", "B", "C", "D", and those of the
        epilogue); a plan for a batch runs once, from the first matrix of each. ``numbers``: operands of the epilogue
        that are numbers."""


def planned(
    problem: Problem,
    backend: Place,
    *,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
) -> Plan:
    """The plan for ``problem`` on ``backend``, on ``max_sms`` SMs at most, in the configuration that tuning
    found there, if it did.

    Raises:
        UnsupportedError: as `warptile.planning.plan.make_plan`.
    """
    plan = find_planned(problem, backend, rung=rung, config=config, max_sms=max_sms)
    return plan or make_plan(problem, rung=rung, device=backend.device.occupying(max_sms))  # raises, with the reasons


def find_planned(
    problem: Problem,
    backend: Place,
    *,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
) -> Plan | None:
    """As `planned`; None where no rung takes the problem."""
    frozen = None if config is None else tuple(config.items())
    autotune, gpu = tuned_table.mode(), backend.gpu
    outcomes = tuned_table.outcomes(gpu) if gpu is not None and config is None and autotune != "off" else ""
    return _planned(problem, rung, frozen, backend.device.occupying(max_sms), gpu, autotune, outcomes)


@lru_cache(maxsize=4096)
def _planned(
    problem: Problem,
    rung: str | None,
    config: tuple[tuple[str, int], ...] | None,
    device: DeviceLimits,
    gpu: str | None,
    autotune: str,
    outcomes: str = "",
) -> Plan | None:
    """The plan, or None where there is none. ``autotune`` and ``outcomes`` (`tuned_table.mode`,
    `tuned_table.outcomes`) stand for what tuning had found when it was made: where they change, it is made anew."""
    plan = find_plan(problem, rung=rung, config=None if config is None else dict(config), device=device)
    if plan is None or config is not None or gpu is None:
        return plan
    found = tuned_table.lookup(plan.rung, problem, gpu, device=device)
    if found is None or tuned_table.is_outdated(problem, plan.rung, found.config, plan.config, device):
        return plan
    return Plan(problem, plan.rung, found.config, found.origin, device, rung)


def compiled(plan: Launchable) -> CompiledKernel:
    """The kernel of ``plan``: compiled once a process, and once a machine through the cache on disk."""
    return KERNELS.kernel(translation_unit(plan.kernel), plan.arch)


def compiled_ptx(plan: Launchable) -> CompiledPtx:
    """As `compiled`, what the emulator needs of the kernel, in half of the time: ptxas does not run."""
    return KERNELS.ptx(translation_unit(plan.kernel), plan.arch)


def copy_source(made: Sequence[OperandCopy]) -> Source:
    """The translation unit of the launch that makes one or two copies."""
    return Source(f'#include "{operand_copies.file_of(made)}"\n', operand_copies.name_expression(made))


def sources(plan: Plan) -> list[Source]:
    """Every translation unit that the launches of one product of ``plan`` need."""
    product = translation_unit(plan.kernel)
    return [product, copy_source(plan.kernel.copies)] if plan.kernel.copies else [product]


def copy_launch(made: Sequence[OperandCopy], arch: str) -> tuple[CompiledKernel, LaunchSpec]:
    """The launch that makes one or two copies, and its kernel: compiled as `compiled` does."""
    kernel = KERNELS.kernel(copy_source(made), arch)
    return kernel, operand_copies.launch(made, kernel.entry)


def copy_launches(plan: Launchable) -> list[tuple[CompiledKernel, LaunchSpec]]:
    """What has to be launched before the product of ``plan``, on the same stream: nothing, or all its copies."""
    return [copy_launch(plan.kernel.copies, plan.arch)] if plan.kernel.copies else []


KERNELS, STAND_INS = Compilations(), StandIns()
"""Of this process."""


def serving(plan: Plan, *, captured: bool = False) -> tuple[Plan, Future[CompiledKernel] | None]:
    """The plan to run now in the place of ``plan``: itself if its kernel is compiled, or if nothing else can serve;
    else the fastest plan whose kernel is, while the other one is compiled in the background.

    With ``WARPTILE_COMPILE=wait`` it is always ``plan``, which is then waited for. Compiling begins with
    ``KERNELS.begin()``, which the caller calls when it has launched the plan that it got.

    Args:
        plan: what was planned.
        captured: the launch is recorded for a graph, which would keep another kernel for good: wait.

    Returns:
        The plan, and what is done when there is a better one.
    """
    if mode() == "wait" or captured:
        return plan, None
    missing = [source for source in sources(plan) if not KERNELS.ready(source, plan.arch)]
    if missing:
        for other in STAND_INS.plans_for(plan):
            compiled_too = all(KERNELS.in_memory(source, other.arch) for source in sources(other))
            if compiled_too and unlaunchable(other.kernel, other.device) is None:
                queued = [KERNELS.queue(source, plan.arch) for source in missing]
                return other, queued[-1]
    STAND_INS.note(plan)
    return plan, None


def further_accesses(plan: Launchable) -> dict[str, Access]:
    """Outputs of the epilogue after D, whose elements must have been written as well where they are by rows."""
    problem = plan.problem
    seen = plan.kernel.view.problem.epilogue  # says how partials are blocked
    found = {}
    for index, output in enumerate(problem.epilogue.outputs if problem.epilogue is not None else (), 1):
        size, rows = output.dtype.bits // 8, None
        if isinstance(output, Partials):
            blocks, line = output.shape(problem.m, problem.n, seen.block if seen is not None else 1)
            rows = Rows(
                blocks, line, size, line * size, matrices=problem.batch, matrix_stride_bytes=blocks * line * size
            )
        elif output.column_stride <= 1 and (output.row_stride or problem.m == 1):
            rows = Rows(
                problem.m, problem.n, size, output.row_stride * size, matrices=problem.batch,
                matrix_stride_bytes=output.batch_stride * size,
            )  # fmt: skip
        found[f"{OUTPUT} {index}"] = Access(writes=True, complete=rows)
    return found


def _is_written(name: str) -> bool:
    return name == "D" or name.startswith(OUTPUT)


def output_access(plan: Launchable) -> Access:
    """D: every element must have been written when the launch is over, unless groups have not all of it."""
    problem = plan.problem
    if isinstance(plan, GroupedPlan) and not plan.writes_all_of_d:
        return Access(writes=True)
    size = problem.d.dtype.bits // 8
    rows = Rows(
        problem.m,
        problem.n,
        size,
        problem.d.leading_dimension * size,
        matrices=problem.batch,
        matrix_stride_bytes=problem.d.batch_stride * size,
    )
    return Access(writes=True, complete=rows)


# --- choosing --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def driver_is_installed() -> bool:
    """Whether libcuda can be loaded. Where it cannot, nothing of `warptile.gpu` is imported."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def has_gpu() -> bool:
    """Whether a GPU and its driver are there."""
    if not driver_is_installed():
        return False
    from warptile.gpu import driver

    return driver.available()


class Located(Protocol):
    """Where the memory of an operand is."""

    @property
    def name(self) -> str:
        """The operand in messages."""

    @property
    def framework(self) -> str:
        """That made the array."""

    @property
    def device(self) -> int | None:
        """CUDA ordinal, or None in host memory."""


def choose_backend(requested: str | None, *operands: Located) -> Backend:
    """The backend that was asked for; by default a GPU if there is one, else the emulator, said once on the log.

    ``WARPTILE_BACKEND`` stands in for a missing request; ``WARPTILE_ARCH`` is the architecture that the emulator takes.

    Raises:
        UnsupportedError: no such backend, or no such architecture in ``WARPTILE_ARCH``.
        NoDeviceError: ``"gpu"`` and there is none.
        LayoutError: operands in a GPU's memory and the emulator asked for.
    """
    source = "WARPTILE_BACKEND" if requested is None else "backend"
    name = os.environ.get("WARPTILE_BACKEND") or "auto" if requested is None else requested
    if not isinstance(name, str) or name not in (*BACKENDS, "auto"):
        raise UnsupportedError(f"{source}: got {name!r}; it takes 'gpu', 'emulator' or 'auto' (the default)")
    on_device = next((operand for operand in operands if operand.device is not None), None)
    if name == "emulator" and on_device is not None:
        to_host = {
            "cupy": f"{on_device.name}.get()", "xla": f"jax.device_put({on_device.name}, jax.devices('cpu')[0])",
        }.get(on_device.framework, f"{on_device.name}.cpu()")  # fmt: skip
        raise LayoutError(
            f"{on_device.name} is on cuda:{on_device.device} and the emulator takes arrays in host memory; "
            f"give {to_host}, or backend='gpu'"
        )
    if name == "gpu" and not has_gpu():
        raise NoDeviceError(
            f"{source}='gpu': there is no NVIDIA GPU with a driver here; `warptile doctor` says what is missing, "
            f"and backend='emulator' works without one"
        )
    if name == "auto":
        name = "gpu" if on_device is not None or has_gpu() else "emulator"
        _say(name)
    if name == "emulator":
        arch = os.environ.get("WARPTILE_ARCH") or REFERENCE_ARCH
        if arch not in ARCHES:
            raise UnsupportedError(
                f"WARPTILE_ARCH: got {arch!r}; it takes {', '.join(ARCHES)}, such as {REFERENCE_ARCH}"
            )
        return EmulatorBackend(arch)
    return GpuBackend(on_device.device if on_device else None)


_SAID: dict[str, object] = {}
"""Backends that were taken by default, each with what the call holds that says so."""


def _say(name: str) -> None:
    if name in _SAID:
        return
    mine = object()
    if _SAID.setdefault(name, mine) is not mine:  # of threads that begin together one says it
        return
    if name == "gpu":
        _log.info("running on the GPU")
    else:
        _log.warning("no GPU: kernels run on the emulator, which checks and counts but is slow")


# --- the emulator ----------------------------------------------------------------------------------------------------


class EmulatorBackend:
    """Runs the PTX of a kernel on the CPU, on the user's own host memory."""

    name = "emulator"
    gpu: str | None = None

    def __init__(self, arch: str = REFERENCE_ARCH, schedule: str = "latest") -> None:
        self.device = usual_device(arch)
        self.schedule = schedule

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    def run(
        self, plan: Launchable, operands: Mapping[str, ArrayView], indices: list[Shape], alpha: float, beta: float,
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> None:  # fmt: skip
        """Run ``plan`` once for each index of the leading axes of ``operands``."""
        kernel = compiled_ptx(plan)
        for index in indices:
            buffers = {name: array_view.host_bytes(operand.at(index)) for name, operand in operands.items()}
            self.emulate(plan, kernel, buffers, alpha, beta, numbers=numbers)

    def emulate(
        self,
        plan: Launchable,
        kernel: CompiledPtx,
        buffers: Mapping[str, np.ndarray[Any, Any]],
        alpha: float,
        beta: float,
        recording: Any = None,
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> Any:
        """Run the launches of one product on ``buffers``, changed in place; returns the emulator's report. The
        product's own launch is noted down in ``recording`` (`warptile.emulator.recording`), if one is given.

        The report is that of the product's own launch: its counters are those that hardware counts of that kernel, and
        its lines are of one source. What `Plan.copies` do before it is checked in the same way and not counted.

        Raises:
            EmulationError: as `warptile.emulator.emulate`; `DirtyWorkspace` where a kernel leaves something in a
                workspace that it has to leave full of zeros.
        """
        from warptile.emulator import emulate

        named = {name: each if each.size else np.zeros(NO_ELEMENT_BYTES, np.uint8) for name, each in buffers.items()}
        named |= {each.name: np.zeros(each.bytes, np.uint8) for each in plan.kernel.workspaces}
        accesses = {"D": output_access(plan)} | further_accesses(plan)
        if plan.kernel.copies:
            copying = KERNELS.ptx(copy_source(plan.kernel.copies), plan.arch)
            spec = operand_copies.launch(plan.kernel.copies, copying.entry)
            targets = {name: rows for each in plan.kernel.copies for name, _, rows in each.targets}
            written = {name: Access(writes=True, complete=rows, holds=NOTHING) for name, rows in targets.items()}
            emulate(_module(copying.ptx), spec, named, accesses=written, arch=self.arch, schedule=self.schedule)
            accesses |= {name: Access(holds=rows) for name, rows in targets.items()}
        accesses |= {
            each.target: Access(writes=True, complete=each.written, holds=NOTHING)
            for each in plan.kernel.view.fused_repacks
        }
        asked = plan.kernel.kernel_workspaces
        accesses |= {each.name: Access(writes=True, holds=None if each.zero else NOTHING) for each in asked}
        spec = plan.launch(kernel.entry, alpha, beta, numbers)
        report = emulate(
            _module(kernel.ptx), spec, named, accesses=accesses, arch=self.arch, schedule=self.schedule,
            recording=recording,
        )  # fmt: skip
        for each in asked:
            if each.zero and named[each.name].any():
                first = int(np.flatnonzero(named[each.name])[0])
                raise DirtyWorkspace(
                    f"workspace {each.name}: byte {first} of {each.bytes} is {named[each.name][first]} after the "
                    f"launch; it must be zero again, as it was before",
                    kernel=kernel.entry,
                )
        return report


@lru_cache(maxsize=64)
def _module(ptx: bytes) -> Any:
    from warptile.ptx import parse

    return parse(ptx.decode())


# --- the GPU ---------------------------------------------------------------------------------------------------------


class GpuBackend:
    """Runs the cubin of a kernel on a GPU: on its memory in place, on host memory through a copy there and back."""

    name = "gpu"

    def __init__(self, ordinal: int | None = None) -> None:
        from warptile.gpu import driver

        self.info = driver.device_info(ordinal)
        self.gpu: str | None = self.info.name
        self.device = self.info.limits

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    def is_captured(self, stream: int) -> bool:
        """Whether a stream's work is recorded for a graph."""
        from warptile.gpu import driver

        return driver.is_capturing(stream)

    def load(self, kernel: CompiledKernel) -> Any:
        """The kernel on this GPU; loaded once a process."""
        return _loaded(kernel, self.info.ordinal)

    def run(
        self, plan: Launchable, operands: Mapping[str, ArrayView], indices: list[Shape], alpha: float, beta: float,
        numbers: Mapping[str, float] = NO_NUMBERS,
    ) -> None:  # fmt: skip
        """Run ``plan`` once for each index of the leading axes of ``operands``.

        Operands on the GPU: queued on the caller's current stream, without waiting. In host memory: finished on return.
        """
        from warptile.gpu import driver, staging

        with driver.on_device(self.info.ordinal):
            if operands["D"].device is not None:
                self._queue(plan, operands, indices, alpha, beta, numbers, operands["D"].stream)
                return
            with staging.area(self.info.ordinal) as area:
                names = [*(name for name in operands if not _is_written(name)), *filter(_is_written, operands)]
                placed = [operands[name] for name in names]
                lowest = [each.byte_range()[0] for each in placed]
                spans, size_bytes = staging.layout([(each.pointer, *each.reach()) for each in placed])
                device = area.copy_in(lowest, spans, size_bytes)
                staged = {
                    name: replace(each, pointer=device + span.start + span.before, device=self.info.ordinal)
                    for name, each, span in zip(names, placed, spans, strict=True)
                }
                self._queue(plan, staged, indices, alpha, beta, numbers, area.stream)
                for low, span, name in zip(lowest, spans, names, strict=True):
                    if _is_written(name):
                        area.copy_out(low, span, size_bytes)

    def _queue(
        self, plan: Launchable, operands: Mapping[str, ArrayView], indices: list[Shape], alpha: float, beta: float,
        numbers: Mapping[str, float], stream: int,
    ) -> None:  # fmt: skip
        """Queue the launches for operands that are all in GPU memory."""
        from warptile.gpu import workspaces

        kernel = compiled(plan)
        loaded = self.load(kernel)
        spec = plan.launch(kernel.entry, alpha, beta, numbers)
        shared = workspaces.of_stream(self.info.ordinal, stream)
        with shared.used_on(stream):
            beside = shared.pointers(plan.kernel.workspaces)
            earlier: dict[str, int] = {}
            for index in indices:
                pointers = {name: each.at(index).pointer for name, each in operands.items()} | beside
                # An operand that the batch shares has been copied.
                due = [each for each in plan.kernel.copies if earlier.get(each.source) != pointers[each.source]]
                if due:
                    copying, before = copy_launch(due, plan.arch)
                    self.load(copying).launch(before, pointers, stream)
                loaded.launch(spec, pointers, stream)
                earlier = pointers


@lru_cache(maxsize=512)
def _loaded(kernel: CompiledKernel, ordinal: int) -> Any:
    from warptile.gpu import driver, loader

    with driver.on_device(ordinal):
        return loader.load(kernel, ordinal)
