// What the families of generated tasks have in common.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/philox.h"

namespace motley::envs {

using Files = std::map<std::string, std::string>;

struct SmallTask {
  std::string issue, test;
  Files before{}, after{}, tests{};
  std::vector<std::string> demonstration{};
};
SmallTask draw_files(kernels::RandomStream& random);
SmallTask draw_lines(kernels::RandomStream& random);
SmallTask draw_bash(kernels::RandomStream& random);
SmallTask draw_awk(kernels::RandomStream& random);
SmallTask draw_python(kernels::RandomStream& random);

template <typename T>
const T& pick(kernels::RandomStream& random, const std::vector<T>& from) {
  return from[random.below(from.size())];
}
/// `count` different members, in random order.
std::vector<std::string> pick_words(kernels::RandomStream& random, std::vector<std::string> from, size_t count);
const std::vector<std::string>& animals();  // names of files
const std::vector<std::string>& colours();  // what stands in them

}  // namespace motley::envs
