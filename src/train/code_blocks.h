// The codes and block scales of scaled weights as files hold them, to the bit and both ways.
#pragma once
#include <vector>

#include "rlx/array.h"

namespace rlx {

/// u8 codes [rows, columns] and their scale bytes, one for each block of a row.
struct BlockCodes {
  Array codes, scales;
};
/// How a GGUF type lays out 4-bit codes: `scales` bytes, then as many blocks of `block` codes, of which code j is in
/// the low half of byte j and code j + block / 2 in the high one.
struct Fp4Layout {
  std::int64_t block = 32, scales = 1;  // MXFP4; NVFP4 is {16, 4}
  std::int64_t elements() const { return block * scales; }
};
std::vector<std::byte> to_fp4_blocks(const BlockCodes&, Fp4Layout);
/// Throws InternalError where the bytes are not whole rows of that shape, which a GgufFile has checked.
BlockCodes from_fp4_blocks(std::span<const std::byte>, const Extents& shape, Fp4Layout);

}  // namespace rlx
