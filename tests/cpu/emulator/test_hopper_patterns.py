"""Asynchronous copies and products one at a time: the emulator counts what Nsight Compute did on an H200.

tests/gpu/ncu_hopper_patterns.py reads the numbers in tests/data/hopper_counts_h200.json on a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hopper_patterns import GLOBAL_BYTES, METRICS, PATTERNS, Pattern, text
from warptile.codegen.nvrtc import compile_ptx
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.launch.access import Access
from warptile.ptx import parse

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "hopper_counts_h200.json").read_text())
COUNTS = {each["name"]: each for each in RECORDED["counts"]}


def counters(pattern: Pattern) -> dict[str, float]:
    kernel = compile_ptx(Source(text(pattern), pattern.kernel), "sm_90a")
    operands = {"G": np.zeros(GLOBAL_BYTES, np.uint8)}
    access = {"G": Access(writes=True)}
    spec = pattern.spec(kernel.entry)  # reads shared memory that nothing has written: no check
    return emulate(parse(kernel.ptx), spec, operands, accesses=access, arch="sm_90a", checks=frozenset()).counters


def named(name: str) -> Pattern:
    return next(pattern for pattern in PATTERNS if pattern.name == name)


def test_every_pattern_is_recorded() -> None:
    assert list(COUNTS) == [pattern.name for pattern in PATTERNS]
    assert all(len(counts) > 1 for name, counts in COUNTS.items() if name not in ("nothing", "wait"))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_the_emulator_counts_what_the_hardware_counted(pattern: Pattern) -> None:
    found = counters(pattern)
    recorded = COUNTS[pattern.name]
    assert {name: found[name] for name in METRICS} == {name: recorded.get(name, 0) for name in METRICS}


@pytest.mark.parametrize(
    ("name", "counter", "expected"),
    [
        ("wgmma m64n256k16 f32.f16.f16 sw128 A K B K", "tensor_operand_wavefronts", (64 + 256) * 16 * 2 / 128),
        ("wgmma m64n128k16 f32.f16.f16 sw128 A registers B K", "tensor_operand_wavefronts", 128 * 16 * 2 / 128),
        # Of A half of 32 halves is stored.
        (
            "wgmma m64n128k32 f32.f16.f16 sw128 A K B K sparse",
            "tensor_operand_wavefronts",
            (64 * 16 + 128 * 32) * 2 / 128,
        ),
        ("load bf16 64x64 sw128", "tma_load_sectors", 64 * 4),  # 64 rows of 128 bytes
        ("load bf16 8x64", "tma_load_sectors", 64),  # rows of 16 bytes: half a sector each
        ("load bf16 64x64 sw128 at 8,0", "tma_load_sectors", 64 * 5),  # rows start in the middle of a sector
        ("load bf16 64x64 sw128 at 512,0", "tma_load_sectors", 64 * 4),  # nothing of it lies in the tensor
        ("multicast by 1 of 2", "tma_load_sectors", 2 * 64 * 4),  # to both blocks
        ("bulk load 4096 at 16", "tma_load_sectors", 4096 / 128 * 5),  # 32 pieces of 128 bytes
        ("store bf16 64x64 sw128 at 480,0", "tma_store_sectors", 64 * 2),  # 32 of 64 columns
        ("reduce f32 32x64 sw128", "tma_reduce_sectors", 64 * 4),
        ("stmatrix x4 pitch 128", "shared_store_wavefronts", 4 * 8),  # the rows of a matrix in the same four banks
    ],
)
def test_some_counts_by_hand(name: str, counter: str, expected: float) -> None:
    assert COUNTS[name][counter] == expected


def test_bytes_of_global_memory_are_those_in_the_tensor() -> None:
    def found(name: str, counter: str) -> float:
        return counters(next(pattern for pattern in PATTERNS if pattern.name == name))[counter]

    assert found("load bf16 64x64 sw128 at 0,992", "global_load_bytes") == 32 * 64 * 2  # 32 of 64 rows
    assert found("multicast by 2 of 2", "global_load_bytes") == 2 * 64 * 64 * 2  # two boxes, each read once
    assert found("store bf16 8x64", "global_store_bytes") == 64 * 16
