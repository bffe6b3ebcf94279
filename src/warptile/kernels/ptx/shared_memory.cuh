// Shared memory by its own 32-bit addresses, for code that computes them: swizzled tiles.
#pragma once

namespace warptile {

// Address of a shared variable as ldmatrix and cp.async want it: 32 bits, relative to the shared window.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// BYTES bytes that are moved by one access.
template <int BYTES>
struct Packet;
template <>
struct Packet<1> {
    unsigned char bits;
};
template <>
struct Packet<2> {
    unsigned short bits;
};
template <>
struct Packet<4> {
    unsigned bits;
};
template <>
struct Packet<8> {
    uint2 bits;
};
template <>
struct Packet<16> {
    uint4 bits;
};

// Stores a packet at a shared address that is a multiple of its size.
__device__ __forceinline__ void st_shared(unsigned address, Packet<1> packet) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(static_cast<unsigned>(packet.bits)) : "memory");
}
__device__ __forceinline__ void st_shared(unsigned address, Packet<2> packet) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(packet.bits) : "memory");
}
__device__ __forceinline__ void st_shared(unsigned address, Packet<4> packet) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(packet.bits) : "memory");
}
__device__ __forceinline__ void st_shared(unsigned address, Packet<8> packet) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(packet.bits.x), "r"(packet.bits.y) : "memory");
}
__device__ __forceinline__ void st_shared(unsigned address, Packet<16> packet) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(packet.bits.x), "r"(packet.bits.y),
                 "r"(packet.bits.z), "r"(packet.bits.w)
                 : "memory");
}

// Loads a packet from a shared address that is a multiple of its size.
template <int BYTES>
__device__ __forceinline__ Packet<BYTES> ld_shared(unsigned address) {
    Packet<BYTES> packet;
    if constexpr (BYTES == 1) {
        unsigned bits;
        asm volatile("ld.shared.u8 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
        packet.bits = static_cast<unsigned char>(bits);
    } else if constexpr (BYTES == 2) {
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(packet.bits) : "r"(address) : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(packet.bits) : "r"(address) : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y)
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y), "=r"(packet.bits.z), "=r"(packet.bits.w)
                     : "r"(address)
                     : "memory");
    }
    return packet;
}

// Loads 16 bytes as four words or as two doubles, or 8 bytes as one double.
__device__ __forceinline__ void ld_shared(unsigned (&words)[4], unsigned address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
}
__device__ __forceinline__ void ld_shared(double (&words)[2], unsigned address) {
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(words[0]), "=d"(words[1]) : "r"(address));
}
__device__ __forceinline__ void ld_shared(double& word, unsigned address) {
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(word) : "r"(address));
}

}  // namespace warptile
