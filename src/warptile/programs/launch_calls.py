"""Calls that register and launch kernels."""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass, replace

from warptile.emulator.launch_geometry import MAX_CLUSTER_CTAS
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.programs import fat_binary
from warptile.programs.emulated_gpu import (
    INVALID_DEVICE_FUNCTION,
    ProgramModule,
    arguments_of,
    parameter_offsets,
    parameter_sizes,
)  # fmt: skip
from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, answers, signed, unsigned
from warptile.programs.memory_calls import to_device, to_host
from warptile.runtime.kernel_file import KernelFile

_COOPERATIVE, _CLUSTER = 2, 4
_ATTRIBUTE_BYTES, _ATTRIBUTE_VALUE = 72, 8
_LAUNCH_CONFIG, _DRIVER_LAUNCH_CONFIG = "<6I2QQI", "<7I4xQQI"

_KERNEL_ATTRIBUTES = 16
MOST_THREADS, STATIC_SHARED, REGISTERS, PTX_VERSION, BINARY_VERSION = 0, 1, 4, 5, 6
CACHE_MODE, MAX_DYNAMIC_SHARED, CARVEOUT = 7, 8, 9
"""Enumerators of ``CUfunction_attribute``, of which there are `_KERNEL_ATTRIBUTES`."""


@answers("__cudaRegisterFatBinary")
def register_fat_binary(call: Call, wrapper: int) -> int:
    """``void** __cudaRegisterFatBinary(void* wrapper)``: returns a handle."""
    _, _, address, _ = fat_binary.WRAPPER.unpack(call.memory.read(wrapper, fat_binary.WRAPPER.size))
    header = call.memory.read(address, fat_binary.HEADER.size)
    content = call.memory.read(address, fat_binary.size_of(header))
    handle = call.gpu.handle()
    call.gpu.modules[handle] = ProgramModule(fat_binary.ptx_of(content))
    return handle


@answers("__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary")
def register_fat_binary_end(call: Call, handle: int) -> None:
    """Nothing is left to do: modules are loaded when a kernel or variable of theirs is used."""


@answers("__cudaInitModule")
def init_module(call: Call, handle: int) -> int:
    """``char __cudaInitModule(void**)``: 1 for success."""
    return 1


@answers("__cudaRegisterFunction")
def register_function(call: Call, handle: int, host: int, device: int, name: int) -> None:
    """``__cudaRegisterFunction(handle, hostFun, deviceFun, deviceName, ...)``."""
    call.gpu.functions[host] = handle, call.memory.string(name)
    call.gpu.names[host] = name


@answers("cudaFuncGetName")
def func_get_name(call: Call, where: int, function: int) -> None:
    """``cudaFuncGetName(const char**, const void*)``: the name as the compiler says it."""
    if function not in call.gpu.names:
        raise CallError(INVALID_DEVICE_FUNCTION, f"{function:#x} is no kernel that the program has registered")
    call.int64(where, call.gpu.names[function])


@answers("__cudaRegisterVar")
def register_variable(call: Call, handle: int, host: int, device: int, name: int, external: int, size: int) -> None:
    """``__cudaRegisterVar(handle, hostVar, deviceAddress, deviceName, ext, size, constant, global)``."""
    call.gpu.variables[host] = handle, call.memory.string(name), size


@answers("__cudaPushCallConfiguration")
def push_call_configuration(
    call: Call, grid_xy: int, grid_z: int, block_xy: int, block_z: int, shared: int, stream: int
) -> int:
    """``unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t)``: 0 for success."""
    call.gpu.configurations.append((grid_xy, unsigned(grid_z), block_xy, unsigned(block_z), shared, stream))
    return 0


@answers("__cudaPopCallConfiguration")
def pop_call_configuration(call: Call, grid: int, block: int, shared: int, stream: int) -> int:
    """``cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*)``."""
    if not call.gpu.configurations:
        return INVALID_VALUE
    grid_xy, grid_z, block_xy, block_z, shared_bytes, handle = call.gpu.configurations.pop()
    call.memory.pack("<QI", grid, grid_xy, grid_z)
    call.memory.pack("<QI", block, block_xy, block_z)
    call.int64(shared, shared_bytes)
    call.int64(stream, handle)
    return 0


@answers("__cudaGetKernel", "cudaGetKernel", "cudaGetFuncBySymbol")
def get_kernel(call: Call, where: int, host: int) -> None:
    """``cudaGetKernel(cudaKernel_t*, const void* hostFun)``: a kernel's handle is the address of its host function."""
    call.gpu.kernel_of(host)
    call.int64(where, host)


@answers("cudaLaunchKernel", "__cudaLaunchKernel")
def launch_kernel(
    call: Call, kernel: int, grid_xy: int, grid_z: int, block_xy: int, block_z: int, arguments: int, shared: int,
    stream: int,
) -> None:  # fmt: skip
    """``cudaLaunchKernel(func, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t)``."""
    launch(call, kernel, LaunchOptions(_extents(grid_xy, grid_z), _extents(block_xy, block_z), shared), arguments)


@answers("cudaLaunchCooperativeKernel")
def launch_cooperative_kernel(
    call: Call, kernel: int, grid_xy: int, grid_z: int, block_xy: int, block_z: int, arguments: int, shared: int,
    stream: int,
) -> None:  # fmt: skip
    """``cudaLaunchCooperativeKernel``, whose arguments are those of ``cudaLaunchKernel``."""
    options = LaunchOptions(_extents(grid_xy, grid_z), _extents(block_xy, block_z), shared, cooperative=True)
    launch(call, kernel, options, arguments)


@answers("cudaLaunchKernelExC")
def launch_kernel_ex(call: Call, config: int, kernel: int, arguments: int) -> None:
    """``cudaLaunchKernelExC(const cudaLaunchConfig_t*, func, void** args)``."""
    launch(call, kernel, _options(call, config), arguments)


@dataclass(frozen=True)
class LaunchOptions:
    """Extents of a launch, bytes of dynamic shared memory, and what attributes say."""

    grid: Dim3
    block: Dim3
    shared: int
    cluster: Dim3 = (1, 1, 1)
    cooperative: bool = False


def _options(call: Call, config: int) -> LaunchOptions:
    """What a ``cudaLaunchConfig_t`` says. Attributes of other kinds than clusters and cooperation change no result."""
    gx, gy, gz, bx, by, bz, shared, _, attributes, count = call.memory.unpack(_LAUNCH_CONFIG, config)
    return _attributes_of(call, LaunchOptions((gx, gy, gz), (bx, by, bz), shared), attributes, count)


def driver_options(call: Call, config: int) -> LaunchOptions:
    """What a ``CUlaunchConfig`` says."""
    gx, gy, gz, bx, by, bz, shared, _, attributes, count = call.memory.unpack(_DRIVER_LAUNCH_CONFIG, config)
    return _attributes_of(call, LaunchOptions((gx, gy, gz), (bx, by, bz), shared), attributes, count)


def _attributes_of(call: Call, options: LaunchOptions, attributes: int, count: int) -> LaunchOptions:
    """A launch with what its attributes say: ``cudaLaunchAttribute`` or ``CUlaunchAttribute``, which are alike."""
    for number in range(count):
        at = attributes + number * _ATTRIBUTE_BYTES
        (kind,) = call.memory.unpack("<I", at)
        options = with_attribute(call, options, kind, at + _ATTRIBUTE_VALUE)
    return options


def with_attribute(call: Call, options: LaunchOptions, kind: int, where: int) -> LaunchOptions:
    """A launch with what one attribute says, whose value lies at an address."""
    x, y, z = call.memory.unpack("<3I", where)
    if kind == _CLUSTER:
        return replace(options, cluster=(x, y, z))
    return replace(options, cooperative=bool(x)) if kind == _COOPERATIVE else options


def _extents(xy: int, z: int) -> Dim3:
    return unsigned(xy), xy >> 32, unsigned(z)


def launch(call: Call, kernel: int, options: LaunchOptions, arguments: int, *, buffer: int = 0) -> None:
    """Launch a kernel by its handle.

    Args:
        call: that asks for it.
        kernel: address of its host function, or another handle.
        options: of the launch.
        arguments: address of an array with the address of each argument.
        buffer: address of all arguments, as they lie in the kernel's memory, if ``arguments`` is 0.

    Raises:
        CallError: the launch is refused, or an earlier kernel has left an error behind.
    """
    call.gpu.check()
    try:
        work = kernel_work(call, kernel, options, arguments, buffer=buffer)
    except CallError:
        call.gpu.refuse(f"launch of {call.gpu.kernel_name(kernel)}")
        raise
    call.do(work, NodeType.KERNEL)


@dataclass(frozen=True)
class LaunchWork:
    """A launch with its arguments: ``kernel`` and ``options`` are what `launch` was given."""

    kernel: int
    options: LaunchOptions
    file: KernelFile
    content: tuple[bytes, ...]

    def __call__(self, call: Call) -> None:
        """Launch it."""
        options = self.options
        spec = LaunchSpec(
            self.file.entry, options.grid, options.block, arguments_of(list(self.content)), cluster=options.cluster,
            dynamic_shared_bytes=options.shared, co_resident=options.cooperative, cooperative=options.cooperative,
        )  # fmt: skip
        _launch(call, self.file, spec)


def kernel_work(
    call: Call, kernel: int, options: LaunchOptions, arguments: int, *, buffer: int = 0
) -> LaunchWork:  # fmt: skip
    """The launch that arguments stand for now; they and errors are those of `launch`."""
    shared = options.shared
    file = call.gpu.kernel_of(kernel)
    allowed = max(48 << 10, call.gpu.dynamic_shared.get(kernel, 0))
    if shared > allowed:
        raise CallError(
            INVALID_VALUE,
            f"{file.name}: {shared} bytes of dynamic shared memory; beyond {48 << 10} bytes, "
            f"cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) allows them",
        )
    sizes = parameter_sizes(file.function)
    if not arguments and not buffer and sizes:
        raise CallError(INVALID_VALUE, f"{file.name} has {len(sizes)} parameters, and no arguments are given")
    if arguments:
        places = call.memory.unpack(f"<{len(sizes)}Q", arguments)
    else:
        places = tuple(buffer + offset for offset in parameter_offsets(file.function))
    content = tuple(call.memory.read(at, size) for at, size in zip(places, sizes, strict=True))
    return LaunchWork(kernel, options, file, content)


def _launch(call: Call, file: KernelFile, spec: LaunchSpec) -> None:
    to_device(call)
    printed = call.gpu.launch(file, spec)
    to_host(call)
    if printed:
        call.flush_output()
        os.write(sys.stdout.fileno(), printed.encode())


@answers("cudaFuncSetAttribute", "cudaKernelSetAttributeForDevice", "cuFuncSetAttribute")
def func_set_attribute(call: Call, kernel: int, attribute: int, value: int) -> None:
    """``cudaFuncSetAttribute(func, cudaFuncAttribute, int)``."""
    file = call.gpu.kernel_of(kernel)
    most = call.gpu.limits.generation.shared_bytes_per_block
    if unsigned(attribute) == MAX_DYNAMIC_SHARED:
        if not 0 <= signed(value) <= most:
            raise CallError(
                INVALID_VALUE, f"{file.name}: {signed(value)} bytes of shared memory; a CTA has up to {most}"
            )
        call.gpu.dynamic_shared[kernel] = signed(value)


@answers("cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig", "cuFuncSetCacheConfig")
def func_set_cache_config(call: Call, kernel: int, config: int) -> None:
    """Preferences change nothing."""


@answers("cudaFuncGetAttributes")
def func_get_attributes(call: Call, where: int, kernel: int) -> None:
    """``cudaFuncGetAttributes(cudaFuncAttributes*, func)``. Registers are not known without ptxas: 0."""
    found = kernel_attributes(call, kernel)
    call.int64(where, found[STATIC_SHARED], 0, 0)
    rest = MOST_THREADS, REGISTERS, PTX_VERSION, BINARY_VERSION, CACHE_MODE, MAX_DYNAMIC_SHARED, CARVEOUT
    call.int32(where + 24, *(found[each] for each in rest), *[0] * 6)


def kernel_attributes(call: Call, kernel: int) -> dict[int, int]:
    """Attributes of a kernel by their enumerators in ``CUfunction_attribute``. Registers are not known without ptxas:
    0."""
    file = call.gpu.kernel_of(kernel)
    directives = file.function.directives
    return dict.fromkeys(range(_KERNEL_ATTRIBUTES), 0) | {
        MOST_THREADS: math.prod(directives.get("reqntid") or directives.get("maxntid") or (1024,)),
        STATIC_SHARED: _static_shared(file),
        PTX_VERSION: int(re.sub(r"\D", "", file.module.target)),
        BINARY_VERSION: call.gpu.limits.generation.capability,
        MAX_DYNAMIC_SHARED: call.gpu.dynamic_shared.get(kernel, 48 << 10),
        CARVEOUT: -1,
    }


@answers(
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
)  # fmt: skip
def occupancy_max_active_blocks(call: Call, where: int, kernel: int, threads: int, shared: int) -> None:
    """CTAs on an SM at a time, by warps and shared memory; registers are not known without ptxas."""
    call.int32(where, ctas_per_sm(call, kernel, signed(threads), shared))


@answers("cudaOccupancyAvailableDynamicSMemPerBlock", "cuOccupancyAvailableDynamicSMemPerBlock")
def occupancy_available_shared(call: Call, where: int, kernel: int, ctas: int, threads: int) -> None:
    """``cudaOccupancyAvailableDynamicSMemPerBlock(size_t*, func, int numBlocks, int blockSize)``."""
    generation = call.gpu.limits.generation
    static = _static_shared(call.gpu.kernel_of(kernel))
    each = generation.shared_bytes_per_sm // max(signed(ctas), 1) - (1024 if generation.capability >= 80 else 0)
    call.int64(where, max(min(each, generation.shared_bytes_per_block) - static, 0))


@answers("cudaOccupancyMaxActiveClusters")
def occupancy_max_active_clusters(call: Call, where: int, kernel: int, config: int) -> None:
    """``cudaOccupancyMaxActiveClusters(int*, func, const cudaLaunchConfig_t*)``."""
    call.int32(where, _active_clusters(call, kernel, _options(call, config)))


@answers("cuOccupancyMaxActiveClusters")
def driver_max_active_clusters(call: Call, where: int, kernel: int, config: int) -> None:
    """``cuOccupancyMaxActiveClusters(int*, f, const CUlaunchConfig*)``."""
    call.int32(where, _active_clusters(call, kernel, driver_options(call, config)))


def _active_clusters(call: Call, kernel: int, options: LaunchOptions) -> int:
    """Clusters of a launch that the GPU holds at a time."""
    size = math.prod(options.cluster)
    ctas = ctas_per_sm(call, kernel, math.prod(options.block), options.shared) * call.gpu.limits.multiprocessors
    return ctas // size if 1 <= size <= MAX_CLUSTER_CTAS else 0


def ctas_per_sm(call: Call, kernel: int, threads: int, shared: int) -> int:
    """CTAs of a kernel that an SM holds at a time, by warps and shared memory."""
    file, generation = call.gpu.kernel_of(kernel), call.gpu.limits.generation
    static = _static_shared(file)
    used = static + shared + (1024 if generation.capability >= 80 else 0)
    if threads < 1 or static + shared > generation.shared_bytes_per_block:
        return 0
    return min(
        generation.max_blocks_per_sm, generation.max_warps_per_sm // -(-threads // 32),
        generation.shared_bytes_per_sm // max(used, 1),
    )  # fmt: skip


def _static_shared(file: KernelFile) -> int:
    """Bytes of a kernel's own shared variables."""
    return sum(each.size_bytes for each in file.function.variables if each.space == "shared")
