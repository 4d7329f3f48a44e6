// Chunks as they are written for the way, and which versions a server keeps.
#include <zstd.h>

#include <cstring>

#include "actors/weights/store.h"
#include "kernels/philox.h"
#include "tests/actors/weight_transfer.h"

namespace motley::actors {
namespace {

using Bytes = std::vector<std::byte>;

Bytes noise(size_t size, uint64_t seed) {
  kernels::RandomStream random({seed, kernels::Purpose::data, 1});
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

Bytes decoded(const EncodedChunk& chunk, const Bytes& raw, const Bytes& base) {
  Bytes out(raw.size());
  decode_chunk(chunk.encoding, chunk.encoding == ChunkEncoding::raw ? raw : chunk.bytes, base, out);
  return out;
}

std::shared_ptr<StoredWeights> stored(uint64_t version, const Bytes& image) {
  auto weights = std::make_shared<StoredWeights>();
  weights->manifest.kind = "kind";
  weights->manifest.version = {version, 1000 + version};
  weights->manifest.chunk_bytes = 4096;
  weights->manifest.chunk_hashes = chunk_hashes(image, 4096);
  weights->image = std::make_shared<const Bytes>(image);
  return weights;
}

}  // namespace

TEST_CASE("a chunk is written as what is smallest, and comes back", "[weights]") {
  const Bytes zeros(5000), random = noise(5000, 1);
  Bytes near = random;
  near[17] ^= std::byte{1};
  const auto encoding = [](const Bytes& chunk, const Bytes& base, int level = 1) {
    const EncodedChunk encoded = encode_chunk(chunk, base, level);
    CHECK(decoded(encoded, chunk, base) == chunk);
    CHECK(encoded.bytes.size() < std::max<size_t>(1, chunk.size()));
    return encoded.encoding;
  };
  CHECK(encoding(random, {}) == ChunkEncoding::raw);
  CHECK(encoding(zeros, {}) == ChunkEncoding::zstd);
  CHECK(encoding(near, random) == ChunkEncoding::zstd_xor);
  CHECK(encoding(near, random, 0) == ChunkEncoding::raw);
  CHECK(encoding(random, random) == ChunkEncoding::zstd_xor);
  CHECK(encoding(zeros, random) == ChunkEncoding::zstd);          // the delta is noise
  CHECK(encoding(random, noise(5000, 2)) == ChunkEncoding::raw);  // both are
  CHECK(encoding(near, noise(4999, 3)) == ChunkEncoding::raw);    // no version of this layout
  CHECK(encoding(Bytes(1), {}) == ChunkEncoding::raw);
  CHECK(encoding(Bytes(1), Bytes(1)) == ChunkEncoding::raw);
  CHECK(encoding({}, {}) == ChunkEncoding::raw);
}

TEST_CASE("bytes that are no chunk are refused, and never write beyond its size", "[weights]") {
  const Bytes chunk = noise(100, 4), base = noise(100, 5);
  Bytes guarded(100 + 16, std::byte{0xee});
  const auto refusal = [&](ChunkEncoding encoding, const Bytes& bytes, const Bytes& against) -> std::string {
    std::string text = "nothing was refused";
    try {
      decode_chunk(encoding, bytes, against, std::span(guarded).first(100));
    } catch (const WeightWireError& error) {
      text = error.what();
    }
    for (size_t i = 100; i < guarded.size(); ++i) CHECK(guarded[i] == std::byte{0xee});
    return text;
  };
  const auto zstd_of = [](const Bytes& bytes) {
    Bytes out(ZSTD_compressBound(bytes.size()));
    out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
    return out;
  };
  CHECK(refusal(ChunkEncoding::raw, noise(99, 6), {}) == "99 bytes instead of 100");
  CHECK(refusal(ChunkEncoding::raw, noise(101, 6), {}) == "101 bytes instead of 100");
  CHECK(refusal(ChunkEncoding::zstd, zstd_of(noise(99, 6)), {}) == "99 bytes instead of 100");
  CHECK(refusal(ChunkEncoding::zstd, zstd_of(Bytes(10'000'000)), {}).starts_with("zstd: "));  // a bomb
  Bytes two = zstd_of(noise(60, 7));  // frames that are too long together
  const Bytes second = zstd_of(noise(60, 8));
  two.insert(two.end(), second.begin(), second.end());
  CHECK(refusal(ChunkEncoding::zstd, two, {}).starts_with("zstd: "));
  CHECK(refusal(ChunkEncoding::zstd, {}, {}) == "0 bytes instead of 100");
  CHECK(refusal(ChunkEncoding::zstd, noise(50, 9), {}).starts_with("zstd: "));
  CHECK(refusal(ChunkEncoding::zstd_xor, zstd_of(chunk), {}).starts_with("a delta without"));
  CHECK(refusal(ChunkEncoding::zstd_xor, zstd_of(chunk), noise(99, 1)).starts_with("a delta without"));
  const Bytes good = zstd_of(chunk);
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(refusal(ChunkEncoding::zstd, Bytes(good.begin(), good.begin() + static_cast<int64_t>(size)), {}) !=
          "nothing was refused");
  CHECK(refusal(ChunkEncoding::zstd, good, {}) == "nothing was refused");
}

TEST_CASE("an assembly takes what was asked for, and what its hash confirms", "[weights]") {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{12288}}) {
    CAPTURE(size);
    const Bytes image = noise(size, 10);
    WeightManifest manifest = stored(1, image)->manifest;
    manifest.parts = {{"empty", WeightKind::plain, {0, 7}, 0, 0}, {"tensor", WeightKind::plain, {1}, size, 0}};
    WeightAssembly assembly(manifest);
    CHECK(assembly.complete() == (size == 0));
    const std::span<const std::byte> whole(image);
    if (size > 0)
      CHECK_THROWS_WITH(assembly.accept(0, ChunkEncoding::raw, manifest.chunk(whole, 0)),
                        Catch::Contains("was not asked for"));
    CHECK_THROWS_AS(assembly.accept(manifest.chunks(), ChunkEncoding::raw, {}), WeightWireError);
    while (const auto index = assembly.ask()) {
      Bytes wrong(manifest.chunk(whole, *index).begin(), manifest.chunk(whole, *index).end());
      wrong.back() ^= std::byte{4};
      CHECK_THROWS_WITH(assembly.accept(*index, ChunkEncoding::raw, wrong),
                        Catch::StartsWith("chunk " + std::to_string(*index)) && Catch::Contains("hash"));
      CHECK(assembly.first_missing() == *index);
      assembly.ask_again();
      REQUIRE(assembly.ask() == index);
      assembly.accept(*index, ChunkEncoding::raw, manifest.chunk(whole, *index));
      assembly.accept(*index, ChunkEncoding::raw, wrong);  // it is there already
      CHECK(assembly.outstanding() == 0);
    }
    REQUIRE(assembly.complete());
    CHECK(*assembly.image() == image);
  }
}

TEST_CASE("a store keeps the newest, those before it, and what is being fetched", "[weights]") {
  WeightStore store({.bases = 2, .leased = 2, .lease = std::chrono::seconds(10)});
  WeightStore::Clock::time_point now{};
  const auto kept = [&] {
    std::vector<uint64_t> versions;
    for (uint64_t v = 0; v < 100; ++v)
      if (store.find("kind", {v, 1000 + v})) versions.push_back(v);
    return versions;
  };
  const auto publish = [&](uint64_t version) {
    now += std::chrono::seconds(1);
    store.add(stored(version, noise(10'000, version)), now);
  };
  CHECK_FALSE(store.newest("kind"));
  for (uint64_t v = 1; v <= 5; ++v) publish(v);
  CHECK(kept() == std::vector<uint64_t>{3, 4, 5});
  CHECK_FALSE(store.find("kind", {5, 1}));
  // Three peers fetch as many versions: the two that began first keep theirs.
  for (uint64_t v = 5; v <= 7; ++v) {
    store.lease("peer " + std::to_string(v), "kind", {v, 1000 + v}, now);
    publish(v + 1);
  }
  CHECK(kept() == std::vector<uint64_t>{5, 6, 7, 8});
  publish(9);
  publish(10);
  CHECK(kept() == std::vector<uint64_t>{5, 6, 8, 9, 10});
  CHECK(store.memory("kind").images == 50'000);
  // One is done, one is silent for longer than a lease.
  store.end_lease("peer 5");
  store.lease("peer 6", "kind", {6, 1006}, now);
  publish(11);
  CHECK(kept() == std::vector<uint64_t>{6, 9, 10, 11});
  now += std::chrono::seconds(11);
  publish(12);
  CHECK(kept() == std::vector<uint64_t>{10, 11, 12});
}

TEST_CASE("what is encoded is kept for all who hold the same version, and goes with it", "[weights]") {
  WeightStore store({});
  const WeightStore::Clock::time_point now{};
  const Bytes image = noise(10'000, 1);
  for (uint64_t version = 1; version <= 3; ++version) store.add(stored(version, image), now);
  const StoredWeightsPtr newest = store.newest("kind"), first = store.find("kind", {1, 1001});
  CHECK(store.base(*newest, 1001) == first);
  CHECK_FALSE(store.base(*newest, 0));
  CHECK_FALSE(store.base(*newest, 999));  // nobody knows that version
  const auto delta = std::make_shared<const EncodedChunk>(EncodedChunk{ChunkEncoding::zstd_xor, Bytes(70)});
  const auto full = std::make_shared<const EncodedChunk>(EncodedChunk{ChunkEncoding::zstd, Bytes(900)});
  CHECK_FALSE(store.encoded(*newest, first.get(), 1));
  store.keep(*newest, first.get(), 1, delta);
  store.keep(*newest, nullptr, 1, full);
  CHECK(store.encoded(*newest, first.get(), 1) == delta);
  CHECK(store.encoded(*newest, nullptr, 1) == full);
  CHECK_FALSE(store.encoded(*newest, nullptr, 2));
  CHECK(store.memory("kind").encoded == 970);
  store.lease("peer", "kind", {3, 1003}, now);  // being fetched: stays, but for what is against a version that is gone
  store.add(stored(4, image), now);
  CHECK_FALSE(store.find("kind", {1, 1001}));
  CHECK_FALSE(store.encoded(*newest, first.get(), 1));
  CHECK(store.encoded(*newest, nullptr, 1) == full);
  store.keep(*newest, first.get(), 1, delta);  // too late
  CHECK(store.memory("kind").encoded == 900);
  store.end_lease("peer");
  store.add(stored(5, image), now);
  CHECK(store.memory("kind").encoded == 0);
  CHECK(store.memory("kind").versions == 3);
  store.add(stored(6, noise(9'999, 2)), now);  // another layout
  CHECK_FALSE(store.base(*store.newest("kind"), 1005));
}

}  // namespace motley::actors
