#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/kv_format.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

template <class T>
struct CacheInputs {
  int64_t rows, kv_heads, head_dim, page_size, pages = 9;
  Format format;
  double scale;
  bool plain;
  std::vector<T> x;
  std::vector<std::vector<int32_t>> tables;  // of two sequences
  std::vector<int32_t> positions;            // row r belongs to sequence r % 2

  CacheInputs(int64_t rows_in, int64_t kv_heads_in, int64_t head_dim_in, int64_t page_size_in, Format format_in,
              double scale_in, bool plain_in)
      : rows(rows_in),
        kv_heads(kv_heads_in),
        head_dim(head_dim_in),
        page_size(page_size_in),
        format(format_in),
        scale(scale_in),
        plain(plain_in),
        x(values<T>(rows * kv_heads * head_dim, 1, 40.0)),
        tables{{7, 1, 4, 2}, {3, 8, 0, 5}} {
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<int32_t>(4 * page_size - 1 - r / 2));
    if (!plain) x = with_specials(x, 3);
  }
  int64_t place(int64_t row) const {
    const int64_t position = positions[row];
    return tables[row % 2][position / page_size] * page_size + position % page_size;
  }
};

/// The cache before holds code 0x55 in every byte: what no row belongs to must stay.
template <Format F, class T>
void add_cache_case(std::vector<DeviceCase>& cases, const CacheInputs<T>& in) {
  using Code = typename KvCode<F>::type;
  const int64_t numbers = in.kv_heads * in.head_dim;
  Code untouched;
  std::memset(static_cast<void*>(&untouched), 0x55, sizeof(untouched));
  const auto run = [=](const Device& device) {
    const OnDevice<T> rows(device, in.x);
    const OnDevice<Code> cache(device, std::vector<Code>(in.pages * in.page_size * numbers, untouched));
    const OnDevice<int32_t> even(device, in.tables[0]), odd(device, in.tables[1]), positions(device, in.positions);
    std::vector<const int32_t*> pointers;
    for (int64_t r = 0; r < in.rows; ++r) pointers.push_back(r % 2 == 0 ? even.data() : odd.data());
    const OnDevice<const int32_t*> table(device, pointers);
    MOTLEY_DISPATCH(device, cache_write,
                    CacheWriteArgs<T>{cache.data(), rows.data(), in.format, in.scale, table.data(), positions.data(),
                                      in.rows, in.kv_heads, in.head_dim, in.page_size});
    device_synchronize(device);
    return Outputs{cache.output("cache")};
  };
  const auto check = [=](const Outputs& outputs) {
    const auto cache = elements<Code>(outputs[0]);
    std::vector<bool> written(cache.size());
    std::string wrong;
    for (int64_t r = 0; r < in.rows; ++r) {
      for (int64_t i = 0; i < numbers && wrong.empty(); ++i) {
        const int64_t at = in.place(r) * numbers + i;
        written[at] = true;
        const double x = real(in.x[r * numbers + i]), got = real(decode_kv<F, double>(cache[at], in.scale));
        // The quotient and the code round once each; below fp64 the quotient is first rounded to fp32.
        const double bound = in.scale * format_rounding(F, std::fabs(x / in.scale)) * 1.01 +
                             (4 * unit<Compute<T>>() + (F == Format::fp64 ? 0 : 0x1p-23)) * std::fabs(x);
        if (in.plain) wrong += beyond("cache", at, got, x, bound);
      }
    }
    for (size_t i = 0; i < cache.size() && wrong.empty(); ++i)
      if (!written[i] && std::memcmp(&cache[i], &untouched, sizeof(Code)) != 0)
        wrong = "cache[" + std::to_string(i) + "] belongs to no row and was written";
    return wrong;
  };
  const std::string type = std::string(dtype_name(dtype_of<T>())) + " to " + std::string(format_name(F));
  const std::string shape = "[" + std::to_string(in.rows) + ", " + std::to_string(in.kv_heads) + ", " +
                            std::to_string(in.head_dim) + "] pages of " + std::to_string(in.page_size) + " scale " +
                            (in.scale == 1.0 ? "1" : "0.3") + (in.plain ? "" : " special");
  cases.push_back({"cache_write", type, shape, run, check});
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    int64_t rows, kv_heads, head_dim, page_size;
    double scale = 1.0;
    bool plain = true;
  };
  // A block has a row and 128 threads.
  for (const Shape& s : {Shape{0, 1, 4, 4},
                         {1, 1, 1, 1},
                         {8, 1, 127, 1},
                         {3, 2, 64, 4, 0.3},
                         {7, 3, 43, 16},
                         {6, 3, 43, 3, 0.3, false}}) {
    for (const Format format : {Format::fp64, Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2}) {
      visit_kv_format(format, [&]<Format F>(std::integral_constant<Format, F>) {
        add_cache_case<F>(cases, CacheInputs<T>(s.rows, s.kv_heads, s.head_dim, s.page_size, F, s.scale, s.plain));
      });
    }
  }
}

}  // namespace

void add_cache_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
