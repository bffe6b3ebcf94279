"""`kernel`: CUDA C++ or PTX as an object that is called on arrays, on a GPU or on the emulator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warptile.arrays.options import flag
from warptile.emulator.async_ops.cp_async import check_schedule
from warptile.errors import ArgumentError, ArgumentTypeError, LayoutError
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.runtime.execute import GpuBackend, choose_backend
from warptile.runtime.kernel_file import KernelFile, compiled_kernel, read_kernel
from warptile.user_kernels.arguments import arrays_in, launch_arguments
from warptile.user_kernels.array_memory import ArrayMemory
from warptile.user_kernels.emulated_launches import checks_of, current, emulate_launch, seeds_of
from warptile.user_kernels.kernel_report import KernelReport

_EXAMPLE = "kernel[(8, 4), 128](x, y, 5)"


def kernel(
    source: str | Path,
    entry: str | None = None,
    *,
    arch: str | None = None,
    options: Sequence[str] = (),
    include_folders: Sequence[str | Path] = (),
    backend: str | None = None,
    schedule: str = "latest",
    explore: int = 0,
    checks: Iterable[str] = ("default",),
    ignore: Iterable[str] = (),
    model: str = "ptx",
    volatile: str = "strong",
    cooperative: bool = False,
) -> UserKernel:
    """A kernel of CUDA C++ or PTX, as an object that launches it.

    It is compiled when it is launched for the first time.

    Args:
        source: a file (``.cu``, ``.cuh``, ``.cpp``; ``.ptx``), or text of CUDA C++ or PTX. A string without line
            breaks and braces is a file.
        entry: the kernel: ``"gemm"``, ``"mine::gemm<128, float>"``, or its name in PTX; it may be left out where the
            source has one that is no template.
        arch: to compile for and to emulate, such as ``"sm_90a"``; by default the GPU's, and without one
            ``WARPTILE_ARCH`` or the reference architecture.
        options: of NVRTC, such as ``("-DTILE=64", "-std=c++20")``.
        include_folders: where headers are looked for, before CUDA's.
        backend: ``"gpu"``, ``"emulator"``, or None: a GPU if there is one.
        schedule: of the emulator: ``"latest"``, ``"earliest"`` or ``"random:SEED"``.
        explore: of the emulator: run again under ``"random:1"`` to ``"random:EXPLORE"``, and report what any run finds.
            Arrays hold what ``schedule`` computes.
        checks: of the emulator: names in `warptile.emulator.ALL_CHECKS`, ``"default"`` or ``"all"``; ``()`` for none.
        ignore: names to take away from these.
        model: memory model of the emulator's checks, ``"ptx"`` or ``"common"``, as `warptile.emulator.select_checks`.
        volatile: ``"strong"``, or ``"weak"``: volatile accesses race like plain ones.
        cooperative: all blocks are resident at the same time, for ``grid.sync()`` of cooperative groups.

    Raises:
        ArgumentError: a file or folder does not exist, or ``explore`` is no whole number from 0.
        ArgumentTypeError: a value of another type.
        UnsupportedError: an unknown check, model or schedule.

    Example:
        ``gemm = wt.kernel("gemm.cu", "gemm<128, 128>")``, then ``report = gemm[(8, 8), 256](a, b, c, 1024)``
    """
    path, text = _source(source)
    if entry is not None and not isinstance(entry, str):
        raise ArgumentTypeError(
            f"entry: got {entry!r}; it takes the name of a kernel, such as wt.kernel('gemm.cu', 'gemm<128>')"
        )
    check_schedule(schedule)
    return UserKernel(
        path, text, entry, arch=arch, options=_options(options), include_folders=_folders(include_folders),
        backend=backend, schedule=schedule,
        explore=seeds_of(explore), checks=checks_of(checks, ignore=ignore, model=model, volatile=volatile),
        cooperative=flag(cooperative, "cooperative"),
    )  # fmt: skip


def _source(source: str | Path) -> tuple[Path, bytes | None]:
    """The path of a source, and its text where that was given instead."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        is_ptx = any(line.lstrip().startswith(".version") for line in source.splitlines())
        return Path("source.ptx" if is_ptx else "source.cu"), source.encode()
    if not isinstance(source, str | Path):
        raise ArgumentTypeError(
            f"source: got {type(source).__name__}; it takes a file or text, such as wt.kernel('gemm.cu', 'gemm<128>')"
        )
    path = Path(source)
    if not os.path.isfile(path):  # of names that no system takes, Path.is_file raises
        raise ArgumentError(
            f"source: there is no file {str(source)!r}; it takes a file of CUDA C++ or PTX, or its text, "
            f"such as wt.kernel('gemm.cu', 'gemm<128>')"
        )
    return path, None


def _options(options: Sequence[str]) -> tuple[str, ...]:
    if isinstance(options, str) or not all(isinstance(each, str) for each in options):
        raise ArgumentTypeError(
            f"options: got {options!r}; it takes a sequence of NVRTC's options, such as options=('-DTILE=64',)"
        )
    return tuple(options)


def _folders(folders: Sequence[str | Path]) -> tuple[Path, ...]:
    if isinstance(folders, str | Path) or not all(isinstance(each, str | Path) for each in folders):
        raise ArgumentTypeError(
            f"include_folders: got {folders!r}; it takes a sequence of folders, such as include_folders=('include',)"
        )
    for each in folders:
        if not os.path.isdir(each):
            raise ArgumentError(
                f"include_folders: there is no folder {str(each)!r}; it takes folders with headers, such as "
                f"include_folders=('include',)"
            )
    return tuple(Path(each) for each in folders)


@dataclass(frozen=True)
class _Compiled:
    """A kernel for one architecture, and on a GPU its machine code (`warptile.user_kernels.gpu_launch`)."""

    file: KernelFile
    loaded: Any = None


class UserKernel:
    """A user's kernel. ``k[grid, block](...)`` launches it; `kernel` makes it."""

    def __init__(
        self,
        path: Path,
        text: bytes | None,
        entry: str | None,
        *,
        arch: str | None,
        options: tuple[str, ...],
        include_folders: tuple[Path, ...],
        backend: str | None,
        schedule: str,
        explore: int,
        checks: frozenset[str],
        cooperative: bool,
    ) -> None:
        self._path, self._text, self._entry = path, text, entry
        self._arch, self._backend = arch, backend
        self._options, self._include_folders = options, include_folders
        self._schedule, self._explore = schedule, explore
        self._checks, self._cooperative = checks, cooperative
        self._compiled: dict[tuple[str, bool], _Compiled] = {}

    def __repr__(self) -> str:
        return f"warptile.kernel({str(self._path)!r}{f', {self._entry!r}' if self._entry else ''})"

    def __call__(self, *arguments: Any, **keywords: Any) -> None:
        """Refused: a launch has a grid and blocks.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(f"{self!r}: called without grid and block; give them first, such as {_EXAMPLE}")

    def __getitem__(self, configuration: Any) -> KernelLaunch:
        """How to launch: ``[grid, block]``, ``[grid, block, cluster]`` or ``[grid, block, cluster, shared bytes]``.

        Extents are whole numbers or tuples of up to three; None for a cluster means the kernel's own.

        Raises:
            ArgumentError: anything else.
        """
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 4:
            raise ArgumentError(
                f"kernel[...]: got {len(parts)} of grid, block, cluster and bytes of shared memory; give 2 to 4 of "
                f"them, such as {_EXAMPLE}"
            )
        grid, block, cluster, smem = (*parts, None, None)[:4]
        if smem is not None and (not _is_whole(smem) or smem < 0):
            raise ArgumentError(
                f"kernel[...]: got {smem!r} bytes of dynamic shared memory; it takes a whole number, such as "
                f"kernel[8, 128, None, 49152](x)"
            )
        return KernelLaunch(
            self, _extent(grid, "grid"), _extent(block, "block"),
            (1, 1, 1) if cluster is None else _extent(cluster, "cluster"), int(smem or 0),
        )  # fmt: skip

    def launch(
        self, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int, values: Sequence[Any]
    ) -> KernelReport | None:
        """Launch it; `KernelLaunch` says how, and what comes back."""
        memories = arrays_in(values)
        _refuse_mixed(memories)
        emulated = current()
        backend = choose_backend(self._backend if emulated is None else "emulator", *memories)
        arch = (emulated and emulated.arch) or self._arch or backend.arch
        compiled = self._for(arch, machine_code=isinstance(backend, GpuBackend))
        arguments, regions = launch_arguments(compiled.file.function, values)
        spec = LaunchSpec(
            compiled.file.entry, grid, block, arguments, cluster=cluster, dynamic_shared_bytes=shared_bytes,
            co_resident=self._cooperative, cooperative=self._cooperative,
        )  # fmt: skip
        if isinstance(backend, GpuBackend):
            compiled.loaded.launch(spec, regions, backend.info.ordinal)
            return None
        return emulate_launch(
            compiled.file, spec, regions, arch=arch, schedule=self._schedule, explore=self._explore,
            checks=self._checks,
        )  # fmt: skip

    def _for(self, arch: str, *, machine_code: bool) -> _Compiled:
        """The kernel for an architecture, compiled once."""
        key = arch, machine_code
        if key not in self._compiled:
            file = read_kernel(
                self._path, arch, entry=self._entry, include_folders=self._include_folders, options=self._options,
                machine_code=machine_code, text=self._text,
            )  # fmt: skip
            loaded = None
            if machine_code:
                from warptile.user_kernels.gpu_launch import LoadedKernels

                loaded = LoadedKernels(compiled_kernel(file, arch))
            self._compiled[key] = _Compiled(file, loaded)
        return self._compiled[key]


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with the extents of a launch: call it with the kernel's arguments.

    Attributes:
        kernel: what is launched.
        grid: CTAs in x, y, z.
        block: threads in x, y, z.
        cluster: CTAs of a cluster in x, y, z; (1, 1, 1) for what the kernel itself says.
        shared_bytes: dynamic shared memory of a CTA.
    """

    kernel: UserKernel
    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int = 0

    def __call__(self, *arguments: Any, **keywords: Any) -> KernelReport | None:
        """Launch the kernel.

        Args:
            arguments: one for each parameter. A pointer takes an array (NumPy, torch, CuPy or with
                ``__cuda_array_interface__``), which the kernel may write in place, or None; a number takes a number; a
                struct takes a NumPy record, a ctypes structure or `warptile.struct`; a ``CUtensorMap`` takes
                `warptile.tensor_map`.
            keywords: refused; parameters have no names.

        Returns:
            On the emulator, what it counted and found. On a GPU None: arrays in its memory are ready as the caller's
            current stream is, NumPy arrays when this returns.

        Raises:
            ArgumentError, ArgumentTypeError: arguments that the parameters do not take.
            DTypeError: an array whose elements are not what the parameter, by the kernel's C++ name, points to.
            CompileError: the source does not compile.
            EmulationError: what the emulator cannot run, such as an unknown instruction. What its checks find is in
                the report.
            DeviceError, UnsupportedError: the GPU refuses the launch.
        """
        if keywords:
            raise ArgumentTypeError(
                f"kernel[...](): got {', '.join(f'{name}=' for name in keywords)}; the compiler keeps no names of "
                f"parameters: give arguments in order, such as {_EXAMPLE}"
            )
        return self.kernel.launch(self.grid, self.block, self.cluster, self.shared_bytes, arguments)


def _refuse_mixed(memories: Sequence[ArrayMemory]) -> None:
    """All arrays of a call are in host memory, or on one GPU.

    Raises:
        LayoutError: they are not.
    """
    for each in memories[1:]:
        if each.device != memories[0].device:
            places = ["host memory" if one.device is None else f"cuda:{one.device}" for one in (memories[0], each)]
            raise LayoutError(
                f"{memories[0].name} is in {places[0]} and {each.name} in {places[1]}; all arrays of a call are in one "
                f"place: copy one of them, such as torch.from_numpy(x).cuda()"
            )


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__")


def _extent(given: Any, what: str) -> Dim3:
    """Three extents of a whole number, or of up to three of them."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3 or not all(_is_whole(each) and each >= 1 for each in parts):
        raise ArgumentError(
            f"kernel[...]: got {what} {given!r}; it takes one to three whole numbers from 1, such as {_EXAMPLE}"
        )
    x, y, z = (*(int(each) for each in parts), 1, 1)[:3]
    return x, y, z
