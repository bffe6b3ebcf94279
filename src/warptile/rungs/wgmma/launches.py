"""What predictions depend on (`warptile.rungs.wgmma.cost.Launches`), of one configuration."""

from __future__ import annotations

from warptile.device import DeviceLimits
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.legality import ceil_div
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.wgmma import epilogue, residue_classes, tiles
from warptile.rungs.wgmma.cost import Launches


def launches_of(view: View, config: Config, device: DeviceLimits, *, filled: bool = False) -> Launches:
    """One launch, for a view of the problem. ``filled``: as of `Launches`."""
    seen = view.problem
    count, held, _ = epilogue.subtiles(seen, config, device) if config["OVERLAP"] else (1, 0, 0)
    of_a, of_b = seen.operand_matrices
    across = residue_classes.columns(seen, config)
    tiles_of_d = ceil_div(seen.m, config["BM"] * config["CM"]) * ceil_div(across, config["BN"] * config["CN"])
    residues = residue_classes.by_residue_class(seen, config)
    rows_apart = residue_classes.RESIDUE_CLASSES if residues else 1  # of neighbouring rows of a residue class
    return Launches(
        bm=config["BM"], bn=config["BN"], bk=config["BK"], stages=config["STAGES"], consumers=config["CONSUMERS"],
        cm=config["CM"], cn=config["CN"], splits=config["SPLITS"], sms=config["SMS"], swap=config["SWAP"],
        overlap=config["OVERLAP"], pingpong=config["PINGPONG"], stream=config["STREAM"],
        cluster_k=tiles.cluster_k(seen, config, device), held=held / count, m=seen.m, n=seen.n, k=max(seen.k, 1),
        batch=seen.batch, tiles=tiles_of_d * seen.batch, of_a=of_a, of_b=of_b,
        pitch_a=pitch_bytes(seen.a) // rows_apart, pitch_b=pitch_bytes(seen.b),
        pitch_d=pitch_bytes(seen.d) // rows_apart,
        a_by_k=int(seen.a.major == "row"), b_by_k=int(seen.b.major == "col"), d_by_column=int(seen.d.major == "col"),
        unaligned_a=int(tiles.takes_unaligned_a(seen, config)),
        by_tma=int(residue_classes.stores_by_tma(seen, config)), d_aligned=int(residue_classes.d_is_aligned(seen)),
        residues=int(residues), store_width=tiles.store_width(seen), element_bits=seen.a.dtype.bits,
        d_bits=seen.d.dtype.bits, with_c=int(seen.reads_matrix_c), type=type_index(seen),
        repacking_us=1e3 * (repacking_ms(view.repacks) + fused_repacking_ms(view.fused_repacks)),
        filled=int(filled),
    )  # fmt: skip


def pitch_bytes(operand: Operand) -> int:
    """Bytes from one line of an operand in memory to the next."""
    return max(operand.leading_dimension * operand.dtype.bits // 8, 1)


def type_index(problem: Problem) -> int:
    """Place of the problem's types in `warptile.rungs.wgmma.cost.TYPES`."""
    element = problem.a.dtype
    if element.bits == 32:
        return 3
    if element.bits == 16:
        return 1 if problem.accumulator.name == "float16" else 0
    if not element.name.startswith("float8"):
        return 4
    return 5 if tiles.two_level(problem) else 2
