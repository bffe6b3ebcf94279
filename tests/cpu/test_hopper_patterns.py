"""Asynchronous copies and products one at a time: the emulator runs all kernels that Nsight Compute counts."""

from __future__ import annotations

import numpy as np
import pytest

from hopper_patterns import COPIES, GLOBAL_BYTES, PATTERNS, PRODUCTS, Pattern, text
from warptile.compile import compile_source
from warptile.emulator import emulate
from warptile.launch import Access
from warptile.ptx import parse
from warptile.source import Source


def counters(pattern: Pattern) -> dict[str, float]:
    kernel = compile_source(Source(text(pattern), pattern.kernel, may_spill=True), "sm_90a")
    operands = {"G": np.zeros(GLOBAL_BYTES, np.uint8)}
    access = {"G": Access(writes=True)}
    spec = pattern.spec(kernel.entry)  # reads shared memory that nothing has written: no check
    return emulate(parse(kernel.ptx), spec, operands, accesses=access, arch="sm_90a", checks=frozenset()).counters


def named(name: str) -> Pattern:
    return next(pattern for pattern in PATTERNS if pattern.name == name)


@pytest.mark.parametrize("pattern", PRODUCTS, ids=lambda pattern: pattern.name)
def test_a_product_reads_each_operand_once(pattern: Pattern) -> None:
    found = counters(pattern)
    assert found["tensor_instructions"] == 4 * pattern.facts["repeat"]
    expected = pattern.facts["repeat"] * (pattern.facts["a_bytes"] + pattern.facts["b_bytes"])
    assert found["tensor_operand_bytes"] == expected > 0


def test_operands_of_some_products_by_hand() -> None:
    # 64 rows of 16 halves, and 256 rows of 16 halves.
    assert counters(named("wgmma m64n256k16 f32.f16.f16 sw128 A K B K"))["tensor_operand_bytes"] == 2048 + 8192
    # A in registers: 128 rows of 16 halves.
    assert counters(named("wgmma m64n128k16 f32.f16.f16 sw128 A registers B K"))["tensor_operand_bytes"] == 4096
    # Sparse: of A half of 32 halves in 64 rows, of B 32 halves in 128 rows.
    name = "wgmma m64n128k32 f32.f16.f16 sw128 A K B K sparse"
    assert counters(named(name))["tensor_operand_bytes"] == 2048 + 8192


@pytest.mark.parametrize("pattern", [each for each in COPIES if each.facts], ids=lambda pattern: pattern.name)
def test_a_copy_moves_its_box_as_far_as_it_lies_in_the_tensor(pattern: Pattern) -> None:
    found = counters(pattern)
    inside = pattern.facts["box_bytes"]
    if "at 480,0" in pattern.name or "at 0,992" in pattern.name:
        inside //= 2  # 32 of 64 columns, or rows
    if "at 512,0" in pattern.name:
        inside = 0
    stored, reduced = ("store" in pattern.name) * inside, ("reduce" in pattern.name) * inside
    loaded = inside - stored - reduced
    received = loaded * pattern.blocks  # a multicast comes to both blocks
    assert (found["global_load_bytes"], found["tma_load_bytes"]) == (loaded, received)
    assert (found["tma_store_bytes"], found["tma_reduce_bytes"]) == (stored, reduced)
    assert found["global_store_bytes"] == stored + reduced
