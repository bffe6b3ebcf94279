"""Graphs that are captured from streams or made of nodes, and how they are launched.

While a stream is captured, asynchronous work of every stream belongs to its graph: that of others may only be given
where an event joins them to it. A launch does the work of a graph's nodes in the order in which they were added, as far
as their dependencies leave it open.
"""

from __future__ import annotations

from warptile.programs.graphs import (
    AUTO_FREE_ON_LAUNCH,
    GraphNode,
    NodeType,
    ProgramGraph,
    graph_of,
    holder_of,
    node_of,
)
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, answers
from warptile.programs.memory_calls import free, is_live

_NOT_CAPTURED, _CAPTURED = 0, 1
_UPDATED, _TOPOLOGY_CHANGED = 0, 2
_UPDATE_FAILURE = 910
_ILLEGAL_STATE, _CAPTURE_UNSUPPORTED = 401, 900
_EDGE_DATA_BYTES = 8
_EDGES_SINCE = 13
"""Since this version of the runtime, what asks for dependencies also asks for data of each of them."""


@answers("cudaStreamBeginCapture", "cuStreamBeginCapture_v2")
def stream_begin_capture(call: Call, stream: int, mode: int) -> None:
    """``cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)``."""
    if call.gpu.capture is not None:
        raise CallError(_ILLEGAL_STATE, "a stream is captured already")
    if not stream:
        raise CallError(_CAPTURE_UNSUPPORTED, "the default stream cannot be captured; create one by cudaStreamCreate")
    call.gpu.capture, call.gpu.captured_stream = ProgramGraph(), stream


@answers("cudaStreamEndCapture", "cuStreamEndCapture")
def stream_end_capture(call: Call, stream: int, where: int) -> None:
    """``cudaStreamEndCapture(cudaStream_t, cudaGraph_t*)``."""
    if call.gpu.capture is None or stream != call.gpu.captured_stream:
        raise CallError(_ILLEGAL_STATE, "this stream is not captured")
    handle = call.gpu.handle()
    call.gpu.graphs[handle], call.gpu.capture = call.gpu.capture, None
    call.int64(where, handle)


@answers("cudaStreamIsCapturing", "cuStreamIsCapturing")
def stream_is_capturing(call: Call, stream: int, where: int) -> None:
    """``cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*)``."""
    is_captured = call.gpu.capture is not None and stream == call.gpu.captured_stream
    call.int32(where, _CAPTURED if is_captured else _NOT_CAPTURED)


@answers("cudaGraphCreate", "cuGraphCreate")
def graph_create(call: Call, where: int, flags: int) -> None:
    """``cudaGraphCreate(cudaGraph_t*, unsigned)``."""
    handle = call.gpu.handle()
    call.gpu.graphs[handle] = ProgramGraph()
    call.int64(where, handle)


@answers("cudaGraphClone", "cuGraphClone")
def graph_clone(call: Call, where: int, graph: int) -> None:
    """``cudaGraphClone(cudaGraph_t*, cudaGraph_t)``."""
    call.int64(where, cloned(call, graph))


def cloned(call: Call, graph: int) -> int:
    """Handle of a copy of a graph, whose nodes have handles of their own."""
    nodes = graph_of(call, graph).in_order()
    handles = {each: call.gpu.handle() for each in nodes}
    for node in nodes.values():
        node.after = [handles[each] for each in node.after]
    handle = call.gpu.handle()
    call.gpu.graphs[handle] = ProgramGraph({handles[each]: node for each, node in nodes.items()})
    return handle


@answers("cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags")
def graph_instantiate(call: Call, where: int, graph: int, flags: int) -> None:
    """``cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long)``."""
    handle = call.gpu.handle()
    call.gpu.graphs[handle] = ProgramGraph(graph_of(call, graph).in_order(), ready=True, flags=flags)
    call.int64(where, handle)


@answers("cudaGraphInstantiateWithParams")
def graph_instantiate_with_parameters(call: Call, where: int, graph: int, parameters: int) -> None:
    """``cudaGraphInstantiateWithParams(cudaGraphExec_t*, cudaGraph_t, cudaGraphInstantiateParams*)``."""
    (flags,) = call.memory.unpack("<Q", parameters)
    graph_instantiate(call, where, graph, flags)
    call.int64(parameters + 16, 0)
    call.int32(parameters + 24, 0)


@answers("cudaGraphExecGetFlags", "cuGraphExecGetFlags")
def graph_exec_get_flags(call: Call, graph: int, where: int) -> None:
    """``cudaGraphExecGetFlags(cudaGraphExec_t, unsigned long long*)``."""
    call.int64(where, graph_of(call, graph).flags)


@answers("cudaGraphExecUpdate")
def graph_exec_update(call: Call, ready: int, graph: int, where: int) -> None:
    """``cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*)``: of the same nodes."""
    old, new = graph_of(call, ready).nodes, graph_of(call, graph).in_order()
    fits = [each.kind for each in old.values()] == [each.kind for each in new.values()]
    call.int32(where, _UPDATED if fits else _TOPOLOGY_CHANGED)
    call.int64(where + 8, 0, 0)
    if not fits:
        raise CallError(_UPDATE_FAILURE, "the graphs have different nodes; instantiate the new one")
    for mine, theirs in zip(old.values(), new.values(), strict=True):
        mine.work, mine.child = theirs.work, theirs.child


@answers("cudaGraphLaunch", "cuGraphLaunch")
def graph_launch(call: Call, graph: int, stream: int) -> None:
    """``cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)``."""
    call.gpu.check()
    found = graph_of(call, graph)
    for address in [each for each in call.gpu.graph_memory if call.gpu.graph_memory[each] is found]:
        if is_live(call, address):
            if not found.flags & AUTO_FREE_ON_LAUNCH:
                raise CallError(INVALID_VALUE, "memory that an earlier launch of the graph allocated is not freed yet")
            free(call, address)
    launched, call.gpu.launched_graph = call.gpu.launched_graph, found
    try:
        found.launch(call)
    finally:
        call.gpu.launched_graph = launched


@answers("cudaGraphUpload", "cuGraphUpload")
def graph_upload(call: Call, graph: int, stream: int) -> None:
    """There is nothing to upload."""
    graph_of(call, graph)


@answers("cudaGraphDestroy", "cudaGraphExecDestroy", "cuGraphDestroy", "cuGraphExecDestroy")
def graph_destroy(call: Call, graph: int) -> None:
    """``cudaGraphDestroy(cudaGraph_t)``."""
    graph_of(call, graph)
    del call.gpu.graphs[graph]


# --- what a graph consists of ----------------------------------------------------------------------------------------


@answers("cudaGraphGetNodes")
def graph_get_nodes(call: Call, graph: int, nodes: int, count: int) -> None:
    """``cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*)``: the number of nodes, if these are not wanted."""
    _list(call, nodes, count, list(graph_of(call, graph).nodes))


@answers("cudaGraphGetRootNodes")
def graph_get_root_nodes(call: Call, graph: int, nodes: int, count: int) -> None:
    """``cudaGraphGetRootNodes(cudaGraph_t, cudaGraphNode_t*, size_t*)``."""
    found = graph_of(call, graph).nodes
    _list(call, nodes, count, [each for each, node in found.items() if not node.after])


@answers("cudaGraphGetEdges", "cudaGraphGetEdges_v2")
def graph_get_edges(call: Call, graph: int, first: int, second: int, third: int, fourth: int) -> None:
    """``cudaGraphGetEdges(cudaGraph_t, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData*, size_t*)``."""
    data, count = (third, fourth) if with_edge_data(call) else (0, third)
    edges = [(on, each) for each, node in graph_of(call, graph).nodes.items() for on in node.after]
    (room,) = call.memory.unpack("<Q", count)
    _list(call, first, count, [each for each, _ in edges])
    if second:
        call.int64(second, *[each for _, each in edges][:room])
    if data and first:
        call.memory.write(data, bytes(_EDGE_DATA_BYTES * min(room, len(edges))))


@answers("cudaGraphNodeGetDependencies", "cudaGraphNodeGetDependencies_v2")
def node_get_dependencies(call: Call, node: int, nodes: int, third: int, fourth: int) -> None:
    """``cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*)``."""
    _list(call, nodes, fourth if with_edge_data(call) else third, node_of(call, node).after)


@answers("cudaGraphNodeGetDependentNodes", "cudaGraphNodeGetDependentNodes_v2")
def node_get_dependent_nodes(call: Call, node: int, nodes: int, third: int, fourth: int) -> None:
    """``cudaGraphNodeGetDependentNodes(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*)``."""
    found = [each for each, other in holder_of(call, node).nodes.items() if node in other.after]
    _list(call, nodes, fourth if with_edge_data(call) else third, found)


@answers("cudaGraphAddDependencies", "cudaGraphAddDependencies_v2")
def add_dependencies(call: Call, graph: int, first: int, second: int, third: int, fourth: int) -> None:
    """``cudaGraphAddDependencies(cudaGraph_t, from, to, const cudaGraphEdgeData*, size_t)``."""
    for on, node in _edges(call, graph, first, second, fourth if with_edge_data(call) else third):
        if on not in node.after:
            node.after.append(on)


@answers("cudaGraphRemoveDependencies", "cudaGraphRemoveDependencies_v2")
def remove_dependencies(call: Call, graph: int, first: int, second: int, third: int, fourth: int) -> None:
    """``cudaGraphRemoveDependencies(cudaGraph_t, from, to, const cudaGraphEdgeData*, size_t)``."""
    for on, node in _edges(call, graph, first, second, fourth if with_edge_data(call) else third):
        if on not in node.after:
            raise CallError(INVALID_VALUE, "there is no such dependency")
        node.after.remove(on)


@answers("cudaGraphNodeGetType")
def node_get_type(call: Call, node: int, where: int) -> None:
    """``cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*)``."""
    call.int32(where, node_of(call, node).kind)


@answers("cudaGraphChildGraphNodeGetGraph")
def child_node_get_graph(call: Call, node: int, where: int) -> None:
    """``cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t, cudaGraph_t*)``."""
    call.int64(where, node_of(call, node, NodeType.GRAPH).child)


@answers("cudaGraphDestroyNode")
def destroy_node(call: Call, node: int) -> None:
    """``cudaGraphDestroyNode(cudaGraphNode_t)``, with its dependencies."""
    graph = holder_of(call, node)
    del graph.nodes[node]
    for other in graph.nodes.values():
        other.after = [each for each in other.after if each != node]


def with_edge_data(call: Call) -> bool:
    """Whether a function that is told of dependencies is told of data of each as well."""
    return call.gpu.runtime >= _EDGES_SINCE or call.function.endswith("_v2")


def _edges(call: Call, graph: int, first: int, second: int, count: int) -> list[tuple[int, GraphNode]]:
    """Of each dependency the handle of the first node, and the second node."""
    nodes = graph_of(call, graph).nodes
    pairs = zip(handles_at(call, first, count), handles_at(call, second, count), strict=True)
    found = [(on, each) for on, each in pairs if on in nodes and each in nodes and on != each]
    if len(found) != count:
        raise CallError(INVALID_VALUE, "these are no two nodes of the graph")
    return [(on, nodes[each]) for on, each in found]


def handles_at(call: Call, where: int, count: int) -> list[int]:
    """Handles in an array of the program."""
    return list(call.memory.unpack(f"<{count}Q", where)) if count else []


def _list(call: Call, where: int, count: int, handles: list[int]) -> None:
    """Write handles, as many as there is room for, or say how many there are."""
    if where:
        (room,) = call.memory.unpack("<Q", count)
        call.int64(where, *(*handles, *[0] * (room - len(handles)))[:room])
        call.int64(count, min(room, len(handles)))
    else:
        call.int64(count, len(handles))


# --- memory of graphs ------------------------------------------------------------------------------------------------


@answers("cudaDeviceGetGraphMemAttribute")
def device_get_graph_memory_attribute(call: Call, device: int, attribute: int, where: int) -> None:
    """``cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void*)``: nothing is kept that is not in use."""
    memory = call.gpu.memory
    used = sum(memory.home(each, 0, "").size for each in call.gpu.graph_memory if is_live(call, each))
    call.int64(where, used)


@answers("cudaDeviceSetGraphMemAttribute", "cudaDeviceGraphMemTrim")
def device_trim_graph_memory(call: Call) -> None:
    """There is nothing to give back."""
