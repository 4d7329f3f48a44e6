// The kernels that exist on devices, as one table of cases. Modes over it: the CPU's body against float64 and the
// emulated body against the CPU's bit for bit (tests/kernels/device_test.cpp), the CUDA body against the CPU's bit for
// bit (tests/device/kernels_check.cpp), and support (docs/ops.md). No test framework here: all of them use it.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/dtype.h"

namespace motley::kernels {

/// One array that a kernel wrote.
struct Output {
  std::string name;
  enum class Kind : uint8_t { codes, f32, f64, bf16, f16 } kind;
  std::vector<unsigned char> bytes;
};
using Outputs = std::vector<Output>;

struct DeviceCase {
  std::string kernel, type, shape;
  std::function<Outputs(const Device&)> run;
  /// What is wrong with these outputs by a float64 reference; empty: nothing, or nothing that it could tell.
  std::function<std::string(const Outputs&)> check;
  /// False for a kernel of devices alone, whose `run` on the CPU is a stand-in: the device's outputs pass `check`, and
  /// all orders of blocks, warps and lanes give the same bits.
  bool cpu_bits = true;
  /// The one compute capability of CUDA devices that have it (90 for 9.0); 0: all have.
  int only_capability = 0;
  /// False where a GPU may give other bits each time, within what `check` allows.
  bool repeats = true;

  std::string name() const { return kernel + " " + type + " " + shape; }
};

/// All cases, in an order that does not change.
std::vector<DeviceCase> device_cases();
void add_array_cases(std::vector<DeviceCase>& cases);
void add_attention_cases(std::vector<DeviceCase>& cases);
void add_norm_cases(std::vector<DeviceCase>& cases);
void add_quantize_cases(std::vector<DeviceCase>& cases);
void add_finish_cases(std::vector<DeviceCase>& cases);
void add_head_cases(std::vector<DeviceCase>& cases);
void add_matmul_cases(std::vector<DeviceCase>& cases);
void add_matmul_units_cases(std::vector<DeviceCase>& cases);
void add_hopper_cases(std::vector<DeviceCase>& cases);
void add_grouped_cases(std::vector<DeviceCase>& cases);
void add_pointwise_cases(std::vector<DeviceCase>& cases);
void add_convert_cases(std::vector<DeviceCase>& cases);
void add_embedding_cases(std::vector<DeviceCase>& cases);
void add_cache_cases(std::vector<DeviceCase>& cases);
void add_sampling_cases(std::vector<DeviceCase>& cases);
void add_vendor_cases(std::vector<DeviceCase>& cases);
void add_stream_cases(std::vector<DeviceCase>& cases);

/// The first difference in bits; empty: none. NaN equals NaN: what its bits are, no device promises.
std::string difference(const Outputs& got, const Outputs& want);

/// docs/ops.md, from the declarations under kernels/ and from the table.
std::string support_page(const std::string& source_folder);

/// Memory of a device. The CPU's is the emulator's too, for its guard zones.
void* device_allocate(const Device& device, const void* from, size_t bytes);
void device_release(const Device& device, void* memory);
void device_read(const Device& device, void* to, const void* from, size_t bytes);
/// Throws what the kernels met: an error of the device, a store outside a buffer.
void device_synchronize(const Device& device);

/// An array that a kernel reads or writes.
template <class T>
class OnDevice {
 public:
  OnDevice(const Device& device, const std::vector<T>& values)
      : device_(device),
        count_(values.size()),
        data_(static_cast<T*>(device_allocate(device, values.data(), values.size() * sizeof(T)))) {}
  ~OnDevice() { device_release(device_, data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_; }
  Output output(std::string name) const {
    constexpr Output::Kind kKind = std::is_same_v<T, float>    ? Output::Kind::f32
                                   : std::is_same_v<T, double> ? Output::Kind::f64
                                   : std::is_same_v<T, bf16>   ? Output::Kind::bf16
                                   : std::is_same_v<T, fp16>   ? Output::Kind::f16
                                                               : Output::Kind::codes;
    Output out{std::move(name), kKind, std::vector<unsigned char>(count_ * sizeof(T))};
    device_read(device_, out.bytes.data(), data_, out.bytes.size());
    return out;
  }

 private:
  Device device_;
  size_t count_;
  T* data_;
};

/// The elements of an output of type T.
template <class T>
std::vector<T> elements(const Output& output) {
  std::vector<T> values(output.bytes.size() / sizeof(T));
  std::copy(output.bytes.begin(), output.bytes.end(), reinterpret_cast<unsigned char*>(values.data()));
  return values;
}
/// Empty when |got - want| <= bound, else a message.
std::string beyond(const std::string& what, int64_t index, double got, double want, double bound);

}  // namespace motley::kernels
