"""Bulk and tensor copies on the emulator: every byte where an H200 put it, and what the H200 does not do."""

import json
import zlib
from itertools import product

import pytest

import captured
from covering import ALL
from tma_probes import ODD, REDUCTIONS, SEED, SUITES
from warptile.errors import IllegalInstruction, MisalignedAccess, UnknownInstruction
from warptile.launch.tensor_map import SWIZZLE_BYTES, TENSOR_MAP_TYPES

RECORDED = json.loads((captured.DATA / "tma_h200.json").read_text())

REFUSED = {"bulk copy of 24 bytes": "copies 24 bytes, which is no multiple of 16"}
"""What the H200 passes over (it copies 16 bytes of them) and PTX leaves undefined."""

ERRORS = {
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (IllegalInstruction, UnknownInstruction),
    "CUDA_ERROR_MISALIGNED_ADDRESS": MisalignedAccess,
    "CUDA_ERROR_LAUNCH_FAILED": IllegalInstruction,
}
"""What the emulator says where the driver says so. Types that a reduction lacks are no instruction to it."""


def answer(case):
    """Its checksum on the emulator."""
    return captured.hexadecimal(captured.checksums(case.emulated()[None], 1))


@pytest.mark.parametrize("suite", SUITES)
def test_equals_the_gpu(suite):
    assert RECORDED["seed"] == SEED
    expected = RECORDED["suites"][suite]
    assert {case.name for case in SUITES[suite]} == set(expected)
    cases = chosen(SUITES[suite])
    wrong = [case.name for case in cases if answer(case) != expected[case.name]]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ: " + "; ".join(wrong[:20])


def chosen(cases):
    """All cases with WARPTILE_TESTS=all; else the first of every kernel, type, fill, and swizzle in every number of
    dimensions, and a twelfth of the others."""
    if ALL:
        return cases
    seen = set()
    taken = []
    for case in cases:
        tensor = case.tensor
        features = {(case.kernel,)}
        if tensor is not None:
            features |= {(case.kernel, len(tensor.dims)), (tensor.swizzle, len(tensor.dims))}
            features |= {(tensor.dtype, tensor.oob_fill), (tensor.dtype, tensor.swizzle)}
        if features - seen or zlib.crc32(case.name.encode()) % 12 == 0:
            taken.append(case)
        seen |= features
    return taken


@pytest.mark.parametrize("name", ODD)
def test_odd_cases_end_as_on_the_gpu(name):
    end, _, told = RECORDED["odd"][name].partition(" ")
    if end == "answered" and name not in REFUSED:
        assert answer(ODD[name]) == told
    else:
        with pytest.raises(ERRORS.get(told, IllegalInstruction), match=REFUSED.get(name)):
            answer(ODD[name])


def test_what_was_asked_for():
    """Every rank, swizzle, type and reduction, and each fill of each type that has it."""
    maps = [case.tensor for cases in SUITES.values() for case in cases if case.tensor is not None]
    assert {len(tensor.dims) for tensor in maps} == {1, 2, 3, 4, 5}
    assert {(tensor.swizzle, len(tensor.dims)) for tensor in maps} == set(product(SWIZZLE_BYTES, range(1, 6)))
    fills = {
        (dtype, fill) for dtype in TENSOR_MAP_TYPES for fill in ("zero", "nan") if fill == "zero" or dtype[0] in "fbt"
    }
    assert {(tensor.dtype, tensor.oob_fill) for tensor in maps} == fills
    kernels = {case.kernel for cases in SUITES.values() for case in cases}
    assert {f"reduce_{name}" for name in REDUCTIONS} <= kernels
