#include "kernels/norm.h"

#include <limits>

#include "tests/kernels/gradient.h"
#include "tests/kernels/values.h"

namespace motley::kernels {

TEMPLATE_TEST_CASE("rms_norm agrees with float64", "", float, double, bf16, fp16) {
  using T = TestType;
  for (const int64_t cols : {1, 2, 15, 16, 17, 33, 128, 300}) {
    const int64_t rows = 5;
    const auto x = values<T>(rows * cols, 1, 3.0), gain = values<T>(cols, 2);
    std::vector<T> y(x.size());
    std::vector<Compute<T>> rstd(rows);
    cpu::rms_norm<T>({y.data(), rstd.data(), x.data(), gain.data(), rows, cols, 1e-6});
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += real(x[r * cols + c]) * real(x[r * cols + c]);
      const double want_rstd = 1 / std::sqrt(sum / static_cast<double>(cols) + 1e-6);
      // A lane sums cols / 16 squares, the tree adds 4 levels; root, quotient and two products round once each.
      const double relative = (static_cast<double>(cols) / 16 + 10) * unit<Compute<T>>() + unit<T>();
      CHECK(std::fabs(rstd[r] - want_rstd) <= relative * want_rstd);
      for (int64_t c = 0; c < cols; ++c) {
        const double want = real(x[r * cols + c]) * want_rstd * real(gain[c]);
        REQUIRE(std::fabs(real(y[r * cols + c]) - want) <= relative * std::fabs(want) + 0x1p-25);  // fp16 subnormals
      }
    }
  }
}

TEST_CASE("rms_norm's gradients") {
  const int64_t rows = 3, cols = 19;
  auto x = values<double>(rows * cols, 3), gain = values<double>(cols, 4);
  const auto dy = values<double>(rows * cols, 5);
  std::vector<double> y(x.size()), rstd(rows), dx(x.size()), dgain(cols, 0.25);
  const auto loss = [&] {
    cpu::rms_norm<double>({y.data(), rstd.data(), x.data(), gain.data(), rows, cols, 1e-5});
    return dot(y, dy);
  };
  loss();
  cpu::rms_norm_backward<double>({dx.data(), dgain.data(), dy.data(), x.data(), gain.data(), rstd.data(), rows, cols});
  for (double& g : dgain) g -= 0.25;  // it is accumulated
  check_gradient(x, dx, loss);
  check_gradient(gain, dgain, loss);
}

TEMPLATE_TEST_CASE("a row's norm depends on no other row and on no thread", "", float, bf16) {
  using T = TestType;
  const int64_t rows = 700, cols = 130;
  const auto x = values<T>(rows * cols, 6), gain = values<T>(cols, 7), dy = values<T>(rows * cols, 8);
  const auto run = [&] {
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> rstd(rows), dgain(cols);
    cpu::rms_norm<T>({y.data(), rstd.data(), x.data(), gain.data(), rows, cols, 1e-6});
    cpu::rms_norm_backward<T>({dx.data(), dgain.data(), dy.data(), x.data(), gain.data(), rstd.data(), rows, cols});
    return std::tuple(y, rstd, dx, dgain);
  };
  const auto serial = run();
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    const auto split = run();
    CHECK(same_bits(std::get<0>(serial), std::get<0>(split)));
    CHECK(same_bits(std::get<1>(serial), std::get<1>(split)));
    CHECK(same_bits(std::get<2>(serial), std::get<2>(split)));
    CHECK(same_bits(std::get<3>(serial), std::get<3>(split)));
  }
  std::vector<T> y(cols);
  cpu::rms_norm<T>({y.data(), nullptr, x.data() + 77 * cols, gain.data(), 1, cols, 1e-6});
  CHECK(std::memcmp(y.data(), std::get<0>(serial).data() + 77 * cols, cols * sizeof(T)) == 0);
  // The chain of dgain continues: two halves of the rows are the whole.
  std::vector<T> dx(x.size());
  std::vector<float> dgain(cols);
  for (const int64_t half : {0, 1})
    cpu::rms_norm_backward<T>({dx.data(), dgain.data(), dy.data() + half * 350 * cols, x.data() + half * 350 * cols,
                               gain.data(), std::get<1>(serial).data() + half * 350, 350, cols});
  CHECK(same_bits(dgain, std::get<3>(serial)));
}

TEST_CASE("rms_norm of zeros, of nothing, and of NaN") {
  std::vector<float> x(40), gain(20, 1.0f), y(40, 5.0f);
  x[25] = std::numeric_limits<float>::quiet_NaN();
  cpu::rms_norm<float>({y.data(), nullptr, x.data(), gain.data(), 2, 20, 1e-6});
  for (int i = 0; i < 20; ++i) CHECK(y[i] == 0.0f);
  for (int i = 20; i < 40; ++i) CHECK(std::isnan(y[i]));
  cpu::rms_norm<float>({nullptr, nullptr, nullptr, gain.data(), 0, 20, 1e-6});
}

}  // namespace motley::kernels
