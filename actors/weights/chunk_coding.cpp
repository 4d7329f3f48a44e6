#include "actors/weights/chunk_coding.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace motley::actors {
namespace {

using Bytes = std::vector<std::byte>;

/// out ^= base
void exclusive_or(std::span<std::byte> out, std::span<const std::byte> base) {
  for (size_t i = 0; i < out.size(); ++i) out[i] ^= base[i];
}

/// Empty where the result would not be smaller than `most`.
Bytes compressed(std::span<const std::byte> in, size_t most, int level) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  Bytes out(most);
  const size_t size = ZSTD_compressCCtx(context.get(), out.data(), out.size(), in.data(), in.size(), level);
  if (ZSTD_isError(size) != 0 || size >= most) return {};
  out.resize(size);
  out.shrink_to_fit();
  return out;
}

}  // namespace

EncodedChunk encode_chunk(std::span<const std::byte> chunk, std::span<const std::byte> base, int level) {
  EncodedChunk encoded;
  if (level == 0) return encoded;
  size_t most = chunk.size();
  if (!base.empty() && base.size() == chunk.size()) {
    Bytes delta(chunk.begin(), chunk.end());
    exclusive_or(delta, base);
    delta = compressed(delta, most, level);
    if (!delta.empty()) {
      most = delta.size();
      encoded = {ChunkEncoding::zstd_xor, std::move(delta)};
      if (most <= chunk.size() / 2) return encoded;
    }
  }
  Bytes plain = compressed(chunk, most, level);
  if (!plain.empty()) encoded = {ChunkEncoding::zstd, std::move(plain)};
  return encoded;
}

void decode_chunk(ChunkEncoding encoding, std::span<const std::byte> bytes, std::span<const std::byte> base,
                  std::span<std::byte> out) {
  if (encoding == ChunkEncoding::raw) {
    if (bytes.size() != out.size())
      throw WeightWireError(fmt::format("{} bytes instead of {}", bytes.size(), out.size()));
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return;
  }
  if (encoding == ChunkEncoding::zstd_xor && base.size() != out.size())
    throw WeightWireError("a delta without the version that it was made against");
  // Never more than out.size() bytes, whatever the frame says of itself; several frames count as one.
  const size_t size = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0) throw WeightWireError(fmt::format("zstd: {}", ZSTD_getErrorName(size)));
  if (size != out.size()) throw WeightWireError(fmt::format("{} bytes instead of {}", size, out.size()));
  if (encoding == ChunkEncoding::zstd_xor) exclusive_or(out, base);
}

}  // namespace motley::actors
