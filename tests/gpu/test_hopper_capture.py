"""The committed answers of wgmma and of bulk copies are those of this GPU."""

import json

import pytest

import capture_tma
import capture_wgmma
import captured
import tma_probes
import wgmma_probes
from warptile.gpu import driver

pytestmark = pytest.mark.gpu


def recorded(name):
    """What is committed, if it is of this architecture."""
    content = json.loads((captured.DATA / name).read_text())
    if driver.device_info().arch != content["arch"]:
        pytest.skip(f"the answers are of {content['arch']}")
    return content["suites"]


@pytest.mark.parametrize("suite", wgmma_probes.SUITES)
def test_wgmma_answers_as_recorded(suite):
    expected = recorded("wgmma_h200.json")[suite]
    gpu = capture_wgmma.Gpu(wgmma_probes.SUITES[suite])
    sums = {
        probe.name: captured.hexadecimal(captured.checksums(probe.answers(gpu.run), 1))
        for probe in wgmma_probes.SUITES[suite]
    }
    assert not [name for name, found in sums.items() if found != expected[name]]


def test_bulk_copies_answer_as_recorded():
    expected = recorded("tma_h200.json")
    gpu = capture_tma.Gpu()
    differing = [
        case.name
        for suite, cases in tma_probes.SUITES.items()
        for case in cases
        if captured.hexadecimal(captured.checksums(gpu.run(case)[None], 1)) != expected[suite][case.name]
    ]
    assert not differing
