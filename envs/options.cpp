#include "envs/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

namespace motley::envs {

namespace {

/// Reads the whole of `text`; false if something is left over or it does not fit.
template <typename Number>
bool parse(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

[[noreturn]] void refuse(std::string_view task, const Option& option, const std::string& found,
                         const std::string& allowed) {
  throw TaskError("task " + std::string(task) + ": option " + option.name + " is \"" + found + "\"; it must be " +
                  allowed);
}

std::string range(const Option& option) {
  std::ostringstream text;
  text << (option.kind == Option::Kind::integer ? "a whole number" : "a number") << " from " << option.minimum << " to "
       << option.maximum;
  return text.str();
}

}  // namespace

OptionValues::OptionValues(std::string_view task, const std::vector<Option>& table, const Options& given) {
  for (const Option& option : table) {
    const auto found = given.find(option.name);
    const std::string& text = found == given.end() ? option.default_value : found->second;
    switch (option.kind) {
      case Option::Kind::integer: {
        int64_t value = 0;
        const bool read = parse(text, value);
        if (!read || static_cast<double>(value) < option.minimum || static_cast<double>(value) > option.maximum) {
          refuse(task, option, text, range(option));
        }
        values_[option.name] = value;
        break;
      }
      case Option::Kind::number: {
        double value = 0;
        if (!parse(text, value) || !(value >= option.minimum && value <= option.maximum)) {
          refuse(task, option, text, range(option));
        }
        values_[option.name] = value;
        break;
      }
      case Option::Kind::text: {
        const auto& allowed = option.allowed;
        if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
          refuse(task, option, text, "one of " + join(allowed));
        }
        values_[option.name] = text;
        break;
      }
      case Option::Kind::boolean:
        if (text != "true" && text != "false") refuse(task, option, text, "true or false");
        values_[option.name] = text == "true";
        break;
    }
  }
  std::vector<std::string> names;
  for (const Option& option : table) names.push_back(option.name);
  for (const auto& [name, value] : given) {
    if (!values_.contains(name)) {
      throw TaskError("task " + std::string(task) + ": no option \"" + name + "\"; it has " + join(names));
    }
  }
}

}  // namespace motley::envs
