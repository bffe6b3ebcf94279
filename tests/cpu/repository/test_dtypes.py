"""Element types: names, ranges and accumulators."""

import ml_dtypes
import numpy as np
import pytest

from warptile.dtypes import DTYPES, dtype
from warptile.errors import DTypeError

FLOATS = [each for each in DTYPES.values() if each.kind == "float"]


@pytest.mark.parametrize("each", FLOATS, ids=lambda each: each.name)
def test_a_floats_range_is_its_storage_types(each):
    limits = ml_dtypes.finfo(np.dtype(each.numpy))
    assert 2.0**each.min_exponent == float(limits.smallest_normal)
    if each.name == "tfloat32":  # float32's range at fewer bits
        assert each.largest == (2 - 2.0**-10) * 2.0**127
    elif each.name == "float32_fast":  # sums truncated to 13 bits: twice the unit roundoff of rounding to as many
        assert each.largest == (2 - 2.0**-13) * 2.0**127
        assert each.unit_roundoff == 2.0**-13
    else:
        assert each.mantissa_bits == limits.nmant
        assert each.largest == float(limits.max)


@pytest.mark.parametrize("each", [each for each in DTYPES.values() if each.kind != "float"], ids=lambda each: each.name)
def test_an_integers_range(each):
    assert each.largest == 2 ** (each.bits - (each.kind == "int")) - 1
    assert each.unit_roundoff == 0


def test_accumulators_are_types_themselves_and_those_alone_have_none():
    used = {name for each in DTYPES.values() for name in each.accumulators}
    assert used <= set(DTYPES)
    alone = {each.name for each in DTYPES.values() if not each.accumulators}
    assert alone == {"int32_saturating", "int32_xor", "float32_fast"}
    assert {DTYPES[name].numpy for name in alone} == {"int32", "float32"}


@pytest.mark.parametrize(
    ("short", "name"),
    [("e4m3", "float8_e4m3"), ("float8_e4m3fn", "float8_e4m3"), ("e5m2", "float8_e5m2"), ("tf32", "tfloat32")],
)
def test_short_names(short, name):
    assert dtype(short).name == name
    assert dtype(dtype(short)) is DTYPES[name]


def test_an_unknown_type_is_refused_with_those_there_are():
    with pytest.raises(DTypeError, match=r"'float12'.*float8_e4m3"):
        dtype("float12")
