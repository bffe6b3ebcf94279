"""Which configurations give results with the same bits: held to the kernels themselves, on the emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covering import ALL
from warptile.dtypes import DTYPES
from warptile.errors import WarptileError
from warptile.planning.accumulation_order import same_bits
from warptile.planning.plan import Plan, make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from wgmma_product import Result, product, small

SAME = {
    "narrow": {"BN": 32},
    "longer stages": {"BK": 2, "STAGES": 2},
    "one warpgroup": {"BM": 64, "CONSUMERS": 1},
    "ping-pong": {"BM": 64, "PINGPONG": 1},
    "cluster": {"CM": 2, "SMS": 4},
    "overlapped": {"BN": 32, "OVERLAP": 1},
    "swapped": {"SWAP": 1},
    "swapped, overlapped": {"BN": 32, "OVERLAP": 1, "SWAP": 1},
}
"""Changes of a configuration that keep the order of additions; BK is a factor."""

OTHER = {
    "splits": {"SPLITS": 2, "SMS": 132},
    "more splits": {"SPLITS": 3, "SMS": 132},
    "stream-K": {"STREAM": 1, "SMS": 5},
}
"""Changes that do not."""

FEW = ("narrow", "ping-pong", "cluster", "swapped, overlapped", "splits")
"""Changes of an ordinary run."""

TYPES = {
    "bfloat16": {"dtype": "bfloat16", "out": "bfloat16"},
    "bfloat16 to float32": {"dtype": "bfloat16", "out": "float32"},
    "float16 accumulators": {"dtype": "float16", "accumulator": "float16", "out": "float16", "beta": 0.7},
    "two-level": {"dtype": "float8_e5m2", "out": "float32", "k": 512},
    "float8 fast": {"dtype": "float8_e4m3", "accumulator": "float32_fast", "out": "float32", "k": 512},
    "tf32": {"dtype": "tfloat32", "k": 192},
    "with C": {"dtype": "float16", "out": "float16", "beta": 0.7},
    "with C of 32 bits": {"dtype": "float16", "out": "float32", "beta": 0.7},
    "misaligned": {"dtype": "bfloat16", "out": "float32", "gap": 1, "k": 331},
    "int8": {"dtype": "int8", "alpha": 2, "beta": 3, "k": 512},
    "saturating": {"dtype": "int8", "accumulator": "int32_saturating", "alpha": 2, "k": 512},
}


def gemm(change: dict[str, int], *, k: int = 384, alpha: float = 1.3, **options: object) -> Result | None:
    """D of a small problem; None where the configuration is not legal."""
    config = small("wgmma-final", str(options["dtype"]))
    config = {**config, **change, "BK": config["BK"] * change.get("BK", 1)}
    try:
        return product("wgmma-final", 150, 88, k, b_major="col", alpha=alpha, config=config, **options)  # type: ignore[arg-type]
    except WarptileError:
        return None


def bits(result: Result) -> bytes:
    return np.ascontiguousarray(result.d).tobytes()


@pytest.mark.parametrize("name", TYPES if ALL else ["with C"])
def test_what_has_equal_bits_by_its_configuration_has_equal_bits(name: str) -> None:
    options = TYPES[name]
    plain = gemm({}, **options)  # type: ignore[arg-type]
    assert plain is not None
    kept, changed = [], []
    for change in (*SAME, *OTHER) if ALL else FEW:
        other = gemm({**SAME, **OTHER}[change], **options)  # type: ignore[arg-type]
        if other is None:
            continue
        assert other.error_ratio <= 1
        if same_bits(plain.plan, other.plan):
            assert bits(other) == bits(plain), change
            kept.append(change)
        elif bits(other) != bits(plain):
            changed.append(change)
    assert len(kept) >= 4
    if name in ("int8", "saturating"):
        assert changed == []
    elif name not in ("bfloat16", "two-level"):  # results of few bits, and sums that are exact in any order
        assert set(OTHER) & set(changed)


def test_a_swap_with_c_of_32_bits_has_the_same_bits() -> None:
    """Of alpha * sum + beta * C, the second product is fused with the addition in every kernel."""
    options = TYPES["with C of 32 bits"]
    plain, swapped = gemm({}, **options), gemm({"SWAP": 1}, **options)  # type: ignore[arg-type]
    assert plain is not None
    assert swapped is not None
    assert swapped.error_ratio <= 1
    assert same_bits(plain.plan, swapped.plan)
    assert bits(plain) == bits(swapped)


# --- what is said ---


def plan(change: dict[str, int] | None = None, k: int = 4096, **types: str) -> Plan:
    usual = {"element": "bfloat16", "out": "bfloat16", "accumulator": "float32", **types}
    element, out, accumulator = (DTYPES[usual[each]] for each in ("element", "out", "accumulator"))
    problem = Problem.dense(512, 512, k, element, out=out, accumulator=accumulator, b_major="col")
    config = {**small("wgmma-final", usual["element"]), "SMS": 132, **(change or {})}
    return make_plan(problem, rung="wgmma-final", config=config)


def test_splits_have_equal_bits_where_they_are_the_same_splits() -> None:
    split = {"SPLITS": 2}
    assert same_bits(plan(split), plan({**split, "STAGES": 4, "GROUP": 16}))
    assert not same_bits(plan(split), plan({"SPLITS": 3}))
    assert not same_bits(plan(split), plan({**split, "BN": 32}))
    assert not same_bits(plan(split), plan())


def test_stream_k_has_equal_bits_in_other_stages_alone() -> None:
    stream = {"STREAM": 1, "SMS": 100}
    assert same_bits(plan(stream), plan({**stream, "STAGES": 4}))
    assert not same_bits(plan(stream), plan({**stream, "GROUP": 4}))
    assert same_bits(plan({"STREAM": 1, "SMS": 32}), plan()), "its waves are full, so that no tile is split"


def test_zeros_behind_k_change_no_bits() -> None:
    assert same_bits(plan(), plan({"BK": 128}))
    assert same_bits(plan(k=4160), plan({"BK": 128}, k=4160))
    options = TYPES["bfloat16 to float32"]
    plain, longer = gemm({}, k=200, **options), gemm({"BK": 2, "STAGES": 2}, k=200, **options)  # type: ignore[arg-type]
    assert plain is not None
    assert longer is not None
    assert bits(plain) == bits(longer)


def test_sums_that_wrap_around_have_equal_bits_in_any_order() -> None:
    integers = {"element": "int8", "out": "int32", "accumulator": "int32"}
    assert same_bits(plan(**integers), plan({"SPLITS": 2}, **integers))


def test_other_problems_and_rungs_count_as_different() -> None:
    assert not same_bits(plan(), plan(k=4160))
    ours = plan()
    other = RUNGS["wgmma-store"]
    first = Plan(ours.problem, other, other.default_config(ours.problem, ours.device))
    assert same_bits(first, first)
    assert not same_bits(first, replace(first, config={**first.config, "STAGES": 2}))
    assert not same_bits(first, ours)


@pytest.mark.parametrize(
    ("rung", "dtype", "size", "most"),
    [("mma-unaligned", "bfloat16", (70, 75, 131), 24), ("mma-unaligned", "float16", (33, 40, 77), 24),
     ("mma-specialized", "float64", (70, 90, 131), 4)],
)  # fmt: skip
def test_rungs_that_add_in_one_order_have_equal_bits_in_every_configuration(
    rung: str, dtype: str, size: tuple[int, int, int], most: int
) -> None:
    element = DTYPES[dtype]
    sums = DTYPES["float64" if dtype == "float64" else "float32"]
    given = Problem.dense(*size, element, out=element, accumulator=sums, b_major="col")
    plan = make_plan(given, rung=rung)
    others = [replace(plan, config=config) for config in plan.rung.alternatives(given)]
    others = others[:: -(-len(others) // (most if ALL else 4))]
    assert len(others) >= 2
    assert all(same_bits(plan, other) for other in others)
    expected, *found = (
        product(rung, *size, dtype=dtype, accumulator=sums.name, out=dtype, b_major="col", config=each.config)
        for each in (plan, *others)
    )
    assert expected.error_ratio <= 1
    assert {bits(each) for each in found} == {bits(expected)}
