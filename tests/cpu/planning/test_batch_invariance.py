"""``batch_invariant=True``: the bits of an element of D follow from its row of A, its column of B, K and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import ALL, alternating, few, of_each
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.errors import ArgumentTypeError, UnsupportedError
from warptile.planning.accumulation_order import same_bits
from warptile.planning.plan import Plan, config_text, find_plan, illegal, make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.wgmma import kernels
from warptile.rungs.wgmma.final import illegal_on
from warptile.rungs.wgmma.pool import pool
from warptile.runtime.execute import planned

FINAL = RUNGS["wgmma-final"]
MOST_ROWS = 1025 if ALL else 140
BOUNDARIES = (1, 2, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 256, 257, 384, 511, 512, 1024)
"""Numbers of rows at which tiles begin and end."""


@dataclass(frozen=True)
class Types:
    """Types of a GEMM: how NumPy and `warptile.matmul` say them, and how a `Problem` does."""

    element: Any
    keywords: dict[str, Any]
    names: tuple[str, str, str]

    def problem(self, m: int, n: int, k: int, **layout: Any) -> Problem:
        element, out, accumulator = (DTYPES[name] for name in self.names)
        made = Problem.dense(m, n, k, element, out=out, accumulator=accumulator, **{"b_major": "col", **layout})
        return replace(made, batch_invariant=True)

    def matrix(self, rows: int, columns: int, seed: int) -> np.ndarray:
        """Random numbers whose sums depend on the order of additions (but for integers)."""
        generator = np.random.default_rng([rows, columns, seed])
        if self.element in (np.int8, np.uint8):
            return generator.integers(-100, 100, (rows, columns)).astype(self.element)
        drawn = generator.standard_normal((rows, columns))
        if self.element is ml_dtypes.float8_e4m3fn:  # else the sums of 128 products that are added are of few bits
            drawn *= np.exp2(generator.integers(-6, 7, -(-columns // 128))).repeat(128)[:columns]
        found: np.ndarray = drawn.astype(self.element)
        return found


FLOAT32 = {"out_dtype": "float32"}
TYPES = {
    "bf16": Types(ml_dtypes.bfloat16, FLOAT32, ("bfloat16", "float32", "float32")),
    "bf16 to bf16": Types(ml_dtypes.bfloat16, {}, ("bfloat16", "bfloat16", "float32")),
    "float32": Types(np.float32, {}, ("float32", "float32", "float32")),
    "float64": Types(np.float64, {}, ("float64", "float64", "float64")),
    "e4m3": Types(ml_dtypes.float8_e4m3fn, FLOAT32, ("float8_e4m3", "float32", "float32")),
    "f16": Types(np.float16, FLOAT32, ("float16", "float32", "float32")),
    "f16, f16 accumulators": Types(np.float16, {"accumulate": "float16"}, ("float16", "float16", "float16")),
    "tf32": Types(np.float32, {"precision": "tf32"}, ("tfloat32", "float32", "float32")),
    "e4m3 fast": Types(
        ml_dtypes.float8_e4m3fn, {**FLOAT32, "accumulate": "float32_fast"}, ("float8_e4m3", "float32", "float32_fast")
    ),
    "s8": Types(np.int8, {}, ("int8", "int32", "int32")),
}


def multiplied(types: Types, a: np.ndarray, b: np.ndarray, **options: Any) -> np.ndarray:
    d: np.ndarray = wt.matmul(a, b, backend="emulator", **{"batch_invariant": True, **types.keywords, **options})
    return d


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


# --- rows of D, on the emulator ---


def rows_that_matter(types: Types, n: int, k: int, most: int) -> list[int]:
    """The first and the last M of every configuration that plans take for fewer than so many rows, and tile
    boundaries."""
    found: dict[str, list[int]] = {}
    for m in range(1, most):
        plan = make_plan(types.problem(m, n, k))
        text = config_text({name: value for name, value in plan.config.items() if name != "SMS"})
        found.setdefault(text, []).append(m)
    ends = {end for each in found.values() for end in (each[0], each[-1])}
    return sorted(end for end in ends | set(BOUNDARIES if ALL else BOUNDARIES[::4]) if end < most)


@pytest.mark.parametrize("name", TYPES if ALL else ["bf16", "float32"])
def test_rows_have_the_same_bits_however_many_there_are(name: str) -> None:
    types = TYPES[name]
    for n, k in [(72, 520), (40, 330)] if ALL else [(40, 328)]:
        a, b = types.matrix(MOST_ROWS, k, 1), types.matrix(n, k, 2).T
        whole = multiplied(types, a, b)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = 2e-2 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)) + 1e-30
        assert (np.abs(whole.astype(np.float64) - exact) <= bound).all()
        for m in rows_that_matter(types, n, k, MOST_ROWS):
            assert same(multiplied(types, a[:m], b), whole[:m]), f"the first {m} rows"
        for first, m in ((700, 1), (3, 20), (1, 130)) if ALL else ((90, 20),):
            assert same(multiplied(types, a[first : first + m], b), whole[first : first + m]), (first, m)


@pytest.mark.parametrize("name", ["bf16", "e4m3", "tf32"] if ALL else ["bf16"])
def test_plans_of_another_order_are_noticed(name: str) -> None:
    """The comparison can fail: without batch invariance, a long K is split where there are few rows."""
    types, n, k = TYPES[name], 64, 2048
    a, b = types.matrix(200 if ALL else 60, k, 1), types.matrix(n, k, 2).T
    some, whole = multiplied(types, a[:16], b), multiplied(types, a, b)
    assert same(some, whole[:16])
    usual = wt.plan(a[:16], b, backend="emulator", **types.keywords).plan
    assert usual.config["SPLITS"] > 1
    assert not same(multiplied(types, a[:16], b, batch_invariant=False), whole[:16])


SMALL = (150, 136, 700) if ALL else (134, 72, 272)
"""M, N and K of a problem that is run with many kernels."""


def configurations(types: Types) -> list[Plan]:
    """A plan of one small problem with each kernel that invariant plans choose from."""
    small = types.problem(*SMALL)
    found = {}
    large = types.problem(2048, 2048, 8192)
    listed = kernels.kernels_for(large, kernels.shape_of(large))
    for _, config in pool(large, illegal_on(REFERENCE), REFERENCE, listed):
        config = {**config, "SMS": 6}
        if illegal(FINAL, small, config, REFERENCE) is None:
            found[config_text(config)] = Plan(small, FINAL, config, "given", REFERENCE, FINAL.name)
    return list(found.values())


def parts(plan: Plan) -> Iterator[tuple[str, int]]:
    """What kernels differ in that could change the order of additions."""
    for name in ("BK", "CONSUMERS", "PINGPONG", "OVERLAP", "SWAP"):
        yield name, plan.config[name]
    yield "cluster", plan.config["CM"] * plan.config["CN"] > 1


@pytest.mark.parametrize("name", few(["f16, f16 accumulators", "bf16", "tf32", "e4m3", "e4m3 fast", "bf16 to bf16"], 2))
def test_every_kernel_of_invariant_plans_gives_the_same_bits(name: str) -> None:
    types = TYPES[name]
    plans = configurations(types)
    assert len(plans) >= 15
    (m, n, k) = SMALL
    a, b = types.matrix(m, k, 1), types.matrix(n, k, 2).T
    results = {}
    for plan in of_each(plans, parts):
        assert same_bits(plan, plans[0])
        results[config_text(plan.config)] = multiplied(types, a, b, rung=FINAL.name, config=plan.config)
    first, *others = results.values()
    assert len(others) >= 3
    for text, other in zip(list(results)[1:], others, strict=True):
        assert same(first, other), text


@pytest.mark.parametrize(
    ("name", "rung"), few([("bf16", "mma-final"), ("float32", "simt-warptile"), ("float64", "mma-final")], 2)
)
def test_every_configuration_of_other_rungs_gives_the_same_bits(name: str, rung: str) -> None:
    types = TYPES[name]
    problem, chosen = types.problem(70, 72, 75), RUNGS[rung]
    configs = [each for each in chosen.candidates(problem) if illegal(chosen, problem, each, REFERENCE) is None]
    kept = of_each(
        configs[:40], lambda each: [("BK", each["BK"]), ("BM", each["BM"]), ("STAGES", min(each["STAGES"], 4))]
    )
    a, b = types.matrix(70, 75, 1), types.matrix(72, 75, 2).T
    a[:2] = -1e-30 if name == "float32" else -1e-200 if name == "float64" else 0  # sums that underflow to -0
    b = abs(b) if name == "bf16" else np.asfortranarray(abs(b) * (1e-30 if name == "float32" else 1e-200))
    first, *others = [multiplied(types, a, b, rung=rung, config=config) for config in kept]
    assert len(others) >= 2
    assert all(same(first, other) for other in others)


def test_the_split_of_float32_gives_the_same_bits_in_every_tile() -> None:
    rung, types = RUNGS["wgmma-split"], TYPES["float32"]
    a, b = types.matrix(150, 100, 1), types.matrix(96, 100, 2).T
    configs = rung.candidates(types.problem(150, 96, 100))
    found = [
        multiplied(types, a[:m], b, rung=rung.name, config={**each, "SMS": 4})
        for number, each in enumerate(configs)
        for m in ((150, 7) if ALL else ((150, 7)[number % 2],))
    ]
    assert len(found) >= 2
    assert all(same(each, found[0][: len(each)]) for each in found)
    a[17, 3] = 1e20  # cannot be split: the others of its tile can
    spoilt = multiplied(types, a, b, rung=rung.name)
    assert same(spoilt[18:], found[0][18:])
    assert same(spoilt[17:18], multiplied(types, a[17:18], b, rung=rung.name))
    a[17, 3] = types.matrix(150, 100, 1)[17, 3]
    assert not same(found[0], multiplied(types, a, b, precision="ieee", rung="simt-warptile"))


# --- operands anywhere, factors, epilogues, batches ---


@pytest.mark.parametrize("name", alternating(["bf16", "e4m3", "float32", "tf32"]))
def test_layout_and_alignment_of_operands_change_no_bits(name: str) -> None:
    types, (m, n, k) = TYPES[name], (133, 72, 200) if ALL else (70, 40, 136)
    a, b = types.matrix(m, k, 1), types.matrix(n, k, 2).T
    whole = multiplied(types, a, b)
    gaps = np.full((m + 1, k + 3), np.nan).astype(a.dtype)
    gaps[1:, 1 : k + 1] = a
    assert same(multiplied(types, gaps[1:, 1 : k + 1], b), whole), "rows of A at odd addresses"
    assert same(multiplied(types, np.asfortranarray(a), b), whole), "a column-major A"
    assert same(multiplied(types, np.repeat(a, 2, axis=0)[::2], b), whole), "every second row"
    assert same(multiplied(types, a[::-1], b), whole[::-1]), "rows in another order"
    assert same(multiplied(types, a, np.ascontiguousarray(b)), whole), "a row-major B"
    assert same(multiplied(types, a, b[:, 8:40]), whole[:, 8:40]), "some columns of B"
    out = np.full((m, n + 5), np.nan, whole.dtype)
    multiplied(types, a, b, out=out[:, 1 : n + 1])
    assert same(np.ascontiguousarray(out[:, 1 : n + 1]), whole), "a D at odd addresses"
    assert np.isnan(out[:, 0]).all()
    assert np.isnan(out[:, n + 1 :]).all()


@pytest.mark.parametrize("name", alternating(["bf16", "bf16 to bf16", "float64", "float32"]))
def test_factors_and_addends_are_rounded_the_same(name: str) -> None:
    types, (m, n, k) = TYPES[name], (190, 72, 168 if ALL else 88)
    a, b = types.matrix(m, k, 1), types.matrix(n, k, 2).T
    c = np.random.default_rng(3).standard_normal((m, n)).astype(multiplied(types, a[:1], b).dtype)
    said = {"alpha": 1.3, "beta": -0.7}
    whole = multiplied(types, a, b, c=c, **said)
    for first, rows in ((0, 3), (50, 20), (60, 130)):
        some = slice(first, first + rows)
        assert same(multiplied(types, a[some], b, c=c[some], **said), whole[some])


def gated(acc: Any, bias: Any, scale: Any, res: Any) -> Any:
    found = wt.silu(acc * scale + bias) + res * acc
    return found, found * scale + acc * bias


def largest(acc: Any, bias: Any) -> Any:
    return acc, (acc * bias + acc).max(axis=-1)


def test_an_epilogue_of_elements_is_rounded_the_same() -> None:
    types, (m, n, k) = TYPES["bf16"], (190, 72, 168 if ALL else 88)
    parts = (slice(0, 3), slice(50, 70), slice(60, 190))
    generator = np.random.default_rng(4)
    a, b = types.matrix(m, k, 1), types.matrix(n, k, 2).T
    res = generator.standard_normal((m, n)).astype(np.float32)
    bias, scale = (generator.standard_normal(n).astype(np.float32) for _ in range(2))
    whole = multiplied(types, a, b, epilogue=gated, bias=bias, scale=scale, res=res)
    tops = multiplied(types, a, b, epilogue=largest, bias=bias)
    for some in parts if ALL else parts[1:2]:
        found = multiplied(types, a[some], b, epilogue=gated, bias=bias, scale=scale, res=res[some])
        assert all(same(each, of_whole[some]) for each, of_whole in zip(found, whole, strict=True))
        found = multiplied(types, a[some], b, epilogue=largest, bias=bias)
        assert all(same(each, of_whole[some]) for each, of_whole in zip(found, tops, strict=True))


def test_an_epilogue_contracts_nothing() -> None:
    """Whether a product is fused with a sum is not left to the compiler."""
    problem = wt.plan(
        *(np.zeros((64, 64), np.float16),) * 2, epilogue=lambda acc, s: acc * s + (acc - s), s=0.3,
        backend="emulator", batch_invariant=True,
    ).plan.problem  # fmt: skip
    from warptile.codegen.translation_unit import translation_unit

    text, usual = (
        translation_unit(make_plan(replace(problem, batch_invariant=each)).kernel).text for each in (True, False)
    )
    for name in ("rounded_product", "rounded_sum", "rounded_difference"):
        assert name in text
        assert name not in usual


def test_quantized_weights_give_the_bits_of_dequantized_ones() -> None:
    """In registers, by kernels for few rows and for more, or by a pass before the GEMM."""
    n, k = 136 if ALL else 72, 1152
    generator = np.random.default_rng(7)
    w, x = (generator.standard_normal((rows, k)).astype(np.float16) for rows in (n, 130))
    packed = wt.quantize(w, bits=4, group_size=128)
    said: dict[str, Any] = {"out_dtype": "float32", "backend": "emulator", "batch_invariant": True}
    whole = wt.matmul(x, packed.dequantize().astype(np.float16).reshape(n, k).T, **said)
    for m in (1, 20, 130):
        assert same(wt.matmul(x[:m], packed, **said), whole[:m])
    for rung in ("wgmma-quantized", "wgmma-dequantized"):
        assert same(wt.matmul(x[:40], packed, rung=rung, **said), whole[:40])
    usual = wt.plan(x[:1], packed, rung="wgmma-quantized", backend="emulator").plan
    assert usual.config["SPLIT_K"] > 1 or usual.config["STREAM"]
    with pytest.raises(UnsupportedError, match="K is not split: take SPLIT_K=1, STREAM=0"):
        wt.plan(x[:1], packed, rung="wgmma-quantized", config=usual.config, **said)


def test_batches_vectors_and_linear_layers() -> None:
    types, (n, k) = TYPES["bf16"], (72, 320)
    a, b = types.matrix(60, k, 1), types.matrix(n, k, 2).T
    whole = multiplied(types, a, b)
    assert same(multiplied(types, a.reshape(3, 20, k), b).reshape(60, n), whole)
    several = multiplied(types, a.reshape(3, 20, k), np.stack([b, b, b]))
    assert same(several.reshape(60, n), whole)
    assert same(multiplied(types, a[7], b), whole[7])
    assert same(multiplied(types, a, np.ascontiguousarray(b[:, 5])), np.ascontiguousarray(whole[:, 5]))
    rows = wt.linear(a.reshape(4, 15, k), b.T, out_dtype="float32", backend="emulator", batch_invariant=True)
    assert same(rows.reshape(60, n), whole)


def test_a_held_plan_is_of_the_same_order() -> None:
    types = TYPES["bf16"]
    k = 4096 if ALL else 2048
    a, b = types.matrix(16, k, 1), types.matrix(64, k, 2).T
    held = wt.plan(a, b, out_dtype="float32", backend="emulator", batch_invariant=True)
    assert held.plan.config["SPLITS"] == 1
    assert "not on M" in held.explain()
    usual = wt.plan(a, b, out_dtype="float32", backend="emulator")
    assert usual.plan.config["SPLITS"] > 1
    assert "not on M" not in usual.explain()
    assert same(held(a, b), multiplied(types, a, b))


# --- plans ---

MODELS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H20")
ROWS = alternating(
    (1, 2, 7, 8, 16, 24, 33, 48, 64, 65, 100, 128, 129, 192, 256, 300, 512, 777, 1024, 1025, 4096, 20000)
)
WEIGHTS = ((4096, 4096), (1280, 8192), (256, 7168), (28672, 4096), (4095, 1031), (1, 65536), (50257, 768), (8, 24))


@dataclass
class Place:
    """A GPU as plans see it."""

    device: DeviceLimits = REFERENCE
    gpu: str | None = "NVIDIA H200"


@pytest.mark.parametrize("name", few(["bf16", "e4m3", "tf32", "f16, f16 accumulators", "bf16 to bf16"], 2))
def test_plans_of_all_gpus_and_rows_add_in_one_order(name: str) -> None:
    types, usual_split = TYPES[name], 0
    for n, k in WEIGHTS:
        for m in few(ROWS, 6):
            problem = types.problem(m, n, k)
            first = make_plan(problem)
            for model in MODELS:
                plan = planned(problem, Place(KNOWN[model], model))
                assert plan.rung is first.rung is FINAL
                assert same_bits(replace(plan, device=first.device), first), (m, n, k, model, plan.config)
                assert plan.config["SPLITS"] == 1
            limited = planned(problem, Place(), max_sms=66)
            assert limited.config["SPLITS"] == 1
            usual = make_plan(replace(problem, batch_invariant=False))
            usual_split += usual.config["SPLITS"] > 1
    assert usual_split > 10, "what is asked for makes a difference"


def test_the_rung_follows_from_types_and_architecture() -> None:
    expected = {
        ("bf16", "sm_90a"): "wgmma-final", ("bf16", "sm_80"): "mma-final", ("float64", "sm_90a"): "mma-final",
        ("s8", "sm_90a"): "wgmma-final", ("e4m3", "sm_89"): "mma-final", ("f16", "sm_75"): "simt-warptile",
    }  # fmt: skip
    for (name, arch), rung in expected.items():
        for m in ROWS:
            for layout in ({}, {"a_major": "col"} if rung != "simt-warptile" else {}, {"b_major": "row"}):
                plan = make_plan(TYPES[name].problem(m, 264, 520, **layout), arch=arch)
                assert plan.rung.name == rung, (name, arch, m)


def test_integers_are_exact_in_any_order_and_may_be_split() -> None:
    plans = [make_plan(TYPES["s8"].problem(m, 64, 16384)) for m in (8, 16384)]
    assert plans[0].config["SPLITS"] > 1
    assert plans[1].config["SPLITS"] == 1


def test_kernels_of_invariant_plans_are_among_those_of_all() -> None:
    for types in TYPES.values():
        if types.names[0] in FINAL.dtypes and types.names[2] != "int32":
            problem = types.problem(64, 64, 64)
            free = replace(problem, batch_invariant=False)
            for shape in ("", *kernels.SHAPES):
                chosen, every = (kernels.kernels_for(each, shape) for each in (problem, free))
                assert set(chosen) < set(every)
                assert len(chosen) >= 20


def test_what_would_change_bits_is_refused() -> None:
    a = np.zeros((64, 4096), np.float16)
    b = np.zeros((4096, 64), np.float16)
    config = dict(make_plan(replace(TYPES["f16"].problem(64, 64, 4096), batch_invariant=False)).config)
    assert config["SPLITS"] > 1
    said = {"backend": "emulator", "batch_invariant": True}
    with pytest.raises(UnsupportedError, match=r"SPLITS is \d+, which splits K of a tile.*it is 1"):
        wt.plan(a, b, rung=FINAL.name, config=config, **said)
    stream = {**config, "SPLITS": 1, "STREAM": 1, "SMS": 132, "CM": 1, "CN": 1}
    with pytest.raises(UnsupportedError, match=r"STREAM is 1, which splits K.*it is 0"):
        wt.plan(a, b, rung=FINAL.name, config=stream, **said)
    with pytest.raises(UnsupportedError, match=r"batch_invariant=True.*leave rung out.*wgmma-final"):
        wt.plan(a, b, rung="wmma-final", **said)
    with pytest.raises(UnsupportedError, match=r"a is sparse, and no rung.*a\.to_dense\(\)"):
        wt.plan(wt.sparsify(a), b, **said)
    with pytest.raises(ArgumentTypeError, match="batch_invariant: got 'yes'; it takes True or False"):
        wt.matmul(a, b, backend="emulator", batch_invariant="yes")  # type: ignore[arg-type]
    other = dict(RUNGS["mma-final"].default_config(TYPES["f16"].problem(64, 64, 4096))) | {"FK": 8}
    with pytest.raises(UnsupportedError, match="the instruction is always 16, 8, 16"):
        wt.plan(a, b, rung="mma-final", config=other, **said)


def test_zeros_behind_k_are_as_many_in_every_chain_of_multiply_adds() -> None:
    for name, k in (("float32", 1000), ("float64", 1010)):
        problem = replace(TYPES[name].problem(512, 512, k), ieee=name == "float32")
        plan = find_plan(problem, device=REFERENCE)
        assert plan is not None
        legal = [each for each in plan.rung.candidates(problem) if illegal(plan.rung, problem, each, REFERENCE) is None]
        refused = [each for each in plan.rung.candidates(replace(problem, batch_invariant=False)) if each not in legal]
        assert len({-(-k // each["BK"]) * each["BK"] for each in legal}) == 1
        assert any("with batch_invariant=True" in str(plan.rung.illegal(problem, each)) for each in refused)
