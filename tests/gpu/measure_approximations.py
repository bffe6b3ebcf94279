"""How far the GPU's approximations are from the truth, over every input there is.

``python3 tests/gpu/measure_approximations.py --out DIR`` writes ``approximations_h200.json``: for each instruction, the
largest errors over all 2**32 inputs (in units of the last place, relative and absolute), how many results are not the
nearest float, and a checksum of all results; and ``approximations_h200.npz``: the largest errors for each sign and
exponent of the input. References are computed on the GPU in double precision. ``--dense`` adds ``dense_*.npz``: results
of whole binades, for finding out how they are made.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from capture_instructions import header
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver, loader
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec


@dataclass(frozen=True)
class Swept:
    """One instruction of one 32-bit operand.

    Attributes:
        instruction: as PTX spells it.
        reference: C++, of a double x.
        ftz: subnormal inputs and results count as zeros.
        double_words: input and result are the upper halves of doubles.
    """

    instruction: str
    reference: str
    ftz: bool = False
    double_words: bool = False

    @property
    def entry(self) -> str:
        return self.instruction.replace(".", "_")


def _swept() -> list[Swept]:
    references = {
        "rcp": "1.0 / x", "sqrt": "sqrt(x)", "rsqrt": "1.0 / sqrt(x)", "sin": "sin(x)", "cos": "cos(x)",
        "lg2": "log2(x)", "ex2": "exp2(x)",
    }  # fmt: skip
    found = []
    for opcode, reference in references.items():
        found.append(Swept(f"{opcode}.approx.f32", reference))
        found.append(Swept(f"{opcode}.approx.ftz.f32", reference, ftz=True))
    found.append(Swept("tanh.approx.f32", "tanh(x)"))
    found.append(Swept("rcp.approx.ftz.f64", "1.0 / x", ftz=True, double_words=True))
    found.append(Swept("rsqrt.approx.ftz.f64", "1.0 / sqrt(x)", ftz=True, double_words=True))
    return found


SWEPT = _swept()
BINS = 512
"""By the upper nine bits of the input: sign and exponent of a float."""

DENSE = (
    ("rcp.approx.ftz.f32", 1.0, 1), ("rsqrt.approx.ftz.f32", 1.0, 2), ("sqrt.approx.ftz.f32", 1.0, 2),
    ("ex2.approx.ftz.f32", 1.0, 1), ("lg2.approx.ftz.f32", 0.5, 2), ("sin.approx.ftz.f32", 0.5, 2),
    ("cos.approx.ftz.f32", 1.0, 1), ("tanh.approx.f32", 2.0**-8, 11),
)  # fmt: skip
"""Instruction, first input and number of binades."""

HEADER = """
typedef unsigned long long u64;
__device__ u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
__device__ u64 best(u64 mine, double error, unsigned input) {
  u64 found = (u64)__float_as_uint((float)error) << 32 | input;
  return found > mine ? found : mine;
}
"""

FLOAT_KERNEL = """
__device__ unsigned do_{entry}(unsigned input) {{
  unsigned output;
  asm volatile("{instruction} %0, %1;" : "=r"(output) : "r"(input));
  return output;
}}
__device__ void judge_{entry}(unsigned input, unsigned output, u64* most, u64& unrounded, u64& odd) {{
  float given = __uint_as_float(input), got = __uint_as_float(output);
  if ({ftz} && fabsf(given) < 1.17549435e-38f) given = copysignf(0.f, given);
  double x = given, exact = {reference};
  float near = (float)exact;
  if ({ftz} && fabs(exact) < 1.1754943508222875e-38) near = copysignf(0.f, near), exact = got == 0 ? 0 : exact;
  bool number = near == near && got == got;
  if (number ? __float_as_uint(near) != output : (near == near) != (got == got)) unrounded++;
  if (!number || isinf(near) || isinf(got)) {{
    if ((near == near) != (got == got) || (number && near != got)) odd++;
    return;
  }}
  double error = fabs((double)got - exact);
  int exponent = exact == 0 ? -126 : max(ilogb(exact), -126);
  most[0] = best(most[0], ldexp(error, 23 - exponent), input);
  if (exact != 0) most[1] = best(most[1], error / fabs(exact), input);
  most[2] = best(most[2], error, input);
}}
"""

DOUBLE_KERNEL = """
__device__ unsigned do_{entry}(unsigned input) {{
  u64 output;
  asm volatile("{instruction} %0, %1;" : "=l"(output) : "l"((u64)input << 32));
  return (unsigned)(output >> 32);
}}
__device__ void judge_{entry}(unsigned input, unsigned output, u64* most, u64& unrounded, u64& odd) {{
  double x = __longlong_as_double((long long)((u64)input << 32));
  double got = __longlong_as_double((long long)((u64)output << 32));
  if (fabs(x) < 2.2250738585072014e-308) x = copysign(0.0, x);
  double exact = {reference};
  if (fabs(exact) < 2.2250738585072014e-308) exact = copysign(0.0, exact);
  bool number = exact == exact && got == got;
  if (!number || isinf(exact) || isinf(got) || exact == 0) {{
    if ((exact == exact) != (got == got) || (number && exact != got)) odd++;
    return;
  }}
  double error = fabs(got - exact) / fabs(exact);
  if (error > ldexp(1.0, -21)) unrounded++;
  most[0] = best(most[0], ldexp(fabs(got - exact), 20 - ilogb(exact)), input);
  most[1] = best(most[1], error, input);
}}
"""

SWEEP_KERNEL = """
extern "C" __global__ void sweep_{entry}(u64* out) {{
  unsigned bin = blockIdx.x / 64, first = blockIdx.x << 17;
  u64 most[3] = {{0, 0, 0}}, unrounded = 0, odd = 0, sum = 0;
  for (unsigned i = threadIdx.x; i < 1u << 17; i += blockDim.x) {{
    unsigned input = first + i, output = do_{entry}(input);
    sum += mix((u64)input << 32 | output);
    judge_{entry}(input, output, most, unrounded, odd);
  }}
  atomicAdd(out, sum);
  for (int i = 0; i < 3; i++) atomicMax(out + 1 + 5 * bin + i, most[i]);
  atomicAdd(out + 1 + 5 * bin + 3, unrounded);
  atomicAdd(out + 1 + 5 * bin + 4, odd);
}}
extern "C" __global__ void dump_{entry}(unsigned* out, unsigned first) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = do_{entry}(first + i);
}}
"""


def source() -> str:
    """All kernels."""
    text = HEADER
    for swept in SWEPT:
        fields = {
            "entry": swept.entry, "instruction": swept.instruction, "reference": swept.reference,
            "ftz": int(swept.ftz),
        }  # fmt: skip
        text += (DOUBLE_KERNEL if swept.double_words else FLOAT_KERNEL).format(**fields)
        text += SWEEP_KERNEL.format(**fields)
    return text


def sweep(module: driver.Module, swept: Swept) -> tuple[dict[str, object], np.ndarray]:
    """All inputs of one instruction: what is said of them together, and the largest errors of each bin."""
    found = np.zeros(1 + 5 * BINS, np.uint64)
    with driver.Allocation.from_array(found) as memory:
        spec = LaunchSpec(f"sweep_{swept.entry}", (BINS * 64, 1, 1), (256, 1, 1), (Pointer("out"),))
        packed = loader.PackedArguments(spec, {"out": memory.address})
        module.function(spec.entry).launch(spec, 0, packed.address)
        driver.synchronize()
        memory.to_host(found)
    table = found[1:].reshape(BINS, 5)
    errors = (table[:, :3] >> np.uint64(32)).astype(np.uint32).view(np.float32)
    summary = {
        "checksum": f"{int(found[0]):016x}",
        "not_nearest": int(table[:, 3].sum()),
        "odd": [[bin, int(count)] for bin, count in enumerate(table[:, 4]) if count],
        "largest": {
            name: {
                "error": float(errors[:, i].max()),
                "input": f"{int(table[int(errors[:, i].argmax()), i]) & 0xFFFFFFFF:08x}",
            }
            for i, name in enumerate(("ulp", "relative", "absolute"))
        },
    }
    return summary, errors


def dump(module: driver.Module, instruction: str, first: float, binades: int) -> np.ndarray:
    """Results for consecutive floats."""
    start, count = int(np.float32(first).view(np.uint32)), binades << 23
    found = np.zeros(count, np.uint32)
    with driver.Allocation.from_array(found) as memory:
        arguments = (Pointer("out"), Scalar("u32", start))
        spec = LaunchSpec(f"dump_{instruction.replace('.', '_')}", (count // 256, 1, 1), (256, 1, 1), arguments)
        packed = loader.PackedArguments(spec, {"out": memory.address})
        module.function(spec.entry).launch(spec, 0, packed.address)
        driver.synchronize()
        memory.to_host(found)
    return found


def compact(words: np.ndarray) -> dict[str, np.ndarray]:
    """Second differences as bytes, which compress, and the places where they do not fit."""
    first = np.diff(words.view(np.int32).astype(np.int64), prepend=0)
    second = np.diff(first, prepend=0)
    far = np.abs(second) > 127
    return {"bytes": np.where(far, 0, second).astype(np.int8), "places": np.flatnonzero(far), "values": second[far]}


def main() -> None:
    """Sweep, and dump if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dense", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    driver.enter()
    kernel = compile_source(Source(source(), f"sweep_{SWEPT[0].entry}", may_spill=True), driver.device_info().arch)
    with driver.Module(kernel.cubin) as module:
        found = {swept.instruction: sweep(module, swept) for swept in SWEPT}
        about = header() | {"instructions": {name: summary for name, (summary, _) in found.items()}}
        (options.out / "approximations_h200.json").write_text(json.dumps(about, indent=1) + "\n")
        np.savez_compressed(
            options.out / "approximations_h200.npz", **{name: errors for name, (_, errors) in found.items()}
        )
        for name, summary in about["instructions"].items():
            print(name, summary)
        if options.dense:
            for part, chosen in enumerate((DENSE[:3], DENSE[3:7], DENSE[7:])):
                arrays = {}
                for instruction, first, binades in chosen:
                    for name, array in compact(dump(module, instruction, first, binades)).items():
                        arrays[f"{instruction} {first} {name}"] = array
                np.savez_compressed(options.out / f"dense_{part}.npz", **arrays)


if __name__ == "__main__":
    main()
