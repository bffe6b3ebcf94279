"""What a call costs the host: microseconds from the call to its return, for products so small that nothing else counts.

Calls of all participants alternate in rounds. A round makes a few hundred calls of each without waiting for the GPU,
fewer than a stream's queue holds, and waits between participants, so that none is held up by another's work. Those
whose library is not installed are left out.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import warptile.api as wt
from warptile.bench.protocol.host_cost import CallCost
from warptile.epilogue.expressions import gelu
from warptile.linear_call import linear

CALLS = 200
"""Calls of a round: a stream takes about a thousand launches before the host has to wait."""

ROUNDS, BRIEF_ROUNDS = 25, 7


@dataclass(frozen=True)
class Participant:
    """A way to call a product.

    Attributes:
        name: such as ``"warptile.matmul"``.
        arrays: whose arrays it takes, such as ``"torch"``.
        call: makes one product.
        beside: the participant whose cost it is compared with, or None.
    """

    name: str
    arrays: str
    call: Callable[[], Any]
    beside: str | None = None


def measure(
    participants: Sequence[Participant],
    wait: Callable[[], None],
    *,
    rounds: int = ROUNDS,
    calls: int = CALLS,
    finished: bool = False,
) -> tuple[CallCost, ...]:
    """The cost of every participant, in interleaved rounds whose order alternates.

    Args:
        participants: what is timed; each is called twice before.
        wait: returns when the GPU has nothing left to do.
        rounds: how many.
        calls: of each participant in a round.
        finished: the time of a round ends when the GPU has finished, not when the last call returns.
    """
    for each in participants:
        each.call()
        each.call()
    wait()
    found: dict[str, list[float]] = {each.name: [] for each in participants}
    for number in range(rounds):
        for each in participants if number % 2 == 0 else reversed(participants):
            started = time.perf_counter()
            for _ in range(calls):
                each.call()
            if finished:
                wait()
            found[each.name].append((time.perf_counter() - started) / calls * 1e6)
            wait()
    return tuple(
        CallCost(name=each.name, arrays=each.arrays, rounds_us=tuple(found[each.name]), beside=each.beside)
        for each in participants
    )


def participants_of(size: int) -> Iterator[Participant]:
    """Every way to multiply bfloat16 (NumPy: float16) matrices of ``size`` x ``size`` that is installed here."""
    torch = installed("torch")
    if torch is not None and torch.cuda.is_available():
        yield from _of_torch(torch, size)
    yield from _of_others(size)


def installed(name: str) -> Any:
    """A module, or None where it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _of_torch(torch: Any, size: int) -> Iterator[Participant]:
    a, b = (torch.randn((size, size), device="cuda").to(torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    held = wt.plan(a, b)
    yield Participant("torch.matmul", "torch", lambda: torch.matmul(a, b))
    yield Participant("torch.mm, out", "torch", lambda: torch.mm(a, b, out=out))
    yield Participant("warptile.matmul", "torch", lambda: wt.matmul(a, b), "torch.matmul")
    yield Participant("warptile.matmul, out", "torch", lambda: wt.matmul(a, b, out=out), "torch.mm, out")
    yield Participant("held plan", "torch", lambda: held(a, b), "torch.matmul")
    yield Participant("held plan, out", "torch", lambda: held(a, b, out=out), "torch.mm, out")
    x, w = (each.detach().clone().requires_grad_() for each in (a, b))
    ones = torch.ones_like(out)
    yield Participant("torch.matmul, recorded", "torch", lambda: torch.matmul(x, w))
    yield Participant("warptile.matmul, recorded", "torch", lambda: wt.matmul(x, w), "torch.matmul, recorded")

    def both_ways(product: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(product(x, w), (x, w), ones)

    both = "forward and backward"
    yield Participant(f"torch.matmul, {both}", "torch", both_ways(torch.matmul))
    yield Participant(f"warptile.matmul, {both}", "torch", both_ways(wt.matmul), f"torch.matmul, {both}")
    yield from _of_layers(torch, size)
    library = installed("nvmath.linalg.advanced")
    if library is not None:
        stateful = library.Matmul(a, b)
        stateful.plan()
        yield Participant("nvmath Matmul.execute", "torch", stateful.execute, "torch.matmul")
    quack = installed("quack.gemm_interface")
    if quack is not None:
        yield Participant("quack.gemm", "torch", lambda: quack.gemm(a, b), "torch.matmul")
    launch = installed("warptile.bench.baselines.triton_launch")
    if launch is not None:
        yield Participant("Triton launch", "torch", lambda: launch.empty_gemm(a, b, out), "torch.mm, out")


def _of_layers(torch: Any, size: int) -> Iterator[Participant]:
    """A linear layer with a bias whose gradients are recorded, on two matrices of ``size`` rows; and one with an
    epilogue behind it, which is two operations of torch."""

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, device="cuda").to(torch.bfloat16).requires_grad_()

    x, w, bias = drawn(2, size, size), drawn(size, size), drawn(size)
    ones = torch.ones_like(x)
    layers = {"torch": torch.nn.functional.linear, "warptile": linear}
    for name, layer in layers.items():

        def forward(layer: Any = layer) -> Any:
            return layer(x, w, bias)

        def both_ways(layer: Any = layer) -> Any:
            return torch.autograd.grad(layer(x, w, bias), (x, w, bias), ones)

        for said, call in (("recorded", forward), ("forward and backward", both_ways)):
            beside = None if name == "torch" else f"torch linear, {said}"
            yield Participant(f"{name} linear, {said}", "torch", call, beside)

    def unfused() -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias)) + residual

    def fused() -> Any:
        return linear(x, w, bias, epilogue=gelu_residual, residual=residual)

    residual = drawn(2, size, size)
    for name, with_epilogue in (("torch", unfused), ("warptile", fused)):

        def with_gradients(product: Any = with_epilogue) -> Any:
            return torch.autograd.grad(product(), (x, w, bias, residual), ones)

        for said, made in (("recorded", with_epilogue), ("forward and backward", with_gradients)):
            beside = None if name == "torch" else f"torch linear with an epilogue, {said}"
            yield Participant(f"{name} linear with an epilogue, {said}", "torch", made, beside)


def gelu_residual(acc: Any, residual: Any) -> Any:
    """An epilogue."""
    return gelu(acc) + residual


def _of_others(size: int) -> Iterator[Participant]:
    numpy = importlib.import_module("numpy")
    generator = numpy.random.default_rng(0)
    a, b = (generator.standard_normal((size, size)).astype(numpy.float16) for _ in range(2))
    wt.plan(a, b)(a, b)  # waits for the planned kernel, so that nothing is compiled beside the calls
    yield Participant("warptile.matmul, NumPy", "NumPy", lambda: wt.matmul(a, b))
    cupy = installed("cupy")
    if cupy is not None:
        on_gpu = cupy.asarray(a), cupy.asarray(b)
        yield Participant("cupy.matmul", "CuPy", lambda: cupy.matmul(*on_gpu))
        yield Participant("warptile.matmul, CuPy", "CuPy", lambda: wt.matmul(*on_gpu), "cupy.matmul")
    jax = installed("jax.numpy")
    if jax is not None:
        arrays = jax.asarray(a), jax.asarray(b)
        yield Participant("jax.numpy.matmul", "JAX", lambda: jax.matmul(*arrays))
        yield Participant("warptile.matmul, JAX", "JAX", lambda: wt.matmul(*arrays), "jax.numpy.matmul")
