"""simt-gemv: a few rows of D, or a few columns, on CUDA cores. B, or A, crosses DRAM once and no shared memory, in any
layout and alignment. With a few columns it computes the transpose of D: what is said of rows and of B here is meant of
the problem as the kernel sees it."""

from __future__ import annotations

from math import gcd

from warptile.arch import H200, MAX_THREADS
from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config, KernelSpec, View
from warptile.rungs.legality import blocks, ceil_div, grid_reason, operand_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.orientation import SWAP, fewer_columns, seen, swap_reason, view
from warptile.rungs.parts_of_k import parts_reason, shared_by_blocks
from warptile.rungs.simt import STATIC_SHARED_BYTES, SimtRung

KEYS = ("BM", "BN", "BK", "WARPS", "SPLITS", SWAP)
ROWS = (1, 2, 4, 8)
"""Rows of a tile."""

LANES, COLUMNS, DEPTH, LOADS = 32, 4, 8, 4
"""Lanes of a warp; columns of a thread where B is K-major; its elements along K, and loads along N, where it is not."""

WARPS = {1: 8, 2: 4, 4: 4, 8: 2}
"""Warps of a block by rows of its tile, where B is K-major."""

ROW_MAJOR_WARPS, MOST_SHARED_BYTES = (8, 4, 2, 1), 32 * 1024
"""Warps of a block where it is not: as many as share their sums in so many bytes."""

UNSPLIT_BYTES, SPLIT_BYTES = 192 * 16, 1024 * 16
"""Bytes that the threads of an SM load at once, one load each, from which on K is not split; and how many it is split
for. Estimates, as are the constants below without a source."""

MOST_SPLITS, FEWEST_STEPS = 64, {"col": 4, "row": 1}
"""Parts of K at most, and steps along K that each has at least, by B's major."""

THREADS_OF_SM = 2048
"""Threads that an SM holds: CUDA C++ Programming Guide, "Technical specifications per compute capability"."""

MOST_ROWS_IN_BOTH, MOST_ROWS_UNALIGNED = 1, 4
"""Rows up to which plans take it whatever B's layout and type, and where no load of B can have 16 bytes."""

MOST_PREFERRED = 4
"""Rows up to which no other kernel is looked at where K is contiguous in B and not in A, or elements have 64 bits."""

STEP_CLOCKS, MEETING_CLOCKS = 700.0, 2500.0
"""Clocks that two steps wait for their loads; and in which blocks that share a tile meet."""

FURTHER_ROW = {("col", 4): 0.03, ("col", 2): 0.08, ("row", 4): 0.1, ("row", 2): 0.3}
BY_COLUMNS = 0.22
"""Share of the time of reading B that each row of D after the first one adds, by B's major and bytes of an element; and
where K is contiguous in B and not in A."""


class SimtGemv(SimtRung):
    """Matrix-vector products, of up to eight vectors at a time."""

    name = "simt-gemv"
    idea = "no tile is staged: B goes straight into registers, which multiply it with all rows of A"
    previous = "simt-naive"
    dtypes = ("float32", "float16", "bfloat16", "float64", "int8", "uint8")
    mechanism = Mechanism(staged=False)
    keys = KEYS
    not_compiled = (SWAP,)
    estimates = True
    competes = True
    batches = True

    def threads(self, config: Config) -> int:
        """Threads of a CTA."""
        return LANES * config["WARPS"]

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """As `SimtRung.widths`: elements of one load of A and of B."""
        widths = ("A_WIDTH", _a_width(problem, config)), ("B_WIDTH", _b_width(problem))
        return *widths, ("D_COLUMN_MAJOR", problem.d.major == "col")

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        swap = fewer_columns(problem)
        problem = seen(problem, swap)
        bm = next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])
        width = _b_width(problem)
        if problem.b.major == "col":
            warps, bn = WARPS[bm], min(COLUMNS, problem.n)
            if problem.k < 2 * LANES * warps * width:
                warps = max(1, warps // 2)
            bk = LANES * warps * width
        else:
            bn = LANES * width * min(LOADS, _of_16_bytes(problem) // width)
            fit = MOST_SHARED_BYTES // (bm * bn * problem.accumulator.bits // 8)
            warps = next(each for each in ROW_MAJOR_WARPS if each <= fit)
            bk = DEPTH * warps
        config = {"BM": bm, "BN": bn, "BK": bk, "WARPS": warps, "SPLITS": 1, SWAP: swap}
        loaded = blocks(problem, config) * self.threads(config) * width * problem.b.dtype.bits // 8
        if loaded < device.sms * UNSPLIT_BYTES:
            wanted = ceil_div(device.sms * SPLIT_BYTES, loaded)
            most = ceil_div(problem.k, bk) // FEWEST_STEPS[problem.b.major]
            config["SPLITS"] = max(1, min(wanted, most, MOST_SPLITS))
        return config

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: other numbers of parts of K."""
        own = self.default_config(problem, device)
        parts = (own["SPLITS"], 1, 2, 4, 8, 16, 32, MOST_SPLITS)
        return tuple({**own, "SPLITS": each} for each in dict.fromkeys(parts))

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        swap = fewer_columns(problem)
        b, k_major = (problem.a, "row") if swap else (problem.b, "col")  # the kernel's B
        few, columns, bytes_, by_k = *sorted((problem.m, problem.n)), b.dtype.bits // 8, b.major == k_major
        most = MOST_ROWS_IN_BOTH
        if by_k and bytes_ >= 4:
            most = ROWS[-1]
        elif _widest(b, 0 if by_k else columns) * bytes_ < MAX_ALIGNMENT_BYTES:
            most = MOST_ROWS_UNALIGNED
        if few > most:
            lines, operand = ("columns", "an A") if swap else ("rows", "a B")
            return f"D has {few} {lines}; with such {operand} other kernels are faster from {most + 1} on"
        return None

    def preferred(self, problem: Problem) -> str | None:
        """Why kernels for more rows are not needed where this one is suitable; None where it is not."""
        as_seen = seen(problem, fewer_columns(problem))
        compared = _along_k_in_b_alone(as_seen) or as_seen.b.dtype.bits > 32
        if self.unsuitable(problem) is not None or (compared and as_seen.m > MOST_PREFERRED):
            return None
        few = min(problem.m, problem.n)
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
        return shared_by_blocks(one, config["SPLITS"], tile_bytes, at_run_time=False)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`: B once from DRAM, and beside it what further rows of A cost; or what blocks wait
        for their loads, those of an SM that do not fit at one time one after the other. Rates are the reference GPU's,
        instructions in proportion to SMs."""
        problem = seen(problem, config[SWAP])
        splits, bytes_ = config["SPLITS"], problem.a.dtype.bits // 8
        moved = (problem.n + problem.m) * problem.k * bytes_
        moved += problem.m * problem.n * problem.d.dtype.bits // 8 * (2 if problem.reads_matrix_c else 1)
        moved *= problem.batch
        of_row = FURTHER_ROW[problem.b.major, 4 if bytes_ >= 4 else 2]
        further = (max(of_row, BY_COLUMNS) if _along_k_in_b_alone(problem) else of_row) * (problem.m - 1)
        at_once = max(1, THREADS_OF_SM // self.threads(config)) * device.sms
        steps = ceil_div(ceil_div(problem.k, splits), config["BK"])
        waves = ceil_div(blocks(problem, config) * splits, at_once)
        waited = waves * (2 + steps) / 2 * STEP_CLOCKS + (MEETING_CLOCKS if splits > 1 else 0.0)
        terms = {
            "dram": moved / H200.dram_bytes_per_s * 1e6,
            "issue": moved / H200.dram_bytes_per_s * 1e6 * further * H200.multiprocessors / device.sms,
            "latency": waited / H200.clock_hz * 1e6,
            "launch": H200.launch_s * 1e6,
        }
        return terms, max(terms["dram"] + terms["issue"], terms["latency"]) + terms["launch"]


def _of_16_bytes(problem: Problem) -> int:
    return MAX_ALIGNMENT_BYTES * 8 // problem.a.dtype.bits


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
    elif bk != DEPTH * warps:
        return f"BK is {bk}; {warps} warps take {DEPTH} rows of B each, so it must be {DEPTH * warps}"
    elif bn % (LANES * width):
        return f"BN is {bn}; a warp loads {LANES * width} columns at once, so it must be a multiple of that"
    shared = warps * bm * bn * problem.accumulator.bits // 8
    if shared > STATIC_SHARED_BYTES - 16:
        return f"sums of {warps} warps take {shared} bytes; without opting in a block has {STATIC_SHARED_BYTES}"
    if problem.k >= 2**31 - 2 * bk:
        return f"K is {problem.k}; with steps of {bk} it takes less than {2**31 - 2 * bk}"
    if splits > ceil_div(problem.k, bk):
        return f"SPLITS is {splits}; K of {problem.k} has {ceil_div(problem.k, bk)} steps of {bk}"
    return parts_reason(blocks(problem, config), splits)


SIMT_GEMV = SimtGemv()
"""GEMMs with up to eight rows or columns."""
