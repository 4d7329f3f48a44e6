// Our products against OpenBLAS, in turns in one process: sgemm of square matrices, and sgemv or sgemm of few rows with
// weights that cycle through more than the last-level cache. Options: --quick, --json, --threads N (both libraries).
#include <cblas.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "app/bench.h"
#include "kernels/packed_matrix.h"

namespace {

using namespace motley::app;
using motley::kernels::LineVector;

/// In the pages that our weights have.
LineVector<float> small_values(int64_t count) {
  LineVector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(static_cast<int64_t>(i * 7919 % 101) - 50);
  return values;
}

/// y[rows, outputs] = x W^T with the weights that stand in `ring` one after the other.
BenchCase peer_case(const BenchRow& ours, const std::shared_ptr<LineVector<float>>& ring) {
  const auto rows = ours.more.at("rows").get<int>(), n = ours.more.at("outputs").get<int>();
  const auto k = ours.more.at("inputs").get<int>();
  const auto x = std::make_shared<LineVector<float>>(small_values(int64_t{rows} * k));
  const auto y = std::make_shared<LineVector<float>>(static_cast<size_t>(rows) * static_cast<size_t>(n));
  const auto turn = std::make_shared<size_t>(0);
  const size_t size = static_cast<size_t>(n) * static_cast<size_t>(k), count = ring->size() / size;
  BenchCase c;
  c.row = ours;
  c.row.name.replace(0, 4, rows == 1 ? "sgemv" : "sgemm");
  c.row.more["profile"] = "openblas";
  c.call = [=] {
    *turn = (*turn + 1) % count;
    const float* w = ring->data() + *turn * size;
    if (rows == 1)
      cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, w, k, x->data(), 1, 0.0f, y->data(), 1);
    else
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, k, 1.0f, x->data(), k, w, k, 0.0f, y->data(), n);
  };
  return c;
}

std::string shape_of(const BenchRow& row) {
  return fmt::format("{} {} {}", row.more.at("rows").dump(), row.more.at("outputs").dump(),
                     row.more.at("inputs").dump()) +
         (row.more.contains("gemm") ? " gemm" : "");
}

/// One shape after the other, so that what is compared runs close together.
std::vector<BenchRow> compare(const BenchArguments& arguments) {
  std::map<std::string, std::vector<BenchCase>> shapes;
  std::vector<std::string> order;
  for (BenchCase& c : product_cases(arguments)) {
    const std::string shape = shape_of(c.row);
    if (!shapes.contains(shape)) order.push_back(shape);
    shapes[shape].push_back(std::move(c));
  }
  std::map<std::string, std::shared_ptr<LineVector<float>>> rings;
  std::vector<BenchRow> rows;
  for (const std::string& shape : order) {
    std::vector<BenchCase>& cases = shapes[shape];
    const nlohmann::ordered_json& more = cases.front().row.more;
    const int64_t size = more.at("outputs").get<int64_t>() * more.at("inputs").get<int64_t>();
    auto& ring = rings[more.contains("gemm") ? shape : std::to_string(size)];
    if (!ring) {
      const double footprint = more.contains("gemm") ? 0 : cold_footprint(arguments);
      const auto count = static_cast<int64_t>(std::max(1.0, std::ceil(footprint / (4.0 * static_cast<double>(size)))));
      ring = std::make_shared<LineVector<float>>(small_values(size * count));
    }
    cases.insert(cases.begin(), peer_case(cases.front().row, ring));
    std::vector<BenchRow> found = run_cases(std::move(cases), effort_of(arguments));
    for (BenchRow& row : found) {
      row.more["times_openblas"] = found.front().seconds.median / row.seconds.median;
      rows.push_back(row);
    }
  }
  return rows;
}

void print(const std::vector<BenchRow>& rows) {
  fmt::print("{:<34} {:>12} {:>9} {:>7} {:>11}\n", "product", "us", "GFLOP/s", "GB/s", "x OpenBLAS");
  for (const BenchRow& row : rows) {
    const double seconds = row.seconds.median;
    fmt::print("{:<34} {:>12.1f} {:>9.1f} {:>7.1f} {:>11.2f}\n", row.name, seconds * 1e6, row.flop / seconds * 1e-9,
               row.bytes / seconds * 1e-9, row.more.at("times_openblas").get<double>());
  }
}

/// OpenBLAS takes the oldest kernels on a processor that it does not know (0.3.21 on Sapphire Rapids and later: SSE3).
/// Its idle threads spin on for a while after each call, which would cost the next call of ours a core: 2^4 cycles of
/// that are the least it takes. It reads both when it is loaded, so that this process starts once more.
void ask_for_best_openblas([[maybe_unused]] char** argv) {
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE")) return;
  setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") ? "SKYLAKEX" : "HASWELL", 1);
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
  execv("/proc/self/exe", argv);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  ask_for_best_openblas(argv);
  BenchArguments arguments;
  arguments.threads = {1};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      arguments.quick = true;
    } else if (word == "--json") {
      arguments.json = true;
    } else if (word == "--threads" && i + 1 < argc) {
      arguments.threads = {std::max(1, std::atoi(argv[++i]))};
    } else {
      fmt::print(stderr, "products_bench: unknown option {}\n", word);
      return 2;
    }
  }
  openblas_set_num_threads(static_cast<int>(arguments.threads.front()));
  const Ceilings ceilings = measure_ceilings(arguments);
  const std::vector<BenchRow> rows = compare(arguments);
  nlohmann::ordered_json json = bench_json(rows, ceilings);
  json["openblas"] = openblas_get_corename();
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    print(rows);
  return 0;
}
