"""What machine code is told of memory: that keeping it up to date does not grow with what has not changed."""

import numpy as np

import warptile as wt
from warptile.emulator.compiled_steps.memory_state import MemoryState
from warptile.emulator.compiled_steps.step_library import library

BUFFERS, THREADS = 24, 8192


def test_a_missing_race_history_is_no_reason_to_look_at_all_buffers(monkeypatch):
    library(wait=True)
    looked, made = [], []
    refresh, make_missing = MemoryState.refresh, MemoryState.make_missing
    monkeypatch.setattr(MemoryState, "refresh", lambda self: (looked.append(1), refresh(self))[1])
    monkeypatch.setattr(MemoryState, "make_missing", lambda self: (made.append(1), make_missing(self))[1])
    parameters = ", ".join(f"int* p{number}" for number in range(BUFFERS))
    stores = " ".join(f"p{number}[at] = at + {number};" for number in range(BUFFERS))
    body = f"int at = blockIdx.x * blockDim.x + threadIdx.x; {stores}"
    kernel = wt.kernel(f'extern "C" __global__ void store({parameters}) {{ {body} }}', "store")
    buffers = [np.zeros(THREADS, np.int32) for _ in range(BUFFERS)]
    kernel[(THREADS // 256,), (256,)](*buffers)
    for number, buffer in enumerate(buffers):
        np.testing.assert_array_equal(buffer, np.arange(THREADS) + number)
    assert len(made) >= BUFFERS
    assert len(looked) < BUFFERS
