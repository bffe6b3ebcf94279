// From accumulators to D through shared memory: panels of 64 rows, written by stmatrix, stored by TMA or in vectors.
#pragma once

#include "ptx/matrix_move.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"
#include "tile/swizzle.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

// The panels that 64 rows of a tile, BN columns wide, are stored in. A *line* of a panel is contiguous in D: W elements
// of a row, or of a column where D is column-major; a panel has LINES of them.
template <typename OUT, int BN, bool D_COLUMN_MAJOR>
struct OutputPanels {
    static constexpr int FITS = 128 / sizeof(OUT);

    // The largest power of two up to `most` that divides BN.
    static __device__ constexpr int part(int most) { return BN % most == 0 ? most : part(most / 2); }

    static constexpr int W = D_COLUMN_MAJOR ? (FITS < 64 ? FITS : 64) : part(FITS);
    static constexpr int LINES = D_COLUMN_MAJOR ? part(64) : 64;
    static constexpr int ROW_BYTES = W * sizeof(OUT), BYTES = 64 * 128;
    static constexpr int ROWS = D_COLUMN_MAJOR ? W : 64, COLUMNS = D_COLUMN_MAJOR ? LINES : W;
    static constexpr int DOWN = 64 / ROWS, ACROSS = BN / COLUMNS, COUNT = DOWN * ACROSS;
    static_assert(ROW_BYTES >= 16, "TMA moves rows of at least 16 bytes");

    static __device__ __forceinline__ unsigned offset(unsigned line, unsigned byte) {
        const unsigned inside = line * ROW_BYTES + byte;
        if constexpr (ROW_BYTES >= 32) return swizzled<ROW_BYTES>(inside);
        return inside;
    }
};

// What a warpgroup stores: its buffers, two panels, take turns, so that one is filled while TMA reads the other.
template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, bool BATCHED = false>
struct WgmmaOutput {
    using OUT = typename OPERATION::OUT;
    using PANELS = OutputPanels<OUT, TILE::BN, OPERATION::D_COLUMN_MAJOR>;
    static constexpr int BUFFERS = 2, BYTES = BUFFERS * PANELS::BYTES;
    const Gemm<OPERATION>& gemm;
    const TensorMap& map;
    unsigned buffers;
    int barrier;
    unsigned buffer = 0;
    int matrix = 0;  // of a batch
    long long matrix_stride = 0;

    __device__ __forceinline__ void meet() const { named_barrier<WARPGROUP>(barrier); }

    // Writes panel `panel` of a block of 64 rows into the buffer. `source(eight, half)` gives neighbouring elements, as
    // `WgmmaAccumulators::pair` does.
    template <typename SOURCE>
    __device__ __forceinline__ void put(int panel, const SOURCE& source) const {
        const unsigned to = buffers + buffer * PANELS::BYTES, lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
        const int across = panel % PANELS::ACROSS, down = panel / PANELS::ACROSS;
        constexpr int EIGHTS = PANELS::COLUMNS / 8;
        if constexpr (sizeof(OUT) == 2) {
            constexpr int TOGETHER = EIGHTS >= 2 ? 2 : 1;
            const unsigned high = lane / 8 % 2, right = TOGETHER == 2 ? lane / 16 : 0;
#pragma unroll
            for (int eight = 0; eight < EIGHTS; eight += TOGETHER) {
                unsigned words[2 * TOGETHER];
#pragma unroll
                for (int i = 0; i < 2 * TOGETHER; ++i) {
                    const auto pair = source(across * EIGHTS + eight + i / 2, i % 2);
                    words[i] = *reinterpret_cast<const unsigned*>(&pair);
                }
                if constexpr (OPERATION::D_COLUMN_MAJOR) {
                    store_matrices<true>(to + PANELS::offset(8 * (eight + right) + lane % 8, 32 * warp + 16 * high), words);
                } else {
                    store_matrices<false>(to + PANELS::offset(16 * warp + lane % 16, 16 * (eight + right)), words);
                }
            }
        } else if constexpr (OPERATION::D_COLUMN_MAJOR) {
            // A panel has 32 rows: those of two warps.
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const auto pair = source(across * EIGHTS + eight, half);
                    const unsigned row = 16 * warp + 8 * half + lane / 4, column = 8 * eight + lane % 4 * 2;
                    if (row / PANELS::ROWS == down)
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            store_shared(to + PANELS::offset(column + i, row % PANELS::ROWS * 4),
                                         *reinterpret_cast<const Packet<4>*>(&pair.elements[i]));
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
                    const unsigned row = 16 * warp + 8 * half + lane / 4, column = 8 * eight + lane % 4 * 2;
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

    // Stores panel `panel` of a block whose first element of D is (row, column), and goes on to the other buffer.
    template <typename SOURCE>
    __device__ __forceinline__ void store(int panel, int row, int column, const SOURCE& source) {
        row += panel / PANELS::ACROSS * PANELS::ROWS;
        column += panel % PANELS::ACROSS * PANELS::COLUMNS;
        if constexpr (BY_TMA) {
            // Only the thread that starts stores knows which have read their buffer.
            if (threadIdx.x % WARPGROUP == 0) store_wait_group_read<BUFFERS - 1>();
            meet();
            put(panel, source);
            fence_async_proxy();
            meet();
            if (threadIdx.x % WARPGROUP == 0) {
                if (row < gemm.m && column < gemm.n) {
                    const int x = OPERATION::D_COLUMN_MAJOR ? row : column, y = OPERATION::D_COLUMN_MAJOR ? column : row;
                    if constexpr (BATCHED) {
                        store_box(map, x, y, matrix, buffers + buffer * PANELS::BYTES);
                    } else {
                        store_box(map, x, y, buffers + buffer * PANELS::BYTES);
                    }
                }
                store_commit_group();
            }
        } else {
            put(panel, source);
            meet();
            copy_out(row, column);
        }
        buffer ^= 1;
    }

    // Stores all that a warpgroup has of D, from (row, column) on.
    template <typename ACCUMULATORS>
    __device__ __forceinline__ void store_all(const ACCUMULATORS& accumulators, int row, int column) {
#pragma unroll
        for (int block = 0; block < ACCUMULATORS::BLOCKS; ++block)
#pragma unroll
            for (int panel = 0; panel < PANELS::COUNT; ++panel)
                store(panel, row + 64 * block, column, [&](int eight, int half) {
                    return result(accumulators, gemm, block, eight, half, row, column);
                });
    }

    // The buffer to D without TMA, along lines: 16 bytes at a time where lines start at multiples of that, else as far as
    // whole lines lie inside D, what comes before and behind one by one.
    __device__ __forceinline__ void copy_out(int row, int column) const {
        constexpr int SIZE = sizeof(OUT);
        const unsigned from = buffers + buffer * PANELS::BYTES;
        const int first_line = OPERATION::D_COLUMN_MAJOR ? column : row, first = OPERATION::D_COLUMN_MAJOR ? row : column;
        const int lines = (OPERATION::D_COLUMN_MAJOR ? gemm.n : gemm.m) - first_line;
        const int elements = (OPERATION::D_COLUMN_MAJOR ? gemm.m : gemm.n) - first;
        OUT* to = gemm.d + (matrix * matrix_stride + first_line * gemm.ldd + first);
        if (elements < PANELS::W) {
            copy_pieces<1>(from, to, lines, elements);
        } else if constexpr (WIDTH * SIZE == 16) {
            copy_pieces<WIDTH>(from, to, lines, elements);
        } else {
            copy_shifted(from, to, lines);
        }
    }

    // WIDTH_ elements at a time, of `lines` lines of `elements` elements at most.
    template <int WIDTH_>
    __device__ __forceinline__ void copy_pieces(unsigned from, OUT* to, int lines, int elements) const {
        constexpr int SIZE = sizeof(OUT), PER_LINE = PANELS::W / WIDTH_;
#pragma unroll 4
        for (int index = threadIdx.x % WARPGROUP; index < PANELS::LINES * PER_LINE; index += WARPGROUP) {
            const int line = index / PER_LINE, element = index % PER_LINE * WIDTH_;
            if (line < lines && element + WIDTH_ <= elements)
                *reinterpret_cast<Packet<WIDTH_ * SIZE>*>(to + (line * gemm.ldd + element)) =
                    load_packet<WIDTH_ * SIZE>(from + PANELS::offset(line, element * SIZE));
        }
    }

    // Whole lines that start anywhere. In each, 16 bytes of D at a time from the first multiple of 16 bytes on: they begin
    // at any element of the buffer's line, so five words are read and shifted. As many elements remain as 16 bytes hold,
    // some before and the others behind.
    __device__ __forceinline__ void copy_shifted(unsigned from, OUT* to, int lines) const {
        constexpr int SIZE = sizeof(OUT), TOGETHER = 16 / SIZE, PER_LINE = PANELS::W / TOGETHER;
        const auto before = [&](int line) {
            const auto address = reinterpret_cast<unsigned long long>(to + line * gemm.ldd);
            return static_cast<int>((16 - address % 16) % 16) / SIZE;
        };
#pragma unroll 2
        for (int index = threadIdx.x % WARPGROUP; index < PANELS::LINES * PER_LINE; index += WARPGROUP) {
            const int line = index / PER_LINE, element = before(line) + index % PER_LINE * TOGETHER;
            if (line >= lines || element + TOGETHER > PANELS::W) continue;
            const unsigned byte = element * SIZE, start = byte / 4 * 4, shift = byte % 4 * 8;
            unsigned words[5];
#pragma unroll
            for (int i = 0; i < 5; ++i)
                words[i] = i < 4 || shift ? load_packet<4>(from + PANELS::offset(line, start + 4 * i)).bits : 0;
            const uint4 packet = {__funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
                                  __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], words[4], shift)};
            *reinterpret_cast<uint4*>(to + (line * gemm.ldd + element)) = packet;
        }
#pragma unroll 2
        for (int index = threadIdx.x % WARPGROUP; index < PANELS::LINES * TOGETHER; index += WARPGROUP) {
            const int line = index / TOGETHER, lead = before(line), number = index % TOGETHER;
            if (line >= lines || lead == 0) continue;
            const int element = number < lead ? number : PANELS::W - TOGETHER + number;
            *reinterpret_cast<Packet<SIZE>*>(to + (line * gemm.ldd + element)) =
                load_packet<SIZE>(from + PANELS::offset(line, element * SIZE));
        }
    }

    // No store reads the buffers any more.
    __device__ __forceinline__ void finish() const {
        if (BY_TMA && threadIdx.x % WARPGROUP == 0) store_wait_group_read<0>();
    }
};

}  // namespace warptile
