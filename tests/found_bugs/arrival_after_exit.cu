// Bug: One CTA of a cluster arrives at an mbarrier of the other CTA, which may have exited: nobody waits for the
// arrival.
// Provoked by: The arriving CTA is late, by another time in each cluster. Clusters that follow fill their shared memory
// and look whether it stays as it is.
// Fix: A cluster barrier at the end.
#include "provoke.h"

constexpr unsigned FILL = 0x5A5A5A5A;

template <bool CORRECTED>
__global__ void __cluster_dims__(2, 1, 1) pattern(unsigned* changed, int late) {
    __shared__ alignas(8) unsigned words[64];  // an mbarrier takes the place of the first two
    for (int i = 0; i < 2; ++i) weak_store_shared(&words[2 * threadIdx.x + i], FILL);
    delay(2 * late);
    unsigned count = 0;
    for (int i = 0; i < 2; ++i) count += weak_load_shared(&words[2 * threadIdx.x + i]) != FILL;
    changed[blockIdx.x * 32 + threadIdx.x] = count;

    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(words), 1);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0 && cluster_ctarank() == 1) {
        delay(late * int(blockIdx.x / 2 % 8 + 1) / 8);
        mbarrier_arrive_remote(shared_address(words), 0);  // REPORTED: arrives
    }
    if (CORRECTED) cluster_sync();  // BUG
}
