// The epilogue: from accumulators to D through subtiles in shared memory, written by stmatrix, stored by TMA or in
// vectors.
#pragma once

#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"
#include "tile/epilogue_subtile.cuh"
#include "tile/pipeline.cuh"
#include "tile/wgmma_direct_epilogue.cuh"

namespace warptile {

// Tensor maps of what an epilogue has STAGED: operands, then the output that it keeps. A base class of a kernel's
// parameters, which takes no bytes without.
template <int COUNT>
struct TensorMaps {
    TensorMap of_epilogue[COUNT];

    __device__ __forceinline__ const TensorMap* epilogue_maps() const { return of_epilogue; }
};
template <>
struct TensorMaps<0> {
    __device__ __forceinline__ const TensorMap* epilogue_maps() const { return nullptr; }
};
template <typename OPERATION, bool STAGED>
using EpilogueMaps = TensorMaps<STAGED ? EpilogueOf<OPERATION>::type::STAGED + EpilogueOf<OPERATION>::type::KEPT : 0>;

// What one warpgroup stores. Its buffers, two subtiles or a large one, alternate: one is filled while the other is
// read, by TMA, by the warpgroup itself, or by a *store warp* beside the producer.
//
// INTERLEAVED: accumulator rows are in the order of `block_row`. RESIDUE_CLASSES > 1: the matrices of the batch are
// residue classes of the rows of one D (`TileScheduler`); `map` has the rows of all classes side by side, so TMA cannot
// store a subtile that lies partly outside its class. OVERLAPPED: TMA stores subtiles between the K tiles of the next
// mainloop, and they are kept small. CLIPPED: the columns of a column-major D end at gemm.n, behind which others begin
// that are not to be written. TMA stores the subtiles before that, and `store_clipped` the one in which they end.
// STAGED: an epilogue is evaluated a few columns at a time, straight into the buffers, where operands that are laid out
// as D is come first (`store_staged`).
template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, bool BATCHED = false, bool INTERLEAVED = false,
          int RESIDUE_CLASSES = 1, bool OVERLAPPED = false, bool CLIPPED = false, bool STAGED = false>
struct WgmmaEpilogue {
    using OUT = typename OPERATION::OUT;
    using FUSION = typename GemmParams<OPERATION>::EPILOGUE;
    using SUBTILES = EpilogueSubtiles<OUT, TILE::BN, OPERATION::D_COLUMN_MAJOR,
                                      (!BY_TMA || RESIDUE_CLASSES > 1) ? 0
                                      : OVERLAPPED                     ? 56
                                                                       : 128,
                                      STAGED>;
    static constexpr int MAPS = STAGED ? FUSION::STAGED + FUSION::KEPT : 0;
    static constexpr int SETS = !STAGED ? 1 : FUSION::STAGED > FUSION::KEPT ? FUSION::STAGED : 1 + FUSION::KEPT;
    static constexpr int BUFFERS = SUBTILES::BUFFERS, BYTES = SETS * BUFFERS * SUBTILES::BYTES;
    static_assert(!STAGED || (BY_TMA && sizeof(OUT) == 2 && BUFFERS == 2 && SUBTILES::DOWN == 1 && !INTERLEAVED &&
                              RESIDUE_CLASSES == 1 && !OVERLAPPED && !CLIPPED),
                  "staged matrices have the fragments of D, and subtiles in two buffers");
    static constexpr bool ALIGNED = WIDTH * sizeof(OUT) == 16;
    using PIPELINE = Pipeline<BUFFERS, SUBTILES::BYTES>;
    static constexpr int COORDINATE_BYTES = 16, QUEUE_BYTES = PIPELINE::BARRIER_BYTES + BUFFERS * COORDINATE_BYTES;
    const GemmParams<OPERATION>& gemm;
    const TensorMap& map;
    PIPELINE buffers;  // barriers are there if STAGED, and with store warps; behind these, coordinates of subtiles
    int barrier;       // this warpgroup's named barrier
    int batch = 0;     // the matrix that is stored; with RESIDUE_CLASSES where its first row begins in D
    long long batch_stride = 0;
    const TensorMap* further_maps = nullptr;  // of the epilogue's staged operands, then of the output it keeps
    typename PIPELINE::STATE state;

    __device__ __forceinline__ void sync_warpgroup() const { bar_sync<WARPGROUP>(barrier); }
    __device__ __forceinline__ unsigned buffer() const { return buffers.stage_address(state.stage); }
    __device__ __forceinline__ unsigned coordinates_of(int stage) const {
        return buffers.barriers + PIPELINE::BARRIER_BYTES + stage * COORDINATE_BYTES;
    }

    // The first row (column) of subtile `subtile` in the warpgroup's part of D.
    static __device__ __forceinline__ int row_of(int subtile) {
        return subtile / SUBTILES::COUNT * 64 + subtile % SUBTILES::COUNT / SUBTILES::ACROSS * SUBTILES::ROWS;
    }
    static __device__ __forceinline__ int column_of(int subtile) {
        return subtile % SUBTILES::ACROSS * SUBTILES::COLUMNS;
    }

    template <bool TRANS>
    static __device__ __forceinline__ void stmatrix(unsigned to, const unsigned (&words)[4]) {
        stmatrix_x4<TRANS>(to, words);
    }
    template <bool TRANS>
    static __device__ __forceinline__ void stmatrix(unsigned to, const unsigned (&words)[2]) {
        stmatrix_x2<TRANS>(to, words);
    }

    template <bool TRANS>
    static __device__ __forceinline__ void ldmatrix(unsigned (&words)[4], unsigned from) {
        ldmatrix_x4<TRANS>(words, from);
    }
    template <bool TRANS>
    static __device__ __forceinline__ void ldmatrix(unsigned (&words)[2], unsigned from) {
        ldmatrix_x2<TRANS>(words, from);
    }

    // Where in a subtile the row of 16 bytes begins whose address this lane gives to ldmatrix or stmatrix, for COUNT n8
    // blocks from block `n8` on.
    template <int COUNT>
    static __device__ __forceinline__ unsigned fragment_offset(unsigned lane, unsigned warp, int n8) {
        const unsigned high = lane / 8 % 2, right = COUNT == 2 ? lane / 16 : 0;
        if constexpr (OPERATION::D_COLUMN_MAJOR)
            return SUBTILES::offset(8 * (n8 + right) + lane % 8, 32 * warp + 16 * high);
        return SUBTILES::offset(block_row<INTERLEAVED>(16 * warp + lane % 16), 16 * (n8 + right));
    }

    // Writes COUNT n8 blocks of a subtile, from its block `n8` on, by one stmatrix. The subtile's first block is number
    // `first` of the accumulators.
    template <int COUNT, typename SOURCE>
    static __device__ __forceinline__ void write_columns(unsigned to, unsigned lane, unsigned warp, int first, int n8,
                                                         const SOURCE& source) {
        unsigned words[2 * COUNT];
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
            const auto pair = source(first + n8 + i / 2, i % 2);
            words[i] = *reinterpret_cast<const unsigned*>(&pair);
        }
        stmatrix<OPERATION::D_COLUMN_MAJOR>(to + fragment_offset<COUNT>(lane, warp, n8), words);
    }

    // Writes subtile `subtile` of a block of 64 rows into the buffer. `source(n8, half)` gives two neighbouring
    // elements, as `AccumulatorTile::pair` does.
    template <typename SOURCE>
    __device__ __forceinline__ void write(int subtile, const SOURCE& source) const {
        const unsigned to = buffer(), lane = BY_TMA ? threadIdx.x % 32 : reread_laneid();
        const unsigned warp = threadIdx.x % WARPGROUP / 32;
        const int across = subtile % SUBTILES::ACROSS, down = subtile / SUBTILES::ACROSS;
        constexpr int N8_BLOCKS = SUBTILES::COLUMNS / 8;
        if constexpr (sizeof(OUT) == 2 && !(INTERLEAVED && OPERATION::D_COLUMN_MAJOR)) {
#pragma unroll
            for (int n8 = 0; n8 + 1 < N8_BLOCKS; n8 += 2)
                write_columns<2>(to, lane, warp, across * N8_BLOCKS, n8, source);
            if constexpr (N8_BLOCKS % 2 == 1)
                write_columns<1>(to, lane, warp, across * N8_BLOCKS, N8_BLOCKS - 1, source);
        } else if constexpr (OPERATION::D_COLUMN_MAJOR) {
            // A subtile of 32-bit elements has 32 rows: those of two warps, or with INTERLEAVED parts of all four.
            // Every eighth column has the same swizzle.
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned row = block_row<INTERLEAVED>(16 * warp + 8 * half + lane / 4), column = lane % 4 * 2;
                if (row / SUBTILES::ROWS != down) continue;
                const unsigned inside = row % SUBTILES::ROWS * sizeof(OUT);
                const unsigned at[] = {to + SUBTILES::offset(column, inside),
                                       to + SUBTILES::offset(column + 1, inside)};
#pragma unroll
                for (int n8 = 0; n8 < N8_BLOCKS; ++n8) {
                    const auto pair = source(across * N8_BLOCKS + n8, half);
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        st_shared(at[i] + n8 * 8 * SUBTILES::ROW_BYTES,
                                  *reinterpret_cast<const Packet<sizeof(OUT)>*>(&pair.elements[i]));
                }
            }
        } else if constexpr (sizeof(OUT) == 1) {
            // Two bytes of each lane: neighbouring lanes share words, and the swizzle keeps eight rows apart.
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const auto pair = source(across * N8_BLOCKS + n8, half);
                    const unsigned row = block_row<INTERLEAVED>(16 * warp + 8 * half + lane / 4);
                    st_shared(to + SUBTILES::offset(row, 8 * n8 + lane % 4 * 2),
                              *reinterpret_cast<const Packet<2>*>(&pair));
                }
        } else {
            // Each lane stores eight bytes, and a half-warp covers four rows at once. Neighbouring rows would have bank
            // conflicts, for the swizzle only exchanges the two chunks that they store to: odd rows store the columns
            // 16 further on first.
            constexpr int APART = N8_BLOCKS % 4 == 0 ? 2 : 0;
            const bool odd = APART && lane / 4 % 2;
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8) {
                if (n8 & APART) continue;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const unsigned row = block_row<INTERLEAVED>(16 * warp + 8 * half + lane / 4);
                    const unsigned column = 8 * n8 + lane % 4 * 2;
                    const auto near = source(across * N8_BLOCKS + n8, half);
                    if constexpr (APART == 0) {
                        st_shared(to + SUBTILES::offset(row, column * 4), *reinterpret_cast<const Packet<8>*>(&near));
                    } else {
                        const auto far = source(across * N8_BLOCKS + n8 + APART, half);
                        const unsigned apart = 8 * APART;
                        const auto first = odd ? far : near, second = odd ? near : far;
                        st_shared(to + SUBTILES::offset(row, (odd ? column + apart : column) * 4),
                                  *reinterpret_cast<const Packet<8>*>(&first));
                        st_shared(to + SUBTILES::offset(row, (odd ? column : column + apart) * 4),
                                  *reinterpret_cast<const Packet<8>*>(&second));
                    }
                }
            }
        }
    }

    // Stores subtile `subtile` of the part of D that begins at (row, column), and goes on to the other buffer.
    template <typename SOURCE>
    __device__ __forceinline__ void store(int subtile, int row, int column, const SOURCE& source) {
        row += row_of(subtile);
        column += column_of(subtile);
        if constexpr (BY_TMA) {
            if (CLIPPED && column + SUBTILES::COLUMNS > gemm.n) return;
            wait_until_read<BUFFERS - 1>();
            write(subtile % SUBTILES::COUNT, source);
            fence_proxy_async();
            sync_warpgroup();
            bool whole = true;
            if constexpr (RESIDUE_CLASSES > 1) {
                whole = column >= 0 && column + SUBTILES::COLUMNS <= gemm.n;
                if (!whole) store_subtile_elements<SUBTILES>(buffer(), gemm, batch * batch_stride, row, column);
            }
            if (threadIdx.x % WARPGROUP == 0) {
                if (RESIDUE_CLASSES > 1 ? whole : row < gemm.m && column < gemm.n) {
                    const int x = OPERATION::D_COLUMN_MAJOR ? row : column,
                              y = OPERATION::D_COLUMN_MAJOR ? column : row;
                    if constexpr (RESIDUE_CLASSES > 1) {
                        cp_async_bulk_tensor_store_2d(map, x + batch + elements_past_16_bytes(gemm.d), y, buffer());
                    } else if constexpr (BATCHED) {
                        cp_async_bulk_tensor_store_3d(map, x, y, batch, buffer());
                    } else {
                        cp_async_bulk_tensor_store_2d(map, x, y, buffer());
                    }
                }
                cp_async_bulk_commit_group();
            }
        } else {
            write(subtile % SUBTILES::COUNT, source);
            sync_warpgroup();
            store_subtile<SUBTILES, ALIGNED, WARPGROUP / 32>(buffer(), gemm, batch * batch_stride, row, column,
                                                             threadIdx.x % WARPGROUP / 32);
        }
        state.advance();
    }

    template <bool WITH_C, typename ACCUMULATORS>
    __device__ __forceinline__ void store_subtiles(const ACCUMULATORS& accumulators, int row, int column) {
        constexpr int END = ACCUMULATORS::M64_BLOCKS * SUBTILES::COUNT;
        auto reader = reader_of<ACCUMULATORS>(gemm, row, column);
#pragma unroll
        for (int subtile = 0; subtile < END; ++subtile) {
            if constexpr (STAGED) {
                store_staged<WITH_C, END>(accumulators, reader, subtile, row, column);
            } else {
                store(subtile, row, column, pairs_of<WITH_C, END>(accumulators, gemm, reader, subtile, row, column));
            }
        }
    }

    // STAGED: matrices of the epilogue that are laid out as D is have sets of buffers, beside each other. TMA loads
    // subtiles of operands, each thread overwrites their elements with those of D, and of a further output, that it has
    // computed from them, and TMA stores these.

    // Set `set` of buffer `stage`.
    __device__ __forceinline__ unsigned buffer_of(int set, int stage) const {
        return buffers.stage_address(stage) + set * BUFFERS * SUBTILES::BYTES;
    }

    // One thread starts loads of the operands for subtile `subtile` of the part of D that begins at (row, column), or
    // with PREFETCH brings them into L2.
    template <bool PREFETCH = false>
    __device__ __forceinline__ void load_operands(int subtile, int row, int column, int stage) const {
        row += row_of(subtile);
        column += column_of(subtile);
        const int x = OPERATION::D_COLUMN_MAJOR ? row : column, y = OPERATION::D_COLUMN_MAJOR ? column : row;
        const unsigned full = buffers.full_barrier(stage);
        if (!PREFETCH) mbarrier_arrive_expect_tx(full, FUSION::STAGED * SUBTILES::BYTES);
#pragma unroll
        for (int set = 0; set < FUSION::STAGED; ++set) {
            const TensorMap& map_of_operand = further_maps[set];
            const int matrix = BATCHED && gemm.staged_has_batch(set) ? batch : 0;
            if constexpr (PREFETCH && BATCHED) {
                cp_async_bulk_tensor_prefetch_3d(map_of_operand, x, y, matrix);
            } else if constexpr (PREFETCH) {
                cp_async_bulk_tensor_prefetch_2d(map_of_operand, x, y);
            } else if constexpr (BATCHED) {
                cp_async_bulk_tensor_load_3d(buffer_of(set, stage), map_of_operand, x, y, matrix, full);
            } else {
                cp_async_bulk_tensor_load_2d(buffer_of(set, stage), map_of_operand, x, y, full);
            }
        }
    }

    // Starts loads of the operands for the first of `end` subtiles of the part of D that begins at (row, column): as
    // many as there are buffers. The others come into L2.
    __device__ __forceinline__ void begin_staging(int row, int column, int end) const {
        if constexpr (STAGED && FUSION::STAGED > 0) {
            if (threadIdx.x % WARPGROUP != 0) return;
            cp_async_bulk_wait_group_read<0>();
            load_operands(0, row, column, state.stage);
            if (end > 1) load_operands(1, row, column, 1 - state.stage);
            for (int subtile = BUFFERS; subtile < end; ++subtile) load_operands<true>(subtile, row, column, 0);
        }
    }

    // Computes and stores subtile `subtile`, of END.
    template <bool WITH_C, int END, typename ACCUMULATORS, typename READER>
    __device__ __forceinline__ void store_staged(const ACCUMULATORS& accumulators, READER& reader, int subtile, int row,
                                                 int column) {
        using PAIRS_OF_BLOCK = typename READER::LOADED[2];
        if constexpr (FUSION::STAGED > 0) {
            buffers.consumer_wait(state);
        } else {
            wait_until_read<BUFFERS - 1>();
        }
        // When half of the subtile is computed, TMA has probably read the other buffer: operands may come into it.
        const auto refill = [&](int n8) {
            if (FUSION::STAGED == 0 || n8 != SUBTILES::COLUMNS / 8 / 4 * 2 || subtile < 1 || subtile + 1 >= END) return;
            if (threadIdx.x % WARPGROUP == 0) {
                cp_async_bulk_wait_group_read<0>();
                load_operands(subtile + 1, row, column, 1 - state.stage);
            }
        };
        reader.visit_blocks(
            subtile, subtile + 1 < END ? subtile + 1 : READER::NONE,
            [&](int n8, PAIRS_OF_BLOCK* loaded) {
                refill(n8);
                compute_staged<WITH_C, 2>(accumulators, reader, subtile, n8, loaded);
            },
            [&](int n8, PAIRS_OF_BLOCK* loaded) {
                refill(n8);
                compute_staged<WITH_C, 1>(accumulators, reader, subtile, n8, loaded);
            });
        fence_proxy_async();
        sync_warpgroup();
        if (threadIdx.x % WARPGROUP == 0) {
            row += row_of(subtile);
            column += column_of(subtile);
            if (row < gemm.m && column < gemm.n) {
                const int x = OPERATION::D_COLUMN_MAJOR ? row : column, y = OPERATION::D_COLUMN_MAJOR ? column : row;
#pragma unroll
                for (int set = 0; set <= FUSION::KEPT; ++set) {
                    const TensorMap& to = set == 0 ? map : further_maps[FUSION::STAGED + set - 1];
                    if constexpr (BATCHED) {
                        cp_async_bulk_tensor_store_3d(to, x, y, batch, buffer_of(set, state.stage));
                    } else {
                        cp_async_bulk_tensor_store_2d(to, x, y, buffer_of(set, state.stage));
                    }
                }
            }
            cp_async_bulk_commit_group();
        }
        state.advance();
    }

    // COUNT blocks of a subtile, from its block `n8` on: operands from shared memory, outputs to it.
    template <bool WITH_C, int COUNT, typename ACCUMULATORS, typename READER>
    __device__ __forceinline__ void compute_staged(const ACCUMULATORS& accumulators, const READER& reader, int subtile,
                                                   int n8, typename READER::LOADED (*loaded)[2]) const {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
        const unsigned at = buffer() + fragment_offset<COUNT>(lane, warp, n8);
        unsigned words[SETS][2 * COUNT];
#pragma unroll
        for (int set = 0; set < FUSION::STAGED; ++set)
            ldmatrix<OPERATION::D_COLUMN_MAJOR>(words[set], at + set * BUFFERS * SUBTILES::BYTES);
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
            auto& operands = loaded[i / 2][i % 2];
            if constexpr (FUSION::STAGED > 0) FUSION::template staged<0>(operands).words[0] = words[0][i];
            if constexpr (FUSION::STAGED > 1) FUSION::template staged<1>(operands).words[0] = words[1][i];
            typename FUSION::template Kept<2> kept;
            const auto pair = epilogue_pair<WITH_C>(accumulators, gemm, READER::m64_of(subtile),
                                                    READER::first_of(subtile) + n8 + i / 2, i % 2, reader.row,
                                                    reader.column, operands, kept);
            words[0][i] = *reinterpret_cast<const unsigned*>(&pair);
            if constexpr (FUSION::KEPT > 0) words[1][i] = *reinterpret_cast<const unsigned*>(kept.elements);
        }
#pragma unroll
        for (int set = 0; set <= FUSION::KEPT; ++set)
            stmatrix<OPERATION::D_COLUMN_MAJOR>(at + set * BUFFERS * SUBTILES::BYTES, words[set]);
    }

    // Waits until TMA has read all buffers but the last PENDING. Bulk groups belong to the thread that committed them:
    // only it can wait.
    template <int PENDING>
    __device__ __forceinline__ void wait_until_read() const {
        if (threadIdx.x % WARPGROUP == 0) cp_async_bulk_wait_group_read<PENDING>();
        sync_warpgroup();
    }

    struct NoReader {};

    // What reads an epilogue's operands ahead, its first loads under way; nothing without an epilogue. ALL: those of
    // vectors alone are all under way, as far as registers hold them.
    template <typename ACCUMULATORS, bool ALL = false>
    static __device__ __forceinline__ auto reader_of(const GemmParams<OPERATION>& gemm, int row, int column) {
        if constexpr (FUSION::FUSED) {
            constexpr bool ALL_AT_ONCE = ALL && reads_all_at_once<OPERATION, ACCUMULATORS>();
            EpilogueReader<OPERATION, ACCUMULATORS, SUBTILES, ALL_AT_ONCE> reader{gemm, row, column};
            reader.load_first();
            return reader;
        } else {
            return NoReader{};
        }
    }

    // The pairs of a subtile's elements, computed already.
    struct FusedSource {
        int first;
        Vector<OUT, 2> pairs[SUBTILES::COLUMNS / 8][2];
        __device__ __forceinline__ Vector<OUT, 2> operator()(int n8, int half) const { return pairs[n8 - first][half]; }
    };

    // Where the pairs of a subtile's elements come from: with an epilogue they are computed here, else one by one. END
    // subtiles follow each other.
    template <bool WITH_C, int END, typename ACCUMULATORS, typename READER>
    static __device__ __forceinline__ auto pairs_of(const ACCUMULATORS& accumulators, const GemmParams<OPERATION>& gemm,
                                                    READER& reader, int subtile, int row, int column) {
        if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) {
            FusedSource found;
            found.first = READER::first_of(subtile);
            reader.template compute<WITH_C>(found.pairs, accumulators, subtile,
                                            subtile + 1 < END ? subtile + 1 : READER::NONE);
            return found;
        } else {
            return [&, m64 = subtile / SUBTILES::COUNT, row, column](int n8, int half) {
                return epilogue_pair<WITH_C>(accumulators, gemm, m64, n8, half, row, column);
            };
        }
    }

    // Stores the warpgroup's part of D, from (row, column) on. Whether there is a C is decided once: a branch for every
    // pair would split the conversions into short basic blocks. BEGUN: `begin_staging` has been called.
    template <bool BEGUN = false, typename ACCUMULATORS>
    __device__ __forceinline__ void store_all(const ACCUMULATORS& accumulators, int row, int column) {
        if (STAGED && !BEGUN) begin_staging(row, column, ACCUMULATORS::M64_BLOCKS * SUBTILES::COUNT);
        if (gemm.beta == typename OPERATION::SCALE(0)) {
            store_subtiles<false>(accumulators, row, column);
        } else {
            store_subtiles<true>(accumulators, row, column);
        }
    }

    // CLIPPED, in two steps, of which the second is the same code for all subtiles. `write_clipped` writes subtile
    // `subtile` of 64 rows of D, which begin at `column`, into a buffer if columns end inside it;
    template <typename SOURCE>
    __device__ __forceinline__ void write_clipped(int subtile, int column, const SOURCE& source) {
        static_assert(CLIPPED && BY_TMA && OPERATION::D_COLUMN_MAJOR, "else `store` stores all subtiles");
        column += column_of(subtile);
        if (column >= gemm.n || column + SUBTILES::COLUMNS <= gemm.n) return;
        if (row_of(subtile) == 0) wait_until_read<0>();
        write(subtile, source);
        state.advance();
    }

    // `store_clipped` then stores it, or those below each other, of the 64 rows that begin at (row, column).
    __device__ __forceinline__ void store_clipped(int row, int column) const {
        static_assert(SUBTILES::DOWN <= BUFFERS, "the subtiles in which columns end are in buffers at one time");
        const int whole = (gemm.n - column) / SUBTILES::COLUMNS * SUBTILES::COLUMNS;
        if (column + whole == gemm.n) return;
        sync_warpgroup();
#pragma unroll 1
        for (int down = 0; down < SUBTILES::DOWN; ++down)
            store_subtile<SUBTILES, ALIGNED, WARPGROUP / 32>(
                buffers.stage_address((state.stage + BUFFERS - SUBTILES::DOWN + down) % BUFFERS), gemm, 0,
                row + down * SUBTILES::ROWS, column + whole, threadIdx.x % WARPGROUP / 32);
        sync_warpgroup();
    }

    // The two sides of a queue to the store warp. The consumer writes a subtile into an empty buffer, with its
    // coordinates;
    template <typename SOURCE>
    __device__ __forceinline__ void enqueue(int subtile, int row, int column, const SOURCE& source) {
        buffers.producer_acquire(state);
        write(subtile % SUBTILES::COUNT, source);
        if (threadIdx.x % WARPGROUP == 0) {
            const int coordinates[] = {batch, row + row_of(subtile), column + column_of(subtile)};
#pragma unroll
            for (unsigned i = 0; i < 3; ++i)
                st_shared(coordinates_of(state.stage) + 4 * i, Packet<4>{unsigned(coordinates[i])});
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(buffers.full_barrier(state.stage));
        state.advance();
    }

    // the store warp stores it to D.
    __device__ __forceinline__ void store_enqueued() {
        buffers.consumer_wait(state);
        int coordinates[3];
#pragma unroll
        for (unsigned i = 0; i < 3; ++i) coordinates[i] = ld_shared<4>(coordinates_of(state.stage) + 4 * i).bits;
        store_subtile<SUBTILES, ALIGNED, 1>(buffer(), gemm, coordinates[0] * batch_stride, coordinates[1],
                                            coordinates[2], 0);
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(buffers.empty_barrier(state.stage));
        state.advance();
    }

    // Stores a subtile, or leaves that to the store warp.
    template <bool HAS_STORE_WARP, typename SOURCE>
    __device__ __forceinline__ void store_or_enqueue(int subtile, int row, int column, const SOURCE& source) {
        if constexpr (HAS_STORE_WARP) {
            enqueue(subtile, row, column, source);
        } else {
            store(subtile, row, column, source);
        }
    }

    // Waits until the store warp has read all that is queued; from here on the warpgroup stores by itself.
    __device__ __forceinline__ void drain() {
        for (int i = 0; i < BUFFERS; ++i) {
            buffers.producer_acquire(state);
            state.advance();
        }
    }

    // Waits until TMA has read the buffers: they must live as long as that.
    __device__ __forceinline__ void finish() const {
        if (BY_TMA && threadIdx.x % WARPGROUP == 0) cp_async_bulk_wait_group_read<0>();
    }
};

}  // namespace warptile
