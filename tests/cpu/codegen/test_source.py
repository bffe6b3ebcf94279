"""Translation units."""

import re
from dataclasses import replace

import pytest

from covering import ALL
from simt_product import problem
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.rungs import RUNGS


def unit(name, given):
    """The source of a rung in its default configuration, and the definition of its ``Config``."""
    rung = RUNGS[name]
    kernel = rung.resolve(given, rung.default_config(given, REFERENCE), REFERENCE)
    return translation_unit(kernel), kernel.instance.text


def test_a_float_kernel_includes_its_rung_and_defines_its_config():
    source, config = unit("simt-naive", problem(4, 4, 4, "float32"))
    assert source.text == f'#include "simt/naive.cuh"\n{config}\n'
    assert source.name_expression == "warptile::simt_naive<warptile::Config>"
    assert "struct Config {" in config


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
    source, config = unit("simt-shared", problem(4, 4, 4, element, out=out))
    included = source.text.removesuffix(f"{config}\n").splitlines()
    assert included == [*(f"#include <{header}>" for header in headers), '#include "simt/shared.cuh"']


def test_only_the_wrappers_of_instructions_in_use_are_written():
    rung = RUNGS["wgmma-final"]
    given = problem(256, 256, 256, "bfloat16", b_major="col")
    kernel = rung.resolve(given, rung.default_config(given, REFERENCE), REFERENCE)
    (name,) = kernel.instance.instructions
    text = translation_unit(kernel).text
    assert text.count("struct Wgmma<") == 1
    shape = re.search(r"m64n\d+k16", name)[0]
    assert text.index('#include "ptx/wgmma.cuh"') < text.index(shape) < text.index('#include "wgmma/final.cuh"')


@pytest.mark.parametrize("may_spill", [False, True])
def test_an_instance_says_whether_it_may_spill(may_spill):
    rung, given = RUNGS["simt-naive"], problem(4, 4, 4, "float32")
    kernel = rung.resolve(given, rung.default_config(given, REFERENCE), REFERENCE)
    kernel = replace(kernel, instance=replace(kernel.instance, may_spill=may_spill))
    assert translation_unit(kernel).may_spill is may_spill


def test_a_unit_compiles_to_the_kernel_it_names():
    source, _ = unit("simt-naive", problem(4, 4, 4, "float16", out="bfloat16"))
    assert "simt_naive" in compile_source(source, "sm_90a").entry


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
def test_without_c_an_overlapped_kernel_has_no_code_that_reads_it(out):
    """That code is most of an epilogue, and of the time that such a kernel takes to compile."""
    rung, kernels = RUNGS["wgmma-final"], {}
    for with_c in (False, True):
        given = problem(4096, 4096, 4096, "bfloat16", out=out, with_c=with_c)
        tile = {"BM": 128, "BN": 192 if ALL else 64, "BK": 64, "STAGES": 3, "CONSUMERS": 2, "SWAP": 0, "OVERLAP": 1}
        tile |= {"SPLITS": 1, "PINGPONG": 0, "STREAM": 0, "CM": 1, "CN": 1, "SMS": REFERENCE.sms}
        config = {**rung.default_config(given), **tile}
        assert rung.illegal(given, config) is None
        source = translation_unit(rung.resolve(given, config))
        assert ("READS_C" in source.text) is with_c
        kernels[with_c] = compile_source(source, "sm_90a")
    assert b"ld.global" in kernels[True].ptx
    assert b"ld.global" not in kernels[False].ptx
    assert kernels[False].resources.spill_bytes == 0
    assert len(kernels[False].cubin) < len(kernels[True].cubin)
