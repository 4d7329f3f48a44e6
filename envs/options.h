// A task's options as typed values: the Option table's defaults and ranges applied to the text that the user gave.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "envs/environment.h"

namespace motley::envs {

class OptionValues {
 public:
  /// Throws TaskError naming task and option: unknown name, wrong kind, out of range, not allowed.
  OptionValues(std::string_view task, const std::vector<Option>& table, const Options& given);
  int64_t integer(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  double number(const std::string& name) const { return std::get<double>(values_.at(name)); }
  const std::string& text(const std::string& name) const { return std::get<std::string>(values_.at(name)); }
  bool boolean(const std::string& name) const { return std::get<bool>(values_.at(name)); }

 private:
  std::map<std::string, std::variant<int64_t, double, std::string, bool>> values_;
};

}  // namespace motley::envs
