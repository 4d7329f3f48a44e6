// The product with the bits of the CPU's (kernels/cuda/chain_product.h), and what no product of a device takes.
#include <stdexcept>

#include "kernels/cuda/chain_product.h"
#include "kernels/matmul.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

template <class Sum, bool Cut>
GPU_BOUNDED_KERNEL(kProductThreads, 2)
void product_kernel(Product p, int64_t n) {
  const int64_t across = pieces(n, kTileRows);
  multiply_chain_tile<Sum, Cut>(p, n, {block() / across * kTileRows, block() % across * kTileRows});
}

template <class Sum>
void launch_product(const char* name, const Product& p) {
  const int64_t n = outputs(p.args);
  const Launch shape{name, pieces(p.args.c.rows, kTileRows) * pieces(n, kTileRows), kProductThreads};
  if (p.args.k_tile == 0)
    launch(shape, product_kernel<Sum, false>, p, n);
  else
    launch(shape, product_kernel<Sum, true>, p, n);
}

}  // namespace

void check_product(const MatmulArgs& args) {
  if (args.packed != nullptr)
    throw std::logic_error("matmul: a device reads packed_codes, not the host's packed matrix");
  const bool packed = is_packed(args), doubles = args.c.dtype == DType::f64;
  if ((args.a.dtype == DType::f64) != doubles || (!packed && (args.b.dtype == DType::f64) != doubles))
    throw std::logic_error("matmul: float64 mixed with another type");
  if (!doubles) return;
  if (packed || args.a_scales != nullptr)
    throw std::logic_error("matmul: a float64 product takes plain float64 operands");
  const bool plain = args.column_factors == nullptr && args.row_factors == nullptr && args.gate.data == nullptr &&
                     args.residual.data == nullptr && args.alpha == 1.0f;
  if (!plain) throw std::logic_error("matmul: a float64 product has no finish");
}

void product(const char* name, const Product& p) {
  check_product(p.args);
  if (is_empty_product(p.args)) return;
  if (p.args.c.dtype == DType::f64)
    launch_product<double>(name, p);
  else
    launch_product<float>(name, p);
}

void matmul(const MatmulArgs& args) { product("matmul", {args}); }

}  // namespace motley::kernels::GPU_NAMESPACE
