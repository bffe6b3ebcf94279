"""simt-gemv: a few rows of D, or a few columns, and small problems, on CUDA cores. Operands cross no shared memory, and
B, or A, crosses DRAM once, in any layout and alignment. With fewer columns than rows it computes the transpose of D:
what is said of rows and of B here is meant of the problem as the kernel sees it."""

from __future__ import annotations

from math import gcd

from warptile.arch import MAX_THREADS
from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs import simt_gemv_cost
from warptile.rungs.kernel_spec import Config, KernelSpec, View
from warptile.rungs.legality import blocks, ceil_div, grid_reason, operand_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.orientation import SWAP, fewer_columns, seen, swap_reason, view
from warptile.rungs.parts_of_k import parts_reason, shared_by_blocks
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt import STATIC_SHARED_BYTES, SimtRung
from warptile.rungs.simt_gemv_cost import LANES

KEYS = ("BM", "BN", "BK", "WARPS", "SPLITS", SWAP)
ROWS = (1, 2, 4, 8)
"""Rows of a tile."""

COLUMNS, DEPTH, LOADS = 4, 8, 4
"""Columns of a thread where B is K-major; its elements along K, and loads along N, where it is not."""

NARROW_LANES, SECTOR_BYTES = 8, 32
"""Lanes along N of a narrower tile, where B is not K-major, if these load whole sectors: groups of lanes then share
K."""

WARPS, MOST_SHARED_BYTES = {"col": (8, 1), "row": (8, 2)}, 32 * 1024
"""Warps of a block by B's major, and bytes in which they share their sums, at most. With other numbers of warps beside
these, kernels are more, and 0.4 % faster (2026-11-29, no record)."""

UNSPLIT_BYTES, SPLIT_BYTES = 192 * 16, 1024 * 16
"""Bytes that the threads of an SM load at once, one load each, from which on K is not split; and how many it is split
for. Estimates, as are the constants below without a source."""

MOST_SPLITS, FEWEST_STEPS = 64, {"col": 4, "row": 1}
"""Parts of K at most, and steps along K that each has at least, by B's major."""

MOST_ROWS_IN_BOTH, MOST_ROWS_UNALIGNED = 1, 4
"""Rows up to which plans take it whatever B's layout and type, and where no load of B can have 16 bytes."""

IN_PLACE_BYTES = 60_000_000
"""Size of an unaligned B of 16-bit elements along N up to which wgmma-final, which reads it in place, is faster: from
four timings (2026-11-29, no record)."""

MOST_PREFERRED = 4
"""Rows up to which no other kernel is looked at then."""

MOST_PRODUCTS = {8: 1_500_000, 16: 1_500_000, 32: 40_000_000, 64: 1_000_000}
"""Multiply-adds up to which plans take it with any number of rows, by bits of an element: in small problems nothing is
faster than to load operands where they are needed, but tensor cores soon are, which float32 has none of. From timings
of some 300 problems (2026-11-29, no record)."""


class SimtGemv(RankedRung, SimtRung):
    """Matrix-vector products, of up to eight vectors at a time, and small GEMMs."""

    name = "simt-gemv"
    idea = "no tile is staged: B goes straight into registers, which multiply it with all rows of A"
    previous = "simt-naive"
    dtypes = ("float32", "float16", "bfloat16", "float64", "int8", "uint8")
    mechanism = Mechanism(staged=False)
    keys = KEYS
    not_compiled = ("SPLITS", SWAP)  # one kernel for any number of splits
    competes = True
    batches = True

    def threads(self, config: Config) -> int:
        """Threads of a CTA."""
        return LANES * config["WARPS"]

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """As `SimtRung.widths`: elements of one load of A and of B."""
        widths = ("A_WIDTH", _a_width(problem, config)), ("B_WIDTH", _b_width(problem))
        return *widths, ("D_COLUMN_MAJOR", problem.d.major == "col")

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: tiles of few rows, by as many warps as have a share of K, whole and in parts of K."""
        swap, found = fewer_columns(problem), []
        problem = seen(problem, swap)
        for bn, of_warp in _columns(problem):
            for bm in ROWS:
                if bm > 1 and bm >= 2 * problem.m:
                    break
                for warps in self._warps(problem, bm, bn, of_warp):
                    config = {"BM": bm, "BN": bn, "BK": of_warp * warps, "WARPS": warps, "SPLITS": 1, SWAP: swap}
                    found += [{**config, "SPLITS": splits} for splits in self._splits(problem, config, device)]
        return tuple(found)

    def _warps(self, problem: Problem, bm: int, bn: int, of_warp: int) -> tuple[int, ...]:
        """Warps of a block: many if each has a share of K and their sums fit; few otherwise and, where B is K-major and
        many blocks may keep SMs busy, beside them."""
        many, few = WARPS[problem.b.major]
        fits = many * bm * bn * problem.accumulator.bits // 8 <= MOST_SHARED_BYTES
        if not fits or many * of_warp >= 2 * problem.k:
            return (few,)
        return (many, few) if problem.b.major == "col" else (many,)

    def _splits(self, problem: Problem, config: Config, device: DeviceLimits) -> tuple[int, ...]:
        """Into how many parts K is shared out among blocks: one, and as many as load enough at a time."""
        loaded = blocks(problem, config) * self.threads(config) * _b_width(problem) * problem.b.dtype.bits // 8
        if loaded >= device.sms * UNSPLIT_BYTES:
            return (1,)
        wanted = ceil_div(device.sms * SPLIT_BYTES, loaded)
        most = ceil_div(problem.k, config["BK"]) // FEWEST_STEPS[problem.b.major]
        return tuple(sorted({1, max(1, min(wanted, most, MOST_SPLITS))}))

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        few, most = min(problem.m, problem.n), _most_rows(problem)
        products, small = problem.m * problem.n * problem.k * problem.batch, MOST_PRODUCTS[problem.a.dtype.bits]
        if few <= most or products <= small:
            return None
        lines, operand = ("columns", "an A") if fewer_columns(problem) else ("rows", "a B")
        return (
            f"D has {few} {lines}; with such {operand} other kernels are faster from {most + 1} on, unless a problem "
            f"has at most {small} products"
        )

    def preferred(self, problem: Problem) -> str | None:
        """Why kernels for more rows are not needed where this one is suitable; None where it is not."""
        few = min(problem.m, problem.n)
        if few > min(_most_rows(problem), MOST_PREFERRED):
            return None
        line, operand = ("column", "an A") if fewer_columns(problem) else ("row", "a B")
        return f"D has {few} {line}{'s' if few > 1 else ''}; simt-gemv reads such {operand} faster"

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, a_layouts=("row", "col"), batches=True)
        reason = reason or swap_reason(config, KEYS)
        if reason is not None:
            return reason
        as_seen = seen(problem, config[SWAP])
        return _order_reason(as_seen) or _tile_reason(as_seen, config) or grid_reason(as_seen, config)

    def view(self, problem: Problem, config: Config) -> View:
        """As `SimtRung.view`."""
        return view(problem, config[SWAP])

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        tile_bytes = config["BM"] * config["BN"] * problem.accumulator.bits // 8
        return shared_by_blocks(one, config["SPLITS"], tile_bytes, device)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        as_seen = seen(problem, config[SWAP])
        return simt_gemv_cost.terms_us(
            as_seen, config, device.sms, a_width=_a_width(as_seen, config), b_width=_b_width(as_seen)
        )


def _most_rows(problem: Problem) -> int:
    """Rows of D, or columns, up to which plans take it whatever the problem's size."""
    swap = fewer_columns(problem)
    b, k_major = (problem.a, "row") if swap else (problem.b, "col")  # the kernel's B
    columns, bytes_, by_k = max(problem.m, problem.n), b.dtype.bits // 8, b.major == k_major
    if by_k and bytes_ >= 4:
        return ROWS[-1]
    if _widest(b, 0 if by_k else columns) * bytes_ >= MAX_ALIGNMENT_BYTES:
        return MOST_ROWS_IN_BOTH
    in_place = not by_k and bytes_ == 2 and bytes_ * columns * problem.k < IN_PLACE_BYTES
    return 0 if in_place else MOST_ROWS_UNALIGNED


def _of_16_bytes(problem: Problem) -> int:
    return MAX_ALIGNMENT_BYTES * 8 // problem.a.dtype.bits


def _columns(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Columns of tiles, and how many elements along K a warp takes in a step."""
    width = _b_width(problem)
    if problem.b.major == "col":
        return ((min(COLUMNS, problem.n), LANES * width),)
    bn = LANES * width * min(LOADS, _of_16_bytes(problem) // width)
    while bn >= 2 * problem.n and bn > width:
        bn //= 2
    lanes = max(NARROW_LANES, SECTOR_BYTES * 8 // (width * problem.b.dtype.bits))
    narrow = min(bn, min(lanes, LANES) * width)
    return tuple((each, DEPTH * (LANES // min(LANES, each // width))) for each in dict.fromkeys((bn, narrow)))


def _a_width(problem: Problem, config: Config) -> int:
    """Elements of one load of A: what its alignment allows and divides a thread's elements of a step along K or, where
    columns are contiguous, M and BM."""
    if problem.a.major == "col":
        return gcd(problem.a.vector_elements, problem.m, config["BM"])
    return gcd(problem.a.vector_elements, _b_width(problem) if problem.b.major == "col" else DEPTH)


def _b_width(problem: Problem) -> int:
    """Elements of one load of B. One where it is along K and A is not: lanes then load neighbouring columns of A."""
    return 1 if _along_k_in_b_alone(problem) and problem.m > 1 else _widest_b(problem)


def _along_k_in_b_alone(problem: Problem) -> bool:
    """Whether B is contiguous along K, and A is not."""
    return problem.a.major == "col" and problem.b.major == "col"


def _widest_b(problem: Problem) -> int:
    """Elements of the widest load of B: what its alignment allows and, where it is along N, divides N."""
    return _widest(problem.b, 0 if problem.b.major == "col" else problem.n)


def _widest(b: Operand, along: int) -> int:
    """The same of an operand, ``along`` N or, where that is 0, along K."""
    return gcd(b.vector_elements, along, MAX_ALIGNMENT_BYTES * 8 // b.dtype.bits)


def _order_reason(problem: Problem) -> str | None:
    if problem.ieee:
        return "precision is 'ieee', which asks for one chain of multiply-adds along K; leave it out"
    return None


def _tile_reason(problem: Problem, config: Config) -> str | None:
    """Why threads cannot share a tile, or blocks K, or None: the static_asserts of kernels/simt/gemv.cuh."""
    bm, bn, bk, warps, splits = (config[key] for key in KEYS if key != SWAP)
    width = _b_width(problem)
    if warps > MAX_THREADS // LANES:
        return f"WARPS is {warps}; a block has at most {MAX_THREADS // LANES}"
    if problem.b.major == "col":
        unit = LANES * warps * width
        if bk % unit:
            return f"BK is {bk}; {warps} warps load {unit} elements along K at once, so it must be a multiple of that"
    else:
        lanes = min(LANES, bn // width)
        if bn % width or lanes < 1 or lanes & (lanes - 1) or bn % (lanes * width):
            return f"BN is {bn}; 1, 2, 4, ... or {LANES} lanes load {width} columns each: take {LANES * width}"
        groups = LANES // lanes * warps
        if bk != DEPTH * groups:
            return f"BK is {bk}; {groups} groups of lanes take {DEPTH} rows of B each, so it must be {DEPTH * groups}"
    shared = warps * bm * bn * problem.accumulator.bits // 8
    if shared > STATIC_SHARED_BYTES - 16:
        return f"sums of {warps} warps take {shared} bytes; without opting in a block has {STATIC_SHARED_BYTES}"
    if problem.k >= 2**31 - 2 * bk:
        return f"K is {problem.k}; with steps of {bk} it takes less than {2**31 - 2 * bk}"
    if splits > ceil_div(problem.k, bk):
        return f"SPLITS is {splits}; K of {problem.k} has {ceil_div(problem.k, bk)} steps of {bk}"
    return parts_reason(blocks(problem, config), splits)


SIMT_GEMV = SimtGemv()
"""GEMMs with up to eight rows or columns, and small ones."""
