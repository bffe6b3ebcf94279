// Kernels of ours that use CUB, libcu++ and cooperative groups as programs do. cccl.py says what each computes.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/semaphore>

namespace cg = cooperative_groups;
using DeviceFlag = cuda::atomic_ref<int, cuda::thread_scope_device>;

template <int THREADS>
__global__ void block_sum(int* y, const int* x) {
  using Reduce = cub::BlockReduce<int, THREADS>;
  __shared__ typename Reduce::TempStorage storage;
  const int sum = Reduce(storage).Sum(x[blockIdx.x * THREADS + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// Without the barrier that CUB asks for where storage is used again.
template <int THREADS>
__global__ void block_sum_twice(int* y, const int* x) {
  using Reduce = cub::BlockReduce<int, THREADS>;
  __shared__ typename Reduce::TempStorage storage;
  const int sum = Reduce(storage).Sum(x[threadIdx.x]);
  const int negated = Reduce(storage).Sum(-x[threadIdx.x]);
  if (threadIdx.x == 0) y[0] = sum - negated;
}

template <int THREADS>
__global__ void block_scan(int* y, const int* x) {
  using Scan = cub::BlockScan<int, THREADS>;
  __shared__ typename Scan::TempStorage storage;
  int value = x[threadIdx.x];
  Scan(storage).InclusiveSum(value, value);
  y[threadIdx.x] = value;
}

template <int THREADS, int ITEMS>
__global__ void block_radix_sort(unsigned* keys) {
  using Sort = cub::BlockRadixSort<unsigned, THREADS, ITEMS>;
  __shared__ typename Sort::TempStorage storage;
  unsigned held[ITEMS];
  for (int i = 0; i < ITEMS; i++) held[i] = keys[threadIdx.x * ITEMS + i];
  Sort(storage).Sort(held);
  for (int i = 0; i < ITEMS; i++) keys[threadIdx.x * ITEMS + i] = held[i];
}

template <int THREADS, int ITEMS>
__global__ void negate(int* y, const int* x) {
  using Load = cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } storage;
  int held[ITEMS];
  Load(storage.load).Load(x, held);
  __syncthreads();
  for (int& each : held) each = -each;
  Store(storage.store).Store(y, held);
}

template <int THREADS>
__global__ void block_histogram(unsigned* y, const unsigned char* x) {
  using Histogram = cub::BlockHistogram<unsigned char, THREADS, 4, 256>;
  __shared__ typename Histogram::TempStorage storage;
  __shared__ unsigned counts[256];
  unsigned char held[4];
  for (int i = 0; i < 4; i++) held[i] = x[threadIdx.x * 4 + i];
  Histogram(storage).Histogram(held, counts);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += THREADS) y[i] = counts[i];
}

__global__ void warp_scan_and_maximum(float* y, const float* x) {
  using Scan = cub::WarpScan<float>;
  using Reduce = cub::WarpReduce<float>;
  __shared__ typename Scan::TempStorage scans[4];
  __shared__ typename Reduce::TempStorage reductions[4];
  const int warp = threadIdx.x / 32;
  float sum;
  Scan(scans[warp]).InclusiveSum(x[threadIdx.x], sum);
  const float largest = Reduce(reductions[warp]).Reduce(x[threadIdx.x], cuda::maximum<>{});
  y[threadIdx.x] = sum + __shfl_sync(0xffffffffu, largest, 0);
}

__global__ void add_in_every_order(int* x) {
  DeviceFlag ref(x[0]);
  ref.fetch_add(1, cuda::memory_order_relaxed);
  ref.fetch_add(1, cuda::memory_order_acquire);
  ref.fetch_add(1, cuda::memory_order_release);
  ref.fetch_add(1, cuda::memory_order_acq_rel);
  ref.fetch_add(1, cuda::memory_order_seq_cst);
}

template <int STORE, int LOAD>
__global__ void message(int* y, int* data, int* flag) {
  DeviceFlag ref(*flag);
  if (blockIdx.x == 0) {
    data[0] = 42;
    ref.store(1, static_cast<cuda::memory_order>(STORE));
  } else {
    while (ref.load(static_cast<cuda::memory_order>(LOAD)) == 0) {
    }
    y[0] = data[0];
  }
}

__global__ void wait_for_message(int* y, int* data, int* flag) {
  DeviceFlag ref(*flag);
  if (blockIdx.x == 0) {
    data[0] = 42;
    ref.store(1, cuda::memory_order_release);
    ref.notify_all();
  } else {
    ref.wait(0, cuda::memory_order_acquire);
    y[0] = data[0];
  }
}

__global__ void barrier_phases(int* y, const int* x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[128];
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < 3; i++) {
    tile[threadIdx.x] = x[threadIdx.x] + i;
    barrier.arrive_and_wait();
    sum += tile[127 - threadIdx.x];
    barrier.arrive_and_wait();
  }
  y[threadIdx.x] = sum;
}

template <int STAGES, bool RELEASES>
__global__ void pipeline(int* y, const int* x, int batches) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
  __shared__ alignas(16) int tile[STAGES][128];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0;
  for (int batch = 0, fetched = 0; batch < batches; batch++) {
    for (; fetched < batches && fetched < batch + STAGES; fetched++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, tile[fetched % STAGES], x + fetched * 128, cuda::aligned_size_t<16>(512), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    if (!RELEASES) pipe.consumer_release();  // too early: the next copy may overwrite what is read below
    sum += tile[batch % STAGES][127 - threadIdx.x];
    if (RELEASES) pipe.consumer_release();
  }
  y[threadIdx.x] = sum;
}

__global__ void bulk_copy(int* y, const int* x) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(16) int tile[128];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(tile, x, cuda::aligned_size_t<16>(512), barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, 512);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(cuda::std::move(token));
  y[threadIdx.x] = tile[127 - threadIdx.x];
}

__global__ void count_under_semaphore(int* x) {
  __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
  if (threadIdx.x == 0) new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
  __syncthreads();
  semaphore.acquire();
  x[0] += 1;
  semaphore.release();
}

__global__ void tiles(int* y, const int* x) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int value = x[threadIdx.x];
  const int sum = cg::reduce(tile, value, cg::plus<int>());
  y[threadIdx.x] = sum + cg::exclusive_scan(tile, value) + cg::reduce(tile, value, cg::greater<int>());
}

__global__ void ranks_in_branch(int* y, const int* x) {
  if (x[threadIdx.x] % 3 == 0) {
    auto together = cg::coalesced_threads();
    y[threadIdx.x] = 100 * together.size() + together.thread_rank();
  }
}

__global__ void copy_by_group(int* y, const int* x) {
  __shared__ int tile[256];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile, x, sizeof(tile));
  cg::wait(block);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) y[i] = tile[255 - i];
}

__global__ void reverse_over_grid(int* y, int* x) {
  auto grid = cg::this_grid();
  x[grid.thread_rank()] = grid.thread_rank();
  grid.sync();
  y[grid.thread_rank()] = x[grid.size() - 1 - grid.thread_rank()];
}
