// One memory access of one warp, for Nsight Compute to count: lane i reads global[source[i]] or shared[target[i]].
template <int SIZE>
__global__ void cp_async(const char* global, const int* source, const int* target) {
    extern __shared__ __align__(1024) char shared[];
    if (source[threadIdx.x] >= 0) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared + target[threadIdx.x]));
        const char* from = global + source[threadIdx.x];
        if constexpr (SIZE == 16) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
        } else {
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(SIZE) : "memory");
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

template <int SIZE>
__global__ void ld(int* result, const int* source, const int* target) {
    extern __shared__ __align__(1024) char shared[];
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(shared + target[threadIdx.x]));
    int x = 0, y = 0, z = 0, w = 0;
    if constexpr (SIZE == 16) {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(from));
    } else {
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(from));
    }
    if ((x | y | z | w) == -2) *result = 1;  // an unused load would be removed
}

template <int SIZE>
__global__ void st(const char* global, const int* source, const int* target) {
    extern __shared__ __align__(1024) char shared[];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared + target[threadIdx.x]));
    const int x = threadIdx.x;
    if constexpr (SIZE == 16) {
        asm volatile("st.shared.v4.b32 [%1], {%0, %0, %0, %0};" ::"r"(x), "r"(to) : "memory");
    } else if constexpr (SIZE == 8) {
        asm volatile("st.shared.v2.b32 [%1], {%0, %0};" ::"r"(x), "r"(to) : "memory");
    } else {
        asm volatile("st.shared.b32 [%1], %0;" ::"r"(x), "r"(to) : "memory");
    }
}
