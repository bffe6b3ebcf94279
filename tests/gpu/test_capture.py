"""The committed answers to the probes are those of this GPU."""

import json

import numpy as np
import pytest
from capture_instructions import Gpu

import captured
from scalar_probes import SCALAR_PROBES
from tensor_probes import TENSOR_PROBES
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
