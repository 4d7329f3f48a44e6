// The safetensors format: 8 bytes of header length (little endian), a JSON header {name: {dtype, shape, data_offsets}},
// the tensors' bytes. https://huggingface.co/docs/safetensors
#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tensor/model_file.h"

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

namespace motley {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestHeader = 100'000'000;  // as the reference implementation
constexpr size_t kLongestShape = 8;

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr TypeName kTypeNames[] = {
    {DType::f32, "F32"}, {DType::f64, "F64"}, {DType::bf16, "BF16"}, {DType::f16, "F16"}};

const char* type_name(DType dtype) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "";
}

std::optional<DType> type_named(const std::string& name) {
  for (const TypeName& entry : kTypeNames) {
    if (name == entry.name) return entry.dtype;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : path_(file) {
    require_regular_file(file);
    in_.open(file, std::ios::binary);
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (!in_ || error) fail("cannot be read" + (error ? ": " + error.message() : std::string()));
    size_ = size;
  }

  TensorFile read() {
    const json header = read_header();
    TensorFile content;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        content.metadata = read_metadata(value);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    check_layout(entries);
    for (const Entry& entry : entries) {
      const Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
      in_.seekg(static_cast<std::streamoff>(data_start_ + entry.begin));
      in_.read(static_cast<char*>(tensor.raw()), static_cast<std::streamsize>(entry.end - entry.begin));
      if (!in_) fail("cannot be read to its end");
      content.tensors.emplace(entry.name, tensor);
    }
    return content;
  }

 private:
  struct Entry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    uint64_t begin = 0, end = 0;
  };

  [[noreturn]] void fail(const std::string& reason) const { throw ModelFileError(path_.string() + ": " + reason); }

  json read_header() {
    uint64_t length = 0;
    if (size_ < sizeof length) fail("is too short for a safetensors file");
    in_.read(reinterpret_cast<char*>(&length), sizeof length);
    if (!in_) fail("cannot be read");
    if (length > kLargestHeader || length > size_ - sizeof length) {
      fail("is cut short or no safetensors file: its header would have " + std::to_string(length) + " bytes");
    }
    data_start_ = sizeof length + length;
    std::string text(length, '\0');
    in_.read(text.data(), static_cast<std::streamsize>(length));
    if (!in_) fail("cannot be read");
    std::set<std::string> names;
    std::string twice;
    const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
        twice = parsed.get<std::string>();
      }
      return true;
    };
    json header;
    try {
      header = json::parse(text, watch);
    } catch (const json::exception& error) {
      fail(std::string("has a broken header: ") + error.what());
    }
    if (!twice.empty()) fail("holds " + twice + " twice");
    if (!header.is_object()) fail("has a header that is no JSON object");
    return header;
  }

  std::map<std::string, std::string> read_metadata(const json& value) const {
    if (!value.is_object()) fail("has metadata that is no JSON object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("has metadata " + key + " that is no text");
      metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
  }

  uint64_t unsigned_number(const json& value, const std::string& what) const {
    if (!value.is_number_unsigned()) fail(what + " is no number from 0 on");
    return value.get<uint64_t>();
  }

  Entry read_entry(const std::string& name, const json& value) const {
    Entry entry;
    entry.name = name;
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
      fail(name + " lacks dtype, shape or data_offsets");
    }
    const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    const std::string type = dtype.is_string() ? dtype.get<std::string>() : dtype.dump();
    const auto known = type_named(type);
    if (!known) fail(name + " has type " + type + "; F32, F64, BF16 and F16 can be read");
    entry.dtype = *known;
    if (!shape.is_array() || shape.size() > kLongestShape) fail(name + " has a shape that is no short list");
    uint64_t bytes = kernels::dtype_size(entry.dtype);
    for (const json& size : shape) {
      const uint64_t number = unsigned_number(size, "a dimension of " + name);
      if (number > INT64_MAX || __builtin_mul_overflow(bytes, number, &bytes)) fail(name + " has an impossible shape");
      entry.shape.push_back(static_cast<int64_t>(number));
    }
    if (!offsets.is_array() || offsets.size() != 2) fail(name + " has data_offsets that are no pair");
    entry.begin = unsigned_number(offsets[0], "an offset of " + name);
    entry.end = unsigned_number(offsets[1], "an offset of " + name);
    if (entry.begin > entry.end || entry.end > size_ - data_start_) {
      fail(name + " reaches outside the file, which may be cut short");
    }
    if (entry.end - entry.begin != bytes) {
      fail(name + " has " + std::to_string(entry.end - entry.begin) + " bytes where its shape needs " +
           std::to_string(bytes));
    }
    return entry;
  }

  /// The tensors cover the data once, without holes.
  void check_layout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t at = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < at) fail(entry.name + " overlaps another tensor");
      if (entry.begin > at) fail("has unused bytes before " + entry.name);
      at = entry.end;
    }
    if (at != size_ - data_start_) fail("has unused bytes at its end");
  }

  std::filesystem::path path_;
  std::ifstream in_;
  uint64_t size_ = 0, data_start_ = 0;
};

}  // namespace

void write_tensors(const std::filesystem::path& file, const TensorFile& content) {
  json header = json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  uint64_t at = 0;
  for (const auto& [name, tensor] : content.tensors) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * kernels::dtype_size(tensor.dtype());
    header[name] = {
        {"dtype", type_name(tensor.dtype())}, {"shape", tensor.shape()}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data start aligned
  const uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out.reserve(out.size() + text.size() + at);
  out += text;
  for (const auto& [name, tensor] : content.tensors) {
    const Tensor here = tensor.detach().to(Device{});
    out.append(static_cast<const char*>(here.raw()),
               static_cast<size_t>(tensor.numel()) * kernels::dtype_size(tensor.dtype()));
  }
  write_file_atomically(file, out);
}

TensorFile read_tensors(const std::filesystem::path& file) { return Reader(file).read(); }

}  // namespace motley
