"""Time one decoding step of a Llama-like model (1B, random weights) as a CUDA graph, by torch and by warptile.

    python examples/decode_llama.py                  # batches of 1, 8 and 64
    python examples/decode_llama.py --tiny           # seconds, also without a GPU (then without graphs)

The model is written with torch.nn alone; `warptile.torch.convert` is all that differs between the backends. Replays of
both graphs are timed in turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional

import warptile.torch


@dataclass(frozen=True)
class Size:
    """Extents of a model."""

    layers: int = 16
    heads: int = 32
    key_heads: int = 8
    features: int = 2048
    hidden: int = 8192
    vocabulary: int = 128256
    context: int = 512  # tokens that are in the cache already


TINY = Size(layers=2, heads=4, key_heads=2, features=32, hidden=48, vocabulary=101, context=8)


class Layer(nn.Module):
    """One decoder layer with its cache of keys and values."""

    def __init__(self, size: Size, batch: int) -> None:
        super().__init__()
        self.size, self.extent = size, size.features // size.heads
        keys = size.key_heads * self.extent
        self.norm_1, self.norm_2 = nn.RMSNorm(size.features), nn.RMSNorm(size.features)
        self.query = nn.Linear(size.features, size.features, bias=False)
        self.key = nn.Linear(size.features, keys, bias=False)
        self.value = nn.Linear(size.features, keys, bias=False)
        self.out = nn.Linear(size.features, size.features, bias=False)
        self.gate = nn.Linear(size.features, size.hidden, bias=False)
        self.up = nn.Linear(size.features, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.features, bias=False)
        self.reserve(batch)

    def reserve(self, batch: int) -> None:
        """Fill the cache of a batch with random keys and values, and a place for one more token."""
        shape = batch, self.size.key_heads, self.size.context + 1, self.extent
        like = self.query.weight
        self.keys, self.values = (torch.randn(shape, dtype=like.dtype, device=like.device) for _ in range(2))

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """(batch, features) to the same shape; the token's key and value go into the cache."""
        batch, size = x.shape[0], self.size
        h = self.norm_1(x)
        q = rotated(self.query(h).view(batch, size.heads, 1, self.extent), cosine, sine)
        self.keys[:, :, -1:] = rotated(self.key(h).view(batch, size.key_heads, 1, self.extent), cosine, sine)
        self.values[:, :, -1:] = self.value(h).view(batch, size.key_heads, 1, self.extent)
        mixed = functional.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=True)
        x = x + self.out(mixed.reshape(batch, size.features))
        h = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of one position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Llama(nn.Module):
    """A decoder that computes the logits of one new token for each sequence of a batch."""

    def __init__(self, size: Size, batch: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.features)
        self.layers = nn.ModuleList(Layer(size, batch) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.features)
        self.head = nn.Linear(size.features, size.vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        extent = size.features // size.heads
        angles = size.context / 500000.0 ** (torch.arange(0, extent, 2) / extent)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch,) token numbers to logits (batch, vocabulary)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def graph_of(step: Callable[[], torch.Tensor]) -> tuple[Callable[[], object], torch.Tensor]:
    """A function that replays ``step``, captured after it has run a few times, and the tensor that it writes.

    Without a GPU the function runs ``step`` itself.
    """
    if not torch.cuda.is_available():
        return step, step()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


def time_of(replay: Callable[[], object], repetitions: int) -> float:
    """Milliseconds of one replay, averaged over some that are queued together."""
    if torch.cuda.is_available():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repetitions):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / repetitions
    begin = time.perf_counter()
    for _ in range(repetitions):
        replay()
    return 1e3 * (time.perf_counter() - begin) / repetitions


@torch.no_grad()
def compare(size: Size, batch: int, rounds: int, repetitions: int, device: str) -> dict[str, object]:
    """Times of both backends, in turns, and how far their logits are apart."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Llama(size, batch).to(dtype)
        for layer in model.layers:
            layer.reserve(batch)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        tokens = torch.randint(size.vocabulary, (batch,))
    same = copy.deepcopy(model)
    converted = warptile.torch.convert(same)
    assert not converted.left, converted
    by_torch, expected = graph_of(lambda: model(tokens))
    by_warptile, found = graph_of(lambda: same(tokens))

    times: dict[str, list[float]] = {"torch": [], "warptile": []}
    for _ in range(rounds):
        times["torch"].append(time_of(by_torch, repetitions))
        times["warptile"].append(time_of(by_warptile, repetitions))
    difference = (found.float() - expected.float()).abs().max() / expected.float().abs().max()
    return {
        "batch": batch,
        "rounds_ms": times,
        "ratio": statistics.median(b / a for a, b in zip(times["torch"], times["warptile"], strict=True)),
        "relative_difference": float(difference),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, action="append", help="sequences at once; may be given several times")
    parser.add_argument("--rounds", type=int, default=15, help="turns of both backends")
    parser.add_argument("--tiny", action="store_true", help="a model that takes seconds without a GPU")
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        parser.error("there is no GPU; --tiny runs without one")
    os.environ.setdefault("WARPTILE_COMPILE", "wait")  # the kernels that are captured are the planned ones
    size, rounds, repetitions = (TINY, 1, 1) if given.tiny else (Size(), given.rounds, 20)
    batches = given.batch or ([1, 3] if given.tiny else [1, 8, 64])
    document = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "size": asdict(size),
        "batches": [compare(size, batch, rounds, repetitions, device) for batch in batches],
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
