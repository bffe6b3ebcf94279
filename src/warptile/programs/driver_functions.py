"""Functions of the CUDA driver about kernels, streams and the context, for programs that use no runtime."""

from __future__ import annotations

from warptile.programs.driver_modules import CONTEXT
from warptile.programs.emulated_gpu import parameter_offsets, parameter_sizes
from warptile.programs.launch_calls import (
    MOST_THREADS,
    ctas_per_sm,
    func_set_attribute,
    kernel_attributes,
)  # fmt: skip
from warptile.programs.library_calls import INVALID_VALUE, NOT_SUPPORTED, Call, CallError, answers, signed, unsigned

_CAPTURING = 1
_API_VERSION = 13000


@answers("cuFuncGetAttribute", "cuKernelGetAttribute")
def get_attribute(call: Call, where: int, attribute: int, kernel: int) -> None:
    """``cuFuncGetAttribute(int*, CUfunction_attribute, CUfunction)``."""
    found = kernel_attributes(call, kernel)
    if unsigned(attribute) not in found:
        raise CallError(INVALID_VALUE, f"{unsigned(attribute)} is no attribute of a kernel")
    call.int32(where, found[unsigned(attribute)])


@answers("cuKernelSetAttribute")
def kernel_set_attribute(call: Call, attribute: int, value: int, kernel: int, device: int) -> None:
    """``cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice)``."""
    func_set_attribute(call, kernel, attribute, value)


@answers("cuFuncGetParamInfo", "cuKernelGetParamInfo")
def get_parameter(call: Call, kernel: int, index: int, offset: int, size: int) -> None:
    """``cuFuncGetParamInfo(CUfunction, size_t, size_t*, size_t*)``."""
    function = call.gpu.kernel_of(kernel).function
    sizes = parameter_sizes(function)
    if index >= len(sizes):
        raise CallError(INVALID_VALUE, "")  # how programs find out how many there are
    call.int64(offset, parameter_offsets(function)[index])
    if size:
        call.int64(size, sizes[index])


@answers("cuFuncGetModule", "cuKernelGetLibrary")
def get_module(call: Call, where: int, kernel: int) -> None:
    """``cuFuncGetModule(CUmodule*, CUfunction)``."""
    call.gpu.kernel_of(kernel)
    call.int64(where, call.gpu.functions[kernel][0])


@answers("cuLibraryGetModule")
def library_get_module(call: Call, where: int, library: int) -> None:
    """``cuLibraryGetModule(CUmodule*, CUlibrary)``."""
    call.gpu.file_of(library)
    call.int64(where, library)


@answers("cuModuleGetFunctionCount", "cuLibraryGetKernelCount")
def count_kernels(call: Call, where: int, module: int) -> None:
    """``cuModuleGetFunctionCount(unsigned*, CUmodule)``."""
    call.int32(where, len(call.gpu.file_of(module).module.entries))


@answers("cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags")
def occupancy_max_potential_block_size(
    call: Call, grid: int, block: int, kernel: int, shared_of: int, shared: int, limit: int
) -> None:
    """``cuOccupancyMaxPotentialBlockSize(int* grid, int* block, f, size_t (*shared)(int), size_t shared, int limit)``:
    the largest block of those by which most threads run on an SM."""
    most = kernel_attributes(call, kernel)[MOST_THREADS]
    most = min(most, signed(limit)) if signed(limit) > 0 else most
    best = 0, 0, 0
    for threads in (most, *range((most - 1) // 32 * 32, 0, -32)):
        dynamic = call.call_back(shared_of, threads) if shared_of else shared
        ctas = ctas_per_sm(call, kernel, threads, dynamic)
        best = max(best, (ctas * threads, threads, ctas))
    call.int32(grid, best[2] * call.gpu.limits.multiprocessors)
    call.int32(block, best[1])


@answers("cuStreamGetCtx")
def stream_get_context(call: Call, stream: int, where: int) -> None:
    """``cuStreamGetCtx(CUstream, CUcontext*)``."""
    call.int64(where, CONTEXT)


@answers("cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo", "cudaStreamGetCaptureInfo")
def stream_get_capture_info(call: Call, stream: int, status: int, identifier: int, graph: int) -> None:
    """Whether a stream is captured; the graph so far, and what the next node depends on, are not told."""
    captured = call.gpu.capture is not None and stream == call.gpu.captured_stream
    if captured and graph:
        raise CallError(NOT_SUPPORTED, "the graph of a capture that goes on is not emulated")
    call.int32(status, _CAPTURING if captured else 0)
    if captured and identifier:
        call.int64(identifier, stream)


@answers("cuCtxGetApiVersion")
def context_version(call: Call, context: int, where: int) -> None:
    """``cuCtxGetApiVersion(CUcontext, unsigned*)``."""
    call.int32(where, _API_VERSION)


@answers("cuDevicePrimaryCtxGetState")
def primary_context_state(call: Call, device: int, flags: int, active: int) -> None:
    """``cuDevicePrimaryCtxGetState(CUdevice, unsigned*, int*)``."""
    call.int32(flags, 0)
    call.int32(active, 1)
