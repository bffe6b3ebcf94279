"""Claims about instructions: shapes and types by architecture, and what the assembler makes of them."""

from __future__ import annotations

from warptile.bench.report.claims import probes
from warptile.bench.report.claims.fact import COMPILER, LAYOUTS, SASS, Answer, Fact
from warptile.isa import forms, machine_code, wgmma
from warptile.isa.machine_code import ARCHITECTURES, Outcome

A100, ADA, HOPPER = "sm_80", "sm_89", "sm_90a"

_MMA_OF_A100 = (
    "m16n8k8.f32.f16", "m16n8k8.f32.bf16", "m16n8k16.f32.f16", "m16n8k16.f32.bf16", "m16n8k4.f32.tf32",
    "m16n8k8.f32.tf32", "m16n8k16.s32.s8", "m16n8k32.s32.s8", "m16n8k32.s32.s4", "m16n8k64.s32.s4", "m8n8k4.f64.f64",
)  # fmt: skip
_WMMA_OF_A100 = (
    "m16n16k16.f32.f16", "m32n8k16.f32.f16", "m8n32k16.f32.f16", "m16n16k16.f32.bf16", "m16n16k8.f32.tf32",
    "m16n16k16.s32.s8", "m8n8k32.s32.s4", "m8n8k4.f64.f64",
)  # fmt: skip
_FIRST = {"bf16": "mma.m16n8k8.f32.bf16", "tf32": "mma.m16n8k4.f32.tf32", "s8": "mma.m8n8k16.s32.s8"}
_WMMA_F16 = ("wmma.m16n16k16.f32.f16", "wmma.m32n8k16.f32.f16", "wmma.m8n32k16.f32.f16")


def _on(arch: str, name: str) -> Outcome:
    return machine_code.table().of(arch, name)


def _native_on(name: str) -> list[str]:
    """Architectures whose tensor cores execute an instruction."""
    return [arch for arch in ARCHITECTURES if _on(arch, name).status == "native"]


def _count(name: str, arch: str) -> str:
    """What an instruction becomes, such as ``2 HMMA.16816.F32``, or ``2 HMMA.1688.F32 + 30 other``."""
    return str(_on(arch, name))


def _shapes_of_a100() -> Answer:
    names = [f"mma.{name}" for name in _MMA_OF_A100] + [f"wmma.{name}" for name in _WMMA_OF_A100]
    native = sum(_on(A100, name).status == "native" for name in names)
    return Answer(f"{native} of {len(names)} are native on {A100}", native == len(names))


def _first_of_types() -> Answer:
    first = {element: _native_on(name)[0] for element, name in _FIRST.items()}
    found = ", ".join(f"{element} from {arch} on" for element, arch in first.items())
    return Answer(found, first == {"bf16": "sm_80", "tf32": "sm_80", "s8": "sm_75"})


def _int4() -> Answer:
    name = "mma.m8n8k32.s32.s4"
    native = _native_on(name)
    return Answer(f"native on {', '.join(native)}; {HOPPER}: {_count(name, HOPPER)}", HOPPER in native, A100 in native)


def _int1() -> Answer:
    name = "mma.m16n8k256.s32.b1.and"
    native = _native_on(name)
    return Answer(f"AND of m16n8k256 is native on {', '.join(native)}", not {A100, ADA, HOPPER} & set(native))


def _float8() -> Answer:
    ada, hopper = _on(ADA, "mma.m16n8k32.f32.e4m3"), _on(HOPPER, "mma.m16n8k32.f32.e4m3")
    group = machine_code.table().of_group(HOPPER, "wgmma.m64n128k32.f32.e4m3")
    found = f"{ADA} `mma`: {ada}; {HOPPER} `wgmma`: {group}, `mma`: {hopper}"
    return Answer(found, ada.status == "native" and "native" in (group.status, hopper.status))


def _float64_of_ada() -> Answer:
    name = "mma.m8n8k4.f64.f64"
    return Answer(f"{ADA}: {_count(name, ADA)}", _on(ADA, name).status != "native")


def _wmma_is_two() -> Answer:
    counts = {sum(_on(HOPPER, name).tensor.values()) for name in _WMMA_F16}
    found = f"{_count(_WMMA_F16[0], HOPPER)}, for each of the three shapes; sm_75: {_count(_WMMA_F16[0], 'sm_75')}"
    return Answer(found, counts == {2} and all("16816" in name for name in _on(HOPPER, _WMMA_F16[0]).tensor))


def _one_tile_one_instruction() -> Answer:
    fewest = min(sum(_on(arch, _WMMA_F16[0]).tensor.values()) for arch in ARCHITECTURES)
    return Answer(f"{fewest} instructions at least, on any architecture", fewest == 1)


def _ampere_shapes() -> Answer:
    first = {shape: _native_on(f"mma.{shape}.f32.f16")[0] for shape in ("m16n8k8", "m16n8k16")}
    found = ", ".join(f"{shape} from {arch} on" for shape, arch in first.items())
    return Answer(found, set(first.values()) == {A100})


def _ldmatrix_is_older() -> Answer:
    refused = probes.refusal(probes.LDMATRIX, "probe<0>", "sm_75")
    return Answer(f"compiles for sm_75{': ' + refused if refused else ''}", bool(refused))


def _illegal_shape() -> Answer:
    refused = probes.refusal(probes.ILLEGAL_SHAPE, "probe<0>", HOPPER)
    slow = [name for name, outcome in machine_code.table().outcomes[HOPPER].items() if outcome.status == "emulated"]
    found = f"ptxas refuses m16n8k32 of f16; but {len(slow)} legal instructions are emulated on {HOPPER}"
    return Answer(found, bool(refused))


def _group_columns() -> Answer:
    wanted = set(wgmma.EVERY_EIGHT)
    found = {family.types[0]: len(wanted & set(family.columns)) for family in wgmma.FAMILIES}
    floats = {found[element] for element in ("f16", "bf16", "tf32", "e4m3")}
    value = f"{len(wanted)} values of n for f16, bf16, tf32 and FP8; {found['s8']} of them for s8"
    return Answer(value, floats == {len(wanted)} and found["s8"] == len(wanted))


def _group_k() -> Answer:
    k = {family.types[0]: family.k for family in wgmma.FAMILIES}
    claimed = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "s8": 32}
    return Answer(", ".join(f"{element} {k[element]}" for element in claimed), claimed.items() <= k.items())


def _group_operands() -> Answer:
    refused = {
        operands: bool(probes.refusal(text, "probe<0>", HOPPER)) for operands, text in probes.WGMMA_OPERANDS.items()
    }
    words = {"shared, shared": "both", "register, shared": "A in registers", "shared, register": "B in registers"}
    found = "; ".join(f"{words[operands]}: {'refused' if no else 'compiles'}" for operands, no in refused.items())
    return Answer(found, not refused["shared, shared"])


def _tensor_copy() -> Answer:
    table = forms.table().found[HOPPER]
    names = [f"cp.async.bulk.tensor.{rank}d.shared::cluster.global" for rank in range(1, 6)]
    single = [name for name in names if len(table[name].machine) == 1]
    return Answer(f"1 to {len(names)} dimensions: {', '.join(table[name].machine[0] for name in single)}",
                   single == names)  # fmt: skip


FACTS = (
    Fact("T1", "eleven shapes and types of mma.sync and eight of WMMA are native", "A100", SASS, _shapes_of_a100,
         "Each compiles to one family of tensor-core instructions and nothing else ([all "
         "instructions](isa.md#what-an-instruction-compiles-to))."),
    Fact("T1", "BF16 and TF32 need Ampere, INT8 needs Turing", "", SASS, _first_of_types,
         "Volta, which the table of the text also has, is no longer a target of NVRTC 13."),
    Fact("T1", "INT4 runs on the tensor cores from Turing to Hopper", "mma.sync, H100", SASS, _int4,
         "Hopper unpacks nibbles to bytes and multiplies them as INT8, at a fraction of its rate."),
    Fact("T1", "INT1 is on Turing alone", "A100, L40S, H100", SASS, _int1,
         "Ampere added AND and the larger shapes. Hopper keeps AND and makes XOR of two; Blackwell drops both."),
    Fact("T1", "FP8 is on Ada and Hopper", "H100", SASS, _float8,
         "On Hopper the unit belongs to `wgmma`; `mma.sync` converts to f16, at no gain in speed."),
    Fact("T1", "Ada's tensor cores have no FP64", "L40S", SASS, _float64_of_ada,
         "The CUDA C++ Programming Guide lists fp64 for the tensor cores of 8.9 too. A datasheet without such a figure "
         "speaks of the rate."),
    Fact("T0", "a WMMA of any of the three f16 shapes becomes two 16 x 8 x 16 HMMA", "H100", SASS, _wmma_is_two,
         "Turing, whose instruction has k = 8, takes four."),
    Fact("T2", "one tensor-core instruction computes a whole 16 x 16 tile", "f16", SASS, _one_tile_one_instruction,
         "16 x 16 is the tile of the C++ call; the instruction's own is 16 x 8."),
    Fact("T4", "m16n8k8 and m16n8k16 of f16 came with Ampere", "", SASS, _ampere_shapes,
         "The smaller one is Turing's own shape: 1688 in the name of its machine instruction."),
    Fact("T4", "`ldmatrix` came with Ampere", "", COMPILER, _ldmatrix_is_older,
         "The PTX ISA requires sm_75; what Ampere brought is `cp.async`."),
    Fact("T4", "an illegal shape is an error of the compiler, never a slow path", "f16", COMPILER, _illegal_shape,
         "The reverse does not follow: a legal shape may be slow where a later generation dropped its unit."),
    Fact("T1", "n of `wgmma` is any multiple of 8 from 8 to 256", "f16, bf16, tf32, FP8, INT8", LAYOUTS,
         _group_columns,
         "Integers above 24 columns take multiples of 16 only (PTX ISA, \"Register fragments and shared memory matrix "
         "layouts\")."),
    Fact("T1", "k of `wgmma` is 16 for 16-bit floats, 8 for TF32, 32 for FP8 and INT8", "", LAYOUTS, _group_k,
         "It is always 32 bytes; 256 for bits, which the text leaves out."),
    Fact("T4", "`wgmma` reads its operands from shared memory", "A and B", COMPILER, _group_operands,
         "B always does, A may come from registers, as in T1's example."),
    Fact("T1", "a TMA copy of a multi-dimensional tile is one instruction", "", SASS, _tensor_copy,
         "Addresses, bounds and the swizzle come from the tensor map."),
)  # fmt: skip
