"""The tables of the mma family: resources, speed, and the supported types."""

from __future__ import annotations

from functools import cache

from warptile.bench.protocol.measurements import SHARED_OPCODES, LadderCell, TypeCell
from warptile.bench.protocol.workloads import (
    B1,
    BF16,
    E4M3,
    E4M3_FAST,
    E5M2,
    E5M2_FAST,
    F16_F16,
    F16_F32,
    F64,
    LAYOUT_SIZE,
    MMA_SIZES,
    S4,
    S8,
    TF32,
    TYPE_GROUPS,
    TYPE_TABLE_RUNGS,
    U8,
    TypeGroup,
    default_config,
    limit_tflops,
    to_problem,
    type_table_key,
)
from warptile.bench.report.markdown import TableRow, markdown, number, percent, power
from warptile.bench.report.record_lookup import RecordLookup
from warptile.dtypes import DType, dtype
from warptile.rungs import RUNGS

NOT_YET = "*Not measured yet: `python -m warptile.bench.campaign.run` on a GPU writes the record.*\n"

WHEN = {
    F16_F32: "the default of inference and of activations that stay below 65504",
    F16_F16: "half the accumulator registers; the error grows with K",
    BF16: "training: float32's range, eight bits of significance",
    TF32: 'float32 data where three digits are enough: `precision="tf32"`',
    F64: "scientific computing; the error of a float64 dot product",
    E4M3: "scaled weights and activations in half the memory; on Hopper only `wgmma` runs at twice the f16 rate, "
    "`mma.sync` unpacks to f16",
    E4M3_FAST: "inference, where accumulators with 13 fraction bits are accurate enough",
    E5M2: "gradients: range before precision; as e4m3 on Hopper",
    E5M2_FAST: "the same, with accumulators of 13 fraction bits",
    S8: "quantised inference: exact accumulation",
    U8: "the same for unsigned data",
    S4: "4-bit weights; Hopper emulates it with int8 instructions, so it saves only memory",
    B1: "binary networks: Hopper has AND as one instruction, XOR (Hamming distance) takes several",
}
"""When each type is the right one."""


def family() -> list[str]:
    """Names of the mma rungs, in ladder order."""
    return [name for name, rung in RUNGS.items() if rung.family == "mma"]


def resources_table(lookup: RecordLookup) -> str:
    """Registers, shared memory and occupancy of each rung, and its bank conflicts."""
    rows: list[TableRow] = []
    for name in family():
        profile, cell = lookup.profile(name), lookup.cell(name, F16_F32, MMA_SIZES[0])
        resources = cell.resources if cell is not None else None
        counted = profile.counters if profile is not None else {}
        registers = profile.registers if profile is not None else resources.registers if resources else None
        occupancy = profile.occupancy if profile is not None else None
        conflicts = [number(counted.get(f"shared_{kind}_conflict_ratio"), 2) for kind in SHARED_OPCODES]
        rows.append(
            (
                f"`{name}`", number(registers, 0), number(resources.shared_bytes / 1024 if resources else None, 0),
                "–" if occupancy is None else f"{occupancy:.0f} %", *conflicts,
                (profile.top_stall if profile else None) or "–",
            )
        )  # fmt: skip
    header = (
        "rung",
        "registers",
        "shared KiB",
        "occupancy",
        "n-way conflicts, loads",
        "n-way conflicts, stores",
        "n-way conflicts, cp.async",
        "top stall",
    )
    return markdown(header, rows) + "\n" + (lookup.origins() or NOT_YET)


def speed_of(cell: LadderCell | None) -> str:
    """TFLOP/s and share of cuBLASLt's best, or why there are none."""
    if cell is None or cell.tflops is None:
        return "–" if cell is None else cell.failed or cell.note or "–"
    return f"{number(cell.tflops)} ({percent(cell.ratio.median if cell.ratio else None)})"


def sizes_table(lookup: RecordLookup) -> str:
    """TFLOP/s and share of cuBLASLt's best, sustained and cool; of the cool ones the share of what can be issued."""
    rows: list[TableRow] = []
    for group in (F16_F32, BF16):
        for name in family():
            row = [f"`{name}`", group.name]
            limited = None
            for size in MMA_SIZES:
                sustained, cool = lookup.cell(name, group, size), lookup.cell(name, group, size, cool=True)
                row += [speed_of(sustained), speed_of(cool)]
                if cool is not None and cool.tflops is not None:
                    limited = cool.tflops / limit_tflops(name, cool.problem)
            rows.append((*row, percent(limited)))
    regimes = [f"{size}, {regime}" for size in MMA_SIZES for regime in ("sustained", "cool")]
    header = ("rung", "types", *regimes, "cool, of the peak")
    return markdown(header, rows, right=2) + "\n" + (lookup.origins() or NOT_YET)


def types_table(lookup: RecordLookup) -> str:
    """Every type, in two tables: speed; then error, range, and when to use it."""
    rows: list[TableRow] = []
    errors: list[TableRow] = []
    for group in TYPE_GROUPS:
        element = dtype(group.dtype)
        for name in TYPE_TABLE_RUNGS:
            key = type_table_key(group, sparse=RUNGS[name].sparse)
            cell = lookup.type_cell(name, key)
            if cell is None and name != _first(group):
                continue
            cool = cell.tflops("cool") if cell else None
            rows.append(
                (
                    group.name, f"`{name}`", number(cool), number(cell.tflops("sustained") if cell else None),
                    number(limit_tflops(name, key), 0), percent(cool / limit_tflops(name, key) if cool else None),
                    percent(cell.of_baseline("sustained") if cell else None),
                )
            )  # fmt: skip
            errors.append(
                (
                    group.name, f"`{name}`", _error(cell.error if cell else None),
                    _error(cell.drawn_error if cell else None), _largest(element), _smallest(element), WHEN[group],
                )
            )  # fmt: skip
    speeds = (
        "type",
        "rung",
        "cool, TFLOP/s",
        "sustained, TFLOP/s",
        "peak issue rate",
        "cool, of the peak",
        "of cuBLASLt",
    )
    header = ("type", "rung", "error", "error with rounding", "largest", "smallest normal", "when to use it")
    text = markdown(speeds, rows, right=2) + "\n" + markdown(header, errors, right=2)
    return text + "\n" + (lookup.origins() or NOT_YET)


def layout_name(a_major: str, b_major: str) -> str:
    """A layout as a column's heading, such as ``TN: A row, B col``; BLAS's letters see our B first."""
    letters = ("T" if b_major == "col" else "N") + ("T" if a_major == "col" else "N")
    return f"{letters}: A {a_major}, B {b_major}"


@cache
def _first(group: TypeGroup) -> str:
    """The first rung of the table of types that takes a type: it has a row even where nothing was measured."""
    return next(
        name
        for name in TYPE_TABLE_RUNGS
        if not RUNGS[name].sparse
        and default_config(RUNGS[name], to_problem(type_table_key(group)), "sm_90a") is not None
    )


def _error(value: float | None) -> str:
    if value is None:
        return "–"
    return "exact" if value == 0 else f"{value:.1e}"


def _largest(element: DType) -> str:
    return power(element.largest)


def _smallest(element: DType) -> str:
    if element.kind == "float":
        return f"{2.0**element.min_exponent:.1e}"
    return str(-(1 << (element.bits - 1))) if element.kind == "int" else "0"


def layouts_table(lookup: RecordLookup) -> str:
    """TOP/s of each type in the four layouts, and the share of cuBLASLt's in the same one."""
    combinations = F16_F32.majors
    groups = [group for group in TYPE_GROUPS if _first(group) == TYPE_TABLE_RUNGS[0]]
    rows = [(group.name, *(_in_majors(lookup, group, *majors) for majors in combinations)) for group in groups]
    header = ("type", *(layout_name(*majors) for majors in combinations))
    return markdown(header, rows) + "\n" + (lookup.origins() or NOT_YET)


def _in_majors(lookup: RecordLookup, group: TypeGroup, a_major: str, b_major: str) -> str:
    if (a_major, b_major) not in group.majors:
        return "–"
    size = LAYOUT_SIZE
    return _in_one(lookup.layout_cell(TYPE_TABLE_RUNGS[0], group.key(size, size, size, b_major, a_major)))


def _in_one(cell: TypeCell | None) -> str:
    if cell is None:
        return "–"
    speed, share = cell.tflops("sustained"), cell.of_baseline("sustained")
    if speed is None:
        return cell.failed or "–"
    return number(speed) if share is None else f"{number(speed)} ({percent(share)})"
