// From accumulators to D through shared memory: panels of 64 rows, written by stmatrix, stored by TMA or in vectors.
#pragma once

#include "ptx/matrix_move.cuh"
#include "ptx/tensor_copy.cuh"
#include "tile/wgmma_output_panels.cuh"
#include "tile/wgmma_ring.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

// What a warpgroup stores: its buffers, two panels or a large one, take turns, so that one is filled while the other is
// read: by TMA, by the warpgroup itself or by *storers*, warps that have nothing else to do.
// With SPREAD rows of accumulators are in `spread` order. With CLASSES > 1 the matrices of a batch are classes of rows of
// one D (`WgmmaSchedule`): `map` has their rows side by side, and what of a panel is partly outside TMA cannot store. What
// TMA stores between products, in BURSTS, is in small panels.
template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, bool BATCHED = false, bool SPREAD = false,
          int CLASSES = 1, bool BURSTS = false>
struct WgmmaOutput {
    using OUT = typename OPERATION::OUT;
    using PANELS = OutputPanels<OUT, TILE::BN, OPERATION::D_COLUMN_MAJOR, (!BY_TMA || CLASSES > 1) ? 0 : BURSTS ? 56 : 128>;
    static constexpr int BUFFERS = PANELS::BUFFERS, BYTES = BUFFERS * PANELS::BYTES;
    static constexpr bool ALIGNED = WIDTH * sizeof(OUT) == 16;
    using RING = StageRing<BUFFERS, PANELS::BYTES>;
    static constexpr int PLACE_BYTES = 16, HANDOVER_BYTES = RING::BARRIER_BYTES + BUFFERS * PLACE_BYTES;
    const Gemm<OPERATION>& gemm;
    const TensorMap& map;
    RING buffers;  // if there are storers with barriers, and behind them the places of panels
    int barrier;
    int matrix = 0;  // of a batch; with CLASSES where its first row begins in D
    long long matrix_stride = 0;
    typename RING::POSITION position;

    __device__ __forceinline__ void meet() const { named_barrier<WARPGROUP>(barrier); }
    __device__ __forceinline__ unsigned buffer() const { return buffers.at(position.stage); }
    __device__ __forceinline__ unsigned place_of(int stage) const {
        return buffers.barriers + RING::BARRIER_BYTES + stage * PLACE_BYTES;
    }

    // The first row, or column, of panel `panel` of all that a warpgroup has.
    static __device__ __forceinline__ int row_of(int panel) {
        return panel / PANELS::COUNT * 64 + panel % PANELS::COUNT / PANELS::ACROSS * PANELS::ROWS;
    }
    static __device__ __forceinline__ int column_of(int panel) { return panel % PANELS::ACROSS * PANELS::COLUMNS; }

    // Writes COUNT times eight columns of a panel, from its eights number `eight` on, by one stmatrix; the panel's are
    // those of the block from `first` on.
    template <int COUNT, typename SOURCE>
    static __device__ __forceinline__ void put_eights(unsigned to, unsigned lane, unsigned warp, int first, int eight,
                                                      const SOURCE& source) {
        const unsigned high = lane / 8 % 2, right = COUNT == 2 ? lane / 16 : 0;
        unsigned words[2 * COUNT];
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
            const auto pair = source(first + eight + i / 2, i % 2);
            words[i] = *reinterpret_cast<const unsigned*>(&pair);
        }
        if constexpr (OPERATION::D_COLUMN_MAJOR) {
            store_matrices<true>(to + PANELS::offset(8 * (eight + right) + lane % 8, 32 * warp + 16 * high), words);
        } else {
            store_matrices<false>(to + PANELS::offset(spread<SPREAD>(16 * warp + lane % 16), 16 * (eight + right)), words);
        }
    }

    // Writes panel `panel` of a block of 64 rows into the buffer. `source(eight, half)` gives neighbouring elements, as
    // `WgmmaAccumulators::pair` does.
    template <typename SOURCE>
    __device__ __forceinline__ void put(int panel, const SOURCE& source) const {
        const unsigned to = buffer(), lane = BY_TMA ? threadIdx.x % 32 : lane_anew(), warp = threadIdx.x % WARPGROUP / 32;
        const int across = panel % PANELS::ACROSS, down = panel / PANELS::ACROSS;
        constexpr int EIGHTS = PANELS::COLUMNS / 8;
        if constexpr (sizeof(OUT) == 2 && !(SPREAD && OPERATION::D_COLUMN_MAJOR)) {
#pragma unroll
            for (int eight = 0; eight + 1 < EIGHTS; eight += 2) put_eights<2>(to, lane, warp, across * EIGHTS, eight, source);
            if constexpr (EIGHTS % 2 == 1) put_eights<1>(to, lane, warp, across * EIGHTS, EIGHTS - 1, source);
        } else if constexpr (OPERATION::D_COLUMN_MAJOR) {
            // A panel of 32 bits has 32 rows: those of two warps. Spread rows that go together are of several.
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const auto pair = source(across * EIGHTS + eight, half);
                    const unsigned row = spread<SPREAD>(16 * warp + 8 * half + lane / 4);
                    const unsigned column = 8 * eight + lane % 4 * 2;
                    if (row / PANELS::ROWS == down)
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            store_shared(to + PANELS::offset(column + i, row % PANELS::ROWS * sizeof(OUT)),
                                         *reinterpret_cast<const Packet<sizeof(OUT)>*>(&pair.elements[i]));
                }
        } else {
            // Eight bytes a lane: of the four rows that go together, neighbours would meet in the two chunks that swizzling
            // only exchanges. Odd rows store the columns 16 further on first.
            constexpr int APART = EIGHTS % 4 == 0 ? 2 : 0;
            const bool odd = APART && lane / 4 % 2;
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight) {
                if (eight & APART) continue;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const unsigned row = spread<SPREAD>(16 * warp + 8 * half + lane / 4);
                    const unsigned column = 8 * eight + lane % 4 * 2;
                    const auto near = source(across * EIGHTS + eight, half);
                    if constexpr (APART == 0) {
                        store_shared(to + PANELS::offset(row, column * 4), *reinterpret_cast<const Packet<8>*>(&near));
                    } else {
                        const auto far = source(across * EIGHTS + eight + APART, half);
                        const unsigned apart = 8 * APART;
                        const auto first = odd ? far : near, second = odd ? near : far;
                        store_shared(to + PANELS::offset(row, (odd ? column + apart : column) * 4),
                                     *reinterpret_cast<const Packet<8>*>(&first));
                        store_shared(to + PANELS::offset(row, (odd ? column : column + apart) * 4),
                                     *reinterpret_cast<const Packet<8>*>(&second));
                    }
                }
            }
        }
    }

    // Stores panel `panel` of all from (row, column) on, and goes on to the other buffer.
    template <typename SOURCE>
    __device__ __forceinline__ void store(int panel, int row, int column, const SOURCE& source) {
        row += row_of(panel);
        column += column_of(panel);
        if constexpr (BY_TMA) {
            // Only the thread that starts stores knows which have read their buffer.
            if (threadIdx.x % WARPGROUP == 0) store_wait_group_read<BUFFERS - 1>();
            meet();
            put(panel % PANELS::COUNT, source);
            fence_async_proxy();
            meet();
            bool whole = true;
            if constexpr (CLASSES > 1) {
                whole = column >= 0 && column + PANELS::COLUMNS <= gemm.n;
                if (!whole) copy_elements<PANELS>(buffer(), gemm, matrix * matrix_stride, row, column);
            }
            if (threadIdx.x % WARPGROUP == 0) {
                if (CLASSES > 1 ? whole : row < gemm.m && column < gemm.n) {
                    const int x = OPERATION::D_COLUMN_MAJOR ? row : column, y = OPERATION::D_COLUMN_MAJOR ? column : row;
                    if constexpr (CLASSES > 1) {
                        store_box(map, x + matrix + elements_early(gemm.d), y, buffer());
                    } else if constexpr (BATCHED) {
                        store_box(map, x, y, matrix, buffer());
                    } else {
                        store_box(map, x, y, buffer());
                    }
                }
                store_commit_group();
            }
        } else {
            put(panel % PANELS::COUNT, source);
            meet();
            copy_panel<PANELS, ALIGNED, WARPGROUP / 32>(buffer(), gemm, matrix * matrix_stride, row, column,
                                                        threadIdx.x % WARPGROUP / 32);
        }
        position.advance();
    }

    template <bool WITH_C, typename ACCUMULATORS>
    __device__ __forceinline__ void store_panels(const ACCUMULATORS& accumulators, int row, int column) {
#pragma unroll
        for (int panel = 0; panel < ACCUMULATORS::BLOCKS * PANELS::COUNT; ++panel)
            store(panel, row, column, [&](int eight, int half) {
                return result<WITH_C>(accumulators, gemm, panel / PANELS::COUNT, eight, half, row, column);
            });
    }

    // Stores all that a warpgroup has of D, from (row, column) on. Whether there is a C is asked once: asked for every eight
    // columns it parts the packing into short pieces. (Of 32 bits, turned round, both ways do not fit into registers.)
    template <typename ACCUMULATORS>
    __device__ __forceinline__ void store_all(const ACCUMULATORS& accumulators, int row, int column) {
        if (PANELS::WIDE && gemm.beta == typename OPERATION::SCALE(0)) {
            store_panels<false>(accumulators, row, column);
        } else {
            store_panels<true>(accumulators, row, column);
        }
    }

    // The same in two parts. A warpgroup puts a panel into a buffer that is empty, with where it belongs beside it;
    template <typename SOURCE>
    __device__ __forceinline__ void hand_over(int panel, int row, int column, const SOURCE& source) {
        mbarrier_wait(buffers.empty(position.stage), position.parity ^ 1);
        put(panel % PANELS::COUNT, source);
        if (threadIdx.x % WARPGROUP == 0) {
            const int place[] = {matrix, row + row_of(panel), column + column_of(panel)};
#pragma unroll
            for (unsigned i = 0; i < 3; ++i) store_shared(place_of(position.stage) + 4 * i, Packet<4>{unsigned(place[i])});
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(buffers.full(position.stage));
        position.advance();
    }

    // its storer, one warp, copies it to D.
    __device__ __forceinline__ void take_over() {
        mbarrier_wait(buffers.full(position.stage), position.parity);
        int place[3];
#pragma unroll
        for (unsigned i = 0; i < 3; ++i) place[i] = load_packet<4>(place_of(position.stage) + 4 * i).bits;
        copy_panel<PANELS, ALIGNED, 1>(buffer(), gemm, place[0] * matrix_stride, place[1], place[2], 0);
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(buffers.empty(position.stage));
        position.advance();
    }

    // Stores a panel, or has it stored.
    template <bool HAS_STORER, typename SOURCE>
    __device__ __forceinline__ void leave(int panel, int row, int column, const SOURCE& source) {
        if constexpr (HAS_STORER) {
            hand_over(panel, row, column, source);
        } else {
            store(panel, row, column, source);
        }
    }

    // Waits until all that was handed over has been read: from here on the warpgroup stores by itself.
    __device__ __forceinline__ void take_back() {
        for (int i = 0; i < BUFFERS; ++i) {
            mbarrier_wait(buffers.empty(position.stage), position.parity ^ 1);
            position.advance();
        }
    }

    // No store reads the buffers any more.
    __device__ __forceinline__ void finish() const {
        if (BY_TMA && threadIdx.x % WARPGROUP == 0) store_wait_group_read<0>();
    }
};

}  // namespace warptile
