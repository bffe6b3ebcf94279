"""Claims about rates and arithmetic intensity: operations of an instruction, of an SM per clock, of a byte."""

from __future__ import annotations

from warptile.arch import H200
from warptile.bench.report.claims.fact import ARITHMETIC, LIMITS, Answer, Fact
from warptile.isa import mma, wgmma

TENSOR_CORES = 4
"""Of an SM of A100 and H100."""

DENSE_A100, DENSE_H100 = 256, 512
"""Multiply-adds of f16 per clock of one tensor core: NVIDIA A100 and H100 Tensor Core GPU Architecture."""

WARP = 32

T4_TENSOR_GFLOPS, T4_FP32_GFLOPS, T4_GB_PER_S = 49_000, 7_455, 220
"""Rates of a Tesla T4 as T0 states them, measured by the author of the text that it follows."""


def _multiply_adds(shape: str) -> int:
    found = mma.find(shape, "f16")
    assert found is not None
    return found.flops // 2


def _within(found: float, claimed: float, share: float) -> bool:
    return abs(found / claimed - 1) <= share


def _smallest() -> Answer:
    found = 4 * 4 * 4
    return Answer(f"{found} multiply-adds, {2 * found} operations", found == 128)


def _cycles() -> Answer:
    clocks = _multiply_adds("m16n8k16") / DENSE_A100
    found = f"{clocks:.0f} clocks: {_multiply_adds('m16n8k16')} multiply-adds at {DENSE_A100} per clock"
    return Answer(found, clocks == 1)


def _peak_of_a100() -> Answer:
    found = 432 * DENSE_A100 * 2 * 1.41e9 / 1e12
    return Answer(f"{found:.1f} TFLOP/s", _within(found, 312, 0.01))


def _peak_of_h100() -> Answer:
    published = TENSOR_CORES * DENSE_H100
    clock_ghz = 989e3 / (2 * published * H200.multiprocessors)
    found = H200.wgmma_tflops["bfloat16"] * 1e12 / (2 * H200.multiprocessors * H200.clock_hz)
    value = f"{found:.0f} multiply-adds per SM and clock; 989 TFLOP/s are {published} at {clock_ghz:.2f} GHz"
    return Answer(value, _within(found, published, 0.02))


def _cuda_cores() -> Answer:
    ratio = H200.wgmma_tflops["bfloat16"] / H200.fp32_tflops
    return Answer(f"1 / {ratio:.1f}", _within(ratio, 10, 0.25))


def _per_thread() -> Answer:
    found = _multiply_adds("m16n8k16") // WARP
    return Answer(f"{found}, where FFMA has 1", found == 64)


def _worth() -> Answer:
    found = _multiply_adds("m16n8k16") // WARP
    return Answer(f"{found} FFMA, each of which does {WARP} multiply-adds for its warp", _within(found, 2000, 0.25))


def _tf32() -> Answer:
    group = H200.wgmma_tflops["tfloat32"] / H200.wgmma_tflops["bfloat16"]
    warp = H200.tensor_tflops["tfloat32"] / H200.tensor_tflops["bfloat16"]
    half = _within(group, 0.5, 0.1) and _within(warp, 0.5, 0.1)
    return Answer(f"{group:.2f} with `wgmma`, {warp:.2f} with `mma.sync`", half)


def _allowed_by_shared_memory() -> float:
    """How much faster `wgmma.sp` of m64n256k32 can be: clocks of its stored products, and of its operands' bytes."""
    shape = wgmma.by_name()["wgmma.sp.m64n256k32.f32.f16"][0]
    math = shape.flops * wgmma.WARPS / 2 / (TENSOR_CORES * DENSE_H100)
    operand_bytes = 2 * (wgmma.ROWS * shape.stored + shape.n * shape.k)
    return 2 * math / max(math, operand_bytes / H200.shared_bytes_per_clock_per_sm)


def _sparse() -> Answer:
    warp = H200.sparse_tflops["float16"] / H200.tensor_tflops["float16"]
    gains = f"{warp:.2f} with `mma.sp`; {H200.sparse_gain:.2f} with `wgmma.sp`, of {_allowed_by_shared_memory():.2f}"
    return Answer(f"{gains} that shared memory allows", _within(H200.sparse_gain, 2, 0.1), elsewhere=True)


def _group_of_mma() -> Answer:
    shape = wgmma.by_name()["wgmma.m64n64k16.f32.f16"][0]
    found = shape.flops * wgmma.WARPS // 2
    return Answer(f"{found:,}, {found // _multiply_adds('m16n8k16')} of m16n8k16",
                  found == 65_536 and found == 32 * _multiply_adds("m16n8k16"))  # fmt: skip


def _naive_intensity() -> Answer:
    operations, moved = 2 * 16 * 16 * 16, 2 * (16 * 16) * 2
    return Answer(f"{operations} / {moved} = {operations / moved:.0f} FLOP/byte", operations / moved == 4)


def _intensity(bm: int, bn: int, k: int) -> float:
    """FLOP per byte of a CTA tile that reads its rows of A and columns of B of 16-bit elements once."""
    return 2 * bm * bn * k / (2 * (bm + bn) * k)


def _tile_intensity() -> Answer:
    found = {_intensity(256, 256, k) for k in (32, 4096)}
    return Answer(f"{max(found):.0f} FLOP/byte for 256 x 256, whatever K is", found == {128.0})


def _balance() -> Answer:
    tensor, scalar = T4_TENSOR_GFLOPS / T4_GB_PER_S, T4_FP32_GFLOPS / T4_GB_PER_S
    here = H200.wgmma_tflops["float16"] * 1e12 / H200.dram_bytes_per_s
    found = f"{tensor:.0f}, {scalar:.0f} and {tensor / scalar:.1f} times; H200: {here:.0f}"
    return Answer(found, _within(tensor, 224, 0.03) and _within(scalar, 33, 0.03))


def _clears() -> Answer:
    reached, needed = _intensity(256, 256, 32), T4_TENSOR_GFLOPS / T4_GB_PER_S
    here = H200.wgmma_tflops["float16"] * 1e12 / H200.dram_bytes_per_s
    return Answer(f"{reached:.0f} is below {needed:.0f}, and below the H200's {here:.0f}", reached >= needed)


FACTS = (
    Fact("T1", "a 4 x 4 x 4 multiplication is 128 multiply-adds", "", ARITHMETIC, _smallest,
         "Operations, two to a multiply-add, were taken for multiply-adds."),
    Fact("T1", "a tensor core finishes a 16 x 8 x 16 multiplication each clock, 256 multiply-adds", "A100", ARITHMETIC,
         _cycles,
         "256 per clock is the rate behind the peak in the next row; the instruction has eight times as many."),
    Fact("T1", "432 tensor cores x 256 x 2 x 1.41 GHz are 312 TFLOP/s", "A100, f16", ARITHMETIC, _peak_of_a100,
         "The product is the datasheet's peak."),
    Fact("T0, T2", "the dense peak is 989 TFLOP/s", "H100 SXM, bf16; the H200 has the same SMs", LIMITS,
         _peak_of_h100,
         "The rate per clock is the published one; at its power cap an H200 runs below that clock."),
    Fact("T0, T2", "FP32 on CUDA cores has a tenth of that peak", "bf16 against f32", LIMITS, _cuda_cores,
         "67 TFLOP/s of the datasheet, which T4 quotes, are a fifteenth as well."),
    Fact("T0", "an HMMA is 64 multiply-adds for each thread", "m16n8k16", ARITHMETIC, _per_thread,
         "2048 over 32 lanes."),
    Fact("T4", "an `mma.sync` is worth about two thousand scalar FMA instructions", "m16n8k16", ARITHMETIC, _worth,
         "Instructions are issued for warps: 2048 is the count against one lane of an FFMA. T0 has it right."),
    Fact("T4", "a `wgmma` of m64n64k16 is 65,536 multiply-adds, 32 `mma.sync`", "f16", ARITHMETIC, _group_of_mma,
         "All four warps together; n = 256 has four times as many."),
    Fact("T4", "TF32 runs at half of BF16's rate", "H100", LIMITS, _tf32,
         "The published peaks differ by exactly two. Why `wgmma` stays below half of it was not found out."),
    Fact("T1", "2:4 sparsity doubles the rate in every type", "A100 datasheet; here f16 issue rates", LIMITS,
         _sparse,
         "Half of A is left out, nothing of B, which `wgmma.sp` reads from shared memory for more clocks than its math "
         "takes ([counters](counters.md#wgmma)). What holds `mma.sp` back was not found out."),
    Fact("T0", "two fragments of 16 x 16 halves are 2048 bytes, so that naive WMMA has 4 FLOP/byte", "per k-step",
         ARITHMETIC, _naive_intensity,
         "256 halves are 512 bytes, two fragments 1024. That `wmma-naive` is counted at 4 all the same has another "
         "cause: its 4-byte loads use half of each sector."),
    Fact("T0", "a staged tile has BM BN / (BM + BN) FLOP/byte, 128 for 256 x 256", "16-bit operands", ARITHMETIC,
         _tile_intensity,
         "K cancels: operations and bytes both grow with it."),
    Fact("T0", "tensor cores need 224 FLOP/byte, CUDA cores 33: 6.6 times less", "Tesla T4, DRAM", ARITHMETIC,
         _balance,
         "Peak over bandwidth, from the text's own figures for that GPU."),
    Fact("T0", "256 x 256 tiles clear the balance point of that GPU, given as 87", "Tesla T4, DRAM", ARITHMETIC,
         _clears,
         "224 was the balance a section earlier. Tiles of neighbouring CTAs are shared through L2, which is what makes "
         "up the difference."),
)  # fmt: skip
