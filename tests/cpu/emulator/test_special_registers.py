"""Special registers that few kernels read."""

import numpy as np

from emulation import run_cuda


def test_registers_of_performance_monitors_and_of_the_driver_can_be_read() -> None:
    """They hold nothing: PTX ISA, "Special Registers", leaves their values to the driver."""
    names = ["pm0", "pm7", "envreg0", "envreg3", "envreg31"]
    reads = "".join(f'asm volatile("mov.u32 %0, %%{name};" : "=r"(w)); out[i++] = w;' for name in names)
    reads += "".join(
        f'asm volatile("mov.u64 %0, %%{name};" : "=l"(q)); out[i++] = q;' for name in ("pm0_64", "current_graph_exec")
    )
    out = np.full(7, -1, np.int32)
    run_cuda(f"__global__ void k(int* out) {{ unsigned w, i = 0; unsigned long long q; {reads} }}", "k", [out], block=1)
    assert out.tolist() == [0] * 7
