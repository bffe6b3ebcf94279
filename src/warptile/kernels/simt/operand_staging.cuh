// From global to shared memory: tiles that keep their orientation and tiles that are transposed on the way.
#pragma once

#include "ptx/cp_async.cuh"
#include "simt/register_tile.cuh"

namespace warptile {

#if __CUDA_ARCH__ >= 800
inline constexpr bool HAS_CP_ASYNC = true;
#else
inline constexpr bool HAS_CP_ASYNC = false;
#endif

// Whether staging changes the type.
template <typename STAGED, typename ELEMENT>
inline constexpr bool CONVERTS = true;
template <typename ELEMENT>
inline constexpr bool CONVERTS<ELEMENT, ELEMENT> = false;

// Closes a group of copies, and waits until at most PENDING are in flight; nothing where copies are synchronous.
__device__ __forceinline__ void commit_copies() {
    if constexpr (HAS_CP_ASYNC) cp_async_commit_group();
}
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    if constexpr (HAS_CP_ASYNC) cp_async_wait_group<PENDING>();
}

// Copies WIDTH elements or, if not `valid`, writes as many zeros. By cp.async where the architecture has it, the type
// stays and there are at least its 4 bytes; else through registers, with a conversion. Either way other threads may
// read them after cp.async's wait and a barrier.
template <int WIDTH, bool WHOLE, typename STAGED, typename ELEMENT>
__device__ __forceinline__ void stage_vector(STAGED* shared, const ELEMENT* global, bool valid) {
    constexpr int BYTES = WIDTH * sizeof(ELEMENT);
    if constexpr (HAS_CP_ASYNC && !CONVERTS<STAGED, ELEMENT> && BYTES >= 4) {
        if constexpr (WHOLE) {
            cp_async<BYTES>(shared, global);
        } else {
            cp_async_zero_fill<BYTES>(shared, global, valid ? BYTES : 0);
        }
    } else {
        Vector<ELEMENT, WIDTH> vector{};
        if (WHOLE || valid) vector = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(global);
        Vector<STAGED, WIDTH> staged;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) staged.element[i] = static_cast<STAGED>(vector.element[i]);
        *reinterpret_cast<Vector<STAGED, WIDTH>*>(shared) = staged;
    }
}

// An operand whose rows run along K (A, or B stored as [N, K]), staged as [BK][EXTENT]: one k's elements become
// neighbours. Eight lanes read eight neighbouring k of a row, a 32-byte sector of float, and write them PITCH apart:
// with 16 bytes of padding these and the warp's other three rows fall into 32 different banks.
template <typename ELEMENT, typename STAGED, int EXTENT, int BK, int THREADS>
struct TransposedOperand {
    static constexpr int PITCH = EXTENT + 16 / sizeof(STAGED);
    static constexpr int ELEMENTS = BK * PITCH;
    static constexpr int LANES_K = 8, ROWS = THREADS / LANES_K, PASSES = EXTENT / ROWS;
    static_assert(EXTENT % ROWS == 0 && BK % LANES_K == 0, "every thread copies the same number of elements");

    const ELEMENT* source[PASSES];  // this thread's rows, at its first k of the tile that is staged next
    int first;                      // where its first element goes in the staged tile
    int k;                          // its first k in the tile

    // Rows past the matrix's end read the last row again: results computed from them are never stored.
    __device__ __forceinline__ TransposedOperand(const ELEMENT* matrix, long long ld, unsigned origin, int extent) {
        const int row = threadIdx.x / LANES_K;
        k = threadIdx.x % LANES_K;
        first = k * PITCH + row;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const unsigned at = min(origin + row + pass * ROWS, static_cast<unsigned>(extent) - 1);
            source[pass] = matrix + at * ld + k;
        }
    }

    // Stages the next tile, of which only `k_left` k are left when it is not WHOLE, and moves on to the one after it.
    template <bool WHOLE>
    __device__ __forceinline__ void stage(STAGED* shared, int k_left) {
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
#pragma unroll
            for (int step = 0; step < BK; step += LANES_K)
                stage_vector<1, WHOLE>(shared + first + step * PITCH + pass * ROWS, source[pass] + step,
                                       k + step < k_left);
            source[pass] += WHOLE ? BK : k_left;
        }
    }
};

// An operand whose rows run across K (B as [K, N], A as [K, M]), staged as it is: [BK][EXTENT], WIDTH elements a copy.
// The matrix's own extent is a multiple of WIDTH, so that a vector lies wholly inside or wholly outside.
template <typename ELEMENT, typename STAGED, int EXTENT, int BK, int THREADS, int WIDTH>
struct DirectOperand {
    static constexpr int PITCH = EXTENT;
    static constexpr int ELEMENTS = BK * PITCH;
    static constexpr int PER_ROW = EXTENT / WIDTH;
    static constexpr int ROWS = THREADS > PER_ROW ? THREADS / PER_ROW : 1;   // of one pass
    static constexpr int PARTS = PER_ROW > THREADS ? PER_ROW / THREADS : 1;  // of one row
    static_assert(BK % ROWS == 0 && ROWS * PER_ROW == PARTS * THREADS,
                  "every thread copies the same number of vectors");

    const ELEMENT* source[PARTS];  // this thread's vectors of the row that is staged next
    long long ld;
    int first;  // where its first vector goes in the staged tile
    int k;      // its first k in the tile

    // Columns past the matrix's end read the last ones again: results computed from them are never stored.
    __device__ __forceinline__ DirectOperand(const ELEMENT* matrix, long long ld, unsigned origin, int extent)
        : ld(ld) {
        const int column = threadIdx.x % PER_ROW * WIDTH;
        k = threadIdx.x / PER_ROW;  // zero when a row takes several passes
        first = k * PITCH + column;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const unsigned at = min(origin + column + part * THREADS * WIDTH, static_cast<unsigned>(extent) - WIDTH);
            source[part] = matrix + k * ld + at;
        }
    }

    // Stages the next tile, of which only `k_left` k are left when it is not WHOLE, and moves on to the one after it.
    template <bool WHOLE>
    __device__ __forceinline__ void stage(STAGED* shared, int k_left) {
#pragma unroll
        for (int row = 0; row < BK; row += ROWS)
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                stage_vector<WIDTH, WHOLE>(shared + first + row * PITCH + part * THREADS * WIDTH, source[part],
                                           k + row < k_left);
                source[part] += ROWS * ld;
            }
        if constexpr (!WHOLE) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) source[part] += (k_left - BK) * ld;  // only `k_left` rows existed
        }
    }
};

// An operand by its layout: with rows along K (true), or across K.
template <bool ROWS_ALONG_K, typename ELEMENT, typename STAGED, int EXTENT, int BK, int THREADS, int WIDTH>
struct SelectOperand {
    using type = DirectOperand<ELEMENT, STAGED, EXTENT, BK, THREADS, WIDTH>;
};
template <typename ELEMENT, typename STAGED, int EXTENT, int BK, int THREADS, int WIDTH>
struct SelectOperand<true, ELEMENT, STAGED, EXTENT, BK, THREADS, WIDTH> {
    using type = TransposedOperand<ELEMENT, STAGED, EXTENT, BK, THREADS>;
};

}  // namespace warptile
