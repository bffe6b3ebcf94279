"""The committed answers to the probes, and errors of the approximations, are those of this GPU."""

import json

import numpy as np
import pytest

import captured
from capture_instructions import Gpu
from measure_approximations import SWEPT, source, sweep
from scalar_probes import SCALAR_PROBES
from tensor_probes import TENSOR_PROBES
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    recorded = json.loads(captured.HEADER.read_text())["arch"]
    if driver.device_info().arch != recorded:
        pytest.skip(f"the vectors are of {recorded}")
    return Gpu([each.probe for each in (*TENSOR_PROBES, *SCALAR_PROBES)])


def test_tensor_instructions_answer_as_recorded(gpu):
    vectors = captured.vectors()
    differing = [
        tensor.name
        for tensor in TENSOR_PROBES
        if not np.array_equal(vectors[tensor.name], captured.kept(tensor, captured.tensor_answers(tensor, gpu.run)))
    ]
    assert not differing


def test_scalar_instructions_answer_as_recorded(gpu):
    vectors = captured.vectors()
    differing = [
        scalar.name
        for scalar in SCALAR_PROBES
        if not np.array_equal(
            vectors[scalar.name], captured.kept_of_scalar(scalar, captured.scalar_answers(scalar, gpu.run))
        )
    ]
    assert not differing


@pytest.mark.parametrize("swept", SWEPT, ids=lambda swept: swept.instruction)
def test_approximations_answer_as_recorded(swept, sweeps):
    """All 2**32 operands, by one checksum, and the largest errors."""
    recorded = json.loads((captured.DATA / "approximations_h200.json").read_text())["instructions"]
    summary, _ = sweep(sweeps, swept)
    assert summary == recorded[swept.instruction]


@pytest.fixture(scope="module")
def sweeps():
    recorded = json.loads((captured.DATA / "approximations_h200.json").read_text())["arch"]
    arch = driver.device_info().arch
    if arch != recorded:
        pytest.skip(f"the checksums are of {recorded}")
    kernel = compile_source(Source(source(), f"sweep_{SWEPT[0].entry}", may_spill=True), arch)
    with driver.Module(kernel.cubin) as module:
        yield module
