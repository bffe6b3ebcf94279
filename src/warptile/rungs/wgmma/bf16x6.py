"""wgmma-bf16x6: float32 GEMMs with few rows or few columns on tensor cores, as accurate as float32, without a pass
before."""

from __future__ import annotations

from math import gcd

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, element_types, gemm_members
from warptile.rungs.legality import blocks, ceil_div, grid_reason, operand_reason
from warptile.rungs.orientation import SWAP, fewer_columns, seen, swap_reason, view
from warptile.rungs.parts_of_k import parts_reason, shared_by_blocks
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt_gemv import SIMT_GEMV
from warptile.rungs.tensor_tiles import stages_reason
from warptile.rungs.wgmma import bf16x6_cost, tiles
from warptile.rungs.wgmma.float32_split import LEAST_K

KEYS = ("BM", "BN", "BK", "STAGES", "MIN_BLOCKS", "SPLITS", SWAP)

SIZES = (
    (16, 128, 3, 2),
    (16, 64, 4, 4),
    (32, 128, 3, 2),
    (32, 64, 3, 4),
    (64, 128, 3, 2),
    (64, 64, 3, 3),
    (96, 128, 3, 1),
    (128, 128, 3, 1),
)
"""Rows and columns of tiles, stages, and for how many CTAs of an SM the compiler leaves registers, at most."""

BK = 32
"""K of a stage, after which products are promoted: added to float32 registers."""

CTAS_OF_SM = (1, 2, 4)
"""Into how many parts K is split: as many as give an SM so many CTAs."""

MOST_ROWS = 256
"""Rows of D up to which a plan looks at this rung, or columns with SWAP, unless K is short. Each tile of rows splits B
again; wgmma-split splits it once."""

SHORT_K = 256
"""K up to which a plan looks at it for any D: a short K hardly pays for the pass before wgmma-split."""

MOST_TILES_OF_ROWS = 8
"""Of a candidate: as many times is B split."""

MOST_SPLITS, LEAST_STAGES = 64, 4
"""Parts of K at most, and stages that each has at least."""

MOST_K = 2**31 - 1024
"""Stages that reach past the end of K, or are looked ahead to, are counted in 32 bits too."""

SLICES, SLICE_BYTES, ELEMENT_BYTES, VECTOR = 3, 2, 4, 4
K_OF_INSTRUCTION, COLUMNS_OF_WARPGROUP, MOST_BM = 16, 64, 256

FRAGMENT_REGISTERS, OTHER_REGISTERS, BATCH_REGISTERS, REGISTERS = 24, 24, 16, 65536
SHIFT_REGISTERS = {"row": 20, "col": 26}
"""Registers of a thread for slices of B, others beside sums, more for a batch, and those of an SM; and more where lines
of B are unaligned, by B's major. An estimate: see `_registers`."""


class WgmmaBf16x6(RankedRung):
    """The rung that splits float32 operands into three bfloat16 slices each, in registers."""

    family = "wgmma"
    name = "wgmma-bf16x6"
    idea = "float32 with few rows on tensor cores: warps split what they load into three bfloat16 slices"
    previous = "wgmma-split"
    dtypes = ("float32",)
    min_arch = tiles.CAPABILITY
    only_arch = "sm_90a"
    keys = KEYS
    competes = True
    batches = True

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: tiles with not too many rows, each with as many parts of K as fill the GPU."""
        found, swap = [], fewer_columns(problem)
        problem = seen(problem, swap)
        for bm, bn, stages, least in SIZES:
            if bm * MOST_TILES_OF_ROWS < min(problem.m, MOST_ROWS) or (bm > SIZES[0][0] and bm >= 2 * problem.m):
                continue
            config = {"BM": bm, "BN": bn, "BK": BK, "STAGES": stages}
            config["MIN_BLOCKS"] = max(1, min(least, REGISTERS // (self.threads(config) * _registers(problem, config))))
            count = max(blocks(problem, config), 1)
            most = max(min(MOST_SPLITS, problem.k // (BK * LEAST_STAGES)), 1)
            splits = {max(min(device.sms * ctas // count, most), 1) for ctas in CTAS_OF_SM}
            found += [{**config, "SPLITS": each, SWAP: swap} for each in sorted(splits)]
        return tuple(found)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        problem = seen(problem, config[SWAP])
        return bf16x6_cost.terms_us(
            problem, config, device.sms, a_in_vectors=_a_width(problem) > 1, b_in_vectors=_b_width(problem) > 1
        )

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        if problem.k < LEAST_K:
            return f"K is {problem.k}; below {LEAST_K} it is less accurate than a chain of multiply-adds"
        few = min(problem.m, problem.n)
        if few > MOST_ROWS and problem.k > SHORT_K:
            lines = "columns" if fewer_columns(problem) else "rows"
            return f"D has {few} {lines} and K is {problem.k}; from {MOST_ROWS + 1} on wgmma-split is faster"
        return SIMT_GEMV.preferred(problem)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, ("float32",), ("row", "col"), batches=True)
        reason = reason or swap_reason(config, KEYS)
        if reason is not None:
            return reason
        if problem.ieee:
            return "precision is 'ieee', which asks for float32 multiply-adds; leave it out"
        problem = seen(problem, config[SWAP])
        if not 0 < problem.k <= MOST_K:
            return f"K is {problem.k}; it takes 1 to {MOST_K}"
        bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config["SPLITS"]
        if bm % 8 or bm > MOST_BM:
            return f"BM is {bm}; an instruction takes 8 to {MOST_BM} rows of D, in steps of 8"
        if bn % COLUMNS_OF_WARPGROUP or bn > 4 * COLUMNS_OF_WARPGROUP:
            return f"BN is {bn}; a CTA has one to four warpgroups with {COLUMNS_OF_WARPGROUP} columns of D each"
        if bk % (2 * K_OF_INSTRUCTION):
            return f"BK is {bk}; columns of shared memory are {2 * K_OF_INSTRUCTION} elements or a multiple of that"
        if splits > ceil_div(problem.k, bk):
            return f"SPLITS is {splits}; K of {problem.k} has {ceil_div(problem.k, bk)} stages of {bk}"
        needed = _registers(problem, config)
        available = min(255, REGISTERS // (config["MIN_BLOCKS"] * self.threads(config)))
        if needed > available:
            return f"a thread needs about {needed} registers and has {available}; take a smaller BM or MIN_BLOCKS"
        return (
            grid_reason(problem, config)
            or parts_reason(blocks(problem, config), splits)
            or stages_reason(config)
            or tiles.shared_reason(_shared_bytes(problem, config))
        )

    def threads(self, config: Config) -> int:
        """Threads of a CTA: a warpgroup for 64 columns."""
        return config["BN"] // COLUMNS_OF_WARPGROUP * tiles.WARPGROUP

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        of_kernel = view(problem, config[SWAP])
        as_seen = of_kernel.problem
        values = (
            ("A_COLUMN_MAJOR", as_seen.a.major == "col"),
            ("B_COLUMN_MAJOR", as_seen.b.major == "col"),
            ("D_COLUMN_MAJOR", as_seen.d.major == "col"),
            ("A_WIDTH", _a_width(as_seen)),
            ("B_WIDTH", _b_width(as_seen)),
            # One kernel for any number of splits.
            *((key, config[key]) for key in KEYS if key not in ("SPLITS", SWAP)),
        )
        one = KernelSpec(
            problem,
            config,
            of_kernel,
            Instance(
                self.file,
                self.template,
                element_types(as_seen),
                values,
                instructions=(f"wgmma.m64n{config['BM']}k16.f32.bf16",),
            ),
            grid=(blocks(as_seen, config), 1, 1),
            block=(self.threads(config), 1, 1),
            params=Params(gemm_members(of_kernel)),
            dynamic_shared_bytes=_shared_bytes(as_seen, config),
            capability=tiles.CAPABILITY,
        )
        return shared_by_blocks(one, config["SPLITS"], config["BM"] * config["BN"] * ELEMENT_BYTES, device)


def _a_width(problem: Problem) -> int:
    """Elements of one load of A: four that a lane multiplies, where these are neighbours."""
    along_k = problem.a.major == "row" and problem.b.major == "col"
    return VECTOR if along_k and gcd(problem.a.vector_elements, problem.k) % VECTOR == 0 else 1


def _b_width(problem: Problem) -> int:
    """Elements of one copy of B to shared memory."""
    extent = problem.k if problem.b.major == "col" else problem.n
    return VECTOR if gcd(problem.b.vector_elements, extent) % VECTOR == 0 else 1


def _shared_bytes(problem: Problem, config: Config) -> int:
    """Stages of B as float32, padded as kernels/wgmma/bf16x6.cuh says, and two of A as slices; then the tile of D."""
    bm, bn, bk = config["BM"], config["BN"], config["BK"]
    column = bk + (8 if _b_width(problem) == 1 else 16)
    of_b = bn * column if problem.b.major == "col" else bk * (bn + 8)
    stages = config["STAGES"] * of_b * ELEMENT_BYTES + 2 * SLICES * bm * bk * SLICE_BYTES
    return max(stages, bm * (bn + (5 if problem.d.major == "col" else 4)) * ELEMENT_BYTES)


def _registers(problem: Problem, config: Config) -> int:
    """Registers that a thread needs, about: products and sums, slices of B, what it loads of A, and others; of a batch
    also the addresses of its matrices, which are no constants."""
    bm, bk = config["BM"], config["BK"]
    of_a = bm * bk // (2 * config["BN"])
    addresses = BATCH_REGISTERS if problem.batch > 1 else 0
    addresses += SHIFT_REGISTERS[problem.b.major] if _b_width(problem) == 1 else 0
    return bm + FRAGMENT_REGISTERS * bk // BK + 2 * of_a + OTHER_REGISTERS + addresses


WGMMA_BF16X6 = WgmmaBf16x6()
"""float32 GEMMs with 9 to 256 rows or columns."""
