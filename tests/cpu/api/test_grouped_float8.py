"""matmul_grouped of 8-bit floats and their scales, on the emulator."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warptile as wt
from covering import ALL, covering, examples
from grouped_products import ranges
from warptile import grouped_call
from warptile.planning.grouped_plan import GroupedPlan
from warptile.rungs.wgmma import grouped
from warptile.runtime import execute

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-23}
WIDE, NARROW = (dict(config) for _, config in grouped.FLOAT8_CONFIGS)
SMALL = {} if ALL else {"config": NARROW | {"BN": 32, "STEP": 32, "BOX": 32}}
"""Options of a call: an instruction of one width, which is compiled in a fraction of the time of the several that plans
take. Theirs are run with groups of rows, and with blocks of scales along K."""


def drawn(*shape, dtype=E4M3, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def scales(*shape):
    return np.random.default_rng(sum(shape)).uniform(0.25, 4, shape).astype(np.float32)


def transposed(*shape, **options):
    """An array of the shape, its last two axes stored the other way round, as the kernel reads weights."""
    return np.swapaxes(drawn(*shape[:-2], shape[-1], shape[-2], **options), -1, -2)


def multiplied(a, b, offsets, **options):
    return wt.matmul_grouped(a, b, np.array(offsets, np.int32), backend="emulator", **options)


def wrong_elements(found, a, b, offsets, of_a=1.0, of_b=1.0):
    """Elements of groups that are further off than two-level accumulation and the result's rounding allow."""
    rows = np.broadcast_to(np.reshape(np.asarray(of_a, np.float64), (-1, 1)), (len(a), 1))
    columns = np.asarray(of_b, np.float64)
    columns = np.broadcast_to(columns.reshape(len(b), 1, -1) if columns.size > 1 else columns, (len(b), 1, b.shape[2]))
    wrong = 0
    for group, part in enumerate(ranges(offsets)):
        left, right = a[part].astype(np.float64) * rows[part], b[group].astype(np.float64) * columns[group]
        exact, magnitude = left @ right, abs(left) @ abs(right)
        bound = UNITS[found.dtype.name] * abs(exact) + 4 * 33 * 2.0**-13 * magnitude + 2.0**-24
        wrong += int(np.sum(~(abs(found[part].astype(np.float64) - exact) <= bound)))
    return wrong


@pytest.fixture
def plans(monkeypatch):
    """Plans that are made."""
    made = []
    of = GroupedPlan.of
    grouped_call._plan.cache_clear()
    monkeypatch.setattr(GroupedPlan, "of", staticmethod(lambda *given: made.append(of(*given)) or made[-1]))
    return made


def name(each):
    return getattr(each, "__name__", str(each))


GROUPS = [([131, 131, 195], 200), ([10, 10, 11, 45], 50), ([300], 300)]
"""Ends of groups, and rows of A."""


@pytest.mark.parametrize(
    ("out_dtype", "weights", "groups"), covering([None, "float32"], [drawn, transposed], GROUPS, pairs=()), ids=name
)
def test_groups_of_rows(plans, out_dtype, weights, groups):
    offsets, rows = groups
    a, b = drawn(rows, 272), weights(len(offsets), 272, 264)
    d = multiplied(a, b, offsets, max_sms=2, out_dtype=out_dtype)  # CTAs take several tiles, of several groups
    assert d.dtype.name == (out_dtype or "bfloat16")
    assert wrong_elements(d, a, b, offsets) == 0
    assert dict(plans[0].config) == (NARROW if rows == 50 else WIDE)
    if ALL:  # ptxas takes longer than all else
        assert execute.compiled(plans[0]).resources.spill_store_bytes == 0


@pytest.mark.parametrize(
    ("of_b", "of_a"),
    covering([None, np.float32(2), (1, 1), (3,), (3, 136), (3, 1, 136)], [None, 0.5, (1,), (83,), (83, 1)], pairs=()),
    ids=str,
)
def test_scales(of_b, of_a):
    a, b, offsets = drawn(83, 144), transposed(3, 144, 136), [40, 40, 77]
    given = [scales(*each) if isinstance(each, tuple) else each for each in (of_a, of_b)]
    out_dtype = "float32" if ALL else "bfloat16"
    d = multiplied(a, b, offsets, scale_a=given[0], scale_b=given[1], out_dtype=out_dtype, max_sms=2, **SMALL)
    assert wrong_elements(d, a, b, offsets, *(1.0 if each is None else each for each in given)) == 0


def of_blocks(rows, columns, k, n, groups):
    """Scales of some kinds, and what they are for each element of the operands."""
    blocks = -(-k // 128)
    of_a = {"blocks": scales(rows, blocks), "rows": scales(rows, 1), None: None}[columns[0]]
    shape = {"square": (groups, blocks, -(-n // 128)), "single": (groups, blocks, n), "columns": (groups, 1, n)}
    of_b = scales(*shape[columns[1]]) if columns[1] else None
    whole_a = 1.0 if of_a is None else np.repeat(of_a, 128, 1)[:, :k] if of_a.shape[1] > 1 else of_a
    whole_b = 1.0 if of_b is None else np.repeat(of_b, 128, 1)[:, :k] if of_b.shape[1] > 1 else of_b
    if columns[1] == "square":
        whole_b = np.repeat(whole_b, 128, 2)[:, :, :n]
    return of_a, of_b, whole_a, whole_b


KINDS = [("blocks", "square"), ("blocks", "single"), (None, "square"), ("rows", "single"), ("blocks", "columns")]


@pytest.mark.parametrize(
    ("extents", "kinds"), covering([(150, 300, 200), (83, 512, 264), (40, 130, 7)], KINDS, pairs=()), ids=str
)
def test_scales_along_k(plans, extents, kinds):
    rows, k, n = extents
    a, b, offsets = drawn(rows, k), transposed(3, k, n), [rows // 5, rows // 5, rows - 3]
    of_a, of_b, whole_a, whole_b = of_blocks(rows, kinds, k, n, 3)
    options = {"out_dtype": "float32" if n % 2 else "bfloat16", "max_sms": 2}
    if kinds != ("blocks", "square"):
        options |= SMALL
    d = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **options)
    if ALL:  # in an ordinary run those of wider tiles, below: ptxas takes longer than all else
        assert execute.compiled(plans[-1]).resources.spill_store_bytes == 0
    left, right = a.astype(np.float64) * whole_a, b.astype(np.float64) * whole_b
    assert wrong_elements(d, left, right, offsets) == 0


def test_scales_along_k_of_groups_of_many_rows(plans):
    """Tiles as wide as registers allow, multiplied by instructions of both widths."""
    rows, k, n = 390, 200, 136
    a, b, offsets = drawn(rows, k), transposed(3, k, n), [40, 170, rows - 3]
    of_a, of_b, whole_a, whole_b = of_blocks(rows, ("blocks", "square"), k, n, 3)
    d = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, max_sms=2)
    assert dict(plans[-1].config)["BN"] == 96
    kernel = execute.compiled(plans[-1])
    assert kernel.resources.spill_store_bytes == 0
    assert "C75" not in kernel.log, "ptxas serialises nothing"
    assert wrong_elements(d, a.astype(np.float64) * whole_a, b.astype(np.float64) * whole_b, offsets) == 0


def test_scales_along_k_of_one_group_leave_the_others_alone():
    a, b, offsets = drawn(200, 300), transposed(3, 300, 136), [70, 110, 180]
    of_a, of_b, *_ = of_blocks(200, ("blocks", "square"), 300, 136, 3)
    alone = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)
    for each in (a[:70], a[110:], b[0], b[2], of_a[:70], of_a[110:], of_b[0], of_b[2]):
        each[...] = np.nan
    assert np.array_equal(multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)[70:110], alone[70:110])


@pytest.mark.parametrize(
    ("out_dtype", "dtype"), covering(["bfloat16", "float16", "float32"], [E4M3, E5M2], pairs=()), ids=name
)
def test_types(out_dtype, dtype):
    rows = 140 if ALL else 40
    a, b, offsets = drawn(rows, 80, dtype=dtype), transposed(2, 80, 136, dtype=dtype), [rows - 27, rows]
    of_a, of_b = scales(rows).astype(ml_dtypes.bfloat16), scales(2, 136).astype(np.float16)
    d = multiplied(a, b, offsets, out_dtype=out_dtype, scale_a=of_a, scale_b=of_b, **SMALL)
    assert d.dtype.name == out_dtype
    assert wrong_elements(d, a, b, offsets, of_a, of_b) == 0


@pytest.mark.parametrize(
    ("weights", "shape"),
    covering([drawn, transposed], [(90, 71, 137), (90, 144, 137), (90, 71, 136), (1, 1, 1), (9, 16, 1)], pairs=()),
    ids=name,
)
def test_any_extents(weights, shape):
    rows, k, n = shape
    a, b, offsets, of_a, of_b = drawn(rows, k), weights(2, k, n), [rows // 3, rows], scales(rows), scales(2, n)
    d = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)
    assert wrong_elements(d, a, b, offsets, of_a, of_b) == 0


def test_strides_of_operands_and_scales():
    a, b, offsets = drawn(74, 160)[::2, ::2], transposed(3, 160, 112)[:, ::2, ::2], [5, 5, 30]
    of_a, of_b = scales(37, 3)[::-1, 1], np.asfortranarray(scales(3, 56))
    d = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)
    assert wrong_elements(d, a, b, offsets, of_a, of_b) == 0
    shared = np.broadcast_to(transposed(80, 56), (3, 80, 56))
    d = multiplied(drawn(37, 80), shared, offsets, scale_b=scales(3), **SMALL)
    assert wrong_elements(d, drawn(37, 80), shared, offsets, 1.0, scales(3)) == 0


@pytest.mark.parametrize(("dtype", "columns"), covering(["bfloat16", "float32"], [136, 137], pairs=()))
def test_nothing_else_is_written(dtype, columns):
    rows = 150 if ALL else 60
    a, b, offsets = drawn(rows, 64), transposed(2, 64, columns), [rows // 2 - 5, rows - 11]
    whole = np.full((rows + 8, columns + 24), 7, dtype)
    out = whole[4:-4, 8 : 8 + columns]
    assert multiplied(a, b, offsets, out=out, scale_a=scales(rows), max_sms=2, **SMALL) is out
    assert wrong_elements(out, a, b, offsets, scales(rows)) == 0
    out[: offsets[-1]] = 7
    assert (whole == 7).all()


def test_other_groups_and_their_scales_have_no_influence():
    a, b, offsets, of_a, of_b = drawn(90, 80), transposed(3, 80, 136), [30, 50, 80], scales(90), scales(3, 136)
    alone = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)
    for each in (a[:30], a[50:], b[0], b[2], of_a[:30], of_a[50:], of_b[0], of_b[2]):
        each[...] = np.nan
    assert np.array_equal(multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, **SMALL)[30:50], alone[30:50])


def test_offsets_and_extents_of_nothing():
    a, b = drawn(40, 64), transposed(3, 64, 72)
    d = multiplied(a, b, [20, 10, 50], scale_b=scales(3), **SMALL)
    assert wrong_elements(d, a, b, [20, 20, 40], 1.0, scales(3)) == 0  # the nearest ends
    assert not multiplied(drawn(4, 0), drawn(2, 0, 8), [1, 4], scale_a=scales(4)).any()
    assert multiplied(drawn(0, 8), drawn(2, 8, 16), [0, 0]).shape == (0, 16)


@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_groups(data):
    groups, extent = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 200))
    offsets = sorted(data.draw(st.lists(st.integers(0, extent), min_size=groups, max_size=groups)))
    k, n = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 200))
    a, b = drawn(extent, k), data.draw(st.sampled_from([drawn, transposed]))(groups, k, n)
    of_a, of_b = scales(extent), scales(groups, n)
    d = multiplied(a, b, offsets, scale_a=of_a, scale_b=of_b, max_sms=data.draw(st.integers(1, 3)), **SMALL)
    assert wrong_elements(d, a, b, offsets, of_a, of_b) == 0


A, B = drawn(8, 16), transposed(2, 16, 24)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"scale_a": np.ones(7, np.float32)}, wt.ShapeError, r"scale_a: got shape \(7,\); for 8 rows"),
        ({"scale_a": np.ones((1, 8), np.float32)}, wt.ShapeError, r"\(8,\) or \(8, 1\)"),
        ({"scale_b": np.ones((24, 2), np.float32)}, wt.ShapeError, r"each group \(2,\), .* \(2, 24\)"),
        ({"scale_a": np.ones(8, np.int32)}, wt.DTypeError, "scale_a: got int32; scales are float32"),
        ({"scale_a": "2"}, wt.ArgumentTypeError, "scale_a"),
        ({"scale_a": np.ones((8, 2), np.float32)}, wt.ShapeError, r"along K of a row \(8, 1\)"),
        ({"config": {**NARROW, "BK": 256}}, wt.UnsupportedError, "BK is 256; .* after each 128"),
        ({"config": {**NARROW, "BN": 192}}, wt.UnsupportedError, "take a smaller BN"),
        ({"out_dtype": "float8_e4m3"}, wt.DTypeError, "bfloat16 or float16 or float32"),
    ],
    ids=str,
)
def test_what_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        multiplied(A, B, [3, 8], **change)


def test_operands_that_are_refused():
    with pytest.raises(wt.DTypeError, match="scale_b: it is for operands of 8-bit floats; a is bfloat16"):
        multiplied(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16), [3, 8], scale_b=2.0)
    with pytest.raises(wt.UnsupportedError, match=r"groups along K; .*a.astype\('bfloat16'\)"):
        multiplied(drawn(8, 16), drawn(16, 24), [3, 16])
    with pytest.raises(wt.DTypeError, match="need one type"):
        multiplied(A, B.astype(E5M2), [3, 8])
