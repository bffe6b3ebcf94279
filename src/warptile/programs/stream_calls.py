"""Calls about streams and events. All work is done when it is given, in the order of the calls, whatever its stream."""

from __future__ import annotations

import struct
import time

from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, answers

_INVALID_HANDLE = 400


@answers(
    "cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "cuStreamCreate",
    "cuStreamCreateWithPriority",
)  # fmt: skip
def stream_create(call: Call, where: int) -> None:
    """``cudaStreamCreate(cudaStream_t*)``."""
    call.int64(where, call.gpu.handle())


@answers(
    "cudaStreamSynchronize", "cudaStreamQuery", "cudaDeviceSynchronize", "cudaThreadSynchronize",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuStreamQuery",
)  # fmt: skip
def synchronize(call: Call) -> None:
    """Everything is done: what is left is to say what went wrong."""
    call.gpu.check()


@answers(
    "cudaStreamDestroy", "cudaStreamWaitEvent", "cudaStreamAttachMemAsync", "cudaStreamSetAttribute",
    "cuStreamDestroy_v2", "cuStreamWaitEvent", "cuStreamAttachMemAsync", "cuStreamSetAttribute",
)  # fmt: skip
def nothing_to_do(call: Call) -> None:
    """Work is in order anyway."""


@answers("cudaStreamGetPriority", "cudaStreamGetFlags", "cuStreamGetPriority", "cuStreamGetFlags")
def stream_get_priority(call: Call, stream: int, where: int) -> None:
    """``cudaStreamGetPriority(cudaStream_t, int*)``."""
    call.int32(where, 0)


@answers("cudaStreamGetId", "cuStreamGetId")
def stream_get_id(call: Call, stream: int, where: int) -> None:
    """``cudaStreamGetId(cudaStream_t, unsigned long long*)``."""
    call.int64(where, stream)


@answers("cudaLaunchHostFunc", "cuLaunchHostFunc")
def launch_host_function(call: Call, stream: int, function: int, argument: int) -> None:
    """``cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void*)``."""
    call.gpu.check()
    call.do(lambda now: now.call_back(function, argument), NodeType.HOST)


@answers("cudaStreamAddCallback", "cuStreamAddCallback")
def stream_add_callback(call: Call, stream: int, function: int, argument: int, flags: int) -> None:
    """``cudaStreamAddCallback(cudaStream_t, cudaStreamCallback_t, void*, unsigned)``."""
    call.call_back(function, stream, call.gpu.sticky, argument)


@answers("cudaEventCreate", "cudaEventCreateWithFlags", "cuEventCreate")
def event_create(call: Call, where: int) -> None:
    """``cudaEventCreate(cudaEvent_t*)``."""
    handle = call.gpu.handle()
    call.gpu.events[handle] = None
    call.int64(where, handle)


@answers("cudaEventRecord", "cudaEventRecordWithFlags", "cuEventRecord", "cuEventRecordWithFlags")
def event_record(call: Call, event: int) -> None:
    """``cudaEventRecord(cudaEvent_t, cudaStream_t)``."""
    record(call, event)


def record(call: Call, event: int) -> None:
    """Note down that everything before an event is done."""
    _check_event(call, event)
    call.gpu.events[event] = time.perf_counter()


@answers("cudaEventSynchronize", "cudaEventQuery", "cuEventSynchronize", "cuEventQuery")
def event_synchronize(call: Call, event: int) -> None:
    """``cudaEventSynchronize(cudaEvent_t)``."""
    _check_event(call, event)
    call.gpu.check()


@answers("cudaEventDestroy", "cuEventDestroy_v2")
def event_destroy(call: Call, event: int) -> None:
    """``cudaEventDestroy(cudaEvent_t)``."""
    _check_event(call, event)
    del call.gpu.events[event]


@answers("cudaEventElapsedTime", "cudaEventElapsedTime_v2", "cuEventElapsedTime", "cuEventElapsedTime_v2")
def event_elapsed_time(call: Call, where: int, start: int, end: int) -> None:
    """``cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t)``: the time that emulation took."""
    times = []
    for event in (start, end):
        _check_event(call, event)
        times.append(call.gpu.events[event])
    if times[0] is None or times[1] is None:
        raise CallError(INVALID_VALUE, "an event that was not recorded")
    call.memory.write(where, struct.pack("<f", 1e3 * (times[1] - times[0])))


def _check_event(call: Call, event: int) -> None:
    if event not in call.gpu.events:
        raise CallError(_INVALID_HANDLE, f"{event:#x} is no event")
