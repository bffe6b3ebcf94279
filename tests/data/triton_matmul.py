"""The source of triton_matmul*.ptx: persistent products on tensor copies and wgmma (Triton 3.6.0, no GPU needed).

``python triton_matmul.py`` writes them beside itself. The part of the PTX behind the kernel, debug information with
the paths of the machine that compiled it, is left out.
"""

from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BM, BN, BK = 128, 64, 64


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Descriptors from the host: each is the tensor map, then extents and strides of the tensor."""
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in tl.range(0, tl.cdiv(K, BK)):
            total = tl.dot(a.load([row, k * BK]), b.load([k * BK, column]), total)
        c.store([row, column], total.to(tl.float16))


@triton.jit
def specialized(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One warpgroup copies and two multiply; the kernel makes its descriptors itself, in global scratch memory."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in tl.range(0, tl.cdiv(K, BK)):
            total = tl.dot(left.load([row, k * BK]), right.load([k * BK, column]), total)
        out.store([row, column], total.to(tl.bfloat16))


def described(operands, result):
    a, b, c = (f"{operands}[{BM}, {BK}]", f"{operands}[{BK}, {BN}]", f"{result}[{BM}, {BN}]")
    return [f"tensordesc<{each}>" for each in (a, b, c)]


def compiled(kernel, types):
    signature = dict(zip("abc", types, strict=True))
    signature |= dict.fromkeys("MNK", "i32") | dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    source = ASTSource(kernel, signature, {"BM": BM, "BN": BN, "BK": BK})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3})


if __name__ == "__main__":
    for name, *arguments in (
        ("triton_matmul", matmul, described("fp16", "fp16")),
        ("triton_matmul_e4m3", matmul, described("fp8e4nv", "fp16")),
        ("triton_matmul_specialized", specialized, ["*bf16"] * 3),
    ):
        made = compiled(*arguments)
        text, _, _ = made.asm["ptx"].partition("\t.section\t.debug")
        for file in (Path(__file__), Path(tl.__file__).parent / "standard.py"):
            text = text.replace(str(file), file.name)
        Path(__file__).with_name(f"{name}.ptx").write_text(text)
        facts = made.metadata
        print(name, facts.num_warps, facts.shared, facts.global_scratch_size, facts.tensordesc_meta)
