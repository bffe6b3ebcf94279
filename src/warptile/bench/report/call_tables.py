"""Tables of what calls cost the host, from records of the suite ``calls``."""

from __future__ import annotations

from warptile.bench.protocol.host_cost import CHAIN, MATMUL, CallCost, HostCosts
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

NO_CALLS = "*No record yet; `warptile bench --suite calls --json` on a GPU prints one.*"

SHORT = (
    ("torch", "`matmul(a, b)`", "torch.matmul", "warptile.matmul"),
    ("torch", "`matmul(a, b, out=d)`", "torch.mm, out", "warptile.matmul, out"),
    ("torch", "held plan, `plan(a, b, out=d)`", "torch.mm, out", "held plan, out"),
    ("torch", "`matmul(a, b)`, gradients recorded", "torch.matmul, recorded", "warptile.matmul, recorded"),
    (
        "torch",
        "`matmul(a, b)`, forward and backward",
        "torch.matmul, forward and backward",
        "warptile.matmul, forward and backward",
    ),
    ("torch", "`linear(x, w, bias)`, gradients recorded", "torch linear, recorded", "warptile linear, recorded"),
    (
        "torch",
        "`linear(x, w, bias)`, forward and backward",
        "torch linear, forward and backward",
        "warptile linear, forward and backward",
    ),
    ("CuPy", "`matmul(a, b)`", "cupy.matmul", "warptile.matmul, CuPy"),
    ("JAX", "`matmul(a, b)`", "jax.numpy.matmul", "warptile.matmul, JAX"),
    ("NumPy", "`matmul(a, b)`, copied to the GPU and back", "", "warptile.matmul, NumPy"),
)
"""Rows of the short table: arrays, the call, the framework's participant and ours."""

EAGER, GRAPH = ("torch", "warptile.matmul"), ("torch, graph", "warptile.matmul, graph")


def short_table(lookup: RecordLookup) -> str:
    """Calls and chains beside the frameworks' own, with a heading; nothing where there is no record."""
    groups = lookup.host_costs()
    calls = next((each for each in groups if each.workload == MATMUL), None)
    if calls is None:
        return ""
    rows: list[TableRow] = []
    for arrays, call, theirs, ours in SHORT:
        if calls.cost(ours) is not None:
            rows.append((arrays, call, *_beside(calls, theirs, ours)))
    text = (
        f"What a call costs the host: microseconds from call to return, {calls.size} x {calls.size} x {calls.size}.\n\n"
        + markdown(("arrays", "call", "framework, us", "warptile, us", "ratio"), rows, right=2)
    )
    chains = [each for each in groups if each.workload == CHAIN]
    if chains:
        layers = chains[0].layers
        rows = [(str(each.size), *_beside(each, *EAGER), *_beside(each, *GRAPH)) for each in chains]
        header = ("width", "torch, us", "warptile, us", "ratio", "torch, graph", "warptile, graph", "ratio")
        text += (
            f"\nA chain of {layers} layers `x = relu(x @ w)` at M = 1, bf16: microseconds from end to end, call by "
            "call and as CUDA graphs.\n\n" + markdown(header, rows)
        )
    return f"{text}\n{_protocol(calls)}\n\n{lookup.origins()}"


def long_table(lookup: RecordLookup) -> str:
    """Every participant of every workload."""
    groups = lookup.host_costs()
    if not groups:
        return NO_CALLS + "\n"
    rows = [(_workload(group), each.arrays, *_cells(group, each)) for group in groups for each in group.costs]
    header = ("workload", "arrays", "call", "relative to", "us", "all rounds", "ratio")
    return f"{markdown(header, rows, right=4)}\n{_protocol(groups[0])}\n\n{lookup.origins()}"


def _beside(group: HostCosts, theirs: str, ours: str) -> TableRow:
    """Microseconds of two participants, and their ratio where they were compared."""
    one, other = group.cost(theirs), group.cost(ours)
    ratio = group.ratio(other) if other is not None and other.beside == theirs else None
    return _us(one), _us(other), number(ratio, 2)


def _us(cost: CallCost | None) -> str:
    return number(None if cost is None else cost.median_us)


def _workload(group: HostCosts) -> str:
    if group.workload == CHAIN:
        return f"{group.layers} layers, width {group.size}"
    return f"{group.size} x {group.size} x {group.size}"


def _cells(group: HostCosts, cost: CallCost) -> TableRow:
    spread = f"{min(cost.rounds_us):.1f}–{max(cost.rounds_us):.1f}"
    return cost.name, cost.beside or "", _us(cost), spread, number(group.ratio(cost), 2)


def _protocol(group: HostCosts) -> str:
    rounds = len(group.costs[0].rounds_us)
    return f"Medians of {rounds} interleaved rounds; the ratio is the median of the rounds' ratios. Below 1 is faster."
