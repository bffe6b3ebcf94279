"""The exercises of the course."""

from __future__ import annotations

from warptile.learn.exercise import Exercise, Gate

NO_CONFLICT = Gate("shared_load_conflict_ratio", "1.00: no bank conflict in loads", lambda ratio: ratio == 1.0)

_ALL = (
    Exercise(
        "coalesced",
        1,
        "One thread, one element: which one?",
        "The first rung of the left ladder. The result is right, but each warp asks for sixteen rows of A at once. "
        "Give each thread another element of D, so that the lanes of a warp load neighbours.",
        (32, 32, 32),
        (16, 16),
        256,
        (Gate("global_load_sectors", "at most 4096 sectors of 32 bytes", lambda count: count <= 4096),),
        (
            "In one step along K, a warp's lanes load an element of A for each row that they have, and one of B for "
            "each column. Which of the two lies in neighbouring addresses?",
            "A row of B is contiguous: lanes that have neighbouring columns share sectors, and those of one row of A "
            "load the same element.",
            "threadIdx.x % 16 is the column and threadIdx.x / 16 the row.",
        ),
    ),
    Exercise(
        "one-instruction",
        2,
        "How many instructions does a tile take?",
        "One mma.m16n8k16 multiplies 16 of K. The problem has 64. Multiply all of it, without an instruction too many.",
        (32, 16, 64),
        (16, 8),
        32,
        (Gate("tensor_instructions", "16: one for each tile and each 16 of K", lambda count: count == 16),),
        (
            "D += A B adds to what the accumulators hold, so one product after the other can go to the same four "
            "registers.",
            "Each instruction takes the next 16 columns of A and the next 16 rows of B. B is stored [n, k]: those are "
            "16 neighbours of its rows too.",
            "for k0 = 0, 16, 32, 48: multiply(c, &a[row * k + k0], &b[column * k + k0], k).",
        ),
        b_transposed=True,
    ),
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
        "four-moves",
        4,
        "The four moves, from memory",
        "The fragments are declared. Begin, load, multiply and store.",
        (32, 32, 64),
        (16, 16),
        32,
        (),
        (
            "fill_fragment before the loop; two load_matrix_sync and one mma_sync in it; store_matrix_sync after it.",
            "The last argument of a load is the distance between rows: k for A, n for B. D has rows of n elements too.",
            "A's tile begins at &a[row * k + k0] and B's at &b[k0 * n + column]; store with wmma::mem_row_major.",
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
        "promotion",
        10,
        "Right for a short K",
        "Elements are integers from 0 to 8, and no sum is over 32,768. D is wrong all the same: f16 holds every "
        "integer up to 2048 only. Keep the instruction, and let it add up no more than f16 can hold.",
        (32, 16, 512),
        (16, 8),
        32,
        (Gate("tensor_instructions", "128: one for each tile and each 16 of K", lambda count: count == 128),),
        (
            "One instruction adds 16 products of at most 64. How large is their sum?",
            "At most 1024: exact in f16. So each instruction's result may be added to float32 sums, and the "
            "accumulators begin at zero again.",
            "After mma_sync add two_floats(c[0]) to upper_sum and two_floats(c[1]) to lower_sum, and set both "
            "registers to 0. Nothing is left to do after the loop.",
        ),
        b_transposed=True,
        values=(0, 8),
    ),
    Exercise(
        "fragment-reuse",
        11,
        "Read each fragment once",
        "A warp owns 32 x 32 elements of D and loads two fragments for every multiplication. Load each fragment once "
        "for a step along K.",
        (32, 32, 128),
        (32, 32),
        32,
        (
            Gate("shared_load_requests", "at most 32: four ldmatrix.x4 for each 16 of K", lambda count: count <= 32),
            NO_CONFLICT,
        ),
        (
            "Eight multiplications use two different fragments of A and four of B.",
            "One ldmatrix.x4 brings a fragment of A, or two of B. So four of them bring everything.",
            "Load left[0], left[1], right[0] and right[1] first. Then multiply left[i] by &right[j / 2][j % 2 * 2] for "
            "i in 0, 1 and j in 0 to 3.",
        ),
        b_transposed=True,
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
        "stream-k",
        13,
        "A range that crosses from one tile into the next",
        "Three tiles of eight steps are shared by four warps, six steps each: stream-K within a CTA. Parts of D are "
        "wrong. Find out what a warp does at the end of a tile.",
        (16, 24, 128),
        (16, 24),
        128,
        (Gate("tensor_instructions", "24: no step is done twice", lambda count: count == 24),),
        (
            "Warp 1 has steps 6 to 11: the last two of tile 0 and the first four of tile 1.",
            "It adds all six to tile 1, since it adds once, at the end of its range.",
            "It has to add and begin anew whenever (step + 1) % steps == 0 as well.",
        ),
        b_transposed=True,
    ),
    Exercise(
        "metadata",
        14,
        "Which two of four?",
        "Each lane compresses four elements of A to two and knows where they stood. The metadata word of a quad has to "
        "tell it of all four lanes. Put it together.",
        (32, 16, 64),
        (16, 8),
        32,
        (Gate("tensor_instructions", "16: one for each tile and each 16 of K", lambda count: count == 16),),
        (
            "warptile isa mma.sp.m16n8k16.f32.f16 shows whose word is read: those of lanes 0, 4, 8 and so on, with "
            "four nibbles for each of two rows. (The figure is that of m16n8k32, which reads two words of a quad.)",
            "Each lane has set its own two nibbles and left the others 0. The word is the OR of the four lanes of a "
            "quad.",
            "metadata |= __shfl_xor_sync(~0u, metadata, 1), then the same with 2.",
        ),
        b_transposed=True,
        sparse=True,
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
