"""Graphs: nodes that each do work, in an order that their dependencies allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, Work, signed

AUTO_FREE_ON_LAUNCH = 1
"""``cudaGraphInstantiateFlagAutoFreeOnLaunch``."""


class NodeType(IntEnum):
    """``cudaGraphNodeType``."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    RECORD_EVENT = 7
    ALLOCATE = 10
    FREE = 11


@dataclass
class GraphNode:
    """One node.

    Attributes:
        kind: what it does.
        work: what it does, at each launch.
        after: handles of the nodes that have to be done before.
        enabled: whether launches do it.
        parameters: where the program can read the arguments of a kernel that it has asked for.
        child: the graph of a node of type `NodeType.GRAPH`.
    """

    kind: NodeType
    work: Work
    after: list[int] = field(default_factory=list)
    enabled: bool = True
    parameters: int = 0
    child: int = 0


@dataclass
class ProgramGraph:
    """Nodes by handle, in the order in which they were added; in one that can be launched, in that of their work.

    Attributes:
        nodes: by handle. Those of a graph that can be launched have the handles of the nodes that they were made of.
        ready: whether it can be launched.
        flags: of ``cudaGraphInstantiate``.
    """

    nodes: dict[int, GraphNode] = field(default_factory=dict)
    ready: bool = False
    flags: int = 0

    def add(self, call: Call, node: GraphNode) -> int:
        """Handle of a new node."""
        for handle in node.after:
            if handle not in self.nodes:
                raise CallError(INVALID_VALUE, f"{handle:#x}, a dependency, is no node of the graph")
        handle = call.gpu.handle()
        self.nodes[handle] = node
        return handle

    def append(self, call: Call, kind: NodeType | None, work: Work) -> None:
        """A new node after all others, as of a stream that is captured; a copy if nothing else is said."""
        self.add(call, GraphNode(NodeType.COPY if kind is None else kind, work, list(self.nodes)[-1:]))

    def in_order(self) -> dict[int, GraphNode]:
        """Copies of the nodes, each behind those that it depends on, otherwise in the order in which they were added.

        Raises:
            CallError: nodes depend on each other in a circle.
        """
        found: dict[int, GraphNode] = {}
        left = dict(self.nodes)
        while left:
            handle = next((each for each, node in left.items() if all(on in found for on in node.after)), None)
            if handle is None:
                raise CallError(INVALID_VALUE, "nodes of the graph depend on each other in a circle")
            node = left.pop(handle)
            found[handle] = GraphNode(node.kind, node.work, list(node.after), node.enabled, child=node.child)
        return found

    def launch(self, call: Call) -> None:
        """Do the work of all nodes."""
        for node in self.nodes.values():
            if node.enabled:
                node.work(call)


def graph_of(call: Call, handle: int) -> ProgramGraph:
    """The graph of a handle."""
    if handle not in call.gpu.graphs:
        raise CallError(INVALID_VALUE, f"{signed(handle, 64):#x} is no graph")
    return call.gpu.graphs[handle]


def node_of(call: Call, handle: int, kind: NodeType | None = None) -> GraphNode:
    """A node of a graph that is not ready to be launched; ``kind`` is what it has to be."""
    graph = holder_of(call, handle)
    return _checked(graph.nodes[handle], kind)


def holder_of(call: Call, handle: int) -> ProgramGraph:
    """The graph that a node belongs to."""
    graphs: Iterable[ProgramGraph] = call.gpu.graphs.values()
    found = next((each for each in graphs if not each.ready and handle in each.nodes), None)
    if found is None:
        raise CallError(INVALID_VALUE, f"{signed(handle, 64):#x} is no node of a graph")
    return found


def ready_node_of(call: Call, ready: int, handle: int, kind: NodeType | None = None) -> GraphNode:
    """A node of a graph that can be launched, by its handle in the graph that this one was made of."""
    graph = graph_of(call, ready)
    if not graph.ready or handle not in graph.nodes:
        raise CallError(INVALID_VALUE, f"{signed(handle, 64):#x} is no node of this executable graph")
    return _checked(graph.nodes[handle], kind)


def _checked(node: GraphNode, kind: NodeType | None) -> GraphNode:
    if kind is not None and node.kind is not kind:
        raise CallError(INVALID_VALUE, f"the node is one of type {node.kind.name.lower()}, not {kind.name.lower()}")
    return node
