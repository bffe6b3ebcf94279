"""Assembles every form of `warptile.isa.forms` for every architecture and names the machine instructions.

``python -m warptile.bench.campaign.survey_forms`` writes the table. It needs NVRTC and nvdisasm and no GPU. Each form
is alone in a kernel that loads all operands and stores all results; what an empty one has too is not counted.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from warptile.bench.campaign.survey_machine_code import REASON, instructions_of
from warptile.codegen.nvrtc import compile_source, compiler_version, disassemble
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa.catalogue import FORMS
from warptile.isa.forms import ARCHITECTURES, FILE, Assembled, Form, to_json

_OPERANDS = {
    "d": ("unsigned", "+r"), "state": ("unsigned long long", "+l"), "shared": ("unsigned", "r"),
    "peer": ("unsigned", "r"), "bar": ("unsigned", "r"), "x": ("unsigned", "r"), "size": ("unsigned", "r"),
    "mask": ("unsigned short", "h"), "global": ("unsigned long long", "l"), "map": ("unsigned long long", "l"),
    "word": ("unsigned long long", "l"),
}  # fmt: skip
"""Type and constraint of each placeholder."""


_MOVING = re.compile(
    r"(?:U?LDC|LDCU|LDG|STG|U?MOV|CS2R|S2U?R|R2UR|U?IADD3?|IMAD|HFMA2|SEL|EXIT|BRA|NOP|BSSY|BSYNC|F2I)\b"
)
"""What loads, stores and moves operands and results of an example."""

_PREPARING = re.compile(r"(?:U?SHF|U?PRMT|U?LOP3|PLOP3|U?ISETP|ELECT|VOTEU?)\b")
"""What only makes operands ready, where there is anything else."""


def kernel(name: str, example: str) -> str:
    """CUDA C++ of a kernel with one form."""
    text = example
    for number, operand in enumerate(_OPERANDS):
        text = text.replace(f"<{operand}>", f"%{number}")
    loads = [
        f"{kind} {operand}_ = *(volatile {kind}*)(p + {16 * number});"
        for number, (operand, (kind, _)) in enumerate(_OPERANDS.items())
    ]
    places = [f'"{constraint}"({operand}_)' for operand, (_, constraint) in _OPERANDS.items()]
    stores = [f"*(volatile {_OPERANDS[each][0]}*)p = {each}_;" for each in ("d", "state")]
    body = f'asm volatile("{{ .reg .pred q; {text} }}" : {", ".join(places[:2])} : {", ".join(places[2:])} : "memory");'
    start = f'extern "C" __global__ void __launch_bounds__(128, 1) {name}(volatile char* p) {{'
    return "\n".join([start, *loads, body, *stores, "}\n"])


def assemble(arch: str, forms: Sequence[Form]) -> Iterator[tuple[Form, Assembled]]:
    """What each form becomes on ``arch``.

    Raises:
        UnsupportedError: nvdisasm is not installed.
    """
    empty = kernel("empty", "")
    kernels = {f"k{number}": kernel(f"k{number}", form.example) for number, form in enumerate(forms)}
    try:
        together = _machine_code(empty + "".join(kernels.values()), arch)
    except CompileError:
        together = {}
    for (name, text), form in zip(kernels.items(), forms, strict=True):
        try:
            found = together or _machine_code(empty + text, arch)
        except CompileError as error:
            said = REASON.search(error.log)
            yield form, Assembled((), said["text"].strip() if said else str(error))
            continue
        more = Counter(found[name]) - Counter(found["empty"])
        new = [each for each in dict.fromkeys(found[name]) if each in more and each.startswith(form.own)]
        some = [each for each in new if not _MOVING.match(each)]
        yield form, Assembled(tuple([each for each in some if not _PREPARING.match(each)] or some))


def _machine_code(text: str, arch: str) -> dict[str, list[str]]:
    return instructions_of(disassemble(compile_source(Source(text, "empty", may_spill=True), arch, cache=None).cubin))


def main() -> int:
    """Write the table."""
    found = {arch: {form.name: made for form, made in assemble(arch, FORMS)} for arch in ARCHITECTURES}
    FILE.write_text(to_json(compiler_version(), found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
