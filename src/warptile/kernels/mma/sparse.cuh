// mma-sparse: of every four elements of A along K two are stored (of float32 one of two), and metadata says which.
// mma.sp picks the rows of B that they meet: one instruction covers twice the depth with the same registers of A.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

// Metadata of a block's rows of A for the depth of a stage. A step is 64 bytes of K, of which A stores 32; in each, the
// 32-bit words of the 32 lanes for ROWS rows follow each other: `warptile.sparse`, "packed metadata".
template <typename OPERATION, typename TILE>
struct Metadata {
    static constexpr int ROWS = sizeof(typename OPERATION::ELEMENT) == 1 ? 16 : 32;
    static constexpr int STEPS = TILE::BK / (2 * OPERATION::STEP), GROUPS = TILE::BM / ROWS, GROUP_BYTES = 128;
    static constexpr int BYTES = STEPS * GROUPS * GROUP_BYTES;
    static constexpr int WARP_GROUPS = TILE::WM / ROWS;
    static_assert(TILE::BK % (2 * OPERATION::STEP) == 0, "a stage is a whole number of steps deep");
    static_assert(TILE::WM % ROWS == 0, "a warp tile is whole groups of rows");

    // Where the word of this lane lies for the first group of this warp's rows.
    static __device__ __forceinline__ unsigned offset() {
        return TILE::warp_row() / ROWS * GROUP_BYTES + threadIdx.x % 32 * 4;
    }
};

// One step of depth BK in shared memory: the stored half of A, then B, then A's metadata.
template <typename OPERATION, typename TILE>
struct SparseStage {
    using A = Panels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK / 2, true, true>;
    using B = Panels<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR, true>;
    static constexpr int B_OFFSET = A::BYTES, METADATA_OFFSET = B_OFFSET + B::BYTES;
    static constexpr int BYTES = METADATA_OFFSET + Metadata<OPERATION, TILE>::BYTES;
};

// Metadata on its way through the stages. Groups of rows and steps past the matrix's end are never needed, but the
// instruction wants legal metadata: the last ones are copied in their place.
template <typename OPERATION, typename TILE>
struct MetadataStream {
    using METADATA = Metadata<OPERATION, TILE>;
    static constexpr int STEP_PACKETS = METADATA::GROUPS * METADATA::GROUP_BYTES / 16;
    static constexpr int PACKETS = METADATA::STEPS * STEP_PACKETS;

    const char* from;      // the block's first group at the next tile's first step
    long long step_bytes;  // from a step to the next
    int last_group;        // the last one inside the matrix, counted from the block's first
    int steps_left;

    __device__ __forceinline__ MetadataStream(const unsigned* metadata, int m, int k, int row)
        : step_bytes(static_cast<long long>(tiles_along(m, METADATA::ROWS)) * METADATA::GROUP_BYTES),
          last_group((m - row - 1) / METADATA::ROWS), steps_left(tiles_along(k, 2 * OPERATION::STEP)) {
        const long long first_group = row / METADATA::ROWS;
        from = reinterpret_cast<const char*>(metadata) + first_group * METADATA::GROUP_BYTES;
    }

    // Stages the next tile; WHOLE says that it has all its steps.
    template <bool WHOLE>
    __device__ __forceinline__ void stage(unsigned shared) {
#pragma unroll
        for (int first = 0; first < PACKETS; first += TILE::THREADS) {
            const int index = first + static_cast<int>(threadIdx.x);
            if (PACKETS % TILE::THREADS != 0 && index >= PACKETS) break;
            const int step = index / STEP_PACKETS, byte = index % STEP_PACKETS * 16;
            const int group = min(byte / METADATA::GROUP_BYTES, last_group);
            cp_async<16>(shared + index * 16, from + (WHOLE ? step : min(step, steps_left - 1)) * step_bytes +
                                                  group * METADATA::GROUP_BYTES + byte % METADATA::GROUP_BYTES);
        }
    }

    // Goes on to the next tile.
    __device__ __forceinline__ void advance() {
        from += METADATA::STEPS * step_bytes;
        steps_left -= METADATA::STEPS;
    }
};

// A, B and metadata of the block tile whose corner is at (row, column) of D.
template <typename OPERATION, typename TILE, typename ACCESS>
struct SparseStream {
    using STAGE = SparseStage<OPERATION, TILE>;
    using STREAM_A = PanelStream<AsyncPacketCopy<ACCESS::A>, typename STAGE::A, TILE::THREADS>;
    using STREAM_B = PanelStream<AsyncPacketCopy<ACCESS::B>, typename STAGE::B, TILE::THREADS>;

    const int tiles_k;      // tiles along K
    const int whole_tiles;  // the first tiles, which are copied without predicates
    STREAM_A a;
    STREAM_B b;
    MetadataStream<OPERATION, TILE> metadata;

    __device__ __forceinline__ SparseStream(const Gemm<OPERATION>& gemm, const unsigned* metadata, int row,
                                            int column)
        : tiles_k(tiles_along(gemm.k, TILE::BK)),
          whole_tiles(gemm.m - row >= TILE::BM && gemm.n - column >= TILE::BN ? gemm.k / TILE::BK : 0),
          a(gemm.a_at(row, 0), gemm.lda, gemm.m - row, gemm.k / 2),
          b(gemm.b_at(0, column), gemm.ldb, gemm.n - column, gemm.k),
          metadata(metadata, gemm.m, gemm.k, row) {}

    // Stages part `part` of PARTS of the next tile, which is one of the whole ones.
    template <int PARTS = 1>
    __device__ __forceinline__ void stage_whole(unsigned stage, int part = 0) {
        constexpr int A = STREAM_A::PASSES, ALL = A + STREAM_B::PASSES;
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

// Loads strips of B: 16 columns (32 of TF32 that is not K-major), one step deep. A fragment has four words, and the
// instruction wants them in four neighbouring registers: where ldmatrix can, it fills them at once.
template <typename PANELS>
struct StripReader {
    using SLABS = SlabReader<PANELS, false, 32>;
    static constexpr int SIZE = PANELS::UNIT_BYTES, WORDS = 4, STEP_BYTES = 64, STEP_LINES = STEP_BYTES / SIZE;
    static constexpr int TOGETHER = SLABS::PLACEMENT::SLABS, FRAGMENTS = 2 * TOGETHER;
    static constexpr bool MATRICES = PANELS::K_MAJOR || SIZE == 2;

    unsigned from;  // MATRICES: what this lane reads first, in the panels
    SLABS slabs;    // otherwise: two dense steps make one

    // `start` is the warp's first column in the block tile.
    __device__ __forceinline__ explicit StripReader(int start) : slabs(start) {
        const int matrix = threadIdx.x % 32 / 8, row = threadIdx.x % 8;
        from = PANELS::K_MAJOR ? PANELS::offset(start + row, 16 * matrix)
                               : PANELS::offset(8 * matrix + row, start * SIZE);
    }

    __device__ __forceinline__ void load(unsigned (&words)[FRAGMENTS][WORDS], unsigned panels, int strip,
                                         int step) const {
        constexpr int ROW_BYTES = PANELS::ROW_BYTES, PANEL_BYTES = PANELS::PANEL_BYTES;
        if constexpr (MATRICES) {
#pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j) {
                const int column = 8 * (strip * FRAGMENTS + j);
                const int byte = PANELS::K_MAJOR ? step * STEP_BYTES : column * SIZE;
                const int lines = PANELS::K_MAJOR ? column : step * STEP_LINES;
                load_matrices<!PANELS::K_MAJOR>(words[j], panels + (from ^ byte % ROW_BYTES) +
                                                              byte / ROW_BYTES * PANEL_BYTES + lines * ROW_BYTES);
                if constexpr (SIZE == 4) {
#pragma unroll
                    for (int word = 0; word < WORDS; ++word) words[j][word] = rounded_to_tf32(words[j][word]);
                }
            }
        } else {
            unsigned halves[2][FRAGMENTS][WORDS / 2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                slabs.load(&halves[half][0][0], panels, strip * TOGETHER, 2 * step + half);
#pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j)
#pragma unroll
                for (int word = 0; word < WORDS; ++word) words[j][word] = halves[word / 2][j][word % 2];
        }
    }
};

// Reads a warp's fragments out of stages: of A a whole step's, with their metadata, of B a strip's.
template <typename OPERATION, typename TILE>
struct SparseReader {
    using STAGE = SparseStage<OPERATION, TILE>;
    using METADATA = Metadata<OPERATION, TILE>;
    using READER_B = StripReader<typename STAGE::B>;
    static constexpr int SLABS = TILE::WM / 16, STRIPS = TILE::WN / 8 / READER_B::FRAGMENTS;
    static constexpr int SLABS_A_WORD = METADATA::ROWS / 16;  // of metadata
    static_assert(TILE::WN % (8 * READER_B::FRAGMENTS) == 0, "a warp tile is whole strips");

    struct A {
        unsigned slabs[SLABS][4];
        unsigned metadata[METADATA::WARP_GROUPS];
    };
    using STRIP = unsigned[READER_B::FRAGMENTS][4];

    SlabReader<typename STAGE::A, true, OPERATION::STEP_BYTES> a;
    READER_B b;
    unsigned metadata;

    __device__ __forceinline__ SparseReader()
        : a(TILE::warp_row()), b(TILE::warp_column()), metadata(STAGE::METADATA_OFFSET + METADATA::offset()) {}

    // Slab `i` of A and, with the last slab that a word of metadata speaks of, that word.
    __device__ __forceinline__ void load_slab(A& fragments, unsigned stage, int step, int i) const {
        a.load(fragments.slabs[i], stage, i, step);
        if (i % SLABS_A_WORD == SLABS_A_WORD - 1) {
            const int group = i / SLABS_A_WORD;
            const unsigned address = stage + metadata + (step * METADATA::GROUPS + group) * METADATA::GROUP_BYTES;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(fragments.metadata[group]) : "r"(address));
        }
    }

    __device__ __forceinline__ void load_strip(STRIP& fragments, unsigned stage, int step, int strip) const {
        b.load(fragments, stage + STAGE::B_OFFSET, strip, step);
    }
};

// Adds the products of slab `i` of A, with PARITY i % 2, and one strip. A word of metadata of 16- and 32-bit elements
// serves two slabs, and the selector says which; 8-bit elements have one for each. Every other slab takes the strip
// backwards, so that the fragment of B at which one ends is the one at which the next begins.
template <int PARITY, typename OPERATION, typename TILE, typename READER = SparseReader<OPERATION, TILE>>
__device__ __forceinline__ void multiply_slab(MmaAccumulators<OPERATION, TILE>& accumulators, int i,
                                              const typename READER::A& a, const typename READER::STRIP& b, int strip) {
    constexpr int FRAGMENTS = READER::READER_B::FRAGMENTS;
    constexpr int FK = 2 * OPERATION::FK, SELECTOR = READER::SLABS_A_WORD == 2 ? PARITY : 0;
    using INSTRUCTION = SparseMma<typename OPERATION::ELEMENT, typename OPERATION::ACCUMULATOR, 16, 8, FK, SELECTOR>;
    static_assert(INSTRUCTION::A_REGISTERS == 4, "the instruction is the one whose A fills four registers");
#pragma unroll
    for (int step = 0; step < FRAGMENTS; ++step) {
        const int j = PARITY ? FRAGMENTS - 1 - step : step;
        INSTRUCTION::multiply(accumulators.at[i][strip * FRAGMENTS + j], a.slabs[i], b[j],
                              a.metadata[i / READER::SLABS_A_WORD]);
    }
}

// Where the main loop stands: the tile that is multiplied, its stage, the one before it, which is filled next, and the
// one after it; stages by their distance from the first in bytes.
template <int STAGES, int STAGE_BYTES>
struct SparseRing {
    int tile = 0;
    unsigned before = (STAGES - 1) * STAGE_BYTES, reading = 0, next = STAGE_BYTES;

    __device__ __forceinline__ void advance() {
        ++tile;
        before = reading;
        reading = next;
        next = next == (STAGES - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
    }
};

// Multiplies ring.tile, strip by strip; its first strip of B and its first step's fragments of A are loaded already.
// Strips of B come in two sets, each loaded while the one before it is multiplied. A fragment of A is replaced by the
// next step's as soon as the last strip of its step has used it.
template <bool WHOLE, int STAGES, typename OPERATION, typename TILE, typename READER, typename STREAM, typename RING>
__device__ __forceinline__ void multiply_sparse_tile(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                     typename READER::A& a, typename READER::STRIP (&b)[2],
                                                     const READER& reader, STREAM& stream, unsigned stages,
                                                     RING& ring) {
    constexpr int STEPS = READER::METADATA::STEPS, STRIPS = READER::STRIPS, ALL = STEPS * STRIPS;
    static_assert(ALL % 2 == 0, "two sets of strips take turns: a stage has an even number of them");
    // The copies are started in parts, one with each of the first strips, and before the tile's barrier.
    constexpr int PARTS = ALL - 1 < 6 ? ALL - 1 : 6;
#pragma unroll
    for (int at = 0; at < ALL; ++at) {
        const int strip = at % STRIPS, next = (at + 1) % ALL, next_step = next / STRIPS;
        if (next == 0) {
            // What comes next is in the next stage: it must have arrived, for every thread. Behind the barrier nobody
            // reads the present one any more: while the next tile is multiplied it is filled.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
        }
        // At the end there is no next tile, and nothing to load.
        const bool more = WHOLE || next > 0 || ring.tile + 1 < stream.tiles_k;
        const unsigned from = stages + (next == 0 ? ring.next : ring.reading);
        if (more) reader.load_strip(b[next % 2], from, next_step, next % STRIPS);
        if (at < PARTS) {
            if constexpr (WHOLE) {
                stream.template stage_whole<PARTS>(stages + ring.before, at);
            } else if (at == 0) {
                stream.stage_any(stages + ring.before, ring.tile + STAGES - 1);
            }
            // The waits count groups, not tiles: past the last tile they are empty.
            if (at == PARTS - 1) cp_async_commit_group();
        }
#pragma unroll
        for (int i = 0; i < READER::SLABS; ++i) {
            if (i % 2 == 0) {
                multiply_slab<0>(accumulators, i, a, b[at % 2], strip);
            } else {
                multiply_slab<1>(accumulators, i, a, b[at % 2], strip);
            }
            if (strip == STRIPS - 1 && more) reader.load_slab(a, from, next_step, i);
        }
    }
    ring.advance();
}

// A is [m, k / 2], the stored elements; `metadata` belongs to it, packed. OPERATION is the dense one whose fragments of
// A have the same registers.
template <typename OPERATION, typename TILE, typename ACCESS, int STAGES, int GROUP, int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    mma_sparse(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
               const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
               long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
               typename OPERATION::SCALE beta, const unsigned* metadata) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(m, TILE::BM), tiles_along(n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(!OPERATION::A_COLUMN_MAJOR, "A is stored along K");
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);
    using READER = SparseReader<OPERATION, TILE>;
    constexpr int STAGE_BYTES = READER::STAGE::BYTES;

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const READER reader;
    SparseStream<OPERATION, TILE, ACCESS> stream(gemm, metadata, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        stream.stage_any(stages + ahead * STAGE_BYTES, ahead);
        cp_async_commit_group();
    }
    typename READER::A fragments;
    typename READER::STRIP strips[2];
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();  // the first stage is full
    if (stream.tiles_k > 0) {
#pragma unroll
        for (int i = 0; i < READER::SLABS; ++i) reader.load_slab(fragments, stages, 0, i);
        reader.load_strip(strips[0], stages, 0, 0);
    }
    SparseRing<STAGES, STAGE_BYTES> ring;
#pragma unroll 1
    while (ring.tile + STAGES - 1 < stream.whole_tiles)
        multiply_sparse_tile<true, STAGES>(accumulators, fragments, strips, reader, stream, stages, ring);
#pragma unroll 1
    while (ring.tile < stream.tiles_k)
        multiply_sparse_tile<false, STAGES>(accumulators, fragments, strips, reader, stream, stages, ring);
    __syncthreads();  // the stages turn into patches
    store_tile<ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
