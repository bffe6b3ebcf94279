"""How driver answers become values and errors, with no driver and with a stand-in for one."""

import enum
import types

import numpy as np
import pytest

from warptile import doctor
from warptile.errors import DeviceError, LayoutError, NoDeviceError
from warptile.gpu import driver
from warptile.runtime import execute


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


def _words(status):
    return Status.CUDA_SUCCESS, f"words for {int(status)}".encode()


@pytest.fixture
def bindings(monkeypatch):
    """Bindings whose functions a test adds one by one."""
    made = types.SimpleNamespace(cuGetErrorString=_words, CUstream=int, CUdeviceptr=int, CUgraphExec=int, CUcontext=int)
    monkeypatch.setattr(driver, "_cuda", lambda: made)
    driver._primary.cache_clear()
    yield made
    driver._primary.cache_clear()


@pytest.fixture
def device(bindings):
    """One device whose context is current; calls are recorded in ``bindings.calls``."""
    ok, bindings.calls = Status.CUDA_SUCCESS, []
    bindings.current = 0

    def set_current(context):
        bindings.current = context
        bindings.calls.append(("set", context))
        return (ok,)

    bindings.cuCtxGetCurrent = lambda: (ok, bindings.current)
    bindings.cuCtxGetDevice = lambda: (ok, 0)
    bindings.cuDeviceGet = lambda ordinal: (ok, ordinal)
    bindings.cuDevicePrimaryCtxRetain = lambda handle: (ok, 1000 + handle)
    bindings.cuCtxSetCurrent = set_current
    bindings.cuCtxPushCurrent = set_current
    bindings.cuCtxPopCurrent = lambda: (bindings.calls.append("pop") or ok, 0)
    bindings.cuCtxSynchronize = lambda: (bindings.calls.append("wait") or ok,)
    bindings.cuStreamSynchronize = lambda stream: (bindings.calls.append(("wait", stream)) or ok,)
    bindings.cuMemAlloc = lambda size: (bindings.calls.append(("alloc", size)) or ok, 0x1000)
    bindings.cuMemFree = lambda pointer: (bindings.calls.append(("free", pointer)) or ok,)
    bindings.cuMemcpyHtoD = lambda to, host, size: (bindings.calls.append(("up", to, size)) or ok,)
    bindings.cuMemcpyDtoH = lambda host, origin, size: (bindings.calls.append(("down", origin, size)) or ok,)
    return bindings


def test_an_answer_becomes_its_values(bindings):
    assert driver.check((Status.CUDA_SUCCESS,), "x") is None
    assert driver.check((Status.CUDA_SUCCESS, 5), "x") == 5
    assert driver.check((Status.CUDA_SUCCESS, 5, 6), "x") == (5, 6)


def test_a_failure_carries_the_drivers_name_and_words(bindings):
    with pytest.raises(DeviceError, match=r"^allocating 5 bytes: CUDA_ERROR_OUT_OF_MEMORY \(words for 2\)$") as caught:
        driver.check((Status.CUDA_ERROR_OUT_OF_MEMORY, None), "allocating 5 bytes")
    assert caught.value.driver_name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert not isinstance(caught.value, NoDeviceError)
    assert not caught.value.context_lost


def test_an_event_is_asked_for_and_not_waited_for(device):
    answers = [Status.CUDA_ERROR_NOT_READY, Status.CUDA_SUCCESS, Status.CUDA_ERROR_ILLEGAL_ADDRESS]
    device.CUresult, device.CUevent = Status, int
    device.cuEventCreate, device.cuEventDestroy = lambda flags: (Status.CUDA_SUCCESS, 5), lambda event: (0,)
    device.cuEventQuery = lambda event: (answers.pop(0),)
    event = driver.Event()
    assert [event.passed(), event.passed()] == [False, True]
    with pytest.raises(DeviceError, match="asking for an event: CUDA_ERROR_ILLEGAL_ADDRESS"):
        event.passed()
    assert not any(each == "wait" or each[0] == "wait" for each in device.calls)
    event.close()


def test_a_failure_that_loses_the_context_says_so(bindings):
    with pytest.raises(DeviceError, match="start a new process") as caught:
        driver.check((Status.CUDA_ERROR_ILLEGAL_ADDRESS,), "waiting")
    assert caught.value.context_lost


def test_a_driver_without_a_device_is_its_own_error(bindings):
    with pytest.raises(NoDeviceError, match="backend='emulator'"):
        driver.check((Status.CUDA_ERROR_NO_DEVICE,), "x")


def _with_bindings(monkeypatch, **functions):
    import cuda.bindings

    monkeypatch.setattr(cuda.bindings, "driver", types.SimpleNamespace(**functions), raising=False)
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.driver", cuda.bindings.driver)
    _start_anew()


def _start_anew():
    driver._start.cache_clear()
    driver._cuda.cache_clear()


@pytest.fixture
def _forget():
    yield
    _start_anew()


def _no_library(_):
    raise RuntimeError("Failed to dlopen libcuda.so.1")


@pytest.mark.usefixtures("_forget")
@pytest.mark.parametrize(
    ("init", "count", "word"),
    [
        (_no_library, None, "libcuda"),
        (lambda _: (Status.CUDA_ERROR_NO_DEVICE,), None, "does not start"),
        (lambda _: (Status.CUDA_SUCCESS,), lambda: (Status.CUDA_SUCCESS, 0), "no NVIDIA GPU"),
    ],
)
def test_without_driver_or_gpu_nothing_is_available(monkeypatch, init, count, word):
    _with_bindings(monkeypatch, cuInit=init, cuDeviceGetCount=count)
    assert driver.available() is False
    assert driver.device_count() == 0
    with pytest.raises(NoDeviceError, match=word):
        driver.device_info()
    with pytest.raises(NoDeviceError, match="emulator"):
        driver.Stream()


@pytest.mark.usefixtures("_forget")
def test_a_driver_that_is_not_there_is_looked_for_once_a_process(monkeypatch):
    tries = []

    def init(flags):
        tries.append(flags)
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    _with_bindings(monkeypatch, cuInit=init, cuDeviceGetCount=None)
    monkeypatch.setattr(execute, "driver_is_installed", lambda: True)
    for _ in range(3):
        assert execute.has_gpu() is False
        assert execute.choose_backend(None).name == "emulator"
        with pytest.raises(NoDeviceError, match="doctor"):
            execute.choose_backend("gpu")
    assert len(tries) == 1
    found = doctor.check_gpu()
    assert (found.state, "libcuda" in found.detail) == ("missing", True)
    assert len(tries) == 1


@pytest.mark.usefixtures("_forget")
def test_each_failure_is_an_error_of_its_own_with_the_same_words(monkeypatch):
    _with_bindings(monkeypatch, cuInit=lambda _: (Status.CUDA_ERROR_NO_DEVICE,), cuDeviceGetCount=None)
    raised = []
    for _ in range(2):
        with pytest.raises(NoDeviceError) as caught:
            driver.device_info()
        raised.append(caught.value)
    assert str(raised[0]) == str(raised[1])
    assert raised[0] is not raised[1]
    assert raised[0].driver_name == "CUDA_ERROR_NO_DEVICE"


def test_memory_is_given_back_once_and_in_its_own_context(device):
    with driver.Allocation(100) as memory:
        assert memory.address == 0x1000
    memory.close()
    del memory
    assert [call for call in device.calls if call[0] in ("alloc", "free")] == [("alloc", 100), ("free", 0x1000)]


def test_memory_that_is_collected_is_given_back(device):
    memory = driver.Allocation(0)
    assert ("alloc", 1) in device.calls
    del memory
    assert ("free", 0x1000) in device.calls


def test_giving_back_after_a_lost_context_does_not_raise(device):
    memory = driver.Allocation(4)
    device.cuMemFree = lambda pointer: (Status.CUDA_ERROR_ILLEGAL_ADDRESS,)
    memory.close()


def test_a_module_is_unloaded_only_after_its_launches_have_ended(device):
    device.cuModuleLoadData = lambda cubin: (Status.CUDA_SUCCESS, 55)
    device.cuModuleUnload = lambda module: (device.calls.append(("unload", module)) or Status.CUDA_SUCCESS,)
    module = driver.Module(b"cubin")
    device.calls.clear()
    del module
    assert device.calls == ["wait", ("unload", 55)]


def test_the_current_context_is_kept_and_restored(device):
    assert driver.enter() == 0
    assert driver.enter() == 0
    assert device.calls == [("set", 1000)]
    with driver.on_device(0):
        pass
    assert device.calls == [("set", 1000)]
    with driver.on_device(1):
        assert device.current == 1001
    assert device.calls == [("set", 1000), ("set", 1001), "pop"]


def test_a_failure_inside_a_context_still_leaves_it(device):
    with pytest.raises(ZeroDivisionError), driver.on_device(1):
        raise ZeroDivisionError
    assert device.calls[-1] == "pop"


def test_a_copy_up_has_arrived_and_a_copy_down_waits_first(device):
    memory = driver.Allocation(64)
    device.calls.clear()
    memory.from_host(np.zeros(4, np.float32), offset_bytes=48)
    assert device.calls == [("up", 0x1030, 16), ("wait", 0)]
    device.calls.clear()
    memory.to_host(np.zeros(16, np.float32))
    assert device.calls == ["wait", ("down", 0x1000, 64)]
    device.calls.clear()
    memory.to_host(np.zeros(0, np.float32))
    assert device.calls == []


@pytest.mark.parametrize("offset_bytes", [-4, 4, 61])
def test_a_copy_never_leaves_the_allocation(device, offset_bytes):
    memory = driver.Allocation(64)
    with pytest.raises(LayoutError, match="exceed the allocation of 64"):
        memory.from_host(np.zeros(16, np.float32), offset_bytes)
    with pytest.raises(LayoutError, match="exceed the allocation of 64"):
        memory.to_host(np.zeros(16, np.float32), offset_bytes)


def test_only_whole_arrays_are_copied(device):
    memory = driver.Allocation(64)
    with pytest.raises(LayoutError, match="not C-contiguous"):
        memory.from_host(np.zeros((2, 4), np.float32).T)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(LayoutError, match="read-only"):
        memory.to_host(frozen)


def test_a_capture_that_fails_is_ended_so_that_the_stream_can_be_used(device):
    ended = []
    device.CUstreamCaptureMode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    device.cuStreamBeginCapture = lambda stream, mode: (Status.CUDA_SUCCESS,)
    device.cuStreamEndCapture = lambda stream: (ended.append(stream) or Status.CUDA_SUCCESS, 77)
    device.cuGraphDestroy = lambda graph: (ended.append(graph) or Status.CUDA_SUCCESS,)
    with pytest.raises(ZeroDivisionError), driver.Graph.capture(5):
        raise ZeroDivisionError
    assert ended == [5, 77]
