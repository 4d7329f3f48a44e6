#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/head.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

template <class T>
struct HeadInputs {
  int64_t rows, width, vocabulary;
  bool restricted, plain;
  double temperature = 0.8;
  std::vector<T> hidden, weight;
  std::vector<int64_t> offsets{0}, candidate_offsets{0};
  std::vector<int32_t> ids, candidates;
  std::vector<Compute<T>> d_log_p, d_entropy;

  HeadInputs(int64_t rows_in, int64_t width_in, int64_t vocabulary_in, bool restricted_in, bool plain_in)
      : rows(rows_in),
        width(width_in),
        vocabulary(vocabulary_in),
        restricted(restricted_in),
        plain(plain_in),
        hidden(values<T>(rows * width, 1, 1.5)),
        weight(values<T>(vocabulary * width, 2, 0.7)) {
    Values draw(3);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> support;
      for (int32_t v = 0; v < vocabulary; ++v)
        if (!restricted || ((draw.next() > 0.2 || v == r % vocabulary) && (plain || v != vocabulary - 1)))
          support.push_back(v);
      candidates.insert(candidates.end(), support.begin(), support.end());
      candidate_offsets.push_back(static_cast<int64_t>(candidates.size()));
      // Row r selects r mod 4 ids, at most those of its support, in descending order.
      const int64_t count = std::min<int64_t>(r % 4, static_cast<int64_t>(support.size()));
      for (int64_t k = 0; k < count; ++k) ids.push_back(support[support.size() - 1 - static_cast<size_t>(k)]);
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    d_log_p = values<Compute<T>>(static_cast<int64_t>(ids.size()), 4);
    d_entropy = values<Compute<T>>(rows, 5);
    for (size_t r = 0; r < d_entropy.size(); r += 3) d_entropy[r] = 0;  // rows of no cotangent at all among them
    if (plain) return;
    weight[1] = as<T>(std::numeric_limits<double>::quiet_NaN());
    for (int64_t c = 0; c < width; ++c) hidden[c] = as<T>(-0.0);
    for (int64_t c = 0; c < width; ++c) weight[width * 2 + c] = as<T>(-0.0);
    weight[width * 3] = as<T>(-std::numeric_limits<double>::infinity());
    // Of candidates the last id is none: its gradient by column 2 is a sum of -0 alone, and stays -0.
    for (int64_t r = 0; r < rows; ++r) hidden[r * width + 2] = as<T>(-1.0);
  }
};

/// The arrays of a case on a device.
template <class T>
struct HeadArrays {
  using C = Compute<T>;
  OnDevice<T> hidden, weight, d_hidden;
  OnDevice<int64_t> offsets, candidate_offsets;
  OnDevice<int32_t> ids, candidates;
  OnDevice<C> log_p, log_outside, entropy, lse, d_log_p, d_entropy, d_weight;
  HeadArgs<T> args;

  HeadArrays(const HeadInputs<T>& in, const Device& d)
      : hidden(d, in.hidden),
        weight(d, in.weight),
        d_hidden(d, std::vector<T>(in.hidden.size())),
        offsets(d, in.offsets),
        candidate_offsets(d, in.candidate_offsets),
        ids(d, in.ids),
        candidates(d, in.candidates),
        log_p(d, std::vector<C>(in.ids.size())),
        log_outside(d, std::vector<C>(in.rows)),
        entropy(d, std::vector<C>(in.rows)),
        lse(d, std::vector<C>(in.rows)),
        d_log_p(d, in.d_log_p),
        d_entropy(d, in.d_entropy),
        d_weight(d, std::vector<C>(in.weight.size(), in.plain ? C{0.5} : -C{0})),
        args{hidden.data(),
             weight.data(),
             in.rows,
             in.width,
             in.vocabulary,
             in.temperature,
             {offsets.data(), ids.data()},
             in.restricted ? IdLists{candidate_offsets.data(), candidates.data()} : IdLists{},
             log_p.data(),
             log_outside.data(),
             entropy.data(),
             lse.data()} {}
};

template <class T>
Outputs run_forward(const HeadInputs<T>& in, const Device& device) {
  const HeadArrays<T> on(in, device);
  MOTLEY_DISPATCH(device, head, on.args);
  device_synchronize(device);
  return {on.log_p.output("log_p"), on.log_outside.output("log_outside"), on.entropy.output("entropy"),
          on.lse.output("lse")};
}
template <class T>
Outputs run_backward(const HeadInputs<T>& in, const Device& device) {
  const HeadArrays<T> on(in, device);
  MOTLEY_DISPATCH(device, head, on.args);
  MOTLEY_DISPATCH(
      device, head_backward,
      HeadBackwardArgs<T>{on.args, on.d_log_p.data(), on.d_entropy.data(), on.d_hidden.data(), on.d_weight.data()});
  device_synchronize(device);
  return {on.d_hidden.output("d_hidden"), on.d_weight.output("d_weight")};
}

/// A row in float64.
struct Row {
  std::vector<double> z;  // of the vocabulary
  std::vector<bool> inside, selected;
  double lse = 0, entropy = 0, log_outside = 0;
  double error = 0;  // of a logit, of its difference to lse, and of what is made of them
};
template <class T>
Row row_of(const HeadInputs<T>& in, int64_t r) {
  const double u = unit<Compute<T>>(), infinity = std::numeric_limits<double>::infinity();
  Row row;
  row.inside.assign(in.vocabulary, !in.restricted);
  row.selected.assign(in.vocabulary, false);
  if (in.restricted)
    for (int64_t i = in.candidate_offsets[r]; i < in.candidate_offsets[r + 1]; ++i) row.inside[in.candidates[i]] = true;
  for (int64_t k = in.offsets[r]; k < in.offsets[r + 1]; ++k) row.selected[in.ids[k]] = true;
  double product_error = 0, largest = -infinity, mass = 0, outside = 0, spread = 0;
  for (int64_t v = 0; v < in.vocabulary; ++v) {
    double sum = 0, size = 0;
    for (int64_t c = 0; c < in.width; ++c) {
      const double term = real(in.hidden[r * in.width + c]) * real(in.weight[v * in.width + c]);
      sum += term;
      size += std::fabs(term);
    }
    row.z.push_back(sum / in.temperature);
    product_error = std::max(product_error, static_cast<double>(in.width + 2) * u * size / in.temperature);
    if (row.inside[v]) largest = std::max(largest, row.z.back());
  }
  for (int64_t v = 0; v < in.vocabulary; ++v) {
    if (!row.inside[v]) continue;
    const double e = std::exp(row.z[v] - largest);
    mass += e;
    if (!row.selected[v]) outside += e;
  }
  row.lse = largest + std::log(mass);
  row.log_outside = outside == 0 ? -infinity : std::log(outside / mass);
  for (int64_t v = 0; v < in.vocabulary; ++v) {
    if (!row.inside[v]) continue;
    const double log_p = row.z[v] - row.lse;
    row.entropy -= std::exp(log_p) * log_p;
    spread = std::max(spread, std::fabs(log_p));
  }
  // A sum over the vocabulary adds V / 16 + 5 roundings, exponential and logarithm four; differences round at the size
  // of z and lse. Twice, because the reference errs as much where the kernel computes in fp64 too.
  row.error =
      2 * (product_error + (static_cast<double>(in.vocabulary) / 16 + 16) * u * (2 + std::fabs(row.lse) + spread));
  if (dtype_of<T>() == DType::f64) row.error *= 16;  // the reference adds the vocabulary in one chain
  return row;
}

template <class T>
std::string check_forward(const HeadInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  using C = Compute<T>;
  const auto log_p = elements<C>(outputs[0]), log_outside = elements<C>(outputs[1]), entropy = elements<C>(outputs[2]),
             lse = elements<C>(outputs[3]);
  std::string wrong;
  for (int64_t r = 0; r < in.rows && wrong.empty(); ++r) {
    const Row row = row_of(in, r);
    wrong += beyond("lse", r, lse[r], row.lse, row.error);
    // The entropy is a mean of log p, whose weights err by as much as log p does.
    wrong += beyond("entropy", r, entropy[r], row.entropy, row.error * (2 + row.entropy));
    wrong += beyond("log_outside", r, log_outside[r], row.log_outside, 2 * row.error);
    for (int64_t k = in.offsets[r]; k < in.offsets[r + 1]; ++k)
      wrong += beyond("log_p", k, log_p[k], row.z[in.ids[k]] - row.lse, 2 * row.error);
  }
  return wrong;
}

template <class T>
std::string check_backward(const HeadInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  const double u = unit<Compute<T>>();
  const auto d_hidden = elements<T>(outputs[0]);
  const auto d_weight = elements<Compute<T>>(outputs[1]);
  std::vector<double> weight_sum(in.weight.size(), 0.5), weight_error(in.weight.size(), 0.5 * u);
  std::string wrong;
  for (int64_t r = 0; r < in.rows && wrong.empty(); ++r) {
    const Row row = row_of(in, r);
    std::vector<double> hidden_sum(in.width), hidden_error(in.width);
    double a = 0;
    for (int64_t k = in.offsets[r]; k < in.offsets[r + 1]; ++k) a -= in.d_log_p[k];
    for (int64_t v = 0; v < in.vocabulary; ++v) {
      const double c = in.d_entropy[r], log_p = row.z[v] - row.lse, p = row.inside[v] ? std::exp(log_p) : 0;
      double dz = p * (a - c * (log_p + row.entropy)), error = 0;
      // p errs relatively as log p does absolutely; the slope's terms err by as much.
      error = 4 * row.error * p * (std::fabs(a) + std::fabs(c) * (std::fabs(log_p) + row.entropy + 2));
      for (int64_t k = in.offsets[r]; k < in.offsets[r + 1]; ++k) dz += in.ids[k] == v ? in.d_log_p[k] : 0;
      dz /= in.temperature;
      error = error / in.temperature + 4 * u * std::fabs(dz);
      const double steps = static_cast<double>(in.vocabulary + in.rows + 2) * u;
      for (int64_t c2 = 0; c2 < in.width; ++c2) {
        const double w = real(in.weight[v * in.width + c2]), h = real(in.hidden[r * in.width + c2]);
        hidden_sum[c2] += dz * w;
        hidden_error[c2] += std::fabs(w) * (error + steps * std::fabs(dz));
        weight_sum[v * in.width + c2] += dz * h;
        weight_error[v * in.width + c2] += std::fabs(h) * (error + steps * std::fabs(dz)) + u;
      }
    }
    for (int64_t c = 0; c < in.width; ++c) {
      const int64_t i = r * in.width + c;
      const double bound = hidden_error[c] + unit<T>() * std::fabs(hidden_sum[c]) + 0x1p-25;  // fp16 subnormals
      wrong += beyond("d_hidden", i, real(d_hidden[i]), hidden_sum[c], bound);
    }
  }
  for (size_t i = 0; i < weight_sum.size() && wrong.empty(); ++i)
    wrong += beyond("d_weight", static_cast<int64_t>(i), d_weight[i], weight_sum[i], weight_error[i]);
  return wrong;
}

template <class T>
void add_case(std::vector<DeviceCase>& cases, const HeadInputs<T>& in) {
  const std::string shape = "[" + std::to_string(in.rows) + ", " + std::to_string(in.width) + "] of " +
                            std::to_string(in.vocabulary) + (in.restricted ? " candidates" : "") +
                            (in.plain ? "" : " special");
  const std::string type = dtype_name(dtype_of<T>());
  cases.push_back({"head", type, shape, [in](const Device& d) { return run_forward(in, d); },
                   [in](const Outputs& o) { return check_forward(in, o); }});
  cases.push_back({"head_backward", type, shape, [in](const Device& d) { return run_backward(in, d); },
                   [in](const Outputs& o) { return check_backward(in, o); }});
}
template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    int64_t rows, width, vocabulary;
    bool plain = true;
  };
  // A tile of a product: 64 outputs both ways, 16 steps deep; a row's sums go by 1024.
  for (const bool restricted : {false, true}) {
    for (const Shape& s : {Shape{0, 3, 5},
                           {1, 1, 1},
                           {2, 0, 7},
                           {9, 15, 17},
                           {4, 16, 63},
                           {3, 17, 64},
                           {65, 5, 65},
                           {2, 33, 1025},
                           {4, 6, 20, false}}) {
      add_case(cases, HeadInputs<T>(s.rows, s.width, s.vocabulary, restricted, s.plain));
    }
  }
}

/// Rows of logits; special: infinities of both signs, NaN, -0 and huge numbers, and rows of -inf alone.
template <class C>
void add_log_sum_exp_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    int64_t rows, cols;
    bool plain = true;
  };
  for (const Shape& s : {Shape{0, 5},
                         {2, 0},
                         {1, 1},
                         {3, 15},
                         {2, 17},
                         {2, 127},
                         {2, 129},
                         {2, 1023},
                         {1, 1024},
                         {2, 1025},
                         {13, 24, false}}) {
    auto x = values<C>(s.rows * s.cols, 7, 9.0);
    if (!s.plain) {
      const C infinity = std::numeric_limits<C>::infinity();
      const C special[] = {-infinity, std::numeric_limits<C>::quiet_NaN(), infinity, C{3e38f}, -C{0}, C{-3e38f}};
      // Row 12 is of -inf alone; rows 0, 6: -inf among others; and so on.
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t c = 0; c < s.cols; ++c)
          if (r == 12 || c % 7 == r % 7) x[r * s.cols + c] = special[r == 12 ? 0 : r % 6];
    }
    const auto run = [=](const Device& device) {
      const OnDevice<C> logits(device, x), lse(device, std::vector<C>(s.rows));
      MOTLEY_DISPATCH(device, log_sum_exp, lse.data(), logits.data(), s.rows, s.cols);
      device_synchronize(device);
      return Outputs{lse.output("lse")};
    };
    const auto check = [=](const Outputs& outputs) {
      const auto lse = elements<C>(outputs[0]);
      std::string wrong;
      for (int64_t r = 0; s.plain && r < s.rows && wrong.empty(); ++r) {
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t c = 0; c < s.cols; ++c) largest = std::max<double>(largest, x[r * s.cols + c]);
        for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(x[r * s.cols + c] - largest);
        const double want = s.cols == 0 ? largest : largest + std::log(sum);
        // A lane adds an element in sixteen, the reference all; exponential and logarithm add four.
        const double steps = static_cast<double>(dtype_of<C>() == DType::f64 ? s.cols : s.cols / 16) + 12;
        wrong += beyond("lse", r, lse[r], want, steps * unit<C>() * (1 + std::fabs(want)));
      }
      return wrong;
    };
    const std::string shape =
        "[" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "]" + (s.plain ? "" : " special");
    cases.push_back({"log_sum_exp", dtype_name(dtype_of<C>()), shape, run, check});
  }
}

}  // namespace

void add_head_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
  add_log_sum_exp_cases<float>(cases);
  add_log_sum_exp_cases<double>(cases);
  add_case(cases, HeadInputs<float>(514, 3, 5, false, true));  // more rows than one chunk
}

}  // namespace motley::kernels
