"""Calls that ask for devices, limits, versions and errors."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from warptile.programs.library_calls import INVALID_VALUE, SUCCESS, Call, CallError, answers, signed, unsigned
from warptile.programs.memory_size import device_bytes
from warptile.programs.stand_in_library import ROOM_BYTES

_INVALID_DEVICE = 101
_PCI_BUS_ID = b"0000:00:00.0"
_TEXT_BYTES = 80
_KEPT_TEXTS = ROOM_BYTES // (3 * _TEXT_BYTES)
"""Errors whose texts have a place of their own in the library's room."""


@answers("cudaGetDeviceCount", "cuDeviceGetCount")
def get_device_count(call: Call, where: int) -> None:
    """There is one GPU."""
    call.int32(where, 1)


@answers("cudaGetDevice", "cuDeviceGet", "cuCtxGetDevice")
def get_device(call: Call, where: int) -> None:
    """Its number is 0."""
    call.int32(where, 0)


@answers("cudaSetDevice", "cudaInitDevice")
def set_device(call: Call, device: int) -> None:
    """``cudaSetDevice(int)``."""
    check_device(device)


@answers(
    "cudaDeviceReset", "cudaSetDeviceFlags", "cudaDeviceSetCacheConfig", "cudaDeviceSetSharedMemConfig",
    "cudaDeviceSetLimit", "cudaCtxResetPersistingL2Cache", "cudaProfilerStart", "cudaProfilerStop", "cuInit",
    "cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuDevicePrimaryCtxRelease_v2", "cuCtxDestroy_v2",
    "cuProfilerStart", "cuProfilerStop", "cuCtxSetLimit", "cuCtxSetCacheConfig", "cuDevicePrimaryCtxSetFlags_v2",
)  # fmt: skip
def prefer(call: Call) -> None:
    """Nothing depends on it."""


@answers("cudaDeviceGetLimit", "cuCtxGetLimit")
def device_get_limit(call: Call, where: int, limit: int) -> None:
    """``cudaDeviceGetLimit(size_t*, cudaLimit)``: stack size, size of printf's buffer, size of the heap."""
    call.int64(where, {0: 1024, 1: 1 << 20, 2: 8 << 20}.get(unsigned(limit), 0))


@answers("cudaDeviceGetStreamPriorityRange", "cuCtxGetStreamPriorityRange")
def stream_priority_range(call: Call, least: int, greatest: int) -> None:
    """``cudaDeviceGetStreamPriorityRange(int*, int*)``."""
    if least:
        call.int32(least, 0)
    if greatest:
        call.int32(greatest, -5)


@answers(
    "cudaGetDeviceFlags", "cudaChooseDevice", "cudaThreadExchangeStreamCaptureMode", "cuCtxGetFlags",
    "cuThreadExchangeStreamCaptureMode",
)  # fmt: skip
def device_flags(call: Call, where: int) -> None:
    """``cudaGetDeviceFlags(unsigned*)``: none; ``cudaChooseDevice(int*, ...)``: device 0; the capture mode: global."""
    call.int32(where, 0)


@answers("cudaDeviceCanAccessPeer", "cuDeviceCanAccessPeer")
def can_access_peer(call: Call, where: int) -> None:
    """There is no other GPU."""
    call.int32(where, 0)


@answers("cudaRuntimeGetVersion", "cudaDriverGetVersion", "cuDriverGetVersion")
def get_version(call: Call, where: int) -> None:
    """CUDA 13.0."""
    call.int32(where, 13000)


@answers("cudaDeviceGetPCIBusId", "cuDeviceGetPCIBusId")
def device_get_pci_bus_id(call: Call, where: int, size: int, device: int) -> None:
    """``cudaDeviceGetPCIBusId(char*, int, int)``: of the device whose numbers ``cudaDeviceProp`` has, which are 0."""
    check_device(device)
    if signed(size) <= len(_PCI_BUS_ID):
        raise CallError(INVALID_VALUE, f"{signed(size)} bytes of room; the text takes {len(_PCI_BUS_ID) + 1}")
    call.memory.write(where, _PCI_BUS_ID + b"\0")


@answers("cudaDeviceGetByPCIBusId", "cuDeviceGetByPCIBusId")
def device_get_by_pci_bus_id(call: Call, where: int, text: int) -> None:
    """``cudaDeviceGetByPCIBusId(int*, const char*)``."""
    wanted = call.memory.string(text)
    if wanted != _PCI_BUS_ID.decode():
        raise CallError(INVALID_VALUE, f"{wanted!r}; the emulated GPU is at {_PCI_BUS_ID.decode()}")
    call.int32(where, 0)


def check_device(device: int) -> None:
    """There is device 0.

    Raises:
        CallError: another one.
    """
    if signed(device):
        raise CallError(_INVALID_DEVICE, f"device {signed(device)}; there is device 0")


# --- properties ------------------------------------------------------------------------------------------------------


def _properties(call: Call) -> dict[str, int | list[int]]:
    """What is known of the GPU, by the names in ``cudaDeviceProp``."""
    limits, generation = call.gpu.limits, call.gpu.limits.generation
    return {
        "totalGlobalMem": device_bytes(), "sharedMemPerBlock": 48 << 10, "regsPerBlock": generation.registers_per_sm,
        "warpSize": 32, "memPitch": 2**31 - 1, "maxThreadsPerBlock": 1024, "maxThreadsDim": [1024, 1024, 64],
        "maxGridSize": [2**31 - 1, 65535, 65535], "totalConstMem": 65536, "major": generation.capability // 10,
        "minor": generation.capability % 10, "textureAlignment": 512, "texturePitchAlignment": 32,
        "multiProcessorCount": limits.multiprocessors, "canMapHostMemory": 1, "concurrentKernels": 1,
        "asyncEngineCount": 3, "unifiedAddressing": 1, "memoryBusWidth": 5120, "l2CacheSize": limits.l2_bytes,
        "maxThreadsPerMultiProcessor": 32 * generation.max_warps_per_sm, "streamPrioritiesSupported": 1,
        "globalL1CacheSupported": 1, "localL1CacheSupported": 1,
        "sharedMemPerMultiprocessor": generation.shared_bytes_per_sm,
        "regsPerMultiprocessor": generation.registers_per_sm, "managedMemory": 1, "concurrentManagedAccess": 0,
        "cooperativeLaunch": 1, "sharedMemPerBlockOptin": generation.shared_bytes_per_block,
        "maxBlocksPerMultiProcessor": generation.max_blocks_per_sm, "reservedSharedMemPerBlock": 1024,
        "clusterLaunch": int(generation.capability >= 90), "memoryPoolsSupported": 1, "clockRate": 1_980_000,
        "memoryClockRate": 3_201_000,
    }  # fmt: skip


_START = (
    ("name", ctypes.c_char * 256), ("uuid", ctypes.c_char * 16), ("luid", ctypes.c_char * 8),
    ("luidDeviceNodeMask", ctypes.c_uint), ("totalGlobalMem", ctypes.c_size_t), ("sharedMemPerBlock", ctypes.c_size_t),
    ("regsPerBlock", ctypes.c_int), ("warpSize", ctypes.c_int), ("memPitch", ctypes.c_size_t),
    ("maxThreadsPerBlock", ctypes.c_int), ("maxThreadsDim", ctypes.c_int * 3), ("maxGridSize", ctypes.c_int * 3),
)  # fmt: skip
_TEXTURES = (("textureAlignment", ctypes.c_size_t), ("texturePitchAlignment", ctypes.c_size_t))


def _ints(names: str) -> tuple[tuple[str, type], ...]:
    return tuple((name, ctypes.c_int) for name in names.split())


class Properties13(ctypes.Structure):
    """``cudaDeviceProp`` of CUDA 13 (``driver_types.h``)."""

    _fields_ = (
        *_START, ("totalConstMem", ctypes.c_size_t), *_ints("major minor"), *_TEXTURES,
        *_ints("multiProcessorCount integrated canMapHostMemory"), ("textures", ctypes.c_int * 39),
        ("surfaceAlignment", ctypes.c_size_t),
        *_ints(
            "concurrentKernels ECCEnabled pciBusID pciDeviceID pciDomainID tccDriver asyncEngineCount unifiedAddressing"
            " memoryBusWidth l2CacheSize persistingL2CacheMaxSize maxThreadsPerMultiProcessor streamPrioritiesSupported"
            " globalL1CacheSupported localL1CacheSupported"
        ),
        ("sharedMemPerMultiprocessor", ctypes.c_size_t),
        *_ints(
            "regsPerMultiprocessor managedMemory isMultiGpuBoard multiGpuBoardGroupID hostNativeAtomicSupported"
            " pageableMemoryAccess concurrentManagedAccess computePreemptionSupported canUseHostPointerForRegisteredMem"
            " cooperativeLaunch"
        ),
        ("sharedMemPerBlockOptin", ctypes.c_size_t),
        *_ints(
            "pageableMemoryAccessUsesHostPageTables directManagedMemAccessFromHost maxBlocksPerMultiProcessor"
            " accessPolicyMaxWindowSize"
        ),
        ("reservedSharedMemPerBlock", ctypes.c_size_t),
        *_ints(
            "hostRegisterSupported sparseCudaArraySupported hostRegisterReadOnlySupported"
            " timelineSemaphoreInteropSupported memoryPoolsSupported gpuDirectRDMASupported"
            " gpuDirectRDMAFlushWritesOptions gpuDirectRDMAWritesOrdering memoryPoolSupportedHandleTypes"
            " deferredMappingCudaArraySupported ipcEventSupported clusterLaunch unifiedFunctionPointers"
            " deviceNumaConfig deviceNumaId mpsEnabled hostNumaId gpuPciDeviceID gpuPciSubsystemID"
            " hostNumaMultinodeIpcSupported"
        ),
        ("reserved", ctypes.c_int * 56),
    )  # fmt: skip


class Properties12(ctypes.Structure):
    """``cudaDeviceProp`` of CUDA 12 (``driver_types.h``), whose function is called ``cudaGetDeviceProperties_v2``."""

    _fields_ = (
        *_START, ("clockRate", ctypes.c_int), ("totalConstMem", ctypes.c_size_t), *_ints("major minor"), *_TEXTURES,
        *_ints(
            "deviceOverlap multiProcessorCount kernelExecTimeoutEnabled integrated canMapHostMemory computeMode"
        ),
        ("textures", ctypes.c_int * 40), ("surfaceAlignment", ctypes.c_size_t),
        *_ints(
            "concurrentKernels ECCEnabled pciBusID pciDeviceID pciDomainID tccDriver asyncEngineCount unifiedAddressing"
            " memoryClockRate memoryBusWidth l2CacheSize persistingL2CacheMaxSize maxThreadsPerMultiProcessor"
            " streamPrioritiesSupported globalL1CacheSupported localL1CacheSupported"
        ),
        ("sharedMemPerMultiprocessor", ctypes.c_size_t),
        *_ints(
            "regsPerMultiprocessor managedMemory isMultiGpuBoard multiGpuBoardGroupID hostNativeAtomicSupported"
            " singleToDoublePrecisionPerfRatio pageableMemoryAccess concurrentManagedAccess computePreemptionSupported"
            " canUseHostPointerForRegisteredMem cooperativeLaunch cooperativeMultiDeviceLaunch"
        ),
        ("sharedMemPerBlockOptin", ctypes.c_size_t),
        *_ints(
            "pageableMemoryAccessUsesHostPageTables directManagedMemAccessFromHost maxBlocksPerMultiProcessor"
            " accessPolicyMaxWindowSize"
        ),
        ("reservedSharedMemPerBlock", ctypes.c_size_t),
        *_ints(
            "hostRegisterSupported sparseCudaArraySupported hostRegisterReadOnlySupported"
            " timelineSemaphoreInteropSupported memoryPoolsSupported gpuDirectRDMASupported"
            " gpuDirectRDMAFlushWritesOptions gpuDirectRDMAWritesOrdering memoryPoolSupportedHandleTypes"
            " deferredMappingCudaArraySupported ipcEventSupported clusterLaunch unifiedFunctionPointers"
        ),
    )  # fmt: skip


@answers("cudaGetDeviceProperties")
def get_device_properties(call: Call, where: int, device: int) -> None:
    """``cudaGetDeviceProperties(cudaDeviceProp*, int)`` of CUDA 13."""
    check_device(device)
    call.memory.write(where, bytes(_filled(call, Properties13())))


@answers("cudaGetDeviceProperties_v2")
def get_device_properties_12(call: Call, where: int, device: int) -> None:
    """``cudaGetDeviceProperties`` of CUDA 12; fields behind those that are known stay as they are."""
    check_device(device)
    call.memory.write(where, bytes(_filled(call, Properties12())))


def _filled(call: Call, made: ctypes.Structure) -> ctypes.Structure:
    known: dict[str, Any] = {each[0]: each[1] for each in type(made)._fields_}
    for name, value in _properties(call).items():
        if name in known:
            setattr(made, name, known[name](*value) if isinstance(value, list) else value)
    setattr(made, "name", f"{call.gpu.limits.name} (emulated)".encode())  # noqa: B010
    return made


_ATTRIBUTES = {
    1: "maxThreadsPerBlock", 8: "sharedMemPerBlock", 9: "totalConstMem", 10: "warpSize", 11: "memPitch",
    12: "regsPerBlock", 13: "clockRate", 14: "textureAlignment", 16: "multiProcessorCount", 19: "canMapHostMemory",
    31: "concurrentKernels", 36: "memoryClockRate", 37: "memoryBusWidth", 38: "l2CacheSize",
    39: "maxThreadsPerMultiProcessor", 40: "asyncEngineCount", 41: "unifiedAddressing", 75: "major", 76: "minor",
    78: "streamPrioritiesSupported", 79: "globalL1CacheSupported", 80: "localL1CacheSupported",
    81: "sharedMemPerMultiprocessor", 82: "regsPerMultiprocessor", 83: "managedMemory", 89: "concurrentManagedAccess",
    95: "cooperativeLaunch", 97: "sharedMemPerBlockOptin", 106: "maxBlocksPerMultiProcessor",
    111: "reservedSharedMemPerBlock", 115: "memoryPoolsSupported", 120: "clusterLaunch",
}  # fmt: skip
"""Enumerators of ``cudaDeviceAttr``; extents are 2 to 4 (blocks) and 5 to 7 (grids). Others are 0."""


@answers("cudaDeviceGetAttribute", "cuDeviceGetAttribute")
def device_get_attribute(call: Call, where: int, attribute: int, device: int) -> None:
    """``cudaDeviceGetAttribute(int*, cudaDeviceAttr, int)``."""
    check_device(device)
    number, properties = unsigned(attribute), _properties(call)
    value = properties.get(_ATTRIBUTES.get(number, ""), 0)
    if 2 <= number <= 7:
        extents = properties["maxThreadsDim" if number <= 4 else "maxGridSize"]
        assert isinstance(extents, list)
        value = extents[(number - 2) % 3]
    assert isinstance(value, int)
    call.int32(where, min(value, 2**31 - 1))


# --- errors ----------------------------------------------------------------------------------------------------------


@answers("cudaGetLastError")
def get_last_error(call: Call) -> int:
    """The last error, which is forgotten, unless a kernel has left it behind."""
    found = call.gpu.sticky or call.gpu.last_error
    call.gpu.last_error = SUCCESS
    return found


@answers("cudaPeekAtLastError")
def peek_at_last_error(call: Call) -> int:
    """The last error."""
    return call.gpu.sticky or call.gpu.last_error


@cache
def _error_texts(status: int) -> tuple[bytes, bytes, bytes]:
    """Name and sentence of an error, as the CUDA runtime says them, and the driver's name."""
    from cuda.bindings import driver, runtime

    try:
        error = runtime.cudaError_t(status)
    except ValueError:
        return (b"unrecognized error code",) * 3
    known = {int(each): each.name.encode() for each in driver.CUresult}
    return runtime.cudaGetErrorName(error)[1], runtime.cudaGetErrorString(error)[1], known.get(status, b"")


def _text(call: Call, status: int, which: int) -> int:
    """Address of a text, which stays: each error has a place of its own."""
    at = call.room + (status % _KEPT_TEXTS * 3 + which) * _TEXT_BYTES
    call.memory.write(at, _error_texts(status)[which][: _TEXT_BYTES - 1] + b"\0")
    return at


@answers("cudaGetErrorName")
def get_error_name(call: Call, status: int) -> int:
    """``const char* cudaGetErrorName(cudaError_t)``."""
    return _text(call, unsigned(status), 0)


@answers("cudaGetErrorString")
def get_error_string(call: Call, status: int) -> int:
    """``const char* cudaGetErrorString(cudaError_t)``."""
    return _text(call, unsigned(status), 1)


@answers("cuGetErrorName")
def driver_error_name(call: Call, status: int, where: int) -> None:
    """``cuGetErrorName(CUresult, const char**)``."""
    call.int64(where, _text(call, unsigned(status), 2))


@answers("cuGetErrorString")
def driver_error_string(call: Call, status: int, where: int) -> None:
    """``cuGetErrorString(CUresult, const char**)``."""
    call.int64(where, _text(call, unsigned(status), 1))
