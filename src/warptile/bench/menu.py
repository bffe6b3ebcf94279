"""The tables of the mma family: what it takes, its speed, and the precision menu."""

from __future__ import annotations

from functools import cache

from warptile.bench.found import Found
from warptile.bench.markdown import Row, markdown, number, percent, power
from warptile.bench.measurements import Cell, TypeCell
from warptile.bench.workloads import (
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
    MENU,
    MMA_SIZES,
    S4,
    S8,
    TF32,
    TYPE_GROUPS,
    U8,
    Group,
    default_config,
    limit_tflops,
    menu_key,
    to_problem,
)
from warptile.dtypes import DType, dtype
from warptile.rungs import RUNGS

NOT_YET = "*Not measured yet: `python -m warptile.bench.campaign` on a GPU writes the record.*\n"

WHEN = {
    F16_F32: "the default of inference and of activations that stay below 65504",
    F16_F16: "half the registers for sums, whose error grows with K",
    BF16: "training: float32's range, eight bits of significance",
    TF32: 'float32 data where three digits are enough: `precision="tf32"`',
    F64: "science; error as of a float64 dot product",
    E4M3: "scaled weights and activations at half the memory; `mma.sync` unpacks it to float16 on Hopper, where only "
    "`wgmma` multiplies it at twice the rate",
    E4M3_FAST: "the same where sums may keep the 13 bits of fraction that Hopper's units add with: inference",
    E5M2: "gradients: range before precision; as e4m3 on Hopper",
    E5M2_FAST: "the same with short sums",
    S8: "quantised inference: exact sums",
    U8: "the same for data without a sign",
    S4: "weights at four bits; Hopper emulates it on the int8 units, so only for memory",
    B1: "binary networks: AND is a machine instruction of Hopper, XOR (Hamming distances) is made of several",
}
"""When each type is the right one."""


def family() -> list[str]:
    """Names of the mma rungs, in ladder order."""
    return [name for name, rung in RUNGS.items() if rung.family == "mma"]


def resources_table(found: Found) -> str:
    """Registers, shared memory and occupancy of each rung, and its bank conflicts."""
    rows: list[Row] = []
    for name in family():
        profile, cell = found.profile(name), found.cell(name, F16_F32, MMA_SIZES[0])
        resources = cell.resources if cell is not None else None
        counted = profile.counters if profile is not None else {}
        registers = profile.registers if profile is not None else resources.registers if resources else None
        occupancy = profile.occupancy if profile is not None else None
        loads, stores = (counted.get(f"shared_{kind}_conflict_ratio") for kind in ("load", "store"))
        rows.append(
            (
                f"`{name}`", number(registers, 0), number(resources.shared_bytes / 1024 if resources else None, 0),
                "–" if occupancy is None else f"{occupancy:.0f} %", number(loads, 2), number(stores, 2),
                (profile.top_stall if profile else None) or "–",
            )
        )  # fmt: skip
    header = ("rung", "registers", "shared KiB", "occupancy", "load conflicts", "store conflicts", "top stall")
    return markdown(header, rows) + "\n" + (found.origins() or NOT_YET)


def speed_of(cell: Cell | None) -> str:
    """TFLOP/s and share of cuBLASLt's best, or why there are none."""
    if cell is None or cell.tflops is None:
        return "–" if cell is None else cell.failed or cell.note or "–"
    return f"{number(cell.tflops)} ({percent(cell.ratio.median if cell.ratio else None)})"


def sizes_table(found: Found) -> str:
    """TFLOP/s and share of cuBLASLt's best, sustained and cool; of the cool ones the share of what can be issued."""
    rows: list[Row] = []
    for group in (F16_F32, BF16):
        for name in family():
            row = [f"`{name}`", group.name]
            limited = None
            for size in MMA_SIZES:
                sustained, cool = found.cell(name, group, size), found.cell(name, group, size, cool=True)
                row += [speed_of(sustained), speed_of(cool)]
                if cool is not None and cool.tflops is not None:
                    limited = cool.tflops / limit_tflops(name, cool.problem)
            rows.append((*row, percent(limited)))
    regimes = [f"{size}, {regime}" for size in MMA_SIZES for regime in ("sustained", "cool")]
    header = ("rung", "types", *regimes, "of the limit")
    return markdown(header, rows, right=2) + "\n" + (found.origins() or NOT_YET)


def types_table(found: Found) -> str:
    """Every type: speed, error, range, and when to use it."""
    rows: list[Row] = []
    for group in TYPE_GROUPS:
        element = dtype(group.dtype)
        for name in MENU:
            key = menu_key(group, sparse=RUNGS[name].sparse)
            cell = found.type_cell(name, key)
            if cell is None and name != _first(group):
                continue
            cool = cell.tflops("cool") if cell else None
            rows.append(
                (
                    group.name, f"`{name}`", number(cool), number(cell.tflops("sustained") if cell else None),
                    number(limit_tflops(name, key), 0), percent(cool / limit_tflops(name, key) if cool else None),
                    percent(cell.of_baseline("sustained") if cell else None), _error(cell.error if cell else None),
                    _error(cell.drawn_error if cell else None), _largest(element), _smallest(element), WHEN[group],
                )
            )  # fmt: skip
    header = ("type", "rung", "cool", "sustained", "limit", "cool of limit", "of cuBLASLt", "error", "with rounding",
              "largest", "smallest normal", "when")  # fmt: skip
    marks = ("---", "---", *["---:"] * 9, "---")
    lines = "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows)) + "\n"
    return lines + "\n" + (found.origins() or NOT_YET)


@cache
def _first(group: Group) -> str:
    """The first rung of the menu that takes a type: it has a row even where nothing was measured."""
    return next(
        name
        for name in MENU
        if not RUNGS[name].sparse and default_config(RUNGS[name], to_problem(menu_key(group)), "sm_90a") is not None
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


def layouts_table(found: Found) -> str:
    """TOP/s of each type in the four combinations of majors, and the share of cuBLASLt's in the same one."""
    combinations = F16_F32.majors
    groups = [group for group in TYPE_GROUPS if _first(group) == MENU[0]]
    rows = [(group.name, *(_in_majors(found, group, *majors) for majors in combinations)) for group in groups]
    header = ("type", *(f"A {a}, B {b}" for a, b in combinations))
    return markdown(header, rows) + "\n" + (found.origins() or NOT_YET)


def _in_majors(found: Found, group: Group, a_major: str, b_major: str) -> str:
    if (a_major, b_major) not in group.majors:
        return "–"
    size = LAYOUT_SIZE
    return _in_one(found.layout_cell(MENU[0], group.key(size, size, size, b_major, a_major)))


def _in_one(cell: TypeCell | None) -> str:
    if cell is None:
        return "–"
    speed, share = cell.tflops("sustained"), cell.of_baseline("sustained")
    if speed is None:
        return cell.failed or "–"
    return number(speed) if share is None else f"{number(speed)} ({percent(share)})"
