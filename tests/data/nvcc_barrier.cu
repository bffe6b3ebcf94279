// The source of nvcc_barrier.ptx (NVRTC 13.0 with libcu++ of CCCL 13.0, --gpu-architecture=compute_90a,
// --std=c++17): cuda::barrier, cuda::memcpy_async and cuda::ptx as libraries write them. A thousand constants of libcu++
// that nothing refers to are left out of the PTX.
#include <cuda/barrier>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int TILE = 256, STAGES = 2;

// out[i] = the sum of x[j] over the tiles that hold i: a ring of bulk copies, sums kept in shared memory, one bulk store.
extern "C" __global__ void sum_tiles(float* out, const float* x, int tiles) {
  alignas(128) __shared__ float stage[STAGES][TILE];
  alignas(128) __shared__ float sum[TILE];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier full[STAGES];
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) init(&full[i], blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  const float* from = x + blockIdx.x * tiles * TILE;
  auto arrive = [&](int tile) {
    Barrier& bar = full[tile % STAGES];
    if (threadIdx.x == 0) {
      cuda::device::memcpy_async_tx(stage[tile % STAGES], from + tile * TILE, cuda::aligned_size_t<16>(TILE * 4), bar);
      return cuda::device::barrier_arrive_tx(bar, 1, TILE * 4);
    }
    return bar.arrive();
  };
  Barrier::arrival_token tokens[STAGES] = {arrive(0), Barrier::arrival_token{}};
  float total[TILE / 64] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) tokens[(tile + 1) % STAGES] = arrive(tile + 1);
    full[tile % STAGES].wait(cuda::std::move(tokens[tile % STAGES]));
    for (int i = 0; i < TILE / 64; ++i) total[i] += stage[tile % STAGES][threadIdx.x + 64 * i];
    __syncthreads();
  }
  for (int i = 0; i < TILE / 64; ++i) sum[threadIdx.x + 64 * i] = total[i];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * TILE, sum, TILE * 4);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}

// Each thread copies its part into shared memory and all wait for all parts: cuda::memcpy_async on one barrier.
extern "C" __global__ void reversed(int* out, const int* x, int count) {
  extern __shared__ int held[];
  __shared__ Barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) cuda::memcpy_async(held + i, x + i, cuda::aligned_size_t<4>(4), bar);
  bar.arrive_and_wait();
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = held[count - 1 - i];
}

// A tensor map as a parameter: what cuda.h calls CUtensorMap.
struct alignas(64) TensorMap { unsigned char bytes[128]; };

constexpr int COLUMNS = 64, ROWS = 8;

// Boxes of a matrix of 16-bit numbers, their bits inverted: one tensor copy in and one out for each block.
extern "C" __global__ void inverted(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to) {
  alignas(1024) __shared__ unsigned short box[ROWS * COLUMNS];
  __shared__ cuda::std::uint64_t bar;
  const cuda::std::int32_t place[2] = {static_cast<int>(blockIdx.x) * COLUMNS, static_cast<int>(blockIdx.y) * ROWS};
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box, &from, place, &bar);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof box);
  }
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) box[i] = ~box[i];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, place, box);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
