"""Calls that add nodes to graphs, and that change what nodes do.

Each kind of node has a function that makes its work of the parameters that a program gives: when the node is added,
when its parameters are set, and when those of the node in a graph that can be launched are.
"""

from __future__ import annotations

import struct

from warptile.programs.graph_calls import cloned, handles_at, with_edge_data
from warptile.programs.graphs import GraphNode, NodeType, graph_of, node_of, ready_node_of
from warptile.programs.launch_calls import LaunchOptions, LaunchWork, kernel_work, with_attribute
from warptile.programs.library_calls import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    Call,
    CallError,
    Handler,
    Work,
    answers,
    unsigned,
)
from warptile.programs.memory_calls import (
    copy,
    fill,
    free,
    graph_memory,
    memcpy_from_symbol,
    memcpy_to_symbol,
    room_on_host,
)
from warptile.programs.stream_calls import record
from warptile.programs.volume_calls import copying_volume

_KERNEL = "<Q7I4xQQ"
"""``cudaKernelNodeParams``: function, grid, block, bytes of shared memory, ``kernelParams``, ``extra``."""

_MEMSET = "<QQIIQQ"
"""``cudaMemsetParams``: destination, pitch, value, bytes of an element, elements of a row, rows."""

_ALLOCATION_BYTES_AT, _ALLOCATION_ADDRESS_AT = 104, 112
"""Members of ``cudaMemAllocNodeParams``, behind the properties of a pool (88 bytes) and who may access it."""

_PARAMETERS_AT, _COPY_PARAMETERS_AT = 16, 32
"""Of what ``cudaGraphAddNode`` takes; copies have flags of their own before the rest."""


def _add(call: Call, where: int, graph: int, dependencies: int, count: int, kind: NodeType, work: Work) -> GraphNode:
    """Add a node, and write its handle."""
    node = GraphNode(kind, work, list(dict.fromkeys(handles_at(call, dependencies, count))))
    call.int64(where, graph_of(call, graph).add(call, node))
    return node


def _nothing(call: Call) -> None:
    """What an empty node does."""


# --- what nodes do ---------------------------------------------------------------------------------------------------


def _kernel(call: Call, parameters: int) -> Work:
    """``const cudaKernelNodeParams*``."""
    kernel, gx, gy, gz, bx, by, bz, shared, arguments, extra = call.memory.unpack(_KERNEL, parameters)
    if extra:
        raise CallError(NOT_SUPPORTED, "kernel arguments in one buffer (extra) are not emulated; give kernelParams")
    return kernel_work(call, kernel, LaunchOptions((gx, gy, gz), (bx, by, bz), shared), arguments)


def _memset(call: Call, parameters: int) -> Work:
    """``const cudaMemsetParams*``."""
    address, pitch, value, size, width, height = call.memory.unpack(_MEMSET, parameters)
    if size not in (1, 2, 4):
        raise CallError(INVALID_VALUE, f"elements of {size} bytes; they have 1, 2 or 4")
    pattern = struct.pack("<I", value)[:size]

    def write(now: Call) -> None:
        for row in range(height):
            fill(now, address + row * pitch, pattern, width)

    return write


def _host(call: Call, parameters: int) -> Work:
    """``const cudaHostNodeParams*``."""
    function, argument = call.memory.unpack("<QQ", parameters)
    return lambda now: now.call_back(function, argument)


def _record(call: Call, event: int) -> Work:
    return lambda now: record(now, event)


def _copy(target: int, source: int, size: int, kind: int) -> Work:
    return lambda now: copy(now, target, source, size, unsigned(kind))


# --- nodes that are added --------------------------------------------------------------------------------------------


@answers("cudaGraphAddKernelNode")
def add_kernel_node(call: Call, where: int, graph: int, dependencies: int, count: int, parameters: int) -> None:
    """``cudaGraphAddKernelNode(node*, graph, dependencies, size_t, const cudaKernelNodeParams*)``."""
    _add(call, where, graph, dependencies, count, NodeType.KERNEL, _kernel(call, parameters))


@answers("cudaGraphAddMemcpyNode")
def add_memcpy_node(call: Call, where: int, graph: int, dependencies: int, count: int, parameters: int) -> None:
    """``cudaGraphAddMemcpyNode(node*, graph, dependencies, size_t, const cudaMemcpy3DParms*)``."""
    _add(call, where, graph, dependencies, count, NodeType.COPY, copying_volume(call, parameters))


@answers("cudaGraphAddMemcpyNode1D")
def add_memcpy_node_1d(
    call: Call, where: int, graph: int, dependencies: int, count: int, target: int, source: int, size: int, kind: int
) -> None:
    """``cudaGraphAddMemcpyNode1D(node*, graph, dependencies, size_t, dst, src, count, kind)``."""
    _add(call, where, graph, dependencies, count, NodeType.COPY, _copy(target, source, size, kind))


@answers("cudaGraphAddMemcpyNodeToSymbol")
def add_memcpy_node_to_symbol(
    call: Call, where: int, graph: int, dependencies: int, count: int, symbol: int, source: int, size: int,
    offset: int, kind: int,
) -> None:  # fmt: skip
    """``cudaGraphAddMemcpyNodeToSymbol(node*, graph, dependencies, size_t, symbol, src, count, offset, kind)``."""
    work = _copy_to_symbol(symbol, source, size, offset, kind)
    _add(call, where, graph, dependencies, count, NodeType.COPY, work)


@answers("cudaGraphAddMemcpyNodeFromSymbol")
def add_memcpy_node_from_symbol(
    call: Call, where: int, graph: int, dependencies: int, count: int, target: int, symbol: int, size: int,
    offset: int, kind: int,
) -> None:  # fmt: skip
    """``cudaGraphAddMemcpyNodeFromSymbol(node*, graph, dependencies, size_t, dst, symbol, count, offset, kind)``."""
    work = _copy_from_symbol(target, symbol, size, offset, kind)
    _add(call, where, graph, dependencies, count, NodeType.COPY, work)


def _copy_to_symbol(symbol: int, source: int, size: int, offset: int, kind: int) -> Work:
    return lambda now: memcpy_to_symbol(now, symbol, source, size, offset, kind)


def _copy_from_symbol(target: int, symbol: int, size: int, offset: int, kind: int) -> Work:
    return lambda now: memcpy_from_symbol(now, target, symbol, size, offset, kind)


@answers("cudaGraphAddMemsetNode")
def add_memset_node(call: Call, where: int, graph: int, dependencies: int, count: int, parameters: int) -> None:
    """``cudaGraphAddMemsetNode(node*, graph, dependencies, size_t, const cudaMemsetParams*)``."""
    _add(call, where, graph, dependencies, count, NodeType.MEMSET, _memset(call, parameters))


@answers("cudaGraphAddHostNode")
def add_host_node(call: Call, where: int, graph: int, dependencies: int, count: int, parameters: int) -> None:
    """``cudaGraphAddHostNode(node*, graph, dependencies, size_t, const cudaHostNodeParams*)``."""
    _add(call, where, graph, dependencies, count, NodeType.HOST, _host(call, parameters))


@answers("cudaGraphAddEmptyNode")
def add_empty_node(call: Call, where: int, graph: int, dependencies: int, count: int) -> None:
    """``cudaGraphAddEmptyNode(node*, graph, dependencies, size_t)``."""
    _add(call, where, graph, dependencies, count, NodeType.EMPTY, _nothing)


@answers("cudaGraphAddChildGraphNode")
def add_child_graph_node(call: Call, where: int, graph: int, dependencies: int, count: int, child: int) -> None:
    """``cudaGraphAddChildGraphNode(node*, graph, dependencies, size_t, cudaGraph_t)``: a copy of the graph."""
    handle = cloned(call, child)
    node = _add(call, where, graph, dependencies, count, NodeType.GRAPH, _child(handle))
    node.child = handle


def _child(handle: int) -> Work:
    def launch(now: Call) -> None:
        for node in graph_of(now, handle).in_order().values():
            node.work(now)

    return launch


@answers("cudaGraphAddEventRecordNode")
def add_event_record_node(call: Call, where: int, graph: int, dependencies: int, count: int, event: int) -> None:
    """``cudaGraphAddEventRecordNode(node*, graph, dependencies, size_t, cudaEvent_t)``."""
    _add(call, where, graph, dependencies, count, NodeType.RECORD_EVENT, _record(call, event))


@answers("cudaGraphAddEventWaitNode")
def add_event_wait_node(call: Call, where: int, graph: int, dependencies: int, count: int, event: int) -> None:
    """``cudaGraphAddEventWaitNode(node*, graph, dependencies, size_t, cudaEvent_t)``: there is nothing to wait for."""
    _add(call, where, graph, dependencies, count, NodeType.WAIT_EVENT, _nothing)


@answers("cudaGraphAddMemAllocNode")
def add_allocation_node(call: Call, where: int, graph: int, dependencies: int, count: int, parameters: int) -> None:
    """``cudaGraphAddMemAllocNode(node*, graph, dependencies, size_t, cudaMemAllocNodeParams*)``."""
    (size,) = call.memory.unpack("<Q", parameters + _ALLOCATION_BYTES_AT)
    address, work = graph_memory(call, size)
    _add(call, where, graph, dependencies, count, NodeType.ALLOCATE, work)
    call.int64(parameters + _ALLOCATION_ADDRESS_AT, address)


@answers("cudaGraphAddMemFreeNode")
def add_free_node(call: Call, where: int, graph: int, dependencies: int, count: int, address: int) -> None:
    """``cudaGraphAddMemFreeNode(node*, graph, dependencies, size_t, void*)``."""
    _add(call, where, graph, dependencies, count, NodeType.FREE, lambda now: free(now, address))


@answers("cudaGraphAddNode", "cudaGraphAddNode_v2")
def add_node(call: Call, where: int, graph: int, dependencies: int, fourth: int, fifth: int, sixth: int) -> None:
    """``cudaGraphAddNode(node*, graph, dependencies, const cudaGraphEdgeData*, size_t, cudaGraphNodeParams*)``."""
    count, parameters = (fifth, sixth) if with_edge_data(call) else (fourth, fifth)
    (kind,) = call.memory.unpack("<i", parameters)
    at = parameters + _PARAMETERS_AT
    if kind not in _ADDING:
        raise CallError(NOT_SUPPORTED, f"nodes of type {kind} (cudaGraphNodeType) are not emulated")
    adding, by_value = _ADDING[kind]
    given = call.memory.unpack("<Q", at) if by_value else (parameters + _COPY_PARAMETERS_AT if kind == 1 else at,)
    adding(call, where, graph, dependencies, count, *given)


_ADDING: dict[int, tuple[Handler, bool]] = {
    NodeType.KERNEL: (add_kernel_node, False), NodeType.COPY: (add_memcpy_node, False),
    NodeType.MEMSET: (add_memset_node, False), NodeType.HOST: (add_host_node, False),
    NodeType.GRAPH: (add_child_graph_node, True), NodeType.WAIT_EVENT: (add_event_wait_node, True),
    NodeType.RECORD_EVENT: (add_event_record_node, True), NodeType.ALLOCATE: (add_allocation_node, False),
    NodeType.FREE: (add_free_node, True), NodeType.EMPTY: (lambda *given: add_empty_node(*given[:5]), False),
}  # fmt: skip
"""How ``cudaGraphAddNode`` adds a node of each type, and whether its parameter is one word rather than an address."""


# --- nodes that are changed ------------------------------------------------------------------------------------------


@answers("cudaGraphKernelNodeSetParams")
def kernel_node_set_parameters(call: Call, node: int, parameters: int) -> None:
    """``cudaGraphKernelNodeSetParams(node, const cudaKernelNodeParams*)``."""
    _set_kernel(call, node_of(call, node, NodeType.KERNEL), parameters)


@answers("cudaGraphExecKernelNodeSetParams")
def ready_kernel_node_set_parameters(call: Call, graph: int, node: int, parameters: int) -> None:
    """``cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, node, const cudaKernelNodeParams*)``."""
    _set_kernel(call, ready_node_of(call, graph, node, NodeType.KERNEL), parameters)


def _set_kernel(call: Call, node: GraphNode, parameters: int) -> None:
    """Change a launch; what attributes have said of it stays."""
    old, new = _launch_of(node), _kernel(call, parameters)
    assert isinstance(new, LaunchWork)
    options = LaunchOptions(
        new.options.grid, new.options.block, new.options.shared, old.options.cluster, old.options.cooperative
    )
    node.work = LaunchWork(new.kernel, options, new.file, new.content)


def _launch_of(node: GraphNode) -> LaunchWork:
    assert isinstance(node.work, LaunchWork)
    return node.work


@answers("cudaGraphKernelNodeGetParams")
def kernel_node_get_parameters(call: Call, node: int, where: int) -> None:
    """``cudaGraphKernelNodeGetParams(node, cudaKernelNodeParams*)``: the arguments lie in memory of the node."""
    found = node_of(call, node, NodeType.KERNEL)
    launch = _launch_of(found)
    content, places = b"", []
    for each in launch.content:
        content += bytes(-len(content) % 16)
        places.append(len(content))
        content += each
    table = 8 * len(places)
    table += -table % 16
    if not found.parameters:
        found.parameters = room_on_host(call, table + len(content) + 1)
    if places:
        call.int64(found.parameters, *(found.parameters + table + each for each in places))
        call.memory.write(found.parameters + table, content)
    options = launch.options
    call.memory.pack(_KERNEL, where, launch.kernel, *options.grid, *options.block, options.shared, found.parameters, 0)


@answers("cudaGraphKernelNodeSetAttribute")
def kernel_node_set_attribute(call: Call, node: int, attribute: int, value: int) -> None:
    """``cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeID, const cudaLaunchAttributeValue*)``."""
    found = node_of(call, node, NodeType.KERNEL)
    launch = _launch_of(found)
    options = with_attribute(call, launch.options, unsigned(attribute), value)
    found.work = LaunchWork(launch.kernel, options, launch.file, launch.content)


@answers("cudaGraphMemcpyNodeSetParams")
def memcpy_node_set_parameters(call: Call, node: int, parameters: int) -> None:
    """``cudaGraphMemcpyNodeSetParams(node, const cudaMemcpy3DParms*)``."""
    node_of(call, node, NodeType.COPY).work = copying_volume(call, parameters)


@answers("cudaGraphExecMemcpyNodeSetParams")
def ready_memcpy_node_set_parameters(call: Call, graph: int, node: int, parameters: int) -> None:
    """``cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t, node, const cudaMemcpy3DParms*)``."""
    ready_node_of(call, graph, node, NodeType.COPY).work = copying_volume(call, parameters)


@answers("cudaGraphMemcpyNodeSetParams1D")
def memcpy_node_set_parameters_1d(call: Call, node: int, target: int, source: int, size: int, kind: int) -> None:
    """``cudaGraphMemcpyNodeSetParams1D(node, dst, src, count, kind)``."""
    node_of(call, node, NodeType.COPY).work = _copy(target, source, size, kind)


@answers("cudaGraphExecMemcpyNodeSetParams1D")
def ready_memcpy_node_set_parameters_1d(
    call: Call, graph: int, node: int, target: int, source: int, size: int, kind: int
) -> None:
    """``cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t, node, dst, src, count, kind)``."""
    ready_node_of(call, graph, node, NodeType.COPY).work = _copy(target, source, size, kind)


@answers("cudaGraphExecMemcpyNodeSetParamsToSymbol")
def ready_memcpy_node_set_parameters_to_symbol(
    call: Call, graph: int, node: int, symbol: int, source: int, size: int, offset: int, kind: int
) -> None:
    """``cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t, node, symbol, src, count, offset, kind)``."""
    ready_node_of(call, graph, node, NodeType.COPY).work = _copy_to_symbol(symbol, source, size, offset, kind)


@answers("cudaGraphExecMemcpyNodeSetParamsFromSymbol")
def ready_memcpy_node_set_parameters_from_symbol(
    call: Call, graph: int, node: int, target: int, symbol: int, size: int, offset: int, kind: int
) -> None:
    """``cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t, node, dst, symbol, count, offset, kind)``."""
    ready_node_of(call, graph, node, NodeType.COPY).work = _copy_from_symbol(target, symbol, size, offset, kind)


@answers("cudaGraphMemsetNodeSetParams")
def memset_node_set_parameters(call: Call, node: int, parameters: int) -> None:
    """``cudaGraphMemsetNodeSetParams(node, const cudaMemsetParams*)``."""
    node_of(call, node, NodeType.MEMSET).work = _memset(call, parameters)


@answers("cudaGraphExecMemsetNodeSetParams")
def ready_memset_node_set_parameters(call: Call, graph: int, node: int, parameters: int) -> None:
    """``cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t, node, const cudaMemsetParams*)``."""
    ready_node_of(call, graph, node, NodeType.MEMSET).work = _memset(call, parameters)


@answers("cudaGraphHostNodeSetParams")
def host_node_set_parameters(call: Call, node: int, parameters: int) -> None:
    """``cudaGraphHostNodeSetParams(node, const cudaHostNodeParams*)``."""
    node_of(call, node, NodeType.HOST).work = _host(call, parameters)


@answers("cudaGraphExecHostNodeSetParams")
def ready_host_node_set_parameters(call: Call, graph: int, node: int, parameters: int) -> None:
    """``cudaGraphExecHostNodeSetParams(cudaGraphExec_t, node, const cudaHostNodeParams*)``."""
    ready_node_of(call, graph, node, NodeType.HOST).work = _host(call, parameters)


@answers("cudaGraphExecChildGraphNodeSetParams")
def ready_child_graph_node_set_parameters(call: Call, graph: int, node: int, child: int) -> None:
    """``cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t, node, cudaGraph_t)``."""
    ready_node_of(call, graph, node, NodeType.GRAPH).work = _child(cloned(call, child))


@answers("cudaGraphExecEventRecordNodeSetEvent")
def ready_event_record_node_set_event(call: Call, graph: int, node: int, event: int) -> None:
    """``cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t, node, cudaEvent_t)``."""
    ready_node_of(call, graph, node, NodeType.RECORD_EVENT).work = _record(call, event)


@answers("cudaGraphNodeSetEnabled")
def node_set_enabled(call: Call, graph: int, node: int, enabled: int) -> None:
    """``cudaGraphNodeSetEnabled(cudaGraphExec_t, node, unsigned)``: of kernels, copies and memsets."""
    found = ready_node_of(call, graph, node)
    if found.kind not in (NodeType.KERNEL, NodeType.COPY, NodeType.MEMSET):
        raise CallError(INVALID_VALUE, f"nodes of type {found.kind.name.lower()} are always enabled")
    found.enabled = bool(unsigned(enabled))


@answers("cudaGraphNodeGetEnabled")
def node_get_enabled(call: Call, graph: int, node: int, where: int) -> None:
    """``cudaGraphNodeGetEnabled(cudaGraphExec_t, node, unsigned*)``."""
    call.int32(where, int(ready_node_of(call, graph, node).enabled))
