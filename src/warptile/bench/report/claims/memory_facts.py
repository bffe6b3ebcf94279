"""Claims about shared memory: banks, swizzles, padding, alignment, collectives and asynchronous copies."""

from __future__ import annotations

import numpy as np

from warptile.bench.report.claims import listings
from warptile.bench.report.claims.fact import EMULATOR, HOST, Answer, Fact
from warptile.bench.report.claims.listings import COMMIT_WITH_TILE, HALF_OF_BLOCK, MENDED, PRINTED, TWO_BIT_SWIZZLE
from warptile.bench.report.claims.probes import HEAD_BYTES, WARP, ldmatrix_wavefronts, reported, run
from warptile.errors import LayoutError
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES
from warptile.launch.tensor_map import TensorMap

ROWS = 8
"""Rows of the matrix that one ldmatrix pass reads."""

_NO_CHECKS: frozenset[str] = frozenset()
_LOAD_A = "wmma.load.a.sync.aligned.row.m16n16k16.{space}.f16 {{%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}}, [{at}], {pitch};"


def _load(at: str, pitch: int, space: str = "shared") -> str:
    """The error that a WMMA load of A is reported with; empty for none."""
    return reported(_LOAD_A.format(space=space, at=at, pitch=pitch), checks=_NO_CHECKS)


def _rows(pitch: int) -> int:
    """Wavefronts of eight rows of 16 bytes, ``pitch`` bytes apart."""
    return ldmatrix_wavefronts(tuple(pitch * row for row in range(ROWS)))


def _eight_ways() -> Answer:
    found = _rows(LINE_BYTES)
    return Answer(f"{found} wavefronts for one 8 x 8 matrix", found == 8)


def _mask() -> Answer:
    lines = listings.shared_wavefronts(listings.run(TWO_BIT_SWIZZLE, PRINTED))
    (ratio,) = [wavefronts / ideal for kind, wavefronts, ideal in lines.values() if kind == "load"]
    return Answer(f"{ratio:.0f} wavefronts for each one that would do", ratio == 1)


def _shifts() -> Answer:
    found = [(row & 0b1100) >> 2 for row in range(ROWS)]
    return Answer(f"rows 0 to 7 are XORed with {', '.join(map(str, found))}", found[:3] == [0, 1, 2])


def _flat_mask() -> Answer:
    """f(i) = i ^ ((i & 0b1100) >> 2) over rows of 64 halves, with i counting units of each size."""
    found = {}
    for unit in (2, 4, CHUNK_BYTES):
        places = [row * LINE_BYTES // unit for row in range(ROWS)]
        offsets = tuple((i ^ ((i & 0b1100) >> 2)) * unit // CHUNK_BYTES * CHUNK_BYTES for i in places)
        found[unit] = ldmatrix_wavefronts(offsets)
    value = ", ".join(f"{wavefronts} where i counts {unit} bytes" for unit, wavefronts in found.items())
    return Answer(f"wavefronts: {value}", min(found.values()) == 1)


def _padding() -> Answer:
    plain, padded = _rows(LINE_BYTES), _rows(LINE_BYTES + 16)
    return Answer(f"{plain} wavefronts, {padded} with rows of {LINE_BYTES + 16} bytes", padded > 1)


def _padded_tile() -> Answer:
    lines = listings.shared_wavefronts(listings.run(HALF_OF_BLOCK, MENDED))
    ratios = {kind: wavefronts / ideal for kind, wavefronts, ideal in lines.values()}
    return Answer(f"loads {ratios['load']:.0f}, stores {ratios['store']:.0f} wavefronts for each one that would do",
                  set(ratios.values()) == {1.0})  # fmt: skip


def _half_of_block() -> Answer:
    found = listings.run(HALF_OF_BLOCK, PRINTED)
    return Answer(f"`{found.error}`: {found.said.partition(' elements')[0]}", not found.error)


def _wait_group() -> Answer:
    found = {stages: listings.run(COMMIT_WITH_TILE, PRINTED, stages) for stages in (3, 2)}
    steps = listings.group_steps(COMMIT_WITH_TILE.size[2] // 16, 3, empty_groups=False)
    open_tiles = sum(not step.covered for step in steps)
    value = f"`{found[3].error}` with 3 stages, where {open_tiles} of {len(steps)} tiles are not waited for, and with 2"
    return Answer(value, not any(each.error for each in found.values()))


def _pointer_alignment() -> Answer:
    accepted = [size for size in (2, 4, 8, 16, 32) if not _load(f"tile+{size}", 16)]
    least = accepted[0]
    return Answer(f"multiples of {least} bytes run, {least // 2} is `{_load(f'tile+{least // 2}', 16)}`", least == 16)


def _pitch() -> Answer:
    errors = {pitch: _load("tile", pitch) for pitch in (16, 20, 24)}
    value = ", ".join(f"{pitch} halves: {'`' + error + '`' if error else 'runs'}" for pitch, error in errors.items())
    return Answer(value, not errors[16] and bool(errors[20]) and not errors[24])


def _allocations() -> Answer:
    error = _load("%rd0", 20, space="global")
    return Answer(f"an aligned base with rows of 20 halves: {'`' + error + '`' if error else 'runs'}", not error)


def _divergent() -> Answer:
    load = _LOAD_A.format(space="shared", at="tile", pitch=16)
    error = reported(f"setp.lt.u32 %p0, %r1, 16;\n@!%p0 bra past;\n{load}\npast:", checks=_NO_CHECKS)
    return Answer(f"it compiles; the emulator reports `{error}`", error == "DivergentCollective")


def _uniform() -> Answer:
    lane_times_8 = "add.u32 %r10, %r1, 8;\nshl.b32 %r10, %r10, 3;\n"
    errors = [
        reported(lane_times_8 + _LOAD_A.format(space="shared", at=at, pitch=pitch), checks=_NO_CHECKS)
        for at, pitch in (("%r10", 16), ("tile", "%r10"))
    ]
    return Answer(f"lanes with different pointers: `{errors[0]}`; with different `ldm`: `{errors[1]}`", all(errors))


_STORE_AND_READ = """
mov.f32 %f0, 0f3F800000;
wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [tile], {{%f0,%f0,%f0,%f0,%f0,%f0,%f0,%f0}}, 16;
{between}
shl.b32 %r2, %r1, 2;
xor.b32 %r2, %r2, 64;
add.u32 %r2, %r2, tile;
ld.shared.u32 %r3, [%r2];
st.global.u32 [%rd1], %r3;"""


def _no_barrier() -> Answer:
    without = reported(_STORE_AND_READ.format(between=""))
    behind = reported(_STORE_AND_READ.format(between="bar.warp.sync -1;"))
    assert not behind, behind
    return Answer(f"another lane's read after `store_matrix_sync` is a `{without}`; behind `__syncwarp()` it is none",
                  not without)  # fmt: skip


_MAJORS = """
{fill}
bar.warp.sync -1;
wmma.load.a.sync.aligned.{major}.m16n16k16.shared.f16 {{%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}}, [tile], 16;
st.global.u32 [%rd1], %r2;"""
_FILL = "\n".join(
    f"shl.b32 %r10, %r1, 2;\nadd.u32 %r10, %r10, tile;\nadd.u32 %r11, %r1, {WARP * part};\n"
    f"st.shared.u32 [%r10+{4 * WARP * part}], %r11;"
    for part in range(4)
)


def _wrong_layout() -> Answer:
    rows = run(_MAJORS.format(fill=_FILL, major="row"))[1][:WARP]
    columns = run(_MAJORS.format(fill=_FILL, major="col"))[1][:WARP]
    differ = int(np.count_nonzero(rows != columns))
    return Answer(f"no report, and {differ} of {WARP} lanes hold other elements", differ > 0)


_COPY = """
shl.b32 %r2, %r1, 4;
add.u32 %r2, %r2, tile;
mov.u64 %rd2, %rd0;
{source}
cp.async.{form} [%r2], [%rd2], {bytes};
cp.async.commit_group;
cp.async.wait_group 0;"""


def _copy_alignment() -> Answer:
    moved = "mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd2, %rd2, %rd3;"
    report, _ = run(_COPY.format(source=moved, form="cg.shared.global", bytes=16), checks=_NO_CHECKS)
    errors = {}
    for size in (16, 8, 4):
        for off in (size, size // 2):
            form = f"{'cg' if size == 16 else 'ca'}.shared.global"
            body = _COPY.format(source=f"add.s64 %rd2, %rd2, {off};", form=form, bytes=size)
            errors[size, off] = reported(body, checks=_NO_CHECKS)
    moved_bytes = int(report.counters["global_load_bytes"]) - HEAD_BYTES
    whole, halves = ({errors[size, size // part] for size in (16, 8, 4)} for part in (1, 2))
    said = ", ".join(sorted(halves))
    value = f"{moved_bytes} bytes a warp; 16, 8 and 4 bytes run from their own multiples, from halves of these `{said}`"
    return Answer(value, moved_bytes == 16 * WARP and whole == {""} and "" not in halves)


def _map_refused(**fields: object) -> bool:
    given: dict[str, object] = {"strides_bytes": (1024,), "box": (64, 64), "swizzle": "128B"}
    try:
        TensorMap("A", "f16", (512, 512), **(given | fields))  # type: ignore[arg-type]
    except LayoutError:
        return True
    return False


def _map_limits() -> Answer:
    legal = not _map_refused() and not _map_refused(box=(64, 256))
    refused = {
        "a row stride of 1026 bytes": _map_refused(strides_bytes=(1026,)),
        "257 rows": _map_refused(box=(64, 257)),
        "72 halves under the 128-byte swizzle": _map_refused(box=(72, 64)),
    }
    return Answer(f"64 x 256 halves are taken; refused: {', '.join(refused)}", legal and all(refused.values()))


FACTS = (
    Fact("T2", "eight rows, 128 bytes apart, fall into the same four banks: 8 turns instead of 1", "ldmatrix, f16",
         EMULATOR, _eight_ways,
         "32 banks of 4 bytes repeat after 128 bytes ([how accesses are counted](counters.md#shared-memory))."),
    Fact("T2", "`col ^ ((row & 0b1100) >> 2)` takes the 8-way conflict to 1", "64 halves a row, `col` a 16-byte chunk",
         EMULATOR, _mask,
         "Two bits of the row are taken, of which one varies over eight rows ([third listing](#the-two-bit-swizzle))."),
    Fact("T2", "under this mask row 0 stays, row 1 shifts by one group of banks, row 2 by two", "the same", EMULATOR,
         _shifts,
         "Bits 2 and 3 of the row change with every fourth row; the description fits `row & 7`."),
    Fact("T4", "`i ^ ((i & 0b1100) >> 2)` is the swizzle of a tile 64 halves wide", "flat index i, its unit not given",
         EMULATOR, _flat_mask,
         "In rows of 64 halves or 32 words bits 2 and 3 of i belong to the column; of chunks, bit 3 is the row's."),
    Fact("T4", "padding removes conflicts of stores and often leaves those of loads", "ldmatrix", EMULATOR,
         _padding,
         "16 more bytes a row move each row on by four banks, for whatever reads eight rows of one column."),
    Fact("T1", "rows of 128 halves, padded by 8, are free of bank conflicts", "the tiled listing, [K][M + 8]", EMULATOR,
         _padded_tile,
         "Rows of 272 bytes start four banks further each; stores of neighbouring halves have no conflict anyway."),
    Fact("T1", "eight warps with 2 x 2 fragments compute a block of 128 x 128", "the tiled listing", EMULATOR,
         _half_of_block,
         "8 x 4 fragments are 32 of 64 ([first listing](#the-block-of-which-half-is-computed))."),
    Fact("T3, T4", "leaving STAGES - 1 groups pending makes sure that the tile has arrived",
         "groups committed only where there is a tile to copy", EMULATOR, _wait_group,
         "True until the last tile is copied ([second listing](#the-groups-that-are-not-committed)). The repository of "
         "T3 later waits for all groups there."),
    Fact("T1", "`load_matrix_sync` needs pointers to multiples of 16 bytes", "f16, shared memory", EMULATOR,
         _pointer_alignment,
         "It is what the generated `ldmatrix` needs; the CUDA C++ Programming Guide asks for 32 (\"a 256-bit aligned "
         "pointer\")."),
    Fact("CUDA C++ Programming Guide", "`ldm` is a multiple of 8 halves", "\"Warp Matrix Functions\"; m16n16k16, f16",
         EMULATOR, _pitch,
         "16 bytes again: every row of the fragment then starts at one."),
    Fact("T1", "memory from cudaMalloc, aligned to 256 bytes, is safe to load fragments from", "row-major A", EMULATOR,
         _allocations,
         "The first row is; the others start wherever the leading dimension puts them."),
    Fact("T0, T2", "a WMMA call that part of a warp skips compiles, and is undefined", "", EMULATOR, _divergent,
         "T2 expects silent garbage. On an H200 such kernels did not end ([wmma_divergent](planted-bugs.md#wmma))."),
    Fact("T0", "all 32 threads pass the same arguments", "load_matrix_sync", EMULATOR, _uniform,
         "The instruction reads one address and one stride for the warp; which lane's it takes is nowhere said."),
    Fact("T1", "`_sync` means that all threads have completed before any proceeds", "store_matrix_sync, shared memory",
         EMULATOR, _no_barrier,
         "The lanes execute it together; what they wrote is not ordered for other lanes. T2 warns of this reading."),
    Fact("T1", "a fragment declared in the wrong layout gives wrong results silently", "row_major for col_major",
         EMULATOR, _wrong_layout,
         "Every address is legal, so no check but a comparison of the result can see it."),
    Fact("T4", "`cp.async` copies 16 bytes for each thread, eight halves", "both addresses aligned", EMULATOR,
         _copy_alignment,
         "4 and 8 bytes exist too, through L1; each size wants addresses that are multiples of itself (PTX ISA, "
         "\"cp.async\")."),
    Fact("CUDA Driver API", "a TMA box has up to 256 elements a dimension, and inner rows within the swizzle span; row "
         "strides are multiples of 16 bytes", "cuTensorMapEncodeTiled", HOST, _map_limits,
         "The texts that end with TMA leave its limits out. 64 halves are the 128 bytes of the widest swizzle."),
)  # fmt: skip
