"""Train a Llama-like model whose layers are divided over several ranks (tensor and sequence parallelism).

    torchrun --nproc-per-node 2 examples/train_llama_parallel.py             # a GPU for each rank
    torchrun --nproc-per-node 2 examples/train_llama_parallel.py --tiny      # minutes on CPUs, over gloo
    python examples/train_llama_parallel.py --tiny                           # one rank

The model is written with torch.nn alone, and `PLAN` says how each of its layers is divided. Activations between the
blocks are divided along the sequence; the linear layers gather them, or sum over ranks, in the operator that
multiplies. Losses do not depend on how many ranks there are, but for rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import RowwiseParallel as EmbeddingRows
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn import functional

import warptile.distributed as wd


@dataclass(frozen=True)
class Size:
    """Extents of a model and its batches."""

    layers: int = 4
    heads: int = 32
    features: int = 4096
    hidden: int = 14336
    vocabulary: int = 32000
    context: int = 2048
    batch: int = 1


TINY = Size(layers=1, heads=2, features=16, hidden=24, vocabulary=32, context=8, batch=2)


class Attention(nn.Module):
    """Causal attention; of the heads that its linear layers have on this rank."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.extent = size.features // size.heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(size.features, size.features, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, features) to the same shape."""
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.extent)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """``down(silu(gate(x)) * up(x))``."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(size.features, size.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(size.hidden, size.features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, features) to the same shape."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a norm and beside a residual connection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(size.features), nn.RMSNorm(size.features)
        self.attention, self.feed_forward = Attention(size), FeedForward(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, features) to the same shape."""
        x = x + self.attention(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


class Llama(nn.Module):
    """A decoder without positions: what is shown here is how layers are divided."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.features)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.features)
        self.head = nn.Linear(size.features, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) token numbers to logits (batch, length, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


COLUMNS = wd.ColwiseParallel(input_layouts=Shard(1))
"""Gathers the sequence, and has some of the outputs."""
ROWS = wd.RowwiseParallel(output_layouts=Shard(1))
"""Has a part of K, and a part of the sequence of the sum."""

PLAN = {
    "embedding": EmbeddingRows(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(use_local_output=True),
    "head": wd.ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
BLOCK_PLAN = {
    "norm_1": SequenceParallel(use_local_output=True),
    "attention.query": COLUMNS,
    "attention.key": COLUMNS,
    "attention.value": COLUMNS,
    "attention.out": ROWS,
    "norm_2": SequenceParallel(use_local_output=True),
    "feed_forward.gate": COLUMNS,
    "feed_forward.up": COLUMNS,
    "feed_forward.down": ROWS,
}


def train(size: Size, steps: int, device: str) -> dict[str, object]:
    """Losses and step times of a training on the ranks of the default process group."""
    torch.manual_seed(0)  # the same model on every rank, of which each keeps its part
    with torch.device(device):
        model = Llama(size).to(torch.bfloat16 if device == "cuda" else torch.float32)
    mesh = dist.init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, PLAN)
    for block in model.blocks:
        parallelize_module(block, mesh, BLOCK_PLAN)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if size == TINY else 1e-4)
    tokens = torch.randint(size.vocabulary, (size.batch, size.context + 1), device=device)
    losses, times_ms = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times_ms.append(1e3 * (time.perf_counter() - begin))
    return {"ranks": dist.get_world_size(), "size": asdict(size), "losses": losses, "times_ms": times_ms}


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a model that needs no GPU")
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args(arguments)
    if not given.tiny and not torch.cuda.is_available():
        parser.error("the full size needs a GPU for each rank; --tiny does not")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)  # started without torchrun: one rank
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    document = train(TINY if given.tiny else Size(), given.steps, device)
    if dist.get_rank() == 0:
        print(json.dumps(document))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
