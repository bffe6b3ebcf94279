"""Functions of the CUDA driver that load modules and launch their kernels, for programs that use no runtime."""

from __future__ import annotations

from warptile.errors import PtxSyntaxError
from warptile.launch.spec import Dim3
from warptile.programs import fat_binary
from warptile.programs.emulated_gpu import NO_KERNEL_IMAGE, ProgramModule
from warptile.programs.fat_binary import FatPtx, ptx_of, target_of
from warptile.programs.launch_calls import LaunchOptions, driver_options, launch
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, answers, signed, unsigned
from warptile.programs.memory_size import device_bytes

CONTEXT = 0xC0DE0
"""Handle of the one context."""

_NOT_FOUND = 500
_BUFFER, _BUFFER_BYTES = 1, 2
"""``CU_LAUNCH_PARAM_BUFFER_POINTER`` and ``CU_LAUNCH_PARAM_BUFFER_SIZE``."""

_INVALID_PTX = 218
_WRAPPER_MAGIC = 0x466243B1


@answers("cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPopCurrent_v2", "cuCtxCreate_v2", "cuCtxCreate_v4")
def get_context(call: Call, where: int) -> None:
    """There is one context, which is always current."""
    call.int64(where, CONTEXT)


@answers("cuDeviceGetName")
def device_get_name(call: Call, where: int, size: int) -> None:
    """``cuDeviceGetName(char*, int, CUdevice)``."""
    name = f"{call.gpu.limits.name} (emulated)".encode()
    call.memory.write(where, name[: max(signed(size) - 1, 0)] + b"\0")


@answers("cuDeviceTotalMem_v2")
def device_total_memory(call: Call, where: int) -> None:
    """``cuDeviceTotalMem(size_t*, CUdevice)``."""
    call.int64(where, device_bytes())


@answers("cuDeviceComputeCapability")
def device_compute_capability(call: Call, major: int, minor: int) -> None:
    """``cuDeviceComputeCapability(int*, int*, CUdevice)``."""
    capability = call.gpu.limits.generation.capability
    call.int32(major, capability // 10)
    call.int32(minor, capability % 10)


@answers("cuDeviceGetUuid", "cuDeviceGetUuid_v2")
def device_get_uuid(call: Call, where: int) -> None:
    """``cuDeviceGetUuid(CUuuid*, CUdevice)``."""
    call.memory.write(where, b"warptile emulate")


@answers("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData")
def module_load_data(call: Call, where: int, image: int) -> None:
    """``cuModuleLoadData(CUmodule*, const void*)``, of PTX or of a fat binary with PTX."""
    module = ProgramModule(_candidates(call, image))
    handle = call.gpu.handle()
    call.gpu.modules[handle] = module
    try:
        call.gpu.file_of(handle)
    except PtxSyntaxError as error:
        raise CallError(_INVALID_PTX, str(error)) from None
    call.int64(where, handle)


def _candidates(call: Call, image: int) -> list[FatPtx]:
    """The PTX that a program gives the driver."""
    (magic,) = call.memory.unpack("<I", image)
    if magic == _WRAPPER_MAGIC:
        _, _, image, _ = fat_binary.WRAPPER.unpack(call.memory.read(image, fat_binary.WRAPPER.size))
        (magic,) = call.memory.unpack("<I", image)
    if magic == fat_binary.MAGIC:
        size = fat_binary.size_of(call.memory.read(image, fat_binary.HEADER.size))
        return ptx_of(call.memory.read(image, size))
    if magic.to_bytes(4, "little") == b"\x7fELF":
        raise CallError(NO_KERNEL_IMAGE, "the module is machine code; compile it to PTX, such as by nvrtcGetPTX")
    text = call.memory.string(image).encode()
    target = target_of(text)
    if target is None:
        raise CallError(_INVALID_PTX, "the module is neither PTX nor a fat binary")
    return [FatPtx(target, text)]


@answers("cuModuleUnload", "cuLibraryUnload")
def module_unload(call: Call, handle: int) -> None:
    """Variables of a module keep their memory."""
    call.gpu.modules.pop(handle, None)


@answers("cuModuleGetFunction", "cuLibraryGetKernel")
def module_get_function(call: Call, where: int, module: int, name: int) -> None:
    """``cuModuleGetFunction(CUfunction*, CUmodule, const char*)``."""
    wanted = call.memory.string(name)
    file = call.gpu.file_of(module)
    if wanted not in file.module.entries:
        raise CallError(_NOT_FOUND, f"the module has no kernel {wanted}; it has {', '.join(file.module.entries)}")
    handle = call.gpu.handle()
    call.gpu.functions[handle] = module, wanted
    call.int64(where, handle)


@answers("cuKernelGetFunction")
def kernel_get_function(call: Call, where: int, kernel: int) -> None:
    """``cuKernelGetFunction(CUfunction*, CUkernel)``."""
    call.int64(where, kernel)


@answers("cuModuleGetGlobal_v2", "cuLibraryGetGlobal")
def module_get_global(call: Call, where: int, size: int, module: int, name: int) -> None:
    """``cuModuleGetGlobal(CUdeviceptr*, size_t*, CUmodule, const char*)``."""
    wanted = call.memory.string(name)
    parsed = call.gpu.file_of(module).module
    found = next((each for each in parsed.variables if each.name == wanted), None)
    if found is None:
        raise CallError(_NOT_FOUND, f"the module has no variable {wanted}")
    if where:
        call.int64(where, call.gpu.memory.load(parsed)[wanted])
    if size:
        call.int64(size, found.size_bytes)


@answers("cuLaunchKernel")
def launch_kernel(
    call: Call, kernel: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int, block_z: int,
    shared: int, stream: int, arguments: int, extra: int,
) -> None:  # fmt: skip
    """``cuLaunchKernel(f, grid, block, sharedMemBytes, hStream, kernelParams, extra)``."""
    grid: Dim3 = unsigned(grid_x), unsigned(grid_y), unsigned(grid_z)
    block: Dim3 = unsigned(block_x), unsigned(block_y), unsigned(block_z)
    _launch(call, kernel, LaunchOptions(grid, block, unsigned(shared)), arguments, extra)


@answers("cuLaunchCooperativeKernel")
def launch_cooperative_kernel(
    call: Call, kernel: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int, block_z: int,
    shared: int, stream: int, arguments: int,
) -> None:  # fmt: skip
    """``cuLaunchCooperativeKernel(f, grid, block, sharedMemBytes, hStream, kernelParams)``."""
    grid: Dim3 = unsigned(grid_x), unsigned(grid_y), unsigned(grid_z)
    block: Dim3 = unsigned(block_x), unsigned(block_y), unsigned(block_z)
    _launch(call, kernel, LaunchOptions(grid, block, unsigned(shared), cooperative=True), arguments, 0)


@answers("cuLaunchKernelEx")
def launch_kernel_ex(call: Call, config: int, kernel: int, arguments: int, extra: int) -> None:
    """``cuLaunchKernelEx(const CUlaunchConfig*, f, kernelParams, extra)``."""
    _launch(call, kernel, driver_options(call, config), arguments, extra)


def _launch(call: Call, kernel: int, options: LaunchOptions, arguments: int, extra: int) -> None:
    buffer = 0
    while extra and not arguments:
        kind, value = call.memory.unpack("<2Q", extra)
        if not kind:
            break
        if kind not in (_BUFFER, _BUFFER_BYTES):
            raise CallError(INVALID_VALUE, f"extra has {kind:#x}, which is no CU_LAUNCH_PARAM")
        buffer = value if kind == _BUFFER else buffer
        extra += 16
    launch(call, kernel, options, arguments, buffer=buffer)
