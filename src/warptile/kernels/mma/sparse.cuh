// mma-sparse: of every four elements of A along K two are stored (of float32 one of two), and metadata says which.
// mma.sp selects the matching rows of B: one instruction covers twice as much of K with the same registers of A.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

// Metadata of a block's rows of A for one stage. A k-block is 64 bytes of K, of which A stores 32; in each, the
// 32-bit words of the 32 lanes for ROWS rows follow each other: `warptile.sparse`, "packed metadata".
template <typename OPERATION, typename TILE>
struct Metadata {
    static constexpr int ROWS = sizeof(typename OPERATION::ELEMENT) == 1 ? 16 : 32;
    static constexpr int K_BLOCKS = TILE::BK / (2 * OPERATION::K_BLOCK), GROUPS = TILE::BM / ROWS, GROUP_BYTES = 128;
    static constexpr int BYTES = K_BLOCKS * GROUPS * GROUP_BYTES;
    static constexpr int WARP_GROUPS = TILE::WM / ROWS;
    static_assert(TILE::BK % (2 * OPERATION::K_BLOCK) == 0, "a stage is a whole number of k-blocks deep");
    static_assert(TILE::WM % ROWS == 0, "a warp tile is whole groups of rows");

    // The offset of this lane's word for the first group of this warp's rows.
    static __device__ __forceinline__ unsigned offset() {
        return TILE::warp_row() / ROWS * GROUP_BYTES + threadIdx.x % 32 * 4;
    }
};

// One K tile in shared memory: the stored half of A, then B, then A's metadata.
template <typename OPERATION, typename TILE>
struct SparseStage {
    using A = Panels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK / 2, true, true>;
    using B = Panels<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR, true>;
    static constexpr int B_OFFSET = A::BYTES, METADATA_OFFSET = B_OFFSET + B::BYTES;
    static constexpr int BYTES = METADATA_OFFSET + Metadata<OPERATION, TILE>::BYTES;
};

// Metadata as it is staged. Groups of rows and k-blocks past the matrix's end are never needed, but the
// instruction wants legal metadata: the last ones are copied instead.
template <typename OPERATION, typename TILE>
struct MetadataIterator {
    using METADATA = Metadata<OPERATION, TILE>;
    static constexpr int STEP_PACKETS = METADATA::GROUPS * METADATA::GROUP_BYTES / 16;
    static constexpr int PACKETS = METADATA::K_BLOCKS * STEP_PACKETS;

    const char* from;         // the block's first group at the next tile's first k-block
    long long k_block_bytes;  // from a k-block to the next
    int last_group;           // the last one inside the matrix, counted from the block's first
    int steps_left;

    __device__ __forceinline__ MetadataIterator(const unsigned* metadata, int m, int k, int row)
        : k_block_bytes(static_cast<long long>(tiles_along(m, METADATA::ROWS)) * METADATA::GROUP_BYTES),
          last_group((m - row - 1) / METADATA::ROWS),
          steps_left(tiles_along(k, 2 * OPERATION::K_BLOCK)) {
        const long long first_group = row / METADATA::ROWS;
        from = reinterpret_cast<const char*>(metadata) + first_group * METADATA::GROUP_BYTES;
    }

    // Stages the next tile; WHOLE says that it has all its k-blocks.
    template <bool WHOLE>
    __device__ __forceinline__ void stage(unsigned shared) {
#pragma unroll
        for (int first = 0; first < PACKETS; first += TILE::THREADS) {
            const int index = first + static_cast<int>(threadIdx.x);
            if (PACKETS % TILE::THREADS != 0 && index >= PACKETS) break;
            const int k_block = index / STEP_PACKETS, byte = index % STEP_PACKETS * 16;
            const int group = min(byte / METADATA::GROUP_BYTES, last_group);
            cp_async<16>(shared + index * 16, from + (WHOLE ? k_block : min(k_block, steps_left - 1)) * k_block_bytes +
                                                  group * METADATA::GROUP_BYTES + byte % METADATA::GROUP_BYTES);
        }
    }

    // Goes on to the next tile.
    __device__ __forceinline__ void advance() {
        from += METADATA::K_BLOCKS * k_block_bytes;
        steps_left -= METADATA::K_BLOCKS;
    }
};

// A, B and metadata of the block tile whose corner is at (row, column) of D.
template <typename OPERATION, typename TILE, typename ACCESS>
struct SparseTileIterator {
    using STAGE = SparseStage<OPERATION, TILE>;
    using ITERATOR_A = PanelIterator<AsyncPacketCopy<ACCESS::A>, typename STAGE::A, TILE::THREADS>;
    using ITERATOR_B = PanelIterator<AsyncPacketCopy<ACCESS::B>, typename STAGE::B, TILE::THREADS>;

    const int tiles_k;      // tiles along K
    const int whole_tiles;  // the first tiles, which are copied without predicates
    ITERATOR_A a;
    ITERATOR_B b;
    MetadataIterator<OPERATION, TILE> metadata;

    __device__ __forceinline__ SparseTileIterator(const GemmParams<OPERATION>& gemm, const unsigned* metadata, int row,
                                                  int column)
        : tiles_k(tiles_along(gemm.k, TILE::BK)),
          whole_tiles(gemm.m - row >= TILE::BM && gemm.n - column >= TILE::BN ? gemm.k / TILE::BK : 0),
          a(gemm.a_at(row, 0), gemm.lda, gemm.m - row, gemm.k / 2),
          b(gemm.b_at(0, column), gemm.ldb, gemm.n - column, gemm.k),
          metadata(metadata, gemm.m, gemm.k, row) {}

    // Stages part `part` of PARTS of the next tile, which is one of the whole ones.
    template <int PARTS = 1>
    __device__ __forceinline__ void stage_whole(unsigned stage, int part = 0) {
        constexpr int A = ITERATOR_A::PASSES, ALL = A + ITERATOR_B::PASSES;
        const int first = part * ALL / PARTS, last = (part + 1) * ALL / PARTS;
        a.stage_whole(stage, min(first, A), min(last, A));
        b.stage_whole(stage + STAGE::B_OFFSET, max(first, A) - A, max(last, A) - A);
        if (part < PARTS - 1) return;
        metadata.template stage<true>(stage + STAGE::METADATA_OFFSET);
        advance();
    }

    // Stages the next tile, which is number `tile`; past the last one nothing happens.
    __device__ __forceinline__ void stage_any(unsigned stage, int tile) {
        if (tile < whole_tiles) {
            stage_whole(stage);
        } else if (tile < tiles_k) {
            a.stage_part(stage);
            b.stage_part(stage + STAGE::B_OFFSET);
            metadata.template stage<false>(stage + STAGE::METADATA_OFFSET);
            advance();
        }
    }

  private:
    __device__ __forceinline__ void advance() {
        a.advance();
        b.advance();
        metadata.advance();
    }
};

// Loads strips of B: 16 columns (32 of TF32 that is not K-major), one k-block deep. A fragment has four words, and the
// instruction wants them in four neighbouring registers: where ldmatrix can, it fills them at once.
template <typename PANELS>
struct StripLoader {
    using TILES16 = FragmentLoader<PANELS, false, 32>;
    static constexpr int SIZE = PANELS::UNIT_BYTES, WORDS = 4, K_BLOCK_BYTES = 64, K_BLOCK_LINES = K_BLOCK_BYTES / SIZE;
    static constexpr int TOGETHER = TILES16::PLACEMENT::TILES16, FRAGMENTS = 2 * TOGETHER;
    static constexpr bool MATRICES = PANELS::K_MAJOR || SIZE == 2;

    unsigned from;    // MATRICES: what this lane reads first, in the panels
    TILES16 tiles16;  // otherwise: two dense k-blocks make one

    // `start` is the warp's first column in the block tile.
    __device__ __forceinline__ explicit StripLoader(int start) : tiles16(start) {
        const int matrix = threadIdx.x % 32 / 8, row = threadIdx.x % 8;
        from =
            PANELS::K_MAJOR ? PANELS::offset(start + row, 16 * matrix) : PANELS::offset(8 * matrix + row, start * SIZE);
    }

    __device__ __forceinline__ void load(unsigned (&words)[FRAGMENTS][WORDS], unsigned panels, int strip,
                                         int k_block) const {
        constexpr int ROW_BYTES = PANELS::ROW_BYTES, PANEL_BYTES = PANELS::PANEL_BYTES;
        if constexpr (MATRICES) {
#pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j) {
                const int column = 8 * (strip * FRAGMENTS + j);
                const int byte = PANELS::K_MAJOR ? k_block * K_BLOCK_BYTES : column * SIZE;
                const int lines = PANELS::K_MAJOR ? column : k_block * K_BLOCK_LINES;
                ldmatrix_x4<!PANELS::K_MAJOR>(
                    words[j], panels + (from ^ byte % ROW_BYTES) + byte / ROW_BYTES * PANEL_BYTES + lines * ROW_BYTES);
                if constexpr (SIZE == 4) {
#pragma unroll
                    for (int word = 0; word < WORDS; ++word) words[j][word] = rounded_to_tf32(words[j][word]);
                }
            }
        } else {
            unsigned halves[2][FRAGMENTS][WORDS / 2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                tiles16.load(&halves[half][0][0], panels, strip * TOGETHER, 2 * k_block + half);
#pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j)
#pragma unroll
                for (int word = 0; word < WORDS; ++word) words[j][word] = halves[word / 2][j][word % 2];
        }
    }
};

// Reads a warp's fragments out of stages: of A a whole k-block's, with their metadata, of B a strip's.
template <typename OPERATION, typename TILE>
struct SparseFragmentLoader {
    using STAGE = SparseStage<OPERATION, TILE>;
    using METADATA = Metadata<OPERATION, TILE>;
    using LOADER_B = StripLoader<typename STAGE::B>;
    static constexpr int TILES16 = TILE::WM / 16, STRIPS = TILE::WN / 8 / LOADER_B::FRAGMENTS;
    static constexpr int TILES16_OF_WORD = METADATA::ROWS / 16;  // of metadata
    static_assert(TILE::WN % (8 * LOADER_B::FRAGMENTS) == 0, "a warp tile is whole strips");

    struct A {
        unsigned tiles16[TILES16][4];
        unsigned metadata[METADATA::WARP_GROUPS];
    };
    using STRIP = unsigned[LOADER_B::FRAGMENTS][4];

    FragmentLoader<typename STAGE::A, true, OPERATION::K_BLOCK_BYTES> a;
    LOADER_B b;
    unsigned metadata;

    __device__ __forceinline__ SparseFragmentLoader()
        : a(TILE::warp_row()), b(TILE::warp_column()), metadata(STAGE::METADATA_OFFSET + METADATA::offset()) {}

    // Tile16 `i` of A and, with the last 16-tile that a word of metadata speaks of, that word.
    __device__ __forceinline__ void load_tile16(A& fragments, unsigned stage, int k_block, int i) const {
        a.load(fragments.tiles16[i], stage, i, k_block);
        if (i % TILES16_OF_WORD == TILES16_OF_WORD - 1) {
            const int group = i / TILES16_OF_WORD;
            const unsigned address = stage + metadata + (k_block * METADATA::GROUPS + group) * METADATA::GROUP_BYTES;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(fragments.metadata[group]) : "r"(address));
        }
    }

    __device__ __forceinline__ void load_strip(STRIP& fragments, unsigned stage, int k_block, int strip) const {
        b.load(fragments, stage + STAGE::B_OFFSET, strip, k_block);
    }
};

// Issues the MMAs of 16-tile `i` of A, with PARITY i % 2, and one strip. A word of metadata of 16- and 32-bit elements
// serves two 16-tiles, and the selector says which; 8-bit elements have one for each. Every other 16-tile takes the
// strip backwards, so that the fragment of B at which one ends is the one at which the next begins.
template <int PARITY, typename OPERATION, typename TILE, typename LOADER = SparseFragmentLoader<OPERATION, TILE>>
__device__ __forceinline__ void multiply_tile16(MmaAccumulators<OPERATION, TILE>& accumulators, int i,
                                                const typename LOADER::A& a, const typename LOADER::STRIP& b,
                                                int strip) {
    constexpr int FRAGMENTS = LOADER::LOADER_B::FRAGMENTS;
    constexpr int FK = 2 * OPERATION::FK, SELECTOR = LOADER::TILES16_OF_WORD == 2 ? PARITY : 0;
    using INSTRUCTION = SparseMma<typename OPERATION::ELEMENT, typename OPERATION::ACCUMULATOR, 16, 8, FK, SELECTOR>;
    static_assert(INSTRUCTION::A_REGISTERS == 4, "the instruction is the one whose A fills four registers");
#pragma unroll
    for (int number = 0; number < FRAGMENTS; ++number) {
        const int j = PARITY ? FRAGMENTS - 1 - number : number;
        INSTRUCTION::mma_sync(accumulators.at[i][strip * FRAGMENTS + j], a.tiles16[i], b[j],
                              a.metadata[i / LOADER::TILES16_OF_WORD]);
    }
}

// The state of the mainloop: the tile that is multiplied, its stage, the one before it, which is filled next, and the
// one after it; stages by their distance from the first in bytes.
template <int STAGES, int STAGE_BYTES>
struct SparseMainloopState {
    int tile = 0;
    unsigned before = (STAGES - 1) * STAGE_BYTES, reading = 0, next = STAGE_BYTES;

    __device__ __forceinline__ void advance() {
        ++tile;
        before = reading;
        reading = next;
        next = next == (STAGES - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
    }
};

// Multiplies state.tile, strip by strip; its first strip of B and its first k-block's fragments of A are loaded
// already. Strips of B come in two sets, each loaded while the one before it is multiplied. A fragment of A is replaced
// by the next k-block's as soon as the last strip of its k-block has used it.
template <bool WHOLE, int STAGES, typename OPERATION, typename TILE, typename LOADER, typename ITERATOR, typename STATE>
__device__ __forceinline__ void multiply_sparse_tile(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                     typename LOADER::A& a, typename LOADER::STRIP (&b)[2],
                                                     const LOADER& loader, ITERATOR& iterator, unsigned stages,
                                                     STATE& state) {
    constexpr int K_BLOCKS = LOADER::METADATA::K_BLOCKS, STRIPS = LOADER::STRIPS, ALL = K_BLOCKS * STRIPS;
    static_assert(ALL % 2 == 0, "two sets of strips alternate: a stage has an even number of them");
    // The copies are started in parts, one with each of the first strips, and before the tile's barrier.
    constexpr int PARTS = ALL - 1 < 6 ? ALL - 1 : 6;
#pragma unroll
    for (int at = 0; at < ALL; ++at) {
        const int strip = at % STRIPS, next = (at + 1) % ALL, next_k_block = next / STRIPS;
        if (next == 0) {
            // What comes next is in the next stage: it must have arrived, for every thread. After the barrier no thread
            // reads the present one any more: while the next tile is multiplied it is filled.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
        }
        // At the end there is no next tile, and nothing to load.
        const bool more = WHOLE || next > 0 || state.tile + 1 < iterator.tiles_k;
        const unsigned from = stages + (next == 0 ? state.next : state.reading);
        if (more) loader.load_strip(b[next % 2], from, next_k_block, next % STRIPS);
        if (at < PARTS) {
            if constexpr (WHOLE) {
                iterator.template stage_whole<PARTS>(stages + state.before, at);
            } else if (at == 0) {
                iterator.stage_any(stages + state.before, state.tile + STAGES - 1);
            }
            // The waits count groups, not tiles: past the last tile they are empty.
            if (at == PARTS - 1) cp_async_commit_group();
        }
#pragma unroll
        for (int i = 0; i < LOADER::TILES16; ++i) {
            if (i % 2 == 0) {
                multiply_tile16<0>(accumulators, i, a, b[at % 2], strip);
            } else {
                multiply_tile16<1>(accumulators, i, a, b[at % 2], strip);
            }
            if (strip == STRIPS - 1 && more) loader.load_tile16(a, from, next_k_block, i);
        }
    }
    state.advance();
}

// A is [m, k / 2], the stored elements; `metadata` belongs to it, packed.
template <typename OPERATION>
struct MmaSparseParams {
    GemmParams<OPERATION> gemm;
    const unsigned* metadata;
};

// OPERATION is the dense one whose fragments of A have the same registers.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_sparse(const __grid_constant__ MmaSparseParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    constexpr int STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    const unsigned* const metadata = params.metadata;
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(gemm.m, TILE::BM), tiles_along(gemm.n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(!OPERATION::A_COLUMN_MAJOR, "A is stored along K");
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);
    using LOADER = SparseFragmentLoader<OPERATION, TILE>;
    constexpr int STAGE_BYTES = LOADER::STAGE::BYTES;

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const LOADER loader;
    SparseTileIterator<OPERATION, TILE, ACCESS> iterator(gemm, metadata, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        iterator.stage_any(stages + ahead * STAGE_BYTES, ahead);
        cp_async_commit_group();
    }
    typename LOADER::A fragments;
    typename LOADER::STRIP strips[2];
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();  // the first stage is full
    if (iterator.tiles_k > 0) {
#pragma unroll
        for (int i = 0; i < LOADER::TILES16; ++i) loader.load_tile16(fragments, stages, 0, i);
        loader.load_strip(strips[0], stages, 0, 0);
    }
    SparseMainloopState<STAGES, STAGE_BYTES> state;
#pragma unroll 1
    while (state.tile + STAGES - 1 < iterator.whole_tiles)
        multiply_sparse_tile<true, STAGES>(accumulators, fragments, strips, loader, iterator, stages, state);
#pragma unroll 1
    while (state.tile < iterator.tiles_k)
        multiply_sparse_tile<false, STAGES>(accumulators, fragments, strips, loader, iterator, stages, state);
    __syncthreads();  // the memory of the stages becomes that of the patches
    store_tile<ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
