// The XOR swizzle: where a byte of a tile lies in shared memory, so that rows and columns of chunks are in different
// banks.
#pragma once

namespace warptile {

// Permutes the 16-byte chunks within each row of a tile whose rows have ROW_BYTES bytes: of eight rows that lie below
// each other, the same chunk falls into eight different groups of four banks, and every row stays in its 128 bytes.
// TMA's swizzling modes are the same: PTX ISA, "Tensors", "Swizzling Modes". In Python: warptile.isa.swizzle.
template <int ROW_BYTES>
__device__ __forceinline__ constexpr unsigned swizzled(unsigned offset) {
    static_assert(ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128, "rows of 32, 64 or 128 bytes");
    return offset ^ ((offset >> 7 & (ROW_BYTES / 16 - 1)) << 4);
}

}  // namespace warptile
