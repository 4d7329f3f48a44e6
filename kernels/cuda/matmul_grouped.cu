// Grouped products: a block finds the group that its tile of rows is of, and computes it as the plain products do. How
// many rows a group has, only the device knows: there are blocks for as many tiles as that many rows and groups may
// make, and those beyond have nothing to do.
#include <stdexcept>

#include "kernels/cuda/chain_product.h"
#include "kernels/cuda/unit_product.h"
#include "kernels/matmul_grouped.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

struct GroupTile {
  int64_t group, begin, end;  // its rows; group -1: there is no such tile
  int64_t row;                // where the tile begins in the group
};
/// Tile `index` of `rows` rows each, counted through all groups.
GPU_DEVICE GroupTile group_tile(const GroupedMatmulArgs& args, int64_t rows, int64_t index) {
  int64_t begin = args.offsets[0];
  for (int64_t g = 0; g < args.groups; ++g) {
    const int64_t end = args.offsets[g + 1], tiles = pieces(end - begin, rows);
    if (index < tiles) return {g, begin, end, index * rows};
    index -= tiles;
    begin = end;
  }
  return {-1, 0, 0, 0};
}
/// The most tiles that groups may make of M rows: each has less than one that is not full.
int64_t most_tiles(const GroupedMatmulArgs& args, int64_t rows) {
  return args.all.c.rows / rows + (args.groups < args.all.c.rows ? args.groups : args.all.c.rows);
}
bool is_empty(const GroupedMatmulArgs& args) {
  return args.groups == 0 || args.all.c.cols == 0 || is_empty_product(args.all);
}

template <class Sum, bool Cut>
GPU_BOUNDED_KERNEL(kProductThreads, 1)
void grouped_product_kernel(GroupedMatmulArgs args) {
  const int64_t n = args.all.c.cols, across = pieces(n, kTileRows);
  const GroupTile tile = group_tile(args, kTileRows, block() / across);
  if (tile.group < 0) return;
  multiply_chain_tile<Sum, Cut>({product_of_group(args, tile.group, tile.begin, tile.end)}, n,
                                {tile.row, block() % across * kTileRows});
}

template <class Sum>
void launch_grouped(const GroupedMatmulArgs& args) {
  const Launch shape{"matmul_grouped", most_tiles(args, kTileRows) * pieces(args.all.c.cols, kTileRows),
                     kProductThreads};
  if (args.all.k_tile == 0)
    launch(shape, grouped_product_kernel<Sum, false>, args);
  else
    launch(shape, grouped_product_kernel<Sum, true>, args);
}

struct GroupedUnits {
  GroupedMatmulArgs args;
  Source a, b;
};

template <class T, class Tiling, bool Cut>
GPU_BOUNDED_KERNEL(Tiling::kThreads, 1)
void grouped_unit_kernel(GroupedUnits groups) {
  GPU_DYNAMIC_SHARED(memory);
  const int64_t n = groups.args.all.c.cols, across = pieces(n, Tiling::kCols);
  const GroupTile tile = group_tile(groups.args, Tiling::kRows, block() / across);
  if (tile.group < 0) return;
  const MatmulArgs args = product_of_group(groups.args, tile.group, tile.begin, tile.end);
  const UnitJob job{
      {args}, {groups.a, args.a, {}, args.a.rows, args.a.cols}, {groups.b, args.b, args.packed_codes, n, args.a.cols}};
  multiply_unit_tile<T, Tiling, Cut>(job, tile.row, block() % across * Tiling::kCols, memory);
}

template <class T, class Tiling, bool Cut>
void launch_grouped_units(const GroupedUnits& groups) {
  const int64_t blocks = most_tiles(groups.args, Tiling::kRows) * pieces(groups.args.all.c.cols, Tiling::kCols);
  launch({"matmul_grouped_units", blocks, Tiling::kThreads, Tiling::kShared}, grouped_unit_kernel<T, Tiling, Cut>,
         groups);
}
template <class T, bool Cut>
void launch_grouped_units(const GroupedUnits& groups, UnitTiling tiling) {
  if (tiling == UnitTiling::few_rows) return launch_grouped_units<T, FewRows, Cut>(groups);
  // Of a wide tile, sums, partial sums and a group's addresses are more than a thread's registers.
  if (Cut || tiling == UnitTiling::medium) return launch_grouped_units<T, MediumTiles, Cut>(groups);
  if constexpr (!Cut) launch_grouped_units<T, WideTiles, Cut>(groups);
}
template <class T>
void launch_grouped_units(const GroupedUnits& groups, UnitTiling tiling) {
  if (groups.args.all.k_tile == 0)
    launch_grouped_units<T, false>(groups, tiling);
  else
    launch_grouped_units<T, true>(groups, tiling);
}

/// Where rows lie side by side, 16 bytes begin at every eighth: a group may begin anywhere.
Source source_of_groups(const UnitOperand& all, int64_t rows_of_group) {
  return all.source == Source::flat && rows_of_group % 8 != 0 ? Source::elements : all.source;
}

}  // namespace

void matmul_grouped(const GroupedMatmulArgs& args) {
  check_product(args.all);
  if (is_empty(args)) return;
  if (args.all.c.dtype == DType::f64)
    launch_grouped<double>(args);
  else
    launch_grouped<float>(args);
}

void matmul_grouped_units(const GroupedMatmulArgs& args, UnitTiling tiling) {
  check_unit_product("matmul_grouped_units", args.all);
  if (tiling == UnitTiling::warpgroup)
    throw std::logic_error("matmul_grouped_units: there are no grouped products on warpgroups");
  if (is_empty(args)) return;
  const MatmulArgs& all = args.all;
  const UnitOperand b = is_packed(all) ? unit_operand(all.packed_codes) : unit_operand(all.b);
  const GroupedUnits groups{args, source_of_groups(unit_operand(all.a), 1), source_of_groups(b, all.c.cols)};
  if (tiling == UnitTiling::automatic) tiling = unit_tiling(pieces(all.c.rows, args.groups));
  if (all.a.dtype == DType::bf16)
    launch_grouped_units<bf16>(groups, tiling);
  else
    launch_grouped_units<fp16>(groups, tiling);
}

}  // namespace motley::kernels::GPU_NAMESPACE
