"""Train GPT-2 (124M, random weights) on synthetic data, by torch or by warptile, and print losses and step times.

    python examples/train_gpt2.py --backend torch
    python examples/train_gpt2.py --backend warptile
    python examples/train_gpt2.py --compare                     # all backends, in turns of a few steps
    python examples/train_gpt2.py --tiny --backend warptile     # seconds, also without a GPU

The model is written with torch.nn. For warptile two things are changed in it: `warptile.torch.MLP` takes the place and
the weights of each feed-forward block, and `warptile.torch.convert` has warptile compute all other linear layers, the
output layer of 50257 columns too. So warptile computes every GEMM outside of attention, forward and backward.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional

import warptile.torch


@dataclass(frozen=True)
class Size:
    """Extents of a model and its batches."""

    layers: int = 12
    heads: int = 12
    features: int = 768
    vocabulary: int = 50257  # not padded to a multiple of 64
    context: int = 1024
    batch: int = 8


TINY = Size(layers=2, heads=2, features=16, vocabulary=97, context=8, batch=2)
BACKENDS = ("torch", "warptile", "compile", "warptile-compile")
TURN = 10
"""Steps of one backend before the next one's turn."""


class FeedForward(nn.Module):
    """Two linear layers with a gelu between them."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., features) to the same shape."""
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a layer norm and beside a residual connection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_1 = nn.LayerNorm(size.features)
        self.attention = nn.Linear(size.features, 3 * size.features)
        self.projection = nn.Linear(size.features, size.features)
        self.norm_2 = nn.LayerNorm(size.features)
        self.feed_forward: nn.Module = FeedForward(size.features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, features) to the same shape."""
        batch, length, features = x.shape
        parts = self.attention(self.norm_1(x)).split(features, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, features))
        return x + self.feed_forward(self.norm_2(x))


class GPT2(nn.Module):
    """The decoder of GPT-2, whose output layer shares the embedding's weights."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.features)
        self.positions = nn.Embedding(size.context, size.features)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.features)
        self.head = nn.Linear(size.features, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of predicting ``targets``; both are (batch, length) token numbers."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def computed_by_warptile(model: GPT2) -> None:
    """Change a model in place: its linear layers, and the gelu and its derivative, become warptile's GEMMs."""
    for block in model.blocks:
        weights = block.feed_forward.state_dict()
        features = weights["up.weight"].shape[1]
        fused = warptile.torch.MLP(features, activation="gelu_tanh", device=weights["up.weight"].device)
        fused.load_state_dict(weights)
        block.feed_forward = fused
    converted = warptile.torch.convert(model)
    assert not converted.left, converted


def batches(size: Size, steps: int, device: str) -> torch.Tensor:
    """Synthetic text that can be learnt: each token follows from the one before it, with some noise.

    Returns:
        (steps, batch, context + 1) tokens, the same in every run.
    """
    generator = torch.Generator().manual_seed(1)
    successor = torch.randperm(size.vocabulary, generator=generator)
    shape = steps, size.batch, size.context + 1
    noise = torch.randint(size.vocabulary, shape, generator=generator)
    noisy = torch.rand(shape, generator=generator) < 0.1
    text = noise.clone()
    for position in range(1, size.context + 1):
        follows = successor[text[..., position - 1]]
        text[..., position] = torch.where(noisy[..., position], noise[..., position], follows)
    return text.to(device)


class Training:
    """A model, its optimizer and its data; `steps` trains it a little further.

    Attributes:
        losses: of every step so far.
        steps_ms: time of a step, averaged over each call of `steps`.
    """

    def __init__(self, size: Size, backend: str, steps: int, device: str) -> None:
        torch.manual_seed(0)
        self.model = GPT2(size).to(device)
        if backend.startswith("warptile"):
            computed_by_warptile(self.model)
        self.call = torch.compile(self.model) if backend.endswith("compile") else self.model
        self.backend, self.on_gpu = backend, device == "cuda"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=self.on_gpu)
        self.text = batches(size, steps, device)
        self.losses: list[float] = []
        self.steps_ms: list[float] = []

    def steps(self, count: int) -> None:
        """Train for ``count`` steps, and wait for the GPU."""
        losses = []
        self.wait()
        start = time.perf_counter()
        for step in range(len(self.losses), len(self.losses) + count):
            tokens, targets = self.text[step, :, :-1], self.text[step, :, 1:]
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.on_gpu):
                loss = self.call(tokens, targets)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        self.wait()
        self.steps_ms.append(1e3 * (time.perf_counter() - start) / count)
        self.losses += [float(loss) for loss in losses]

    def wait(self) -> None:
        """Until the GPU has finished."""
        if self.on_gpu:
            torch.cuda.synchronize()


def train(size: Size, backends: Sequence[str], steps: int, device: str, *, turn: int) -> dict[str, object]:
    """Train a model with each backend, in turns of ``turn`` steps, whose order alternates.

    The first tenth of the turns is not timed: it compiles and warms up.
    """
    trainings = [Training(size, backend, steps, device) for backend in backends]
    turns = -(-steps // turn)
    for number in range(turns):
        for each in trainings if number % 2 == 0 else reversed(trainings):
            each.steps(min(turn, steps - number * turn))
    warm = min(max(turns // 10, 1), turns - 1)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "size": asdict(size),
        "parameters": sum(parameter.numel() for parameter in trainings[0].model.parameters()),
        "steps": steps,
        "backends": {
            each.backend: {
                "step_ms": statistics.median(each.steps_ms[warm:]),
                "turns_ms": each.steps_ms[warm:],
                "losses": each.losses,
            }
            for each in trainings
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=BACKENDS, default="warptile")
    parser.add_argument("--compare", action="store_true", help="all backends, in turns")
    parser.add_argument("--steps", type=int, help="optimizer steps: 200, or 3 with --tiny")
    parser.add_argument("--batch", type=int, help="sequences in a step")
    parser.add_argument("--tiny", action="store_true", help="a model that takes seconds without a GPU")
    given = parser.parse_args(arguments)
    size = TINY if given.tiny else Size()
    if given.batch:
        size = Size(**{**asdict(size), "batch": given.batch})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        parser.error("there is no GPU; --tiny runs without one")
    steps = given.steps or (4 if given.tiny else 200)
    backends = BACKENDS if given.compare else (given.backend,)
    print(json.dumps(train(size, backends, steps, device, turn=min(TURN, -(-steps // 2)))))


if __name__ == "__main__":
    main()
