"""matmul_grouped on the emulator: every form, configuration, layout and alignment, and what it refuses."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warptile as wt
from covering import ALL, covering, few
from grouped_products import expected, wrong_elements
from warptile.planning.grouped_plan import GroupedPlan
from warptile.rungs.wgmma import grouped
from warptile.runtime.execute import EmulatorBackend

BFLOAT16 = ml_dtypes.bfloat16
PAGE = Path(__file__).parents[3] / "docs/grouped.md"


SMALL = {} if ALL else {"config": grouped.NARROW | {"BN": 32, "STEP": 32, "BOX": 32}}
"""Options of a call for groups of rows: an instruction of one width, which is compiled in a fraction of the time of the
several that plans take. Theirs are run by the first tests."""


def drawn(*shape, dtype=BFLOAT16, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def transposed(*shape, **options):
    """An array of the shape, its last two axes stored the other way round."""
    return np.swapaxes(drawn(*shape[:-2], shape[-1], shape[-2], **options), -1, -2)


def multiplied(a, b, offsets, **options):
    return wt.matmul_grouped(a, b, np.array(offsets, np.int32), backend="emulator", **options)


@pytest.fixture
def plans(monkeypatch):
    """Plans that are made."""
    made = []
    of = GroupedPlan.of
    monkeypatch.setattr(GroupedPlan, "of", staticmethod(lambda *given: made.append(of(*given)) or made[-1]))
    return made


@pytest.fixture
def reports(monkeypatch):
    """Reports of launches on the emulator."""
    found = []
    emulate = EmulatorBackend.emulate

    def kept(*given, **options):
        found.append(emulate(*given, **options))
        return found[-1]

    monkeypatch.setattr(EmulatorBackend, "emulate", kept)
    return found


# --- groups of rows --------------------------------------------------------------------------------------------------


def name(each):
    return str(each) if isinstance(each, tuple) else getattr(each, "__name__", None)


GROUPS = [
    (50, [10, 10, 11, 45], grouped.NARROW),
    (75, [75], grouped.MEDIUM),
    *([(200, [131, 131, 200], grouped.MEDIUM)] if ALL else []),
    (700, [300, 300, 691], grouped.WIDE),
]
"""Rows of A, ends of groups, and the configuration that a plan takes."""


@pytest.mark.parametrize("groups", [64, 65])
def test_groups_in_the_order_of_their_width_and_as_they_are(groups):
    """Of up to 64 groups those of wide tiles come first, whatever order they have in memory."""
    sizes = np.random.default_rng(groups).integers(0, 9, groups)
    sizes[[3, 40]] = 70, 33
    offsets = np.cumsum(sizes)
    a, b = drawn(offsets[-1] + 2, 40), drawn(groups, 40, 24)
    config = grouped.NARROW | {"BN": 32, "STEP": 32, "BOX": 32}
    assert wrong_elements(multiplied(a, b, offsets, config=config, max_sms=3), a, b, offsets) == 0


@pytest.mark.parametrize(
    ("weights", "rows", "offsets", "config"),
    [(weights, *groups) for weights, groups in covering([drawn, transposed], GROUPS, pairs=())],
    ids=name,
)
def test_groups_of_rows(plans, weights, rows, offsets, config):
    k, n = (200, 264) if ALL else (136, 136)
    a, b = drawn(rows, k), weights(len(offsets), k, n)
    d = multiplied(a, b, offsets, max_sms=2)  # CTAs take several tiles, of several groups
    assert wrong_elements(d, a, b, offsets) == 0
    assert dict(plans[0].config) == config
    assert plans[0].kernel.grid == (2, 1, 1)


@pytest.mark.parametrize(
    "config",
    few(
        [
            {"BM": 128, "BN": 48, "BK": 192, "STAGES": 3, "STEP": 16, "BOX": 24, "GROUP": 2},
            {"BM": 128, "BN": 32, "BK": 256, "STAGES": 2, "STEP": 16, "BOX": 32, "GROUP": 1},
            {"BM": 128, "BN": 192, "BK": 64, "STAGES": 4, "STEP": 64, "BOX": 192, "GROUP": 4},
        ],
        1,
    ),
)
def test_any_configuration(config):
    rows, k = (420, 200) if ALL else (230, 136)
    a, b, offsets = drawn(rows, k), transposed(3, k, 136), [5, rows // 2 - 3, rows - 1]
    assert wrong_elements(multiplied(a, b, offsets, config=config, max_sms=2), a, b, offsets) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"BN": 100}, "BN is 100"),
        ({"STEP": 24}, "STEP is 24; it must be a multiple of 8 that divides BN"),
        ({"BOX": 128}, "BOX is 128"),
        ({"STAGES": 9}, "shared memory"),
        ({"BM": 64}, "each of 2 warpgroups"),
        ({"WARPS": 1}, "it needs BM, BN"),
    ],
)
def test_a_configuration_that_there_is_not(changed, words):
    with pytest.raises(wt.UnsupportedError, match=words):
        multiplied(drawn(8, 4), drawn(2, 4, 5), [3, 8], config={**grouped.NARROW, **changed})


def test_rows_of_a_group_are_divided_evenly():
    a, b, offsets = drawn(300, 64), drawn(1, 64, 128), [300]
    divided = grouped.WIDE if ALL else grouped.NARROW
    alone = multiplied(a, b, offsets, config=divided)
    assert wrong_elements(alone, a, b, offsets) == 0
    assert np.array_equal(multiplied(a, b, offsets, config={**divided, "STEP": divided["BN"]}), alone)


@pytest.mark.parametrize(
    ("dtype", "out_dtype"),
    covering([BFLOAT16, np.float16], ["bfloat16", "float16", "float32"], pairs=()),
    ids=name,
)
def test_types(dtype, out_dtype):
    rows = 300 if ALL else 75
    a, b, offsets = drawn(rows, 72, dtype=dtype), transposed(2, 72, 136, dtype=dtype), [rows // 3 + 13, rows - 10]
    d = multiplied(a, b, offsets, out_dtype=out_dtype, max_sms=3, **SMALL)
    assert d.dtype.name == out_dtype
    assert wrong_elements(d, a, b, offsets) == 0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_types_of_offsets(kind):
    a, b = drawn(40, 64), drawn(3, 64, 128)
    for offsets in (np.array([7, 20, 40], kind), np.array([7, 0, 20, 0, 40, 0], kind)[::2]):
        assert wrong_elements(wt.matmul_grouped(a, b, offsets, backend="emulator", **SMALL), a, b, offsets) == 0


@pytest.mark.parametrize(
    ("weights", "shape"),
    covering(
        [drawn, transposed],
        [(90, 71, 137), (90, 72, 137), (90, 71, 136), (1, 1, 1), (9, 8, 1), (9, 1, 8)],
        pairs=(),
    ),
    ids=name,
)
def test_any_extents(weights, shape):
    rows, k, n = shape
    offsets = [rows // 3, rows]
    a, b = drawn(rows, k), weights(2, k, n)
    assert wrong_elements(multiplied(a, b, offsets, **SMALL), a, b, offsets) == 0


def strided(array, *steps):
    """The same elements in memory with gaps, steps of each axis from one to the next, misaligned."""
    extents = (extent * abs(step) for extent, step in zip(array.shape, steps, strict=True))
    found = np.full((3, *extents), np.nan, array.dtype)[1][tuple(slice(None, None, step) for step in steps)]
    found[...] = array
    return found


@pytest.mark.parametrize(
    ("b_steps", "a_steps"),
    covering([(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 2), (-1, 1, 1)], [(1, 1), (3, 1), (1, 2), (-1, 1)], pairs=()),
    ids=str,
)
def test_any_strides(b_steps, a_steps):
    a, b, offsets = drawn(37, 40), drawn(3, 40, 56), [5, 5, 30]
    for left, right in ((a, b), (np.asfortranarray(a), transposed(3, 40, 56))):
        found = multiplied(strided(left, *a_steps), strided(right, *b_steps), offsets, **SMALL)
        assert wrong_elements(found, left, right, offsets) == 0


def test_weights_that_all_groups_share():
    a, b, offsets = drawn(37, 40), np.broadcast_to(drawn(40, 56), (3, 40, 56)), [5, 20, 37]
    assert wrong_elements(multiplied(a, b, offsets, **SMALL), a, b, offsets) == 0


@pytest.mark.parametrize(
    ("dtype", "rows", "columns"), covering(["bfloat16", "float32"], [60, 600 if ALL else 200], [136, 137], pairs=())
)
def test_nothing_else_is_written(dtype, rows, columns):
    a, b, offsets = drawn(rows, 64), drawn(2, 64, columns), [rows // 2 - 3, rows - 11]
    whole = np.full((rows + 8, columns + 24), 7, dtype)
    out = whole[4:-4, 8 : 8 + columns]
    assert multiplied(a, b, offsets, out=out, max_sms=2, **SMALL) is out
    assert wrong_elements(out, a, b, offsets) == 0
    out[: offsets[-1]] = 7
    assert (whole == 7).all()


@pytest.mark.parametrize("layout", ["columns", "shared with a"])
def test_an_out_that_the_kernel_cannot_write_keeps_its_other_rows(layout):
    a, b, offsets = drawn(40, 56), drawn(2, 56, 56), [9, 30]
    out = a if layout == "shared with a" else np.full((56, 40), 7, BFLOAT16).T
    given, before = a.copy(), out.copy()
    multiplied(a, b, offsets, out=out)
    assert wrong_elements(out[:30], given[:30], b, offsets) == 0
    assert np.array_equal(out[30:], before[30:])


def test_other_groups_have_no_influence():
    a, b, offsets = drawn(200, 72), drawn(3, 72, 136), [70, 120, 180]
    alone = multiplied(a, b, offsets, **SMALL)
    a[:70], a[120:], b[0], b[2] = np.nan, np.inf, np.inf, np.nan
    assert np.array_equal(multiplied(a, b, offsets, **SMALL)[70:120], alone[70:120])


# --- groups along K --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "shape", "out_dtype"),
    covering([139, 400], [(136, 264), (135, 261), (1, 7)], ["bfloat16", "float32"], pairs=()),
)
def test_groups_along_k(extent, shape, out_dtype):
    m, n = shape
    a, b, offsets = transposed(m, extent), drawn(extent, n), [70, 70, extent - 13]
    a[:, offsets[-1] :], b[offsets[-1] :] = np.inf, np.nan
    d = multiplied(a, b, offsets, out_dtype=out_dtype, max_sms=3)
    assert wrong_elements(d, a, b, offsets) == 0
    assert not d[1].any()


@pytest.mark.parametrize(
    ("b_layout", "a_layout"), covering([drawn, transposed], [drawn, transposed], pairs=()), ids=name
)
def test_groups_along_k_in_any_layout(b_layout, a_layout):
    a, b, offsets = a_layout(136, 150), b_layout(150, 72), [1, 64, 150]
    assert wrong_elements(multiplied(a, b, offsets), a, b, offsets) == 0


def test_infinities_stay_in_their_group_along_k():
    a, b, offsets = transposed(64, 200), drawn(200, 128), [30, 100, 163]
    alone = multiplied(a, b, offsets)
    a[:, :30], b[100:] = np.inf, np.nan
    assert np.array_equal(multiplied(a, b, offsets)[1], alone[1])


@pytest.mark.parametrize("groups", [2, 5, 64, 65])
def test_every_group_along_k_in_any_order(groups):
    """Up to 64 groups are paired, the longest with the shortest; of an odd number one is alone."""
    sizes = np.random.default_rng(groups).integers(0, 12, groups)
    sizes[groups // 2] = 100
    offsets = np.cumsum(sizes)
    a, b = transposed(24, offsets[-1] + 2), drawn(offsets[-1] + 2, 40)
    assert wrong_elements(multiplied(a, b, offsets, max_sms=3), a, b, offsets) == 0


def test_of_a_group_along_k_no_more_is_loaded_than_it_has(reports):
    """But for what is missing to sixteen: so many K units one instruction multiplies."""
    sizes, m, n = [16, 5, 0, 70], 128, 256
    a, b, offsets = transposed(m, sum(sizes)), drawn(sum(sizes), n), np.cumsum(sizes)
    assert wrong_elements(multiplied(a, b, offsets), a, b, offsets) == 0
    loaded = 16 + 16 + 0 + 80
    assert reports[0].counters["tma_load_sectors"] == loaded * (m + n) * 2 // 32
    assert reports[0].counters["tma_zero_bytes"] == 10 * (m + n) * 2  # behind the operands' end


def test_one_group_along_k():
    a, b = transposed(136, 90), drawn(90, 72)
    assert wrong_elements(multiplied(a, b, [77]), a, b, [77]) == 0


def test_code_of_the_page_runs(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert (names["y"].shape, names["dx"].shape, names["dw"].shape) == ((300, 96), (300, 64), (4, 96, 64))
    assert (names["y"][:290] == 64).all()
    assert names["dw"][[0, 2, 3], 0, 0].tolist() == [64 * 120, 64 * 130, 64 * 40]


# --- extents ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12 if ALL else 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_groups(data):
    groups = data.draw(st.integers(1, 9))
    extent = data.draw(st.integers(1, 300))
    offsets = sorted(data.draw(st.lists(st.integers(0, extent), min_size=groups, max_size=groups)))
    k, n = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 300))
    sms = data.draw(st.integers(1, 4))
    if data.draw(st.booleans()):
        a, b = drawn(extent, k), data.draw(st.sampled_from([drawn, transposed]))(groups, k, n)
    else:
        a, b = transposed(k, extent), drawn(extent, n)
    assert wrong_elements(multiplied(a, b, offsets, max_sms=sms), a, b, offsets) == 0


@pytest.mark.parametrize("offsets", [[20, 10, 50], [-5, 10, 20], [30, 99, 35]], ids=str)
def test_offsets_that_fall_or_pass_the_end_are_taken_as_the_nearest(offsets):
    nearest = np.maximum.accumulate(np.clip(offsets, 0, 40))
    a, b = drawn(40, 64), drawn(3, 64, 72)
    assert wrong_elements(multiplied(a, b, offsets), a, b, nearest) == 0
    of_rows, of_columns = drawn(70, 40), drawn(40, 72)  # groups along K
    along_k = multiplied(of_rows, of_columns, offsets, max_sms=2)
    assert wrong_elements(along_k, of_rows, of_columns, nearest) == 0


@pytest.mark.parametrize("shape", [(0, 64, 72), (40, 0, 72), (40, 64, 0)], ids=str)
def test_nothing_to_multiply(shape):
    rows, k, n = shape
    d = multiplied(drawn(rows, k), drawn(2, k, n), [0, 0])
    assert d.shape == (rows, n)
    assert k or not d.any()
    along_k = multiplied(drawn(n, rows), drawn(rows, 3), [0, 0])
    assert along_k.shape == (2, n, 3)
    assert not along_k.any()


def test_no_group():
    assert multiplied(drawn(4, 8), drawn(0, 8, 16), []).shape == (4, 16)
    assert multiplied(drawn(4, 8), drawn(8, 16), []).shape == (0, 4, 16)


def test_the_reference_tells_rows_of_no_group():
    exact, _ = expected(drawn(5, 8), drawn(2, 8, 3), [1, 3])
    assert np.isnan(exact).any(axis=1).tolist() == [False] * 3 + [True] * 2


# --- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "offsets", "error", "words"),
    [
        ((8, 4), (2, 4, 5), (3,), wt.ShapeError, r"3 ends and b has 2 groups; .* such as offsets\[1:\]"),
        ((8, 4), (2, 4, 5), (4,), wt.ShapeError, r"4 ends and b has 2 groups; .* of shape \(G,\)$"),
        ((8, 4), (2, 5, 4), (2,), wt.ShapeError, r"last axis of a \(4\).* matmul_grouped\(a, b.swapaxes\(1, 2\), offs"),
        ((8, 4), (2, 5, 6), (2,), wt.ShapeError, r"last axis of a \(4\).* of shape \(G, K, N\)"),
        ((2, 8, 4), (4, 5), (2,), wt.ShapeError, "a needs two axes"),
        ((8, 4), (2, 4, 5), (2, 1), wt.ShapeError, r"offsets.reshape\(-1\)"),
    ],
)
def test_shapes_that_do_not_go_together(a, b, offsets, error, words):
    with pytest.raises(error, match=words):
        wt.matmul_grouped(drawn(*a), drawn(*b), np.zeros(offsets, np.int32), backend="emulator")


def test_types_that_do_not_go_together():
    a, b, offsets = drawn(8, 4), drawn(2, 4, 5), np.array([3, 8], np.int32)
    with pytest.raises(wt.DTypeError, match="need one type"):
        wt.matmul_grouped(a, b.astype(np.float16), offsets)
    with pytest.raises(wt.UnsupportedError, match="bfloat16, float16, float8_e4m3"):
        wt.matmul_grouped(a.astype(np.float32), b.astype(np.float32), offsets)
    with pytest.raises(wt.DTypeError, match="offsets: got float32"):
        wt.matmul_grouped(a, b, offsets.astype(np.float32))
    with pytest.raises(wt.DTypeError, match="offsets: got list"):
        wt.matmul_grouped(a, b, [3, 8])
    with pytest.raises(wt.DTypeError, match="out_dtype: got float64"):
        wt.matmul_grouped(a, b, offsets, out_dtype="float64")


def test_an_out_of_another_shape():
    with pytest.raises(wt.ShapeError, match=r"the result has shape \(8, 5\)"):
        multiplied(drawn(8, 4), drawn(2, 4, 5), [3, 8], out=np.empty((8, 4), BFLOAT16))


def test_other_architectures(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_80")
    with pytest.raises(wt.UnsupportedError, match=r"one group after the other, such as matmul\(a\[s:e\], b\[g\]\)"):
        multiplied(drawn(8, 4), drawn(2, 4, 5), [3, 8])


def test_a_config_that_is_no_mapping():
    with pytest.raises(wt.ArgumentTypeError, match="config: got 5; it takes a mapping"):
        multiplied(drawn(8, 4), drawn(2, 4, 5), [3, 8], config=5)


def test_quantized_weights_are_refused_with_the_call_that_makes_an_array():
    with pytest.raises(wt.DTypeError, match=r"b: got QuantizedWeights, .* such as b.dequantize\(\)"):
        wt.matmul_grouped(drawn(8, 32), wt.quantize(drawn(5, 32)), np.array([8], np.int32), backend="emulator")
