#include <cmath>
#include <cstring>

#include "kernels/pointwise.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

/// How often ids repeat: not at all, by chance, one of them in most rows, in every row.
enum class Repeats : uint8_t { never, some, mostly, always };

template <class T>
struct EmbeddingInputs {
  int64_t rows, cols, vocabulary;
  bool plain;
  std::vector<T> table, dy;
  std::vector<int32_t> ids;

  EmbeddingInputs(int64_t rows_in, int64_t cols_in, Repeats repeats, bool plain_in)
      : rows(rows_in),
        cols(cols_in),
        vocabulary(repeats == Repeats::never ? rows : 50),
        plain(plain_in),
        table(values<T>(vocabulary * cols, 1)),
        dy(values<T>(rows * cols, 2)) {
    Values draw(3);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t any = repeats == Repeats::never ? rows - 1 - r : draw.below(vocabulary);
      const bool same = repeats == Repeats::always || (repeats == Repeats::mostly && r % 16 != 3);
      ids.push_back(static_cast<int32_t>(same ? 7 : any));
    }
    if (plain) return;
    table = with_specials(table, 3);
    dy = with_specials(dy, 97);
    for (int64_t c = 0; c < cols; ++c) dy[c] = as<T>(-0.0);
  }
};

template <class T>
Outputs run_forward(const EmbeddingInputs<T>& in, const Device& device) {
  const OnDevice<T> table(device, in.table), y(device, std::vector<T>(in.dy.size()));
  const OnDevice<int32_t> ids(device, in.ids);
  MOTLEY_DISPATCH(device, embedding, EmbeddingArgs<T>{y.data(), table.data(), ids.data(), in.rows, in.cols});
  device_synchronize(device);
  return {y.output("y")};
}
template <class T>
std::string check_forward(const EmbeddingInputs<T>& in, const Outputs& outputs) {
  const auto y = elements<T>(outputs[0]);
  for (int64_t r = 0; r < in.rows; ++r)
    if (in.cols > 0 && std::memcmp(&y[r * in.cols], &in.table[in.ids[r] * in.cols], in.cols * sizeof(T)) != 0)
      return "y: row " + std::to_string(r) + " is not the table's";
  return {};
}

/// The gradient starts as 0.25, or as -0, which stays where nothing but -0 is added.
template <class T>
Outputs run_backward(const EmbeddingInputs<T>& in, const Device& device) {
  using C = Compute<T>;
  const OnDevice<T> dy(device, in.dy);
  const OnDevice<C> dtable(device, std::vector<C>(in.table.size(), in.plain ? C{0.25} : -C{0}));
  const OnDevice<int32_t> ids(device, in.ids);
  MOTLEY_DISPATCH(device, embedding_backward,
                  EmbeddingBackwardArgs<T>{dtable.data(), dy.data(), ids.data(), in.rows, in.cols});
  device_synchronize(device);
  return {dtable.output("dtable")};
}
template <class T>
std::string check_backward(const EmbeddingInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  const auto dtable = elements<Compute<T>>(outputs[0]);
  std::vector<double> sums(in.table.size(), 0.25), sizes(in.table.size(), 0.25), terms(in.table.size());
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.cols; ++c) {
      const int64_t at = in.ids[r] * in.cols + c;
      sums[at] += real(in.dy[r * in.cols + c]);
      sizes[at] += std::fabs(real(in.dy[r * in.cols + c]));
      terms[at] += 1;
    }
  }
  std::string wrong;
  for (size_t i = 0; i < sums.size() && wrong.empty(); ++i)
    wrong +=
        beyond("dtable", static_cast<int64_t>(i), dtable[i], sums[i], 2 * terms[i] * unit<Compute<T>>() * sizes[i]);
  return wrong;
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    int64_t rows, cols;
    Repeats repeats;
    bool plain = true;
  };
  // A block has 128 columns; it sorts 1024 rows, and sorted runs are merged two and two; a chain goes by 16 rows.
  for (const Shape& s : {Shape{0, 3, Repeats::some},
                         {1, 1, Repeats::some},
                         {3, 127, Repeats::never},
                         {40, 129, Repeats::some},
                         {15, 2, Repeats::always},
                         {16, 2, Repeats::always},
                         {17, 2, Repeats::always},
                         {1023, 2, Repeats::mostly},
                         {1024, 3, Repeats::some},
                         {1025, 3, Repeats::mostly},
                         {1100, 1, Repeats::never},
                         {2049, 2, Repeats::some},
                         {5000, 3, Repeats::mostly},
                         {60, 33, Repeats::some, false}}) {
    const EmbeddingInputs<T> in(s.rows, s.cols, s.repeats, s.plain);
    const char* const repeats[] = {" distinct", "", " mostly one id", " one id"};
    const std::string shape = "[" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "]" +
                              repeats[static_cast<int>(s.repeats)] + (s.plain ? "" : " special");
    const std::string type = dtype_name(dtype_of<T>());
    if (s.rows <= 100)
      cases.push_back({"embedding", type, shape, [in](const Device& d) { return run_forward(in, d); },
                       [in](const Outputs& o) { return check_forward(in, o); }});
    cases.push_back({"embedding_backward", type, shape, [in](const Device& d) { return run_backward(in, d); },
                     [in](const Outputs& o) { return check_backward(in, o); }});
  }
}

}  // namespace

void add_embedding_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
