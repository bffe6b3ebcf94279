"""The exercises of the course."""

from __future__ import annotations

from warptile.learn.exercise import Exercise, Gate

NO_CONFLICT = Gate("shared_load_conflict_ratio", "1.00: no bank conflict in loads", lambda ratio: ratio == 1.0)

_ALL = (
    Exercise(
        "warp-tiles",
        3,
        "Which tile does each warp own?",
        "Eight warps share a 128 x 128 tile of D. Say where each warp's part begins, so that every element is computed "
        "once.",
        (128, 128, 32),
        (128, 128),
        256,
        (),
        (
            "The warps form a grid of their own over the tile. How many warps lie beside each other along N, if each "
            "owns 64 rows and 32 columns?",
            "128 / 64 = 2 warps along M and 128 / 32 = 4 along N. The warp's number counts along N first.",
            "warp / 4 is the warp's row in that grid and warp % 4 its column; multiply them by 64 and by 32.",
        ),
    ),
    Exercise(
        "intensity",
        5,
        "Twice the arithmetic for the same bytes",
        "A warp owns four fragments of D, two by two, and loads a fragment of A and one of B for every "
        "multiplication: 8 "
        "FLOP for each byte asked for, less what storing D costs. Use each fragment that it loads twice.",
        (64, 64, 256),
        (32, 32),
        32,
        (Gate("arithmetic_intensity", "at least 12 FLOP/byte", lambda value: value >= 12.0),),
        (
            "Two fragments of A (rows 0 and 16) and two of B (columns 0 and 16) give four products.",
            "Load all four fragments first, then multiply every one of A by every one of B.",
            "Two loops: for i in 0, 1 and j in 0, 1: mma_sync(sum[i][j], left[i], right[j], sum[i][j]).",
        ),
    ),
    Exercise(
        "two-barriers",
        6,
        "A race that the results may hide",
        "The tile in shared memory is read by all warps and then overwritten by the next one. One barrier is missing. "
        "Find out which, from what the emulator reports.",
        (64, 64, 64),
        (64, 64),
        128,
        (),
        (
            "The report names two accesses to one place: a load of a fragment, and the store of the next tile. Which "
            "of "
            "them must come first?",
            "A warp that has finished its multiplications begins the next iteration while others still load fragments.",
            "The second __syncthreads() belongs at the end of the loop's body, after the multiplications.",
        ),
    ),
    Exercise(
        "fragment-epilogue",
        7,
        "Store the accumulators of mma.sync yourself",
        "mma.sync leaves D in registers, four of them in each lane. Write each where it belongs.",
        (16, 8, 64),
        (16, 8),
        32,
        (Gate("global_store_sectors", "at most 16 sectors: two elements of a row at once", lambda count: count <= 16),),
        (
            "Look at D of mma.m16n8k16 on this lesson's page, or with: warptile isa mma.m16n8k16.f32.f16",
            "Lane L holds elements of row L / 4 in c0 and c1, and of row L / 4 + 8 in c2 and c3.",
            "The columns are 2 * (L % 4) and the one after it, so c0 and c1 are neighbours: one 8-byte store, a "
            "float2.",
        ),
        b_transposed=True,
    ),
    Exercise(
        "swizzle",
        8,
        "Eight-way conflicts, and none",
        "Rows of A in shared memory are 128 bytes long, so ldmatrix meets eight-way bank conflicts. Change where each "
        "16-byte chunk is kept, without padding, until the counter says 1.00.",
        (32, 16, 128),
        (16, 8),
        32,
        (NO_CONFLICT,),
        (
            "ldmatrix reads the same chunk of eight consecutive rows at once. They have to lie in eight different "
            "groups of four banks.",
            "Within a row the chunk's number decides about its banks. Let the row's number change it: different for "
            "each "
            "of eight rows, and no two chunks of a row in one place.",
            "XOR does both: chunk ^ (row & 7).",
        ),
        b_transposed=True,
    ),
    Exercise(
        "groups",
        9,
        "Wait for the right group",
        "A ring of three stages is filled by cp.async. On the last tiles the kernel computes with data that have not "
        "come yet. Mend it.",
        (32, 16, 128),
        (32, 16),
        64,
        (),
        (
            "cp.async.wait_group 2 waits until at most two groups are pending. Count the groups at the last tile.",
            "In the last iterations nothing is committed, so fewer groups are pending and the wait waits for nothing.",
            "Commit in every iteration, also when there is nothing to copy: an empty group is complete at once.",
        ),
    ),
    Exercise(
        "phases",
        12,
        "Which phase of the mbarrier?",
        "Bulk copies fill two stages in turn, and an mbarrier for each says when it is full. The kernel waits for the "
        "first phase every time. Let it wait for the right one.",
        (32, 32, 128),
        (16, 16),
        32,
        (),
        (
            "An mbarrier goes from phase to phase. A wait names the parity of one: 0 for phases 0, 2, 4, and 1 for 1, "
            "3, 5.",
            "Each stage is used for every second tile. For which tiles is a stage filled for the first time, for which "
            "the second?",
            "Tile t is the (t / STAGES)th filling of its stage, so the parity is t / STAGES % 2.",
        ),
    ),
    Exercise(
        "proxies",
        15,
        "Written, synchronized, and not visible",
        "The tile is written to shared memory, the warp synchronizes, and bulk copies store it. Something is missing "
        "between the generic proxy, which wrote, and the async proxy, which reads.",
        (32, 32, 32),
        (16, 16),
        32,
        (),
        (
            "The report names a store to shared memory and the bulk copy that reads it, and says which order is "
            "missing.",
            "Bulk copies and wgmma read shared memory through the async proxy. A barrier orders threads, not proxies.",
            "Each thread that wrote executes fence_proxy_async() before the __syncwarp().",
        ),
    ),
)
EXERCISES = {each.name: each for each in _ALL}
