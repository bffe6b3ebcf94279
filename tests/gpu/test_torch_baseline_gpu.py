"""torch computes our product on our memory, in every combination of types that it is asked for."""

import numpy as np
import pytest

from warptile.arrays.array_view import numpy_dtype
from warptile.bench.baselines.torch_matmul import torch_launch
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import BF16, E4M3_FAST, F16_F16, F16_F32, F32, S8, TF32, to_problem
from warptile.runtime.device_product import DeviceProduct

pytestmark = pytest.mark.gpu
KEYS = {
    "bf16": BF16.key(192, 320, 256, "col"),
    "bf16, A and B as columns": BF16.key(192, 320, 256, "col", "col"),
    "batch": ProblemKey(192, 320, 256, "bfloat16", "float32", "bfloat16", "col", batch=3),
    "float32 output": ProblemKey(192, 320, 256, "bfloat16", "float32", "float32", "col"),
    "f16": F16_F32.key(192, 320, 256),
    "f16 accumulators": F16_F16.key(192, 320, 256),
    "f32": F32.key(192, 320, 256),
    "tf32": TF32.key(192, 320, 256, "col"),
    "e4m3": E4M3_FAST.key(192, 320, 256, "col"),
    "s8": S8.key(192, 320, 256, "col"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("offset", [0, 1])
def test_torch_multiplies_our_operands(name, offset):
    pytest.importorskip("torch", reason="torch is not installed")
    from warptile.gpu import driver

    key = KEYS[name]
    operands = DeviceProduct(to_problem(key, offset=offset), sets=1, offset_elements=offset)
    launch = torch_launch(key, [operands.pointers(0)])
    with driver.Stream() as stream:
        try:
            launch(0, stream.handle)
        except (RuntimeError, TypeError) as error:
            if offset or name == "float32 output":
                pytest.skip(f"torch does not: {error}")
            raise
        driver.synchronize()
    expected = operands.reference()
    d = np.empty(expected.d.shape, numpy_dtype(operands.problem.d.dtype))
    operands._d[0].to_host(d.reshape(-1).view(np.uint8), operands._d_begin)
    if launch.name == "torch._scaled_mm" or "out_dtype" in launch.name:  # these return a tensor of their own
        d = launch.call(*launch.operands[0]).float().cpu().numpy()
    error = np.linalg.norm(d.astype(np.float64) - expected.d)
    assert error <= 2**-7 * np.linalg.norm(expected.d)
    operands.close()
