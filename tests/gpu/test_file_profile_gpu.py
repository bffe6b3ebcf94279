"""``warptile profile --file`` under Nsight Compute: the same lines and wavefronts as on the emulator, and stalls."""

import json
from pathlib import Path

import numpy as np
import pytest

from warptile.bench.profiling.ncu import find_ncu
from warptile.cli.main import run
from warptile.errors import NoDeviceError

TRANSPOSE = """\
__global__ void transpose(const float* x, float* y) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = x[1024 * blockIdx.x + threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    y[1024 * blockIdx.x + threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""

#: Matrices of 32 x 32, one in each CTA: one alone may end before the profiler takes a sample.
MATRICES = 512

pytestmark = pytest.mark.gpu


@pytest.fixture
def ncu():
    try:
        return find_ncu()
    except NoDeviceError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("ncu")
def test_nsight_compute_and_the_emulator_agree_on_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("transpose.cu").write_text(TRANSPOSE)
    np.save("x.npy", np.arange(1024 * MATRICES, dtype=np.float32))
    np.save("y.npy", np.zeros(1024 * MATRICES, np.float32))
    found = {}
    for backend in ("gpu", "emulator"):
        call = ["profile", "--backend", backend, "--file", "transpose.cu", "--json"]
        call += ["--grid", str(MATRICES), "--block", "32,32"]
        assert run([*call, "--arg", "in:x.npy", "--arg", "inout:y.npy"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["backend"] == backend
        found[backend] = {(line["file"], line["line"]): line for line in document["lines"]}
    for place in (("transpose.cu", 3), ("transpose.cu", 5)):
        measured, counted = found["gpu"][place], found["emulator"][place]
        assert measured["text"] == counted["text"]
        for name in ("shared_wavefronts", "shared_wavefronts_ideal", "global_sectors"):
            assert measured[name] == counted[name], (place, name)
    stalls = [line["stalls"] for line in found["gpu"].values()]
    samples = sum(line["samples"] for line in found["gpu"].values())
    assert 0 < sum(sum(each.values()) for each in stalls) <= samples
