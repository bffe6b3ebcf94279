"""Translation units."""

import pytest
from simt_product import problem

from warptile.compile import compile_source
from warptile.rungs import RUNGS
from warptile.source import Source, translation_unit


def unit(name, given):
    rung = RUNGS[name]
    config = rung.default_config(given)
    return translation_unit(rung, given, config), rung.name_expression(given, config)


def test_a_float_kernel_includes_its_rung_and_nothing_else():
    source, name = unit("simt-naive", problem(4, 4, 4, "float32"))
    assert source == Source('#include "simt/naive.cuh"\n', name)


@pytest.mark.parametrize(
    ("element", "out", "headers"),
    [
        ("float16", "float32", ["cuda_fp16.h"]),
        ("bfloat16", "float32", ["cuda_bf16.h"]),
        ("float16", "bfloat16", ["cuda_fp16.h", "cuda_bf16.h"]),
        ("float32", "float16", ["cuda_fp16.h"]),
    ],
)
def test_headers_of_the_types_in_use_come_first(element, out, headers):
    source, _ = unit("simt-shared", problem(4, 4, 4, element, out=out))
    assert source.text.splitlines() == [*(f"#include <{header}>" for header in headers), '#include "simt/shared.cuh"']


def test_a_rung_that_may_spill_says_so():
    given = problem(4, 4, 4, "float32")
    for rung in RUNGS.values():
        if given.a.dtype.name in rung.dtypes:
            assert translation_unit(rung, given, rung.default_config(given)).may_spill == rung.may_spill


def test_a_unit_compiles_to_the_kernel_it_names():
    source, _ = unit("simt-naive", problem(4, 4, 4, "float16", out="bfloat16"))
    assert "simt_naive" in compile_source(source, "sm_90a").entry
