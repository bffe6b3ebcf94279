"""Options that say which kernel of a file to launch, and how: of `warptile emulate` and `warptile profile --file`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warptile.arch import ARCHES, REFERENCE_ARCH
from warptile.cli._folding import tell
from warptile.cli._made_arrays import FILLS, made_array
from warptile.cli._names import OneOf, instead
from warptile.codegen.cuda_file import STANDARD
from warptile.codegen.kernel_names import parameter_types, plain_name
from warptile.errors import ArgumentError
from warptile.launch.access import NOTHING, Access
from warptile.launch.params import SCALAR_BYTES, Pointer, Scalar
from warptile.launch.spec import Argument, Dim3, LaunchSpec
from warptile.launch.tensor_map import TENSOR_MAP_BYTES, TensorMap
from warptile.launch.triton_metadata import SCRATCH, triton_launch_beside
from warptile.ptx.instruction import PtxFunction, Variable

if TYPE_CHECKING:
    import numpy as np

    from warptile.bench.profiling.file_profile import UserLaunch

Command = TypeVar("Command", bound=Callable[..., Any])

SCALARS = {f"i{bits}": f"s{bits}" for bits in (8, 16, 32, 64)} | {name: name for name in SCALAR_BYTES}
"""Spelling on the command line -> type in a `LaunchSpec`."""

_BOOLS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class KernelArgument:
    """One ``--arg``: the kernel's argument and, for a buffer, its file and content. ``written``: its content is wanted
    afterwards; ``scratch``: the kernel may write it, and it holds nothing before; ``made``: it may be written, and is
    not kept. Of the last two, the path is a name for messages."""

    argument: Argument
    path: Path | None = None
    array: np.ndarray[Any, Any] | None = None
    written: bool = False
    scratch: bool = False
    made: bool = False


def extent(context: click.Context, parameter: click.Parameter, text: str | None) -> Dim3 | None:
    """Three extents from ``X``, ``X,Y`` or ``X,Y,Z``, missing ones 1; None where the option is left out."""
    if text is None:
        return None
    try:
        extents = [int(part) for part in text.split(",")]
    except ValueError:
        extents = []
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise click.BadParameter(f"got {text!r}; it takes one to three whole numbers from 1, such as 8,4,1")
    x, y, z = [*extents, 1, 1][:3]
    return x, y, z


def arguments(context: click.Context, parameter: click.Parameter, specs: tuple[str, ...]) -> tuple[KernelArgument, ...]:
    """Every ``--arg``, with its file read."""
    return tuple(argument(spec) for spec in specs)


def check_names(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names of checks, each option with one or several between commas."""
    from warptile.emulator.findings import ALL_CHECKS, CHECKS  # imports NumPy

    names = tuple(name for each in given for name in map(str.strip, each.split(",")) if name)
    known = {"default", "all"} if parameter.name == "checks" else set[str]()
    for name in names:
        if name not in (ALL_CHECKS | set(CHECKS) | known):
            raise click.BadParameter(instead(name, tuple(sorted(ALL_CHECKS | known))))
    return names


def schedule_named(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """``latest``, ``earliest`` or ``random:SEED``."""
    kind, _, seed = given.partition(":")
    if given not in ("latest", "earliest") and not (kind == "random" and seed.isascii() and seed.isdigit()):
        raise click.BadParameter(f"got {given!r}; it takes latest, earliest or random:SEED, such as random:7")
    return given


def argument(spec: str) -> KernelArgument:
    """A kernel argument from ``i32:5``, ``f32:1.5``, ``in:PATH.npy``, ``inout:PATH.npy``, ``zeros:f32:1024``,
    ``random:f32:1024`` or ``tensormap:PATH.json``.

    Raises:
        UnsupportedError: a tensor map of a kind that is not supported.
        click.BadParameter: anything else, a value that does not fit, or a file that cannot be read.
    """
    kind, colon, text = spec.partition(":")
    if not colon or (kind not in SCALARS and kind not in ("in", "inout", "tensormap", *FILLS)):
        raise click.BadParameter(
            f"got {spec!r}; it takes {', '.join(SCALARS)}, in, inout, {', '.join(FILLS)} or tensormap, such as i32:5, "
            f"in:a.npy or random:f32:1024"
        )
    if kind in SCALARS:
        return KernelArgument(scalar(SCALARS[kind], text))
    if kind in FILLS:
        return KernelArgument(Pointer(None), Path(spec), made_array(kind, text, SCALARS), made=True)
    if kind == "tensormap":
        from warptile.cli import _tensor_map_file

        tensor, base, written = _tensor_map_file.read(Path(text))
        return KernelArgument(tensor, base, array_of(str(base)), written)
    return KernelArgument(Pointer(None), Path(text), array_of(text), kind == "inout")


def array_of(text: str) -> np.ndarray[Any, Any]:
    """The array in a file, C-contiguous."""
    import ml_dtypes  # noqa: F401  (registers its types with NumPy, whose files may hold them)
    import numpy as np

    try:
        array = np.load(text, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it holds no array of numbers"
        raise click.BadParameter(f"{text}: not a readable .npy file ({why}); numpy.save makes one") from None
    if not isinstance(array, np.ndarray):
        raise click.BadParameter(f"{text}: an archive of several arrays; save one with numpy.save")
    if not array.dtype.isnative:
        raise click.BadParameter(
            f"{text}: got byte order {array.dtype.str!r}, and a GPU reads and writes the native one; save "
            f"x.astype(x.dtype.newbyteorder('=')) with numpy.save"
        )
    return np.array(array, order="C")


def scalar(kind: str, text: str) -> Scalar:
    """A scalar of PTX type ``kind``."""
    if kind == "bool":
        if text not in _BOOLS:
            raise click.BadParameter(f"{text!r} is no bool; it takes {', '.join(_BOOLS)}, such as bool:1")
        return Scalar(kind, _BOOLS[text])
    try:
        value: int | float = float(text) if "f" in kind else int(text, 0)
    except ValueError:
        raise click.BadParameter(
            f"got {text!r}, which is no {kind}; it takes a number, such as {'f32:1.5' if 'f' in kind else 'i32:5'}"
        ) from None
    if "f" not in kind:
        bits = int(kind[1:])
        low, high = (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= value <= high:
            raise click.BadParameter(f"{text} does not fit into {kind}, which holds {low} to {high}")
    return Scalar(kind, value)


def buffer_names(given: tuple[KernelArgument, ...]) -> dict[int, str]:
    """A name for each buffer argument: its file's, with a number where two arguments name the same file.

    A tensor map has the buffer of another argument of the same file, if there is one.
    """
    names: dict[int, str] = {}
    for position, one in enumerate(given):
        if one.path is None:
            continue
        same = [
            names[other]
            for other in names
            if TensorMap in (type(one.argument), type(given[other].argument))
            and (given[other].path or Path()).resolve() == one.path.resolve()
        ]
        plain = one.path.name if one.path.name not in names.values() else f"{one.path.name} (argument {position})"
        names[position] = same[0] if same else plain
    return names


def buffers_of(given: tuple[KernelArgument, ...]) -> dict[str, KernelArgument]:
    """The argument that each buffer comes from, by the buffer's name."""
    return {name: given[position] for position, name in reversed(buffer_names(given).items())}


def written_of(given: tuple[KernelArgument, ...]) -> list[str]:
    """Names of the buffers that the kernel may write."""
    names = buffer_names(given)
    return list(dict.fromkeys(names[position] for position, one in enumerate(given) if one.written))


def check_targets(given: tuple[KernelArgument, ...]) -> None:
    """Two buffers must not end in one file."""
    buffers = buffers_of(given)
    written = [buffers[name] for name in written_of(given)]
    files = [one.path.name for one in written if one.path is not None]
    for file in files:
        if files.count(file) > 1:
            raise click.UsageError(f"two inout: arguments would be written to {file}; rename one of the files")


def named(argument: Argument, name: str | None) -> Argument:
    """An argument whose operand is called ``name``; scalars, which have none, as they are."""
    if name is None:
        return argument
    return replace(argument, operand=name) if isinstance(argument, TensorMap) else Pointer(name)


def with_scratch(
    function: PtxFunction, given: tuple[KernelArgument, ...], scratch_bytes: int
) -> tuple[KernelArgument, ...]:
    """The arguments of a kernel that Triton compiled, with what Triton's launcher adds behind those of its caller: the
    addresses of scratch memory of all CTAs together, and of memory for a profiler, which it does not get."""
    missing = len(function.parameters) - len(given)
    if not 0 < missing <= len(SCRATCH):
        return given
    import numpy as np

    added = [KernelArgument(Pointer(None)) for _ in range(missing)]
    if scratch_bytes:
        added[0] = KernelArgument(Pointer(None), Path(SCRATCH[0]), np.zeros(scratch_bytes, np.uint8), scratch=True)
    return (*given, *added)


def check_arguments(function: PtxFunction, given: tuple[KernelArgument, ...]) -> None:
    """Number and size of the arguments must be the kernel's."""
    parameters = [each for each in function.parameters if isinstance(each, Variable)]
    shown = ", ".join(f"{each.type}{f'[{each.size_bytes}]' if each.size_bytes > 8 else ''}" for each in parameters)
    if len(parameters) != len(given):
        raise click.UsageError(
            f"{plain_name(function.name)} takes {len(parameters)} parameters ({shown}) and got {len(given)} --arg; "
            f"give one for each, in order, such as {' '.join(f'--arg {_example(each)}' for each in parameters)}"
        )
    types: Sequence[str | None] = parameter_types(function.name) or ()
    if len(types) != len(parameters):
        types = [None] * len(parameters)
    for position, (parameter, one) in enumerate(zip(parameters, given, strict=True)):
        size = 8
        if isinstance(one.argument, Scalar):
            size = SCALAR_BYTES[one.argument.type]
        elif isinstance(one.argument, TensorMap):
            size = TENSOR_MAP_BYTES
        if size != parameter.size_bytes:
            raise click.UsageError(
                f"--arg {position} has {size} bytes and parameter {position} of {plain_name(function.name)} is "
                f"{parameter.type} of {parameter.size_bytes} bytes"
            )
        if isinstance(one.argument, Scalar):
            _check_kind(position, parameter, one.argument.type)
        elif one.array is not None and isinstance(one.argument, Pointer):
            _check_elements(position, types[position], one)


def _check_kind(position: int, parameter: Variable, given: str) -> None:
    """A parameter that is a whole number in PTX takes no floating-point number of its size, nor the other way round."""
    kind = str(parameter.type).lstrip(".")
    if kind[0] not in "suf" or (kind[0] == "f") == ("f" in given):
        return
    raise click.UsageError(
        f"--arg {position} is {given} and parameter {position} is {parameter.type}, which would read its bits as "
        f"another number; give --arg {_example(parameter)}"
    )


def _check_elements(position: int, cuda_type: str | None, one: KernelArgument) -> None:
    """A pointer takes no array of elements that it cannot point to, by the C++ name of the kernel."""
    from warptile.user_kernels.parameter_values import SCALAR_TYPES
    from warptile.user_kernels.pointed_types import taken_instead

    assert one.array is not None
    element = one.array.dtype.name
    taken = taken_instead(cuda_type, element)
    if not taken:
        return
    advice = f"save x.astype({taken[0]!r}) with numpy.save, or x.view('uint8') for the bytes as they are"
    if one.made:
        fill, _, extents = str(one.path).split(":")
        advice = f"give --arg {fill}:{SCALAR_TYPES.get(taken[0], 'u8').replace('s', 'i')}:{extents}"
    raise click.UsageError(
        f"--arg {position} has elements of {element} and parameter {position} is {cuda_type}, which takes "
        f"{', '.join(taken)}, or bytes; {advice}"
    )


def _example(parameter: Variable) -> str:
    """An ``--arg`` that a parameter takes."""
    kind = str(parameter.type).lstrip(".")
    if parameter.size_bytes > 8:
        return "tensormap:map.json" if parameter.size_bytes == TENSOR_MAP_BYTES else "..."
    return {"u64": "zeros:f32:1024", "b64": "zeros:f32:1024", "b32": "i32:1"}.get(kind, f"{kind}:1")


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

KERNEL_FILE = _FILE
"""A file of CUDA C++ (``.cu``, ``.cuh``, ``.cpp`` ...) or of PTX (``.ptx``)."""

_OPTIONS = (
    click.option("--entry", help="Kernel to run, such as gemm or 'gemm<128>'; may be left out when the file has one."),
    click.option(
        "--arch", type=OneOf("arch", lambda: tuple(ARCHES)), default=REFERENCE_ARCH, show_default=True,
        help="Architecture to behave as, and to compile for.",
    ),
    click.option("--grid", callback=extent, metavar="X,Y,Z", default="1", show_default=True, help="CTAs."),
    click.option(
        "--block", callback=extent, metavar="X,Y,Z", help="Threads of a block.  [what the kernel requires, else 1]"
    ),
    click.option("--cluster", callback=extent, metavar="X,Y,Z", help="CTAs of a cluster.  [1]"),
    click.option(
        "--cooperative", is_flag=True, help="Launch cooperatively, as grid.sync() of cooperative groups needs it."
    ),
    click.option("--smem", type=click.IntRange(0), metavar="BYTES", help="Dynamic shared memory of a block.  [0]"),
    click.option(
        "--arg", "given", callback=arguments, metavar="SPEC", multiple=True,
        help="One for each kernel parameter, in order.",
    ),
    click.option(
        "-I", "include_folders", type=_FOLDER, metavar="FOLDER", multiple=True, help="Where headers are looked for."
    ),
    click.option("-D", "defines", metavar="NAME[=VALUE]", multiple=True, help="Define a macro."),
    click.option("--std", "standard", metavar="c++NN", help=f"Standard of C++.  [{STANDARD}]"),
    click.option(
        "--schedule", default="latest", show_default=True, callback=schedule_named,
        help="latest, earliest or random:SEED.",
    ),
)  # fmt: skip

_CHECK_OPTIONS = (
    click.option(
        "--check", "checks", callback=check_names, metavar="NAMES", multiple=True, default=("default",),
        help="Checks to make, such as races,writes, or default, or all; '' for none.  [default]",
    ),
    click.option(
        "--ignore", callback=check_names, metavar="NAMES", multiple=True, help="Checks to leave out of them."
    ),
    click.option(
        "--model", type=click.Choice(["ptx", "common"]), default="ptx", show_default=True,
        help="Memory model: of the PTX ISA, or with what common code relies on.",
    ),
    click.option(
        "--volatile", type=click.Choice(["strong", "weak"]), default="strong", show_default=True,
        help="Whether volatile accesses may race like plain ones (weak).",
    ),
)  # fmt: skip


def launch_options(command: Command) -> Command:
    """The options that say which kernel of a file to launch and how."""
    command = check_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_options(command: Command) -> Command:
    """The options that say what the emulator checks: the arguments of `warptile.emulator.select_checks`."""
    for option in reversed(_CHECK_OPTIONS):
        command = option(command)
    return command


def file_launch(
    file: Path,
    *,
    entry: str | None,
    arch: str,
    grid: Dim3,
    block: Dim3 | None,
    cluster: Dim3 | None,
    cooperative: bool,
    smem: int | None,
    given: tuple[KernelArgument, ...],
    include_folders: tuple[Path, ...],
    defines: tuple[str, ...],
    standard: str | None,
    schedule: str,
    checks: tuple[str, ...],
    ignore: tuple[str, ...],
    model: str,
    volatile: str,
    machine_code: bool = False,
) -> UserLaunch:
    """The launch that the options of `launch_options` say. What they leave open is taken from Triton's metadata beside
    a PTX file, and from what the kernel requires.

    Raises:
        click.UsageError: the file cannot be read, there is no such kernel, or the arguments are not its parameters.
        CompileError, PtxSyntaxError: as `warptile.runtime.kernel_file.read_kernel`.
        UnsupportedError: likewise, or there is no such check.
    """
    import numpy as np

    from warptile.bench.profiling.file_profile import UserLaunch
    from warptile.codegen.cuda_file import left_out_text
    from warptile.emulator import select_checks
    from warptile.runtime.kernel_file import read_kernel

    beside = triton_launch_beside(file) if file.suffix == ".ptx" else None
    triton = None
    if beside is not None and entry in (None, beside[1].entry):
        tell(f"{file}: launched as Triton's {beside[0].name} says")
        triton = beside[1]
        entry, grid = triton.entry, triton.grid(grid)
        block, smem = block or (triton.threads, 1, 1), triton.shared_bytes if smem is None else smem
        cluster = cluster or (triton.cluster_ctas, 1, 1)
    options = [f"-D{each}" for each in defines] + ([f"-std={standard}"] if standard else [])
    try:
        kernel = read_kernel(
            file, arch, entry=entry, include_folders=include_folders, options=options, machine_code=machine_code
        )
    except ArgumentError as error:
        hint, _, said = str(error).partition(": ")
        raise click.BadParameter(said, param_hint=f"--{hint}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file}: not readable as {_kind(file)} ({error})", param_hint="FILE") from None
    for said in left_out_text(kernel.left_empty, kernel.left_out, kernel.left_out_of_headers):
        tell(f"{file}: {said}")
    if triton is not None:
        given = with_scratch(kernel.function, given, triton.scratch_bytes * math.prod(grid))
    check_arguments(kernel.function, given)
    names, owners, written = buffer_names(given), buffers_of(given), written_of(given)
    spec = LaunchSpec(
        entry=kernel.entry,
        grid=grid,
        block=block or _required_block(kernel.function),
        arguments=tuple(named(one.argument, names.get(position)) for position, one in enumerate(given)),
        cluster=cluster or (1, 1, 1),
        dynamic_shared_bytes=smem or 0,
        overlaps_previous=triton is not None and triton.overlaps_previous,
        co_resident=cooperative or (triton is not None and triton.cooperative),
        cooperative=cooperative or (triton is not None and triton.cooperative),
    )
    arrays = {name: one.array for name, one in owners.items() if one.array is not None}
    return UserLaunch(
        kernel, spec, {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()},
        {name: _access(one, name in written) for name, one in owners.items()}, arch, schedule,
        select_checks(checks, ignore=ignore, model=model, volatile=volatile),
    )  # fmt: skip


def _access(one: KernelArgument, written: bool) -> Access:
    return Access(writes=True, holds=NOTHING) if one.scratch else Access(writes=written or one.made)


def _required_block(function: PtxFunction) -> Dim3:
    """The threads of a block that a kernel is compiled for (``.reqntid``), or one."""
    x, y, z = (*function.directives.get("reqntid", ()), 1, 1, 1)[:3]
    return x, y, z


def _kind(file: Path) -> str:
    return "PTX text" if file.suffix == ".ptx" else "CUDA C++"
