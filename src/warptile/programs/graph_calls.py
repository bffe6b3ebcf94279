"""Graphs that are captured from streams: what a program gives a stream meanwhile is kept, and done at each launch.

While a stream is captured, asynchronous work of every stream belongs to its graph: that of others may only be given
where an event joins them to it.
"""

from __future__ import annotations

from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, Work, answers, signed

_NOT_CAPTURED, _CAPTURED = 0, 1
_UPDATED, _TOPOLOGY_CHANGED = 0, 2
_UPDATE_FAILURE = 910
_ILLEGAL_STATE, _CAPTURE_UNSUPPORTED = 401, 900


@answers("cudaStreamBeginCapture")
def stream_begin_capture(call: Call, stream: int, mode: int) -> None:
    """``cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)``."""
    if call.gpu.capture is not None:
        raise CallError(_ILLEGAL_STATE, "a stream is captured already")
    if not stream:
        raise CallError(_CAPTURE_UNSUPPORTED, "the default stream cannot be captured; create one by cudaStreamCreate")
    call.gpu.capture, call.gpu.captured_stream = [], stream


@answers("cudaStreamEndCapture")
def stream_end_capture(call: Call, stream: int, where: int) -> None:
    """``cudaStreamEndCapture(cudaStream_t, cudaGraph_t*)``."""
    if call.gpu.capture is None or stream != call.gpu.captured_stream:
        raise CallError(_ILLEGAL_STATE, "this stream is not captured")
    handle = call.gpu.handle()
    call.gpu.graphs[handle], call.gpu.capture = call.gpu.capture, None
    call.int64(where, handle)


@answers("cudaStreamIsCapturing")
def stream_is_capturing(call: Call, stream: int, where: int) -> None:
    """``cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*)``."""
    is_captured = call.gpu.capture is not None and stream == call.gpu.captured_stream
    call.int32(where, _CAPTURED if is_captured else _NOT_CAPTURED)


@answers("cudaGraphInstantiate", "cudaGraphInstantiateWithFlags")
def graph_instantiate(call: Call, where: int, graph: int) -> None:
    """``cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, ...)``."""
    handle = call.gpu.handle()
    call.gpu.graphs[handle] = list(_graph(call, graph))
    call.int64(where, handle)


@answers("cudaGraphExecUpdate")
def graph_exec_update(call: Call, ready: int, graph: int, where: int) -> None:
    """``cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*)``: of as much work alone."""
    fits = len(_graph(call, ready)) == len(_graph(call, graph))
    call.int32(where, _UPDATED if fits else _TOPOLOGY_CHANGED)
    call.int64(where + 8, 0, 0)
    if not fits:
        raise CallError(_UPDATE_FAILURE, "the graphs have different numbers of nodes; instantiate the new one")
    call.gpu.graphs[ready] = list(_graph(call, graph))


@answers("cudaGraphLaunch")
def graph_launch(call: Call, graph: int, stream: int) -> None:
    """``cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)``."""
    call.gpu.check()
    for work in _graph(call, graph):
        work(call)


@answers("cudaGraphUpload")
def graph_upload(call: Call, graph: int, stream: int) -> None:
    """There is nothing to upload."""
    _graph(call, graph)


@answers("cudaGraphDestroy", "cudaGraphExecDestroy")
def graph_destroy(call: Call, graph: int) -> None:
    """``cudaGraphDestroy(cudaGraph_t)``."""
    _graph(call, graph)
    del call.gpu.graphs[graph]


@answers("cudaGraphGetNodes")
def graph_get_nodes(call: Call, graph: int, nodes: int, count: int) -> None:
    """``cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*)``: the number of nodes, if these are not wanted."""
    if nodes:
        raise CallError(INVALID_VALUE, "nodes of captured graphs are not emulated")
    call.int64(count, len(_graph(call, graph)))


def _graph(call: Call, handle: int) -> list[Work]:
    if handle not in call.gpu.graphs:
        raise CallError(INVALID_VALUE, f"{signed(handle, 64):#x} is no graph")
    return call.gpu.graphs[handle]
