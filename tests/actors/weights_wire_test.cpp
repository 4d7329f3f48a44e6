// The messages of the weight plane, and what is no message.
#include <cstring>
#include <functional>

#include "actors/weights/wire.h"
#include "tests/actors/weight_transfer.h"

namespace motley::actors {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const WeightWireError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// Whatever bytes come, they are decoded or refused. `decode` says whether they were decoded.
void check_damaged(const std::string& good, const std::function<void(std::string_view)>& decode) {
  REQUIRE(refusal([&] { decode(good); }) == "nothing was refused");
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(refusal([&] { decode(std::string_view(good).substr(0, size)); }) != "nothing was refused");
  CHECK(refusal([&] { decode(good + '\x01'); }).find("bytes after its end") != std::string::npos);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      refusal([&] { decode(bad); });
    }
  }
}

std::string packed_array(const std::function<void(msgpack::packer<msgpack::sbuffer>&)>& fill) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  fill(out);
  return {buffer.data(), buffer.size()};
}

}  // namespace

TEST_CASE("messages of the weight plane come out as they went in", "[weights]") {
  const WeightRequest request{WeightAsk::chunk, 7, "h100-fp8", {5, UINT64_MAX}, 1, 1u << 20, 17};
  CHECK(decode_request(encode(request)) == request);
  const WeightAnswer answer{WeightReply::chunk, 7, 12, ChunkEncoding::zstd_xor, UINT64_MAX - 1};
  CHECK(decode_answer(encode(answer)) == answer);
  const WeightAnnouncement announcement{std::string(kMostKindBytes, 'k'), {UINT64_MAX, 3}};
  CHECK(decode_announcement(encode(announcement)) == announcement);
  CHECK(encode(request).size() + kMostKindBytes <= kMostRequestBytes);
  CHECK(encode(announcement).size() <= kMostRequestBytes);
  CHECK(kind_of_topic(weight_topic("bf16")) == "bf16");
}

TEST_CASE("damaged messages of the weight plane are refused", "[weights]") {
  check_damaged(encode(WeightRequest{WeightAsk::chunk, 7, "bf16", {300, 70000}, 1, 2, 3}),
                [](std::string_view bytes) { decode_request(bytes); });
  check_damaged(encode(WeightAnswer{WeightReply::chunk, 300, 70000, ChunkEncoding::zstd, 5}),
                [](std::string_view bytes) { decode_answer(bytes); });
  check_damaged(encode(WeightAnnouncement{"bf16", {300, 70000}}),
                [](std::string_view bytes) { decode_announcement(bytes); });
  const auto request = [](auto... fields) {
    return packed_array([&](auto& out) {
      out.pack_array(sizeof...(fields));
      (out.pack(fields), ...);
    });
  };
  const auto refused = [](const std::string& bytes) { return refusal([&] { decode_request(bytes); }); };
  CHECK(refused(request(1, 0, 1, "k", 1, 1, 0, 0, 0)) == "nothing was refused");
  CHECK(refused(request(2, 0, 1, "k", 1, 1, 0, 0, 0)) == "request: protocol 2; this is 1");
  CHECK(refused(request(1, 0, 1, "k", 1, 1, 0, 0)) == "request: 8 fields instead of 9");
  CHECK(refused(request(1, 3, 1, "k", 1, 1, 0, 0, 0)) == "request: what is asked is 3; at most 2");
  CHECK(refused(request(1, 0, -1, "k", 1, 1, 0, 0, 0)) == "request: attempt is no whole number from 0 on");
  CHECK(refused(request(1, 0, 1, 5, 1, 1, 0, 0, 0)) == "request: kind is no text");
  CHECK(refused(request(1, 0, 1, "", 1, 1, 0, 0, 0)).find("has 1 to 256 bytes") != std::string::npos);
  CHECK(refused(request(1, 0, 1, "a\nb", 1, 1, 0, 0, 0)).find("no line break") != std::string::npos);
  CHECK(refused(request(1, 0, 1, std::string(257, 'k'), 1, 1, 0, 0, 0)) == "request: longer than it may be");
  CHECK(refused(request(1, 0, 1, "k", 1.5, 1, 0, 0, 0)) == "request: version is no whole number from 0 on");
  CHECK(refused("\xdd\xff\xff\xff\xff") == "request: longer than it may be");
  CHECK(refused(std::string(200, '\x91')) != "nothing was refused");  // nested
  for (const char* topic : {"", "bf16", "\n", "a\nb\n"})
    CHECK(refusal([&] { kind_of_topic(topic); }) != "nothing was refused");
}

TEST_CASE("a manifest comes out as it went in, and damaged ones are refused", "[weights]") {
  const auto weights = transfer_weights(9, "h100-fp8");
  const std::vector<std::byte> image = image_of(*weights);
  const WeightManifest manifest = make_manifest("fp8", *weights, image, 500);
  const std::string bytes = encode(manifest);
  REQUIRE(decode_manifest(bytes) == manifest);
  CHECK(manifest.bytes() == image.size());
  CHECK(manifest.version == WeightVersion{9, weights->digest()});
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK(refusal([&] { decode_manifest(std::string_view(bytes).substr(0, size)); }) != "nothing was refused");
  // One byte changed anywhere: refused, another manifest, or the same in other words, but nothing else.
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    refusal([&] { decode_manifest(bad); });
  }
  const auto refused = [&](const auto& change) {
    WeightManifest other = manifest;
    change(other);
    return refusal([&] { decode_manifest(encode(other)); });
  };
  CHECK(refused([](WeightManifest& m) { m.chunk_hashes.pop_back(); }).find("bytes of hashes") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.chunk_hashes.push_back(1); }).find("bytes of hashes") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.parts[0].bytes += 1000; }).find("bytes of hashes") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.chunk_bytes = 0; }) == "manifest: chunks of no bytes");
  CHECK(refused([](WeightManifest& m) { m.chunk_bytes = UINT64_MAX; }).find("bytes of a chunk is") !=
        std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.parts[1].bytes = uint64_t{1} << 49; }).find("bytes is") != std::string::npos);
  CHECK(refused([](WeightManifest& m) {
          m.parts[1].shape = {1, 1, 1, 1, 1};
        }).find("5 dimensions") != std::string::npos);
  // Forty of the largest: their sum does not fit the number of bytes.
  CHECK(refused([](WeightManifest& m) {
          for (ManifestPart& part : m.parts) part.bytes = kMostImageBytes;
        }).find("bytes is") != std::string::npos);
  CHECK_THROWS_WITH(make_manifest("fp8", *weights, image, 0), Catch::Contains("allowed: 1 to"));
}

TEST_CASE("a manifest of another model is refused with both values", "[weights]") {
  const auto weights = transfer_weights(1, "h100-fp8");
  const WeightManifest manifest = make_manifest("fp8", *weights, image_of(*weights), 500);
  const auto refused = [&](const auto& change, const TransformerConfig& config = transfer_model(),
                           const char* profile = "h100-fp8") {
    WeightManifest other = manifest;
    change(other);
    return refusal([&] { check_manifest(other, "fp8", config, *kernels::find_profile(profile)); });
  };
  CHECK(refused([](WeightManifest&) {}) == "nothing was refused");
  CHECK(refused([](WeightManifest& m) { m.kind = "bf16"; }) == "manifest: of kind \"bf16\", not \"fp8\"");
  TransformerConfig wide = transfer_model();
  wide.ffn = 24;
  CHECK(refused([](WeightManifest&) {}, wide).find("the model is another one") != std::string::npos);
  CHECK(refused([](WeightManifest&) {}, transfer_model(), "bf16").find("here in bf16") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.parts.pop_back(); }) == "manifest: tensor model.norm.weight is missing");
  CHECK(refused([](WeightManifest& m) { m.parts.push_back(m.parts[0]); }) ==
        "manifest: tensor model.embed_tokens.weight is one too many");
  CHECK(refused([](WeightManifest& m) { std::swap(m.parts[1], m.parts[2]); }).find(" there, ") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.parts[2].kind = WeightKind::plain; }).find(" there, ") != std::string::npos);
  CHECK(refused([](WeightManifest& m) { m.parts[2].shape = {20, 16, 1}; }).find(" there, ") != std::string::npos);
}

}  // namespace motley::actors
