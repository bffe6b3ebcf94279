// Bug: Half of a warp stores values which the other half reads. The lanes have diverged, and no `__syncwarp()` stands
// between the two.
// Provoked by: The half that stores is late, and the halves exchange their parts in each round. What the other half
// reads otherwise is the value of two rounds ago.
// Fix: `__syncwarp()` between the two.
#include "provoke.h"

template <bool CORRECTED>
__global__ void pattern(unsigned* out, int rounds, int late) {
    __shared__ unsigned values[32];
    const unsigned lane = threadIdx.x;
    weak_store_shared(&values[lane], 0xFFFFFFFF);
    for (int round = 0; round < rounds; ++round) {
        const unsigned first = (blockIdx.x * rounds + round) * 16;
        const bool stores = lane / 16 == round % 2;
        __syncwarp();
        if (stores) {
            delay(late);
            weak_store_shared(&values[lane], first + lane % 16);  // REPORTED: written
        }
        if (CORRECTED) __syncwarp();                                                 // BUG
        if (!stores) out[first + lane % 16] = weak_load_shared(&values[lane ^ 16]);  // REPORTED: read
    }
}
