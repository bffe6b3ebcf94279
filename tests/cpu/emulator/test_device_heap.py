"""`malloc` and `free` in kernels: what they return, and what is reported of their misuse."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import compiled, run_cuda
from warptile.emulator import ALL_CHECKS, DEFAULT_CHECKS, EmulationReport, emulate
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.errors import DataRace, EmulationError, IllegalAddress, MemoryLeak, UninitializedRead
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec


def run(body: str, *, block: int = 1, collect: bool = False, checks: frozenset[str] = DEFAULT_CHECKS) -> np.ndarray:
    out = np.zeros(64, np.int32)
    report(body, out, block=block, collect=collect, checks=checks)
    return out


def report(
    body: str, out: np.ndarray, *, block: int = 1, collect: bool = False, checks: frozenset[str] = DEFAULT_CHECKS
) -> EmulationReport:
    text = f'extern "C" __global__ void k(int* x) {{ int t = threadIdx.x; {body} }}'
    return run_cuda(text, "k", [out], block=block, outputs={0: False}, collect=collect, checks=checks)


def test_every_thread_has_memory_of_its_own() -> None:
    body = """
    int* list = new int[t + 1];
    for (int i = 0; i <= t; ++i) list[i] = i;
    int sum = 0;
    for (int i = 0; i <= t; ++i) sum += list[i];
    delete[] list;
    x[t] = sum;
    """
    assert run(body, block=64).tolist() == [t * (t + 1) // 2 for t in range(64)]


@pytest.mark.parametrize("alignment", [16, 256, 4096])
def test_memory_is_aligned(alignment: int) -> None:
    made = "malloc(40)" if alignment == 16 else f"__nv_aligned_device_malloc(40, {alignment})"
    body = f"void* p = {made}; x[t] = p != nullptr && (unsigned long long)p % {alignment} == 0; free(p); free(nullptr);"
    assert run(body, block=33)[:33].tolist() == [1] * 33


def test_there_is_no_room_for_more_than_the_heap_and_freed_memory_is_room_again() -> None:
    body = """
    x[0] = malloc(9 << 20) == nullptr;
    void* all = malloc(8 << 20);
    x[1] = all != nullptr;
    x[2] = malloc(1) == nullptr;
    free(all);
    for (int i = 0; i < 20; ++i) {  // more than all the addresses of the heap
        void* again = malloc(8 << 20);
        x[3] += again != nullptr;
        free(again);
    }
    """
    assert run(body)[:4].tolist() == [1, 1, 1, 20]


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (
            "int* p = (int*)malloc(16); free(p); x[0] = p[1];",
            IllegalAddress,
            r"malloc 1 \(kernel.cu:1\) has been freed",
        ),
        ("int* p = (int*)malloc(16); free(p); free(p);", IllegalAddress, "has been freed already"),
        ("int* p = (int*)malloc(16); free(p + 1);", IllegalAddress, r"byte 4 of malloc 1 .*what malloc has returned"),
        ("free(x);", IllegalAddress, "byte 0 of 0; it takes what malloc has returned"),
        ("free((void*)4096);", IllegalAddress, "which malloc has not returned"),
        ("int* p = (int*)malloc(16); x[0] = p[3]; free(p);", UninitializedRead, r"malloc 1 \(kernel.cu:1\)\+12"),
        ("int* p = (int*)malloc(16); p[4] = t; free(p);", IllegalAddress, "has 16 bytes"),
        ("x[0] = malloc(16) != nullptr;", MemoryLeak, "16 bytes are never freed"),
    ],
)
def test_misuse_is_told(body: str, error: type[EmulationError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        run(body)
    assert caught.value.location is not None


SHARED = """
    __shared__ int* p;
    if (t == 0) p = (int*)malloc(256);
    __syncthreads();
    p[t] = t;
    x[t] = p[t];
    BARRIER
    if (t == 40) free(p);
"""


def test_freeing_what_others_may_still_use_is_a_race() -> None:
    assert run(SHARED.replace("BARRIER", "__syncthreads();"), block=64).tolist() == list(range(64))
    with pytest.raises(DataRace, match=r"free.*nothing orders the two"):
        run(SHARED.replace("BARRIER", ""), block=64)


def test_leaks_are_counted_by_call_and_can_be_ignored() -> None:
    body = "x[t] = malloc(8) != nullptr;"
    out = np.zeros(64, np.int32)
    (found,) = report(body, out, block=40, collect=True).findings
    assert (found.check, found.severity, found.count) == ("leaks", "warning", 40)
    assert "40 blocks, 320 bytes in all" in found.message
    assert out.sum() == 40
    assert not report(body, out, block=40, collect=True, checks=ALL_CHECKS - {"leaks"}).findings


LIST = """
struct Node { int value; Node* next; };
extern "C" __global__ void push(unsigned long long at, int value) {
    Node** head = (Node**)at;
    *head = new Node{value, *head};
}
extern "C" __global__ void pop(unsigned long long at, unsigned long long to) {
    Node** head = (Node**)at;
    Node* first = *head;
    *head = first->next;
    *(int*)to = first->value;
    delete first;
}
"""


def test_a_later_kernel_frees_what_an_earlier_one_has_allocated() -> None:
    device = DeviceMemory()
    head, out = device.place("head", bytes(8)), device.place("out", bytes(4))

    def launch(name: str, *arguments: Scalar) -> None:
        entry, module = compiled(LIST, name, "sm_90a")
        emulate(module, LaunchSpec(entry, (1, 1, 1), (1, 1, 1), arguments), {}, arch="sm_90a", device=device)

    for value in (5, 7):
        launch("push", Scalar("u64", head), Scalar("s32", value))
    assert len(device.heap.blocks) == 2
    with pytest.raises(IllegalAddress, match="a kernel has to free it"):
        device.free(GLOBAL_BASE + next(iter(device.heap.blocks)))
    for value in (7, 5):
        launch("pop", Scalar("u64", head), Scalar("u64", out))
        assert device.read(out, 4) == value.to_bytes(4, "little")
    assert not device.heap.blocks


def test_a_second_run_that_tells_model_findings_apart_leaves_no_trace() -> None:
    """A collecting run that shows a race is run again; it allocates and frees anew."""
    body = """
    __shared__ int s[32];
    int* p = (int*)malloc(16);
    p[0] = t;
    s[t] = p[0];
    int other = __shfl_sync(~0u, t, 0);
    x[t] = s[(t + 1) % 32] + other;
    free(p);
    """
    out = np.zeros(64, np.int32)
    (found,) = report(body, out, block=32, collect=True).findings
    assert (found.check, found.severity) == ("warp-order", "model")
    assert out[:32].tolist() == [(t + 1) % 32 for t in range(32)]
