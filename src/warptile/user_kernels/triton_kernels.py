"""`emulate_triton`: what Triton compiled, launched on the emulator."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from warptile.arch import REFERENCE_ARCH
from warptile.arch import arch as find_arch
from warptile.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.launch.triton_metadata import SCRATCH, TritonLaunch, triton_launch
from warptile.runtime.kernel_file import read_kernel
from warptile.user_kernels.arguments import launch_arguments
from warptile.user_kernels.array_memory import array_memory, is_array
from warptile.user_kernels.emulated_launches import checks_of, emulate_launch, seeds_of
from warptile.user_kernels.kernel_report import KernelReport
from warptile.user_kernels.parameter_values import ArrayTensorMap, tensor_map_of

_CONSTANT = "constexpr"
"""Type in a signature of what is compiled into the kernel."""

_SWIZZLES = ("none", "32B", "64B", "128B")
"""Of a tensor map, by Triton's number."""

_EXAMPLE = "wt.emulate_triton(kernel[(8,)], x, y, n, BLOCK=1024)"


def emulate_triton(
    launch: Any,
    *arguments: Any,
    grid: Any = None,
    arch: str | None = None,
    schedule: str = "latest",
    explore: int = 0,
    checks: Iterable[str] = ("default",),
    ignore: Iterable[str] = (),
    model: str = "ptx",
    volatile: str = "strong",
    **keywords: Any,
) -> KernelReport:
    """Run a Triton kernel on the emulator and check it. No GPU is needed, also not to compile it.

    Args:
        launch: ``kernel[grid]`` of a function with ``@triton.jit``, which Triton compiles for these arguments; or a
            kernel that Triton has compiled (``triton.compiler.CompiledKernel``), or ``compiled[grid]``.
        arguments: of the kernel, as Triton takes them; arrays are NumPy's or torch's in host memory, and are written in
            place. Of a compiled kernel, constants may be left out.
        grid: programs in x, y, z, where ``launch`` has none; may be a function of the arguments by name.
        arch: architecture that Triton compiles for and that is emulated; by default the reference architecture, and of
            a compiled kernel its own.
        schedule, explore, checks, ignore, model, volatile: as of `warptile.kernel`.
        keywords: arguments by name, and Triton's options such as ``num_warps=4``.

    Raises:
        ArgumentTypeError, ArgumentError: no Triton kernel, no grid, or arguments that the kernel does not take.
        UnsupportedError: a kernel that Triton tunes, a tensor descriptor of another than tiled mode.
        EmulationError: what the emulator cannot run. What its checks find is in the report.

    Example:
        ``report = wt.emulate_triton(add_kernel[(4,)], x, y, out, 4096, BLOCK=1024)``
    """
    chosen = checks_of(checks, ignore=ignore, model=model, volatile=volatile)
    kernel, grid = _unwrapped(launch, grid)
    if hasattr(kernel, "asm"):
        compiled, values = kernel, _values_of_compiled(kernel, arguments, keywords)
    elif hasattr(kernel, "warmup"):
        compiled = _compiled(kernel, arguments, keywords, grid, arch or REFERENCE_ARCH)
        values = _bound(kernel, arguments, keywords)
    else:
        raise ArgumentTypeError(
            f"emulate_triton: got {type(launch).__name__}; it takes kernel[grid] of a function with @triton.jit, "
            f"or what Triton compiled, such as {_EXAMPLE}"
        )
    if grid is None:
        raise ArgumentError(f"emulate_triton: no grid; give one, such as {_EXAMPLE}")
    metadata = _metadata(compiled)
    how = triton_launch(metadata)
    file = read_kernel(Path(f"{how.entry}.ptx"), arch or REFERENCE_ARCH, entry=how.entry, text=_ptx(compiled))
    programs = _programs(grid, values)
    signature = _signature(compiled)
    parameters = [
        each for name, value in values.items() for each in _flat(name, signature.get(name), value, _maps(metadata))
    ]
    parameters += _scratch(how, len(file.function.parameters) - len(parameters), math.prod(how.grid(programs)))
    given, regions = launch_arguments(
        file.function, [each.value for each in parameters], [each.name for each in parameters]
    )
    spec = LaunchSpec(
        how.entry, how.grid(programs), (how.threads, 1, 1), given, cluster=(how.cluster_ctas, 1, 1),
        dynamic_shared_bytes=how.shared_bytes, overlaps_previous=how.overlaps_previous, co_resident=how.cooperative,
    )  # fmt: skip
    return emulate_launch(
        file, spec, regions, arch=arch or _known_arch(file.module.target), schedule=schedule,
        explore=seeds_of(explore), checks=chosen, unwritten=SCRATCH,
    )  # fmt: skip


@dataclass(frozen=True)
class _Value:
    """What one kernel parameter gets, and its name in reports."""

    name: str
    value: Any


def _unwrapped(launch: Any, grid: Any) -> tuple[Any, Any]:
    """Kernel and grid of ``kernel[grid]``, which is a function that remembers both; else as they were given."""
    if not inspect.isfunction(launch):
        return launch, grid
    held = inspect.getclosurevars(launch).nonlocals
    if "self" not in held or "grid" not in held:
        raise ArgumentTypeError(
            f"emulate_triton: got the function {launch.__name__}, which is no kernel[grid]; decorate it with "
            f"@triton.jit, such as {_EXAMPLE}"
        )
    return held["self"], held["grid"]


# --- compiling -------------------------------------------------------------------------------------------------------


class _TensorLike:
    """What Triton asks of a tensor when it compiles: type and alignment."""

    def __init__(self, array: Any) -> None:
        memory = array_memory(array, "array")
        self.dtype = memory.element
        self._address = memory.lead + memory.pointer - memory.low

    def data_ptr(self) -> int:
        """An address of the alignment that the array has on a device."""
        return self._address


def _compiled(kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], grid: Any, arch: str) -> Any:
    """What Triton compiles for these arguments, without a GPU."""
    import triton

    with _compiling_for(triton, arch):
        made = kernel.warmup(
            *map(_described, arguments), grid=grid, **{name: _described(each) for name, each in keywords.items()}
        )
    if not hasattr(made, "asm"):
        raise UnsupportedError(
            "emulate_triton: Triton tunes this kernel, which takes a GPU; emulate one configuration of it, such as "
            "wt.emulate_triton(kernel.fn[grid], ..., BLOCK=1024, num_warps=4)"
        )
    return made


def _described(value: Any) -> Any:
    """An argument as Triton's compiler takes it: of NumPy's arrays their description."""
    return _TensorLike(value) if isinstance(value, np.ndarray) else value


@contextmanager
def _compiling_for(triton: Any, arch: str) -> Iterator[None]:
    """Triton compiles for an architecture inside the block, whether there is such a GPU or not."""
    from triton.backends.compiler import GPUTarget

    config = triton.runtime.driver
    target = GPUTarget("cuda", find_arch(arch).capability, 32)
    before = config._active
    config.set_active(
        SimpleNamespace(
            get_current_device=lambda: f"warptile {arch}",
            get_current_stream=lambda device: 0,
            get_current_target=lambda: target,
        )
    )
    try:
        yield
    finally:
        config._active = before


# --- what a compiled kernel says of itself ---------------------------------------------------------------------------


def _metadata(compiled: Any) -> Mapping[str, Any]:
    """`CompiledKernel.metadata`, which is a named tuple in Triton and a dictionary in its files."""
    found = compiled.metadata
    if isinstance(found, Mapping):
        return found
    fields: Mapping[str, Any] = found._asdict() if hasattr(found, "_asdict") else vars(found)
    return fields


def _ptx(compiled: Any) -> bytes:
    try:
        text = compiled.asm["ptx"]
    except KeyError:
        raise UnsupportedError(
            "emulate_triton: the kernel has no PTX; compile it for an NVIDIA GPU, such as "
            "triton.compile(source, target=GPUTarget('cuda', 90, 32))"
        ) from None
    return text if isinstance(text, bytes) else str(text).encode()


def _signature(compiled: Any) -> Mapping[str, Any]:
    """Triton's type of each argument, as far as the kernel says it."""
    found = getattr(getattr(compiled, "src", None), "signature", None) or {}
    return {str(name): kind for name, kind in found.items()}


def _maps(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | None]:
    """What Triton chose for the tensor map of each tensor descriptor, in order."""
    return iter(metadata.get("tensordesc_meta") or ())


def _known_arch(target: str) -> str:
    """The architecture that PTX was compiled for, or the reference architecture where it is none that is emulated."""
    try:
        return find_arch(target).name
    except UnsupportedError:
        return REFERENCE_ARCH


# --- arguments -------------------------------------------------------------------------------------------------------


def _bound(kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a Triton function by name; Triton's own options are no arguments."""
    while not hasattr(kernel, "signature") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    names = kernel.signature.parameters
    bound = kernel.signature.bind_partial(
        *arguments, **{name: each for name, each in keywords.items() if name in names}
    )
    bound.apply_defaults()
    return dict(bound.arguments)


def _values_of_compiled(compiled: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a compiled kernel by name, with or without those that are constants."""
    signature = _signature(compiled)
    names = list(signature) or [f"arg{position}" for position in range(len(arguments))]
    needed = [name for name in names if not _is_constant(signature.get(name))]
    left = [name for name in names if name not in keywords]
    if len(arguments) != len(left):
        left = [name for name in needed if name not in keywords]
    if len(arguments) != len(left):
        raise ArgumentError(
            f"emulate_triton: got {len(arguments) + len(keywords)} arguments; {_metadata(compiled)['name']} takes "
            f"{len(needed)} ({', '.join(needed)}), such as wt.emulate_triton(compiled, {', '.join(needed)}, grid=(8,))"
        )
    given = dict(zip(left, arguments, strict=True)) | dict(keywords)
    return {name: given[name] for name in names if name in given}


def _is_constant(kind: Any) -> bool:
    return kind == _CONSTANT or (isinstance(kind, tuple) and all(map(_is_constant, kind)))


def _programs(grid: Any, values: Mapping[str, Any]) -> Dim3:
    """The programs of a launch in x, y and z."""
    found = grid(values) if callable(grid) else grid
    parts = tuple(found) if isinstance(found, Sequence) else (found,)
    if not 1 <= len(parts) <= 3 or not all(hasattr(each, "__index__") and each >= 1 for each in parts):
        raise ArgumentError(
            f"emulate_triton: got grid {found!r}; it takes one to three numbers from 1, as in {_EXAMPLE}"
        )
    x, y, z = (*(int(each) for each in parts), 1, 1)[:3]
    return x, y, z


def _flat(name: str, kind: Any, value: Any, maps: Iterator[Mapping[str, Any] | None]) -> Iterator[_Value]:
    """The kernel parameters that one argument becomes, by its type in Triton: none for constants, several for tuples
    and tensor descriptors."""
    if _is_constant(kind):
        return
    if isinstance(kind, tuple):
        for position, (inner, each) in enumerate(zip(kind, value, strict=True)):
            yield from _flat(f"{name}[{position}]", inner, each, maps)
    elif isinstance(kind, str) and kind.startswith("tensordesc"):
        yield from _descriptor(name, kind, value, next(maps, None))
    else:
        yield _Value(name, _number(name, kind, value))


def _number(name: str, kind: Any, value: Any) -> Any:
    """A value that has its parameter's type; arrays as they are."""
    if kind == "nvTmaDesc":
        raise UnsupportedError(
            f"emulate_triton: {name} is a tensor map that a driver encoded; give a TensorDescriptor "
            f"(triton.tools.tensor_descriptor)"
        )
    if value is None or is_array(value) or not isinstance(kind, str) or kind.startswith("*"):
        return value
    convert: Callable[[Any], Any] = {
        "fp16": lambda number: np.float16(number).view(np.uint16),
        "bf16": lambda number: ml_dtypes.bfloat16(number).view(np.uint16),
    }.get(kind, float if kind.startswith("f") else int)
    return convert(value)


def _descriptor(name: str, kind: str, value: Any, meta: Mapping[str, Any] | None) -> Iterator[_Value]:
    """A tensor descriptor of the host: a tensor map, extents and strides; or where Triton makes no map, all that the
    descriptor says, and extents and strides again."""
    shape, strides = [int(each) for each in value.shape], [int(each) for each in value.strides]
    memory = array_memory(value.base, name)
    if meta is None:
        tf32 = [bool(value.round_f32_to_tf32)] if hasattr(value, "round_f32_to_tf32") else []
        head = [value.base, *shape, *strides, getattr(value, "padding", "zero") == "nan", *tf32]
    elif meta.get("is_im2col") or meta.get("fp4_padded"):
        raise UnsupportedError(
            f"emulate_triton: {name} is {kind}, a tensor map in another than tiled mode, or of padded 4-bit elements; "
            f"the emulator takes tiled ones of whole bytes"
        )
    else:
        in_bytes = tuple(each * memory.element_bytes for each in strides)
        fields = tensor_map_of(
            replace(memory, shape=tuple(shape), strides=in_bytes), meta["block_size"],
            swizzle=_SWIZZLES[meta["swizzle"]], oob_fill=getattr(value, "padding", "zero"),
            dtype="tf32" if getattr(value, "round_f32_to_tf32", False) else None,
        )  # fmt: skip
        head = [ArrayTensorMap(memory, fields)]
    for part in (*head, *shape, *strides):
        yield _Value(name, part)


def _scratch(how: TritonLaunch, missing: int, ctas: int) -> list[_Value]:
    """Memory that Triton's launcher adds behind the arguments."""
    if not 0 < missing <= len(SCRATCH):
        return []
    memory = np.empty(how.scratch_bytes * ctas, np.uint8) if how.scratch_bytes else None
    return [_Value(name, each) for name, each in zip(SCRATCH, (memory, None), strict=True)][:missing]
