"""Chains of small GEMMs, as decoding has them: a multilayer perceptron at one row, x = relu(x @ w) layer by layer.

Each layer waits for the one before, so that what a call costs the host, and the gap between two kernels, count in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import warptile.api as wt
from warptile.bench.protocol.call_cost import Participant, installed

LAYERS = 12
WIDTHS = (256, 1024, 2048, 4096)
"""Extents of the layers' weights."""
CHAINS = 50
"""Chains of a block, which the GPU is waited for behind."""

WORST_ERROR = 0.05
"""The largest difference of two chains' results, as a share of the largest element: each layer rounds to bfloat16."""


def participants_of(width: int) -> Iterator[Participant]:
    """The chain in torch and in warptile, call by call and as CUDA graphs; nothing without torch and a GPU.

    Raises:
        ArithmeticError: the chains do not agree.
    """
    torch = installed("torch")
    if torch is None or not torch.cuda.is_available():
        return
    generator = torch.Generator("cuda").manual_seed(0)
    draw = partial(torch.randn, device="cuda", generator=generator)
    # Stored (N, K), as torch.nn.Linear stores weights.
    weights = [(draw(width, width) * (2 / width) ** 0.5).to(torch.bfloat16).t() for _ in range(LAYERS)]
    x = draw(1, width).to(torch.bfloat16)
    held = wt.plan(x, weights[0])
    held(x, weights[0])  # waits for the planned kernel, which wt.matmul's first calls do without
    products: dict[str, Callable[[Any, Any], Any]] = {
        "torch": torch.matmul, "warptile.matmul": wt.matmul, "held plan": held,
    }  # fmt: skip
    chains = {name: partial(_chain, product, torch.relu, weights, x) for name, product in products.items()}
    _check({name: chain() for name, chain in chains.items()})
    for name, chain in chains.items():
        yield Participant(name, "torch", chain, None if name == "torch" else "torch")
    for name, chain in chains.items():
        yield Participant(
            f"{name}, graph", "torch", _captured(torch, chain), None if name == "torch" else "torch, graph"
        )


def _chain(product: Callable[[Any, Any], Any], relu: Callable[[Any], Any], weights: list[Any], x: Any) -> Any:
    for each in weights:
        x = relu(product(x, each))
    return x


def _check(results: dict[str, Any]) -> None:
    expected = results["torch"].float()
    for name, result in results.items():
        error = float((result.float() - expected).abs().max() / expected.abs().max())
        if not error <= WORST_ERROR:
            raise ArithmeticError(f"the chain in {name} is {error:.3f} off the one in torch")


def _captured(torch: Any, chain: Callable[[], Any]) -> Callable[[], Any]:
    """Replays of a chain that was recorded as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = chain()
    return partial(_replay, graph, result)


def _replay(graph: Any, result: Any) -> Any:
    graph.replay()
    return result
