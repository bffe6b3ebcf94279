"""The CUDA driver API: the only module that calls libcuda.

Everything happens in the device's primary context, the one that torch and the CUDA runtime use, so addresses and
streams of theirs can be used here and ours there. Every return code is checked. Handles are plain integers.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from warptile.arch import ARCHES
from warptile.device import PORTABLE_CLUSTER_CTAS, DeviceLimits
from warptile.errors import DeviceError, LayoutError, NoDeviceError
from warptile.launch.spec import Dim3, LaunchSpec

if TYPE_CHECKING:
    import numpy as np

_NO_DEVICE = frozenset(
    {
        "CUDA_ERROR_NO_DEVICE",
        "CUDA_ERROR_STUB_LIBRARY",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "CUDA_ERROR_SYSTEM_NOT_READY",
    }
)
_FATAL = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
    }
)
LIBRARY = "libcuda.so.1"
_EMULATOR = "without a GPU, warptile.matmul(a, b, backend='emulator') computes on the CPU"
_log = logging.getLogger("warptile.gpu")


@cache
def _start() -> ModuleType | tuple[str, str | None]:
    """The driver bindings, with the driver loaded and initialised; or why there is none, and the driver's name for it.

    Failures are kept as successes are, for the life of the process: each try without a driver searches the disk for
    libcuda.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        fix = "python3 -m pip install 'cuda-bindings>=13.0,<14'"
        return f"cuda-bindings cannot be imported ({error}); {fix}", None
    try:
        (status,) = driver.cuInit(0)
    # The bindings' loader raises RuntimeError where libcuda is absent or too old to have a function.
    except (RuntimeError, OSError) as error:
        return f"no NVIDIA driver ({error}); {_EMULATOR}", None
    if int(status) != 0:
        return f"the NVIDIA driver does not start ({status.name}); {_EMULATOR}", status.name
    (status, count) = driver.cuDeviceGetCount()
    if int(status) != 0 or count == 0:
        return f"there is no NVIDIA GPU; {_EMULATOR}", "CUDA_ERROR_NO_DEVICE"
    return driver  # type: ignore[no-any-return]


@cache
def _cuda() -> ModuleType:
    """The driver bindings, with the driver loaded and initialised.

    Raises:
        NoDeviceError: no bindings, no driver, or no device.
    """
    started = _start()
    if isinstance(started, tuple):
        raise NoDeviceError(*started)
    return started


def check(answer: tuple[Any, ...], doing: str) -> Any:
    """The value of a driver call: None, one value, or a tuple of several.

    Args:
        answer: what the binding returned, its status first.
        doing: what the call was for, as the message's first words.

    Raises:
        NoDeviceError: the driver says that there is no usable device.
        DeviceError: any other status but success.
    """
    status, *values = answer
    if int(status) == 0:
        return None if not values else values[0] if len(values) == 1 else tuple(values)
    raise failure(status, doing)


def failure(status: Any, doing: str) -> DeviceError:
    """The error for a status of the driver that is not success; ``doing`` as of `check`."""
    name = str(getattr(status, "name", status))
    words = _explain(status)
    if name in _NO_DEVICE:
        return NoDeviceError(f"{doing}: {name} ({words}); {_EMULATOR}", name)
    lost = name in _FATAL
    fatal = "; the GPU context is lost: start a new process" if lost else ""
    return DeviceError(f"{doing}: {name} ({words}){fatal}", name, context_lost=lost)


def _explain(status: Any) -> str:
    """The driver's own sentence for a status."""
    try:
        _, words = _cuda().cuGetErrorString(status)
    except DeviceError:
        words = None
    return words.decode() if isinstance(words, bytes) else "no description"


def available() -> bool:
    """Whether there is a driver and at least one GPU. Never raises."""
    try:
        _cuda()
    except NoDeviceError:
        return False
    return True


def device_count() -> int:
    """Number of GPUs, 0 without a driver."""
    return int(check(_cuda().cuDeviceGetCount(), "counting devices")) if available() else 0


@dataclass(frozen=True)
class DeviceInfo:
    """One GPU and its driver."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    clock_hz: float
    driver_cuda: tuple[int, int]
    uuid: str

    @property
    def arch(self) -> str:
        """The target whose cubin this GPU runs with all its features: ``sm_90a``, ``sm_89``."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def limits(self) -> DeviceLimits:
        """What planning needs to know. The architecture is the newest that warptile knows and this GPU runs."""
        native = self.arch
        known = native if native in ARCHES else next((name for name in reversed(ARCHES) if self.runs(name)), native)
        clustered = _clustered(self) if self.capability >= (9, 0) else ()
        return DeviceLimits(self.name, known, self.multiprocessors, self.l2_bytes, clustered=clustered)

    def runs(self, arch: str) -> bool:
        """Whether a cubin for ``arch`` runs here: same major and no newer minor; forms with ``a`` only on their own."""
        digits = arch.removeprefix("sm_").rstrip("af")
        major, minor = int(digits[:-1]), int(digits[-1])
        if arch.endswith("a"):
            return (major, minor) == self.capability
        return major == self.capability[0] and minor <= self.capability[1]


def device_info(ordinal: int | None = None) -> DeviceInfo:
    """What the driver says about a GPU, by default the current context's, or the first.

    Raises:
        NoDeviceError: there is none.
    """
    return _device_info(current_device() if ordinal is None else ordinal)


@cache
def _device_info(ordinal: int) -> DeviceInfo:
    """What does not change while the process lives, asked once."""
    cuda = _cuda()
    device = check(cuda.cuDeviceGet(ordinal), f"device {ordinal}")

    def attribute(name: str) -> int:
        key = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(cuda.cuDeviceGetAttribute(key, device), f"device {ordinal}: {name}"))

    version = int(check(cuda.cuDriverGetVersion(), "driver version"))
    name = check(cuda.cuDeviceGetName(256, device), f"device {ordinal}: name")
    uuid = check(cuda.cuDeviceGetUuid(device), f"device {ordinal}: identifier")
    digits = bytes(uuid.bytes).hex()
    return DeviceInfo(
        ordinal=ordinal,
        name=name.split(b"\0", 1)[0].decode(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(check(cuda.cuDeviceTotalMem(device), f"device {ordinal}: memory")),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        shared_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        clock_hz=attribute("CLOCK_RATE") * 1e3,
        driver_cuda=(version // 1000, version % 1000 // 10),
        uuid="GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
    )


def current_device() -> int:
    """Ordinal of the current context's device, or 0 where this thread has no context yet."""
    cuda = _cuda()
    if int(check(cuda.cuCtxGetCurrent(), "current context")) == 0:
        return 0
    return int(check(cuda.cuCtxGetDevice(), "current device"))


@cache
def _primary(ordinal: int) -> Any:
    """The primary context of a device, kept for the life of the process."""
    cuda = _cuda()
    device = check(cuda.cuDeviceGet(ordinal), f"device {ordinal}")
    return check(cuda.cuDevicePrimaryCtxRetain(device), f"device {ordinal}: primary context")


def context_of(ordinal: int) -> int:
    """Handle of a device's primary context."""
    return int(_primary(ordinal))


@dataclass(frozen=True)
class EntryPoints:
    """Addresses of functions of libcuda, for code that calls them without Python (`warptile.gpu.native_launch`)."""

    get_current: int
    push_current: int
    pop_current: int
    launch_kernel: int
    stream_id: int = 0
    is_capturing: int = 0


@cache
def entry_points() -> EntryPoints:
    """Where ``cuCtxGetCurrent``, ``cuCtxPushCurrent``, ``cuCtxPopCurrent``, ``cuLaunchKernelEx``, ``cuStreamGetId`` and
    ``cuStreamIsCapturing`` are."""
    _cuda()
    library = ctypes.CDLL(LIBRARY)

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    return EntryPoints(
        address("cuCtxGetCurrent"),
        address("cuCtxPushCurrent_v2"),  # the names that cuda.h gives to the functions without a number
        address("cuCtxPopCurrent_v2"),
        address("cuLaunchKernelEx"),
        address("cuStreamGetId"),
        address("cuStreamIsCapturing"),
    )


def enter(ordinal: int | None = None) -> int:
    """Make the primary context of a device current in this thread and return the device's ordinal.

    By default the device whose context is current already (torch's choice), else the first.
    """
    ordinal = current_device() if ordinal is None else ordinal
    cuda = _cuda()
    context = _primary(ordinal)
    if int(check(cuda.cuCtxGetCurrent(), "current context")) != int(context):
        check(cuda.cuCtxSetCurrent(context), f"device {ordinal}: entering its context")
    return ordinal


@contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """Work in the primary context of a device, then in the one that was current before."""
    cuda = _cuda()
    context = _primary(ordinal)
    if int(check(cuda.cuCtxGetCurrent(), "current context")) == int(context):
        yield
        return
    check(cuda.cuCtxPushCurrent(context), f"device {ordinal}: entering its context")
    try:
        yield
    finally:
        check(cuda.cuCtxPopCurrent(), f"device {ordinal}: leaving its context")


def synchronize() -> None:
    """Wait for all work of the current device; errors of earlier launches show here."""
    check(_cuda().cuCtxSynchronize(), "waiting for the GPU")


@contextmanager
def profiled() -> Iterator[None]:
    """What a profiler that was told to wait (Nsight Compute's ``--profile-from-start off``) looks at."""
    check(_cuda().cuProfilerStart(), "starting the profiler")
    try:
        yield
    finally:
        check(_cuda().cuProfilerStop(), "stopping the profiler")


def encode_tensor_map(
    *,
    dtype: str,
    address: int,
    dims: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    box: tuple[int, ...],
    element_strides: tuple[int, ...],
    swizzle: str,
    l2_promotion: str,
    oob_fill: str,
) -> bytes:
    """A tiled tensor map as the 128 bytes that a kernel takes; words are the ends of the driver's names for them."""
    cuda = _cuda()
    made = check(
        cuda.cuTensorMapEncodeTiled(
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype}"),
            len(dims),
            address,
            [cuda.cuuint64_t(each) for each in dims],
            [cuda.cuuint64_t(each) for each in strides_bytes or (16,)],  # not read, but an empty list is refused
            [cuda.cuuint32_t(each) for each in box],
            [cuda.cuuint32_t(each) for each in element_strides],
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
            getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{l2_promotion}"),
            getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{oob_fill}"),
        ),
        f"encoding a tensor map of {dtype} with dims {dims}, strides {strides_bytes}, box {box}, swizzle {swizzle}",
    )
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)


def _release(ordinal: int, function: str, handle: Any) -> None:
    """Give a handle back from a finalizer: failures are logged, as nobody can act on them there."""
    try:
        with on_device(ordinal):
            if function == "cuModuleUnload":
                synchronize()  # a launch of one of its kernels may still be running, its owner gone already
            check(getattr(_cuda(), function)(handle), function)
    except DeviceError as error:
        # At exit the driver may be gone already; after a fatal error every call fails.
        _log.debug("%s", error)


class _Owned:
    """A driver object that is given back once: by `close`, at the end of a ``with``, or when collected."""

    def __init__(self, handle: Any, function: str) -> None:
        self.ordinal = current_device()
        self.handle = int(handle)
        self._finalizer = weakref.finalize(self, _release, self.ordinal, function, handle)

    def close(self) -> None:
        """Give it back now; doing so again is no error."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Allocation(_Owned):
    """Device memory. ``address`` is where it starts (256-byte aligned), ``size_bytes`` how much was asked for."""

    def __init__(self, size_bytes: int) -> None:
        enter()
        pointer = check(_cuda().cuMemAlloc(max(size_bytes, 1)), f"allocating {size_bytes} bytes")
        super().__init__(pointer, "cuMemFree")
        self.size_bytes = size_bytes

    @property
    def address(self) -> int:
        """Device address of the first byte."""
        return self.handle

    @classmethod
    def from_array(cls, array: np.ndarray) -> Allocation:
        """New memory that holds a copy of ``array``."""
        made = cls(array.nbytes)
        made.from_host(array)
        return made

    def from_host(self, array: np.ndarray, offset_bytes: int = 0) -> None:
        """Copy a C-contiguous array here; it has arrived when this returns, for every stream.

        Raises:
            LayoutError: the array is not C-contiguous or does not fit.
        """
        self._fits(array, offset_bytes)
        if array.nbytes:
            cuda = _cuda()
            with on_device(self.ordinal):
                destination = cuda.CUdeviceptr(self.address + offset_bytes)
                check(cuda.cuMemcpyHtoD(destination, array.ctypes.data, array.nbytes), "copying to the GPU")
                # A copy from pageable memory may still be under way: streams that do not wait for stream 0 would race.
                check(cuda.cuStreamSynchronize(0), "copying to the GPU")

    def to_host(self, array: np.ndarray, offset_bytes: int = 0) -> np.ndarray:
        """Wait for the GPU, then fill a C-contiguous array from here; returns the array.

        Raises:
            LayoutError: the array is not C-contiguous, not writable, or larger than what is here.
        """
        self._fits(array, offset_bytes)
        if not array.flags.writeable:
            raise LayoutError("array: it is read-only; give a writable one, such as np.empty(shape, dtype)")
        if array.nbytes:
            cuda = _cuda()
            with on_device(self.ordinal):
                synchronize()
                origin = cuda.CUdeviceptr(self.address + offset_bytes)
                check(cuda.cuMemcpyDtoH(array.ctypes.data, origin, array.nbytes), "copying from the GPU")
        return array

    def _fits(self, array: np.ndarray, offset_bytes: int) -> None:
        if not array.flags.c_contiguous:
            raise LayoutError("array: it is not C-contiguous; give np.ascontiguousarray(array)")
        if offset_bytes < 0 or offset_bytes + array.nbytes > self.size_bytes:
            raise LayoutError(
                f"array: {array.nbytes} bytes at offset {offset_bytes} exceed the allocation of {self.size_bytes} "
                f"bytes; allocate Allocation({offset_bytes + array.nbytes})"
            )

    def fill(self, byte: int, stream: int = 0) -> None:
        """Set every byte, in a stream, and wait for it."""
        if self.size_bytes:
            cuda = _cuda()
            with on_device(self.ordinal):
                address, handle = cuda.CUdeviceptr(self.address), cuda.CUstream(stream)
                check(cuda.cuMemsetD8Async(address, byte, self.size_bytes, handle), "filling GPU memory")
                check(cuda.cuStreamSynchronize(handle), "filling GPU memory")


class PinnedMemory(_Owned):
    """Host memory that the GPU copies from and to by itself. ``address`` is where it starts."""

    def __init__(self, size_bytes: int) -> None:
        enter()
        super().__init__(check(_cuda().cuMemAllocHost(size_bytes), f"pinning {size_bytes} bytes"), "cuMemFreeHost")
        self.size_bytes = size_bytes

    @property
    def address(self) -> int:
        """Host address of the first byte."""
        return self.handle


def copy_to_device(device: int, host: int, size_bytes: int, stream: int) -> None:
    """Queue a copy from host memory, by addresses. The host's bytes may change once the stream has passed it; those of
    memory that is not pinned, as soon as this returns."""
    cuda = _cuda()
    answer = cuda.cuMemcpyHtoDAsync(cuda.CUdeviceptr(device), host, size_bytes, cuda.CUstream(stream))
    check(answer, "copying to the GPU")


def copy_to_host(host: int, device: int, size_bytes: int, stream: int) -> None:
    """Queue a copy to host memory, by addresses; the bytes are there once the stream has passed it."""
    cuda = _cuda()
    answer = cuda.cuMemcpyDtoHAsync(host, cuda.CUdeviceptr(device), size_bytes, cuda.CUstream(stream))
    check(answer, "copying from the GPU")


def copy_between(target: int, source: int, size_bytes: int, stream: int) -> None:
    """Queue a copy from address to address, of this GPU, of one whose memory it can access, or of pinned host memory.
    Between two GPUs, or with the host, no SM takes part; within one GPU a kernel may do it."""
    cuda = _cuda()
    answer = cuda.cuMemcpyAsync(cuda.CUdeviceptr(target), cuda.CUdeviceptr(source), size_bytes, cuda.CUstream(stream))
    check(answer, "copying between GPUs")


def write_value(address: int, value: int, stream: int) -> None:
    """Queue a write of 32 bits behind everything before it in the stream, with a fence of system scope between."""
    cuda = _cuda()
    check(cuda.cuStreamWriteValue32(cuda.CUstream(stream), cuda.CUdeviceptr(address), value, 0), "setting a flag")


def wait_for_value(address: int, least: int, stream: int) -> None:
    """Hold a stream until the 32 bits at an address, less ``least``, are at least 0 as a signed number."""
    cuda = _cuda()
    how = int(cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)
    check(cuda.cuStreamWaitValue32(cuda.CUstream(stream), cuda.CUdeviceptr(address), least, how), "waiting for a flag")


class Stream(_Owned):
    """A new stream that does not synchronize with the default stream. ``handle`` is what launches take."""

    def __init__(self) -> None:
        enter()
        cuda = _cuda()
        stream = check(cuda.cuStreamCreate(int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)), "making a stream")
        super().__init__(stream, "cuStreamDestroy")

    def synchronize(self) -> None:
        """Wait for all work in the stream."""
        synchronize_stream(self.handle)


def synchronize_stream(stream: int) -> None:
    """Wait for all work in a stream, anyone's; 0 is the default stream."""
    cuda = _cuda()
    check(cuda.cuStreamSynchronize(cuda.CUstream(stream)), "waiting for a stream")


def stream_id(stream: int) -> int:
    """Identifier of a stream that no other stream of this process has or will have, whatever its handle."""
    cuda = _cuda()
    return int(check(cuda.cuStreamGetId(cuda.CUstream(stream)), "identifying a stream"))


def wait_for_event(stream: int, event: Event) -> None:
    """Let later work of a stream wait for a point in another one."""
    cuda = _cuda()
    check(cuda.cuStreamWaitEvent(cuda.CUstream(stream), cuda.CUevent(event.handle), 0), "waiting for an event")


def is_capturing(stream: int) -> bool:
    """Whether what a stream is given is recorded for a graph instead of run. The default stream never is."""
    if stream == 0:
        return False
    cuda = _cuda()
    status = check(cuda.cuStreamIsCapturing(cuda.CUstream(stream)), "asking whether a stream is captured")
    return int(status) != int(cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


class Event(_Owned):
    """A point in a stream, with its time."""

    def __init__(self) -> None:
        enter()
        super().__init__(check(_cuda().cuEventCreate(0), "making an event"), "cuEventDestroy")
        self._event = _cuda().CUevent(self.handle)

    def record(self, stream: int = 0) -> None:
        """Mark the end of what the stream has been given so far."""
        cuda = _cuda()
        check(cuda.cuEventRecord(self._event, cuda.CUstream(stream)), "recording an event")

    def passed(self) -> bool:
        """Whether the GPU has passed this point, without waiting for it."""
        cuda = _cuda()
        (status,) = cuda.cuEventQuery(self._event)
        if int(status) == int(cuda.CUresult.CUDA_ERROR_NOT_READY):
            return False
        check((status,), "asking for an event")
        return True

    def synchronize(self) -> None:
        """Wait until the GPU has passed this point."""
        check(_cuda().cuEventSynchronize(self._event), "waiting for an event")

    def elapsed_ms(self, later: Event) -> float:
        """Milliseconds from this event to a later one, both passed."""
        return float(check(_cuda().cuEventElapsedTime(self._event, later._event), "time between events"))


class Graph(_Owned):
    """Work recorded once from a stream, to be launched many times at almost no host cost."""

    def __init__(self, executable: Any) -> None:
        super().__init__(executable, "cuGraphExecDestroy")

    @classmethod
    @contextmanager
    def capture(cls, stream: int) -> Iterator[list[Graph]]:
        """Record what the block gives to ``stream`` (not 0) instead of running it.

        The list that the ``with`` binds holds the graph after the block. If the block raises, so does this.
        """
        cuda = _cuda()
        handle = cuda.CUstream(stream)
        # Relaxed: libraries that allocate at their first call, and finalizers of other objects, may run meanwhile.
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        made: list[Graph] = []
        check(cuda.cuStreamBeginCapture(handle, mode), "beginning a capture")
        try:
            yield made
        except BaseException:
            # Ends the capture so that the stream can be used again; its own failure would hide the block's.
            _, abandoned = cuda.cuStreamEndCapture(handle)
            if abandoned is not None and int(abandoned):
                cuda.cuGraphDestroy(abandoned)
            raise
        graph = check(cuda.cuStreamEndCapture(handle), "ending a capture")
        try:
            made.append(cls(check(cuda.cuGraphInstantiate(graph, 0), "instantiating a graph")))
        finally:
            check(cuda.cuGraphDestroy(graph), "dropping a recorded graph")

    def launch(self, stream: int) -> None:
        """Run the recorded work once in ``stream``."""
        cuda = _cuda()
        check(cuda.cuGraphLaunch(cuda.CUgraphExec(self.handle), cuda.CUstream(stream)), "launching a graph")


@contextmanager
def outside_captures() -> Iterator[None]:
    """Calls that no stream's capture is to record, such as allocations, are allowed inside while one is under way."""
    cuda = _cuda()
    relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(cuda.cuThreadExchangeStreamCaptureMode(relaxed), "leaving captures")
    try:
        yield
    finally:
        check(cuda.cuThreadExchangeStreamCaptureMode(before), "returning to captures")


class Module(_Owned):
    """A cubin loaded into the current device."""

    def __init__(self, cubin: bytes) -> None:
        enter()
        super().__init__(check(_cuda().cuModuleLoadData(cubin), "loading a cubin"), "cuModuleUnload")

    def function(self, entry: str) -> Function:
        """The kernel called ``entry``. It is good for as long as the module is."""
        cuda = _cuda()
        handle = check(cuda.cuModuleGetFunction(cuda.CUmodule(self.handle), entry.encode()), f"finding kernel {entry}")
        return Function(handle, entry, self.ordinal)


class Function:
    """A kernel of a loaded module."""

    def __init__(self, handle: Any, entry: str, ordinal: int) -> None:
        self._handle = handle
        self.entry = entry
        self.ordinal = ordinal

    @property
    def handle(self) -> int:
        """The driver's handle of the kernel."""
        return int(self._handle)

    def attribute(self, name: str) -> int:
        """An attribute, such as ``"NUM_REGS"`` or ``"SHARED_SIZE_BYTES"``."""
        cuda = _cuda()
        key = getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(check(cuda.cuFuncGetAttribute(key, self._handle), f"{self.entry}: {name}"))

    def set_attribute(self, name: str, value: int) -> None:
        """Set an attribute, such as ``"MAX_DYNAMIC_SHARED_SIZE_BYTES"``."""
        cuda = _cuda()
        key = getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        check(cuda.cuFuncSetAttribute(self._handle, key, value), f"{self.entry}: setting {name} to {value}")

    def ctas_per_sm(self, threads: int, dynamic_shared_bytes: int) -> int:
        """CTAs that are resident on one SM at a time."""
        answer = _cuda().cuOccupancyMaxActiveBlocksPerMultiprocessor(self._handle, threads, dynamic_shared_bytes)
        return int(check(answer, f"{self.entry}: occupancy"))

    def launch_config(self, spec: LaunchSpec) -> Any:
        """``CUlaunchConfig`` of a launch on the default stream; its ``getPtr()`` is good for as long as it is."""
        return _launch_config(spec, 0)

    def co_resident_clusters(self, spec: LaunchSpec) -> int:
        """Clusters of ``spec`` that the GPU holds at a time, with its SMs as they are spread over GPCs."""
        config = _launch_config(replace(spec, overlaps_previous=False), 0)
        answer = _cuda().cuOccupancyMaxActiveClusters(self._handle, config)
        return int(check(answer, f"{self.entry}: occupancy in clusters of {spec.cluster}"))

    def launch(self, spec: LaunchSpec, stream: int, parameters: int) -> None:
        """Queue one launch in the current context.

        Args:
            spec: its geometry, and whether it may start before the kernel before it has ended.
            stream: the stream's handle.
            parameters: host address of an array of addresses, one for each kernel parameter; read before this returns.
        """
        cuda = _cuda()
        if spec.overlaps_previous or spec.cooperative or spec.cluster != (1, 1, 1):
            answer = cuda.cuLaunchKernelEx(_launch_config(spec, stream), self._handle, parameters, 0)
        else:
            answer = cuda.cuLaunchKernel(
                self._handle, *spec.grid, *spec.block, spec.dynamic_shared_bytes, cuda.CUstream(stream), parameters, 0
            )
        if int(answer[0]) != 0:
            check(answer, self._launching(spec))

    def _launching(self, spec: LaunchSpec) -> str:
        return (
            f"launching {self.entry} with grid {spec.grid}, block {spec.block}, cluster {spec.cluster}, "
            f"{spec.dynamic_shared_bytes} bytes of dynamic shared memory"
        )

    def refusal(self, spec: LaunchSpec, status: int) -> DeviceError:
        """The error for a launch that the driver refused with a status, given as a number."""
        return failure(_cuda().CUresult(status), self._launching(spec))


_EMPTY_KERNEL = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry empty() { ret; }
"""


@cache
def _clustered(info: DeviceInfo) -> tuple[int, ...]:
    """`DeviceLimits.clustered` of a GPU: what the driver says of a kernel whose shared memory fills an SM."""
    with on_device(info.ordinal), outside_captures():
        module = Module(_EMPTY_KERNEL)
        kernel = module.function("empty")
        kernel.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", info.shared_bytes_per_block)
        found = [info.multiprocessors]
        for size in range(2, PORTABLE_CLUSTER_CTAS + 1):
            shape = (size, 1, 1)
            spec = LaunchSpec("empty", shape, (32, 1, 1), (), shape, info.shared_bytes_per_block)
            found.append(size * kernel.co_resident_clusters(spec))
    return tuple(found)


def _launch_config(spec: LaunchSpec, stream: int) -> Any:
    """A launch as the calls of the driver take it that know attributes."""
    cuda = _cuda()
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = spec.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = spec.block
    config.sharedMemBytes = spec.dynamic_shared_bytes
    config.hStream = cuda.CUstream(stream)
    attributes = _launch_attributes(spec.cluster, spec.overlaps_previous, spec.cooperative)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


@cache
def _launch_attributes(cluster: Dim3, overlaps_previous: bool, cooperative: bool) -> list[Any]:
    """What a launch is given beside its geometry; made once, as that costs more than the launch."""
    cuda = _cuda()
    made = []
    if cluster != (1, 1, 1):
        clusters = cuda.CUlaunchAttribute()
        clusters.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        clusters.value.clusterDim.x, clusters.value.clusterDim.y, clusters.value.clusterDim.z = cluster
        made.append(clusters)
    if overlaps_previous:
        early = cuda.CUlaunchAttribute()
        early.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        made.append(early)
    if cooperative:
        together = cuda.CUlaunchAttribute()
        together.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        together.value.cooperative = 1
        made.append(together)
    return made
