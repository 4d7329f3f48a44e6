#include "app/tensorboard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>

#include "tensorboard_event.pb.h"

namespace motley::app {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? (value >> 1) ^ 0x82f63b78u : value >> 1;
    table[i] = value;
  }
  return table;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr auto table = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xffu] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto seconds = static_cast<int64_t>(wall_time());
  out_.open(folder / fmt::format("events.out.tfevents.{}.motley", seconds), std::ios::binary | std::ios::app);
  tensorboard::Event event;
  event.set_wall_time(wall_time());
  event.set_file_version("brain.Event:2");
  record(event.SerializeAsString());
}

void TensorBoardWriter::write(int64_t update, const algos::Metrics& metrics) {
  tensorboard::Event event;
  event.set_wall_time(wall_time());
  event.set_step(update);
  for (const auto& [name, value] : metrics) {
    if (std::isnan(value)) continue;
    auto* scalar = event.mutable_summary()->add_value();
    scalar->set_tag(name);
    scalar->set_simple_value(static_cast<float>(value));
  }
  record(event.SerializeAsString());
}

// A TFRecord: length, its checksum, the bytes, their checksum.
void TensorBoardWriter::record(const std::string& bytes) {
  const std::string length = little_endian(bytes.size(), 8);
  out_ << length << little_endian(masked_crc32c(length), 4) << bytes << little_endian(masked_crc32c(bytes), 4);
  out_.flush();
  if (!out_) throw std::runtime_error("TensorBoard events cannot be written: no space left, or no permission");
}

}  // namespace motley::app
