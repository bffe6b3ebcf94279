"""Random batches on a GPU: types, layouts, alignments and strides of matrices against float64, bit for bit where sums
are exact, with memory around results that must stay as it is."""

from __future__ import annotations

import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
TYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
PRODUCTS = 10
CANARY = 77.0


def matrices(generator: np.random.Generator, batch: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """[batch, rows, columns] of small whole numbers, whose sums are exact, in one of six layouts."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.from_numpy(generator.integers(-2, 3, shape)).to("cuda", dtype)

    layout = generator.integers(6)
    if layout == 0:
        return drawn(batch, columns, rows).transpose(1, 2)
    if layout == 1:
        return drawn(rows, batch, columns).transpose(0, 1)
    if layout == 2:
        return drawn(2 * batch, rows, columns)[::2]
    if layout == 3:
        return drawn(batch, rows + 3, columns + 5)[:, 1 : rows + 1, 2 : columns + 2]
    return drawn(rows, columns).expand(batch, rows, columns) if layout == 4 else drawn(batch, rows, columns)


def extent(generator: np.random.Generator, most: int) -> int:
    return int(np.exp(generator.uniform(0, np.log(most))))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("seed", range(2))
def test_random_batches(name: str, seed: int) -> None:
    generator, dtype = np.random.default_rng((seed, len(name))), TYPES[name]
    whole = 0
    for _ in range(PRODUCTS):
        batch = 2 + extent(generator, 60)
        m, n, k = (extent(generator, most) for most in (300, 300, 600))
        a, b = matrices(generator, batch, m, k, dtype), matrices(generator, batch, k, n, dtype)
        memory = torch.full((batch, m + 2, n + 3), CANARY, dtype=dtype, device="cuda")
        out = memory[:, 1 : m + 1, 1 : n + 1]
        bias = torch.from_numpy(generator.integers(-2, 3, (batch, 1, n))).to("cuda", dtype)
        expected = (a.double() @ b.double() + bias.double()).to(dtype)
        given = {"epilogue": lambda acc, of: acc + of, "of": bias}
        found = wt.matmul(a, b, out=out, **given)
        assert found is out
        assert torch.equal(out, expected), (name, batch, m, n, k, a.stride(), b.stride())
        memory[:, 1 : m + 1, 1 : n + 1] = CANARY
        assert bool((memory == CANARY).all()), "memory around the result was written"
        assert torch.equal(wt.matmul(a, b, **given), expected)
        whole += wt.plan(a, b).plan.problem.batch == batch
    assert whole > PRODUCTS // 2


@pytest.mark.parametrize(
    ("rung", "name"),
    [
        ("mma-final", "float16"), ("mma-final", "bfloat16"), ("mma-final", "float64"), ("simt-warptile", "float32"),
        ("simt-warptile", "float64"), ("wgmma-split", "float32"), ("wgmma-bf16x6", "float32"),
    ],
)  # fmt: skip
def test_random_batches_of_a_rung(rung: str, name: str) -> None:
    """Of those too that plans take on other GPUs alone."""
    generator, dtype = np.random.default_rng(len(rung + name)), TYPES[name]
    whole = 0
    for _ in range(PRODUCTS):
        batch = 2 + extent(generator, 20)
        m, n, k = (extent(generator, most) for most in (400, 400, 900))
        a, b = matrices(generator, batch, m, k, dtype), matrices(generator, batch, k, n, dtype)
        given = (a, b) if rung != "simt-warptile" or a.stride(-1) == 1 else (a.contiguous(), b)
        expected = (a.double() @ b.double()).to(dtype)
        assert torch.equal(wt.matmul(*given, rung=rung), expected), (batch, m, n, k, a.stride(), b.stride())
        whole += wt.plan(*given, rung=rung).plan.problem.batch == batch
    assert whole > PRODUCTS // 2


def test_heads_of_attention() -> None:
    q, k = (torch.randn(3, 50, 8, 64, dtype=torch.bfloat16, device="cuda").transpose(1, 2) for _ in range(2))
    found = wt.matmul(q, k.transpose(2, 3))
    wanted = (q.double() @ k.transpose(2, 3).double()).to(torch.bfloat16)
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)
    assert wt.plan(q, k.transpose(2, 3)).plan.problem.batch == 8
