// How the bytes of a chunk are written for the way: as they are, compressed, or compressed as the XOR with those of a
// version that the receiver holds, which is lossless whatever the bytes mean.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "actors/weights/wire.h"

namespace motley::actors {

struct EncodedChunk {
  ChunkEncoding encoding = ChunkEncoding::raw;
  std::vector<std::byte> bytes;  // empty with raw: the chunk's own
};

/// The smallest of the three; raw where nothing is smaller, or `level` (zstd's) is 0. `base`: the same bytes of another
/// version, or empty. The chunk itself is compressed only where the delta saves less than half.
EncodedChunk encode_chunk(std::span<const std::byte> chunk, std::span<const std::byte> base, int level);

/// The reverse, into `out`, which has the chunk's size: no more is ever written. Throws WeightWireError for bytes that
/// do not give exactly that size, and for a delta without a base of that size.
void decode_chunk(ChunkEncoding encoding, std::span<const std::byte> bytes, std::span<const std::byte> base,
                  std::span<std::byte> out);

}  // namespace motley::actors
