"""Timing epilogues: warptile's fused, torch's eager and compiled ones, and the two that cuBLASLt has.

Every participant is a CUDA graph of one or more launches, so that no host time is in it; the graphs are replayed one
after the other, round by round, so that what one does to the clock is in all.
"""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import warptile as wt
from warptile.bench.protocol.epilogue_times import PLAIN, EpilogueTime, EpilogueTimes
from warptile.errors import UnsupportedError
from warptile.planning.plan import Plan, config_text

SHAPES = ((4096, 4096, 4096), (8192, 28672, 4096), (512, 14336, 4096))
ROUNDS, BRIEF_ROUNDS, WARM_UP = 25, 9, 4
GRAPH_US = 2000.0
"""GPU time of one graph, about."""

BIAS, GELU, RESIDUAL, SWISH = "acc + bias", "gelu(acc + bias)", "gelu(acc + bias) + residual", "silu(acc) * gate"

_log = logging.getLogger("warptile")


def bias_alone(acc: Any, bias: Any) -> Any:
    """`BIAS`."""
    return acc + bias


def gelu_tanh(acc: Any, bias: Any) -> Any:
    """`GELU` in the form with tanh, the one that cuBLASLt has."""
    return wt.gelu(acc + bias, "tanh")


def gelu_residual(acc: Any, bias: Any, residual: Any) -> Any:
    """`RESIDUAL`."""
    return wt.gelu(acc + bias) + residual


def swish_gate(acc: Any, gate: Any) -> Any:
    """`SWISH`: the second half of a SwiGLU whose gate was computed before."""
    return wt.silu(acc) * gate


Made = tuple[str, str, Callable[[], Any], str]
"""Name, expression, call, configuration."""


def participants(torch: Any, m: int, n: int, k: int, dtype: str) -> Iterator[Made]:
    """Everything that is compared, on operands of its own."""
    functional = torch.nn.functional

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))

    a, w, bias, residual = drawn(m, k), drawn(n, k), drawn(n), drawn(m, n)
    b, out = w.T, torch.empty_like(residual)

    def ours(epilogue: Any, **operands: Any) -> tuple[Callable[[], Any], str]:
        plan = wt.plan(a, b, out=out, epilogue=epilogue, **operands)
        config = config_text(plan.plan.config) if isinstance(plan.plan, Plan) else ""
        return lambda: plan(a, b, out=out, **operands), config

    yield (PLAIN, "", *ours(None))
    yield ("warptile", BIAS, *ours(bias_alone, bias=bias))
    yield ("warptile, tanh form", GELU, *ours(gelu_tanh, bias=bias))
    yield ("warptile", RESIDUAL, *ours(gelu_residual, bias=bias, residual=residual))
    yield ("warptile", SWISH, *ours(swish_gate, gate=residual))
    yield "torch.matmul", "", lambda: torch.matmul(a, b, out=out), ""
    yield "cuBLASLt (torch.addmm)", BIAS, lambda: torch.addmm(bias, a, b, out=out), ""
    yield "cuBLASLt, tanh form", GELU, lambda: torch._addmm_activation(bias, a, b, use_gelu=True), ""

    def eager(a: Any, w: Any, bias: Any, residual: Any) -> Any:
        return functional.gelu(functional.linear(a, w, bias)) + residual

    def gated(a: Any, w: Any, gate: Any) -> Any:
        return functional.silu(functional.linear(a, w)) * gate

    yield "torch", RESIDUAL, lambda: eager(a, w, bias, residual), ""
    for mode in ("default", "max-autotune-no-cudagraphs"):
        name = f"torch.compile, {mode.removesuffix('-no-cudagraphs')}"
        try:
            compiled, compiled_gated = torch.compile(eager, mode=mode), torch.compile(gated, mode=mode)
            compiled(a, w, bias, residual)
            compiled_gated(a, w, residual)
        except Exception as error:  # whatever a backend raises where it has no compiler
            _log.warning("%s does not run here: %s", name, error)
            continue
        yield name, RESIDUAL, partial(compiled, a, w, bias, residual), ""
        yield name, SWISH, partial(compiled_gated, a, w, residual), ""


def measure(m: int, n: int, k: int, dtype: str = "bfloat16", *, rounds: int = ROUNDS) -> EpilogueTimes:
    """Time every participant at one shape.

    Raises:
        UnsupportedError: torch is not installed.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError("torch is not installed; pip install 'warptile[torch]' adds it") from error
    launches = max(1, round(GRAPH_US / (2e-9 * m * n * k / 700 * 1e3 + 3)))
    made = [(each, _graph(torch, each[2], launches)) for each in participants(torch, m, n, k, dtype)]
    for _ in range(WARM_UP):
        for _, graph in made:
            graph.replay()
    torch.cuda.synchronize()
    found: list[list[float]] = [[] for _ in made]
    for _ in range(rounds):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(made) + 1)]
        events[0].record()
        for (_, graph), event in zip(made, events[1:], strict=True):
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        for index, rounds_us in enumerate(found):
            rounds_us.append(events[index].elapsed_time(events[index + 1]) * 1e3 / launches)
    times = tuple(
        EpilogueTime(name=name, computes=computes, rounds_us=tuple(each), config=config)
        for ((name, computes, _, config), _), each in zip(made, found, strict=True)
    )
    return EpilogueTimes(m=m, n=n, k=k, dtype=dtype, times=times)


def _graph(torch: Any, call: Callable[[], Any], launches: int) -> Any:
    """A graph of several calls, after two that compile and load what they need."""
    call()
    call()
    torch.cuda.synchronize()
    gc.collect()
    gc.disable()  # a graph that is collected during a capture invalidates it
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                call()
    finally:
        gc.enable()
    return graph
