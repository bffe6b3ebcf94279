"""warptile in PyTorch: operators with gradients, modules, and routing of torch's own calls. Import it to have them.

``torch.ops.warptile`` has ``matmul``, ``matmul_out``, ``fused_matmul``, ``linear``, ``scaled_mm`` and ``grouped_mm``:
functional forms that `torch.compile` traces, with gradients, autocast and ``vmap``. `warptile.matmul` and
`warptile.linear` use them on tensors whose gradients are recorded, so that programs need no other names.
"""

from __future__ import annotations

from warptile.torch import (  # noqa: F401  (importing these registers operators)
    autocast_rules,
    bound_gradients,
    calls,
    epilogue_calls,
    grouped_operator,
    scaled_operator,
)
from warptile.torch.conversion import Conversion, convert
from warptile.torch.inductor_choices import register_inductor, unregister_inductor
from warptile.torch.layers import MLP, GatedMLP
from warptile.torch.linear_layer import Linear
from warptile.torch.overriding import Counts, disable_override, enable_override, override
from warptile.torch.quantized_layers import QuantizedLinear

__all__ = [
    "MLP", "Conversion", "Counts", "GatedMLP", "Linear", "QuantizedLinear", "convert", "disable_override",
    "enable_override", "override", "register_inductor", "unregister_inductor",
]  # fmt: skip
