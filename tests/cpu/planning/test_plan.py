"""Plans: what is chosen, why, and the launch."""

import re
from dataclasses import replace

import pytest

from explained import unwrapped
from simt_product import problem
from warptile.device import REFERENCE
from warptile.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from warptile.launch.params import Pointer, Scalar
from warptile.planning.cost_bounds import Prediction
from warptile.planning.plan import candidates, choose, config_text, make_plan
from warptile.rungs import RUNGS
from warptile.rungs.mma import ranked


def predicted(time_ms):
    return Prediction(time_ms, "dram", 1.0, "H200")


@pytest.mark.parametrize(
    ("element", "rung"),
    [
        ("float16", "wgmma-final"),
        ("bfloat16", "wgmma-final"),
        ("float64", "mma-specialized"),
        ("int8", "wgmma-final"),
    ],
)
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (193, 161, 97), (9, 40, 16)])
def test_the_highest_rung_that_takes_the_types(element, rung, shape):
    name = make_plan(problem(*shape, element)).rung.name
    if shape[0] == 193 and element in ("float16", "bfloat16"):  # unaligned
        assert name == "mma-unaligned"
    elif shape[0] < 16 and element in ("float64", "int8"):  # small, and int8 operands lie as wgmma does not take them
        assert name == ("simt-gemv" if element == "int8" else "simt-split-k")
    else:
        assert name == ("mma-split-k" if element == "float64" and shape[0] < 4096 else rung)


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_one_column_of_d_is_computed_by_simt_gemv_as_one_row(element):
    plan = make_plan(problem(4096, 1, 4096, element))
    assert plan.rung.name == "simt-gemv"
    assert plan.config["SWAP"] == plan.config["BM"] == 1
    reason = dict(plan.rejected)["mma-split-k"]
    assert ("simt-gemv reads such an A faster" if element == "float64" else f"operands are {element}") in reason


@pytest.mark.parametrize("shape", [(3072, 2304, 3584), (200, 100, 5000), (17, 4096, 64)])
def test_plans_of_doubles_take_the_configuration_that_is_predicted_to_be_the_fastest(shape):
    given, rung = problem(*shape, "float64"), RUNGS["mma-final"]
    looked_at = [config for _, config in candidates(rung, given, REFERENCE)]
    assert {*map(config_text, looked_at)} == {*map(config_text, ranked(given))}
    taken = make_plan(given, rung="mma-final").config
    assert taken == min(looked_at, key=lambda config: rung.compared_us(given, config))
    assert len(candidates(rung, problem(*shape, "float16"), REFERENCE)) > 20


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((4096, 4096, 4096), "wgmma-split"),
        ((1024, 1024, 1024), "wgmma-split"),
        ((4096, 4096, 48), "wgmma-split"),
        ((4096, 4096, 47), "simt-warptile"),  # slices round more than a short chain does
        ((880, 104, 87), "simt-warptile"),
        ((9, 1, 1), "simt-gemv"),
    ],
)
def test_float32_is_split_where_that_is_predicted_to_be_faster(shape, rung):
    given = problem(*shape, "float32")
    plan = make_plan(given)
    assert plan.rung.name == rung
    other = "simt-split-k" if rung == "wgmma-split" else "wgmma-split"
    assert ("K is" if shape[2] < 48 else "predicted") in dict(plan.rejected)[other]
    assert make_plan(replace(given, ieee=True)).rung.name in ("simt-warptile", "simt-split-k")
    assert make_plan(given, arch="sm_90").rung.name in ("simt-warptile", "simt-split-k", "simt-gemv")


@pytest.mark.parametrize(
    ("arch", "rung"), [("sm_90", "mma-final"), ("sm_90a", "wgmma-final"), ("sm_100a", "mma-final")]
)
def test_warpgroups_multiply_on_hopper_alone(arch, rung):
    given = problem(512, 512, 512, "float16")
    assert make_plan(given, arch=arch).rung.name == rung
    if arch != "sm_90a":
        with pytest.raises(UnsupportedError, match=f"its instructions are those of sm_90a; {arch} does not have them"):
            make_plan(given, rung="wgmma-final", arch=arch)


def test_a_named_rung_keeps_its_default():
    given = problem(193, 161, 97, "float32")
    plan = make_plan(given, rung="simt-warptile")
    assert plan.config == RUNGS["simt-warptile"].default_config(given)


def test_the_default_comes_first_among_the_candidates():
    given = problem(193, 161, 97, "float32")
    choices = candidates(RUNGS["simt-warptile"], given, REFERENCE)
    assert choices[0][1] == RUNGS["simt-warptile"].default_config(given)
    assert len({config_text(config) for _, config in choices}) == len(choices)


@pytest.mark.parametrize(
    ("times_ms", "keep_first", "index"),
    [((1.0, 0.95), False, 0), ((1.0, 0.5, 0.4), False, 2), ((1.0, 0.5), True, 0), ((1.0,), False, 0)],
)
def test_the_default_is_left_only_for_something_clearly_faster(times_ms, keep_first, index):
    assert choose([predicted(time_ms) for time_ms in times_ms], keep_first=keep_first) == index


def test_where_the_default_is_illegal_another_candidate_is_taken():
    # 16 x 8 registers of float64 do not fit; the rung has other tiles for it.
    plan = make_plan(problem(4096, 4096, 4096, "float64"), rung="simt-warptile")
    assert plan.config["TM"] * plan.config["TN"] <= 64


def members(spec):
    """Those of a launch's parameter struct."""
    (params,) = spec.arguments
    return params.members


def test_a_launch_passes_the_members_of_the_kernels_struct_in_order():
    given = problem(193, 161, 97, "float32", gap=3, with_c=True)
    plan = make_plan(given, rung="simt-naive", config={"BM": 8, "BN": 32})
    spec = plan.launch("entry", alpha=2, beta=0.5)
    assert spec.entry == "entry"
    assert spec.grid == (25 * 6, 1, 1)  # ceil(193 / 8) x ceil(161 / 32)
    assert spec.block == (256, 1, 1)
    assert members(spec) == (
        ("a", Pointer("A")), ("b", Pointer("B")), ("c", Pointer("C")), ("d", Pointer("D")),
        ("m", Scalar("s32", 193)), ("n", Scalar("s32", 161)), ("k", Scalar("s32", 97)),
        ("lda", Scalar("s64", 100)), ("ldb", Scalar("s64", 164)), ("ldc", Scalar("s64", 164)),
        ("ldd", Scalar("s64", 164)), ("alpha", Scalar("f32", 2.0)), ("beta", Scalar("f32", 0.5)),
    )  # fmt: skip


def test_without_c_its_pointer_is_null():
    spec = make_plan(problem(4, 4, 4, "float32"), rung="simt-naive").launch("entry", 1, 0)
    assert dict(members(spec))["c"] == Pointer(None)
    assert spec.operands == ("A", "B", "D")


@pytest.mark.parametrize(("element", "scalar"), [("float16", "f32"), ("float64", "f64"), ("int8", "s32")])
def test_alpha_has_the_accumulators_type(element, scalar):
    given = members(make_plan(problem(4, 4, 4, element), rung="simt-naive").launch("entry", 3, 0))
    assert given[-2:] == (("alpha", Scalar(scalar, 3)), ("beta", Scalar(scalar, 0)))


def test_a_fractional_alpha_with_integers_is_refused():
    plan = make_plan(problem(4, 4, 4, "int8"), rung="simt-naive")
    with pytest.raises(DTypeError, match=r"alpha is 0\.5; with int32 accumulators it must be a whole number"):
        plan.launch("entry", 0.5, 0)


def test_beta_needs_a_c():
    with pytest.raises(ShapeError, match="beta is 1 and the problem has no C"):
        make_plan(problem(4, 4, 4, "float32"), rung="simt-naive").launch("entry", 1, 1)


@pytest.mark.parametrize("shape", [(0, 4, 4), (4, 0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_empty_d_is_not_planned(shape, dtype):
    with pytest.raises(ShapeError, match="there is nothing to launch"):
        make_plan(problem(*shape, dtype))


def test_k_of_zero_is_launched():
    assert make_plan(problem(5, 7, 0, "float32")).launch("entry", 1, 0).grid[0] >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rung": "simt-naiv"}, "rung: got 'simt-naiv', and there is no such rung. Did you mean rung='simt-naive'?"),
        ({"rung": "mma-unalign"}, r"Did you mean rung='mma-unaligned'\? "),
        ({"arch": "sm_20"}, "arch: got 'sm_20'; warptile knows sm_75"),
        ({"rung": "simt-half2"}, "operands are float32; it takes float16"),
        ({"rung": "wmma-async", "arch": "sm_75"}, "it needs compute capability 8.0 and sm_75 has 7.5"),
        ({"rung": "simt-naive", "config": {"BM": 64, "BN": 64}}, "BM \\* BN is 4096 threads"),
    ],
)
def test_what_cannot_be_planned_says_why(arguments, message):
    with pytest.raises(UnsupportedError, match=message):
        make_plan(problem(64, 64, 64, "float32"), **arguments)


def test_a_configuration_needs_its_rung_and_all_of_its_tunables():
    given = problem(64, 64, 64, "float32")
    with pytest.raises(ArgumentError, match="config was given without a rung"):
        make_plan(given, config={"BM": 8, "BN": 32})
    words = (
        r"it lacks BN and the rung has no BK\. rung 'simt-naive' takes BM, BN, such as rung='simt-naive', config={'BM'"
    )
    with pytest.raises(ArgumentError, match=words):
        make_plan(given, rung="simt-naive", config={"BM": 100, "BK": 4})
    with pytest.raises(
        UnsupportedError, match=r"rung 'simt-naive' does not take .* in config={'BM': 0, 'BN': 32}: BM is 0"
    ):
        make_plan(given, rung="simt-naive", config={"BM": 0, "BN": 32})


def test_a_type_that_the_architecture_lacks():
    given = problem(64, 64, 64, "bfloat16")
    message = "with bfloat16 operands it needs compute capability 8.0 and sm_75 has 7.5"
    with pytest.raises(UnsupportedError, match=message):
        make_plan(given, rung="wmma-shared", arch="sm_75")
    assert make_plan(given, arch="sm_75").rung.family == "simt"


def test_more_shared_memory_than_the_architecture_has():
    given = problem(4096, 4096, 4096, "float32")
    warptile = RUNGS["simt-warptile"]
    config = {**warptile.default_config(given), "STAGES": 5, "MIN_BLOCKS": 1}
    assert make_plan(given, rung="simt-warptile", config=config).launch("entry", 1, 0).dynamic_shared_bytes == 83200
    with pytest.raises(UnsupportedError, match="83200 bytes of shared memory; a CTA of sm_75 has 65536"):
        make_plan(given, rung="simt-warptile", config=config, arch="sm_75")


def test_explain_says_what_why_and_what_not():
    text = unwrapped(make_plan(replace(problem(4096, 4096, 4096, "float32"), ieee=True)).explain())
    assert "D[4096, 4096] = A[4096, 4096] @ B[4096, 4096], float32 -> float32" in text
    assert "rung       simt-warptile" in text
    assert "1024 CTAs of 256 threads" in text
    assert "bound by" in text
    assert re.search(r"\n  [^:]*\bwmma-final\b[^:]*: operands are float32; it takes float16", text)
    assert re.search(r"\n  [^:]*\bwgmma-split: precision is 'ieee'", text)
    assert "against" in text


def test_problems_are_looked_up_by_all_that_they_say():
    one = problem(64, 48, 32, "float16")
    others = [
        replace(one, k=40), replace(one, accumulator=one.a.dtype), replace(one, c=one.d), replace(one, ieee=True),
        replace(one, batch_invariant=True), replace(one, a=replace(one.a, alignment_bytes=2)), one.swapped,
    ]  # fmt: skip
    found = {one, *others}
    assert len(found) == 1 + len(others)
    assert problem(64, 48, 32, "float16") in found
