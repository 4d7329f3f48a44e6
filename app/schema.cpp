#include "app/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "envs/utf8.h"
#include "kernels/profile.h"

namespace motley::app {
namespace {

std::string number_text(double value, bool whole) {
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
}

std::string range_text(const ValueRule& rule, bool whole) {
  std::string text;
  if (std::isfinite(rule.minimum)) {
    text = (rule.above_minimum ? "above " : "at least ") + number_text(rule.minimum, whole);
  }
  if (std::isfinite(rule.maximum)) {
    if (!text.empty()) text += rule.below_maximum || rule.above_minimum ? " and " : ", ";
    text += (rule.below_maximum ? "below " : "at most ") + number_text(rule.maximum, whole);
  }
  return text;
}

std::string text_rule(const ValueRule& rule) {
  if (!rule.form.empty()) return rule.form;
  if (!rule.names) return "any text but the empty one";
  std::vector<std::string> quoted;
  for (const std::string& name : rule.names()) quoted.push_back("\"" + name + "\"");
  return "one of " + join(quoted, ", ");
}

[[noreturn]] void refuse(const ValueRule& rule, const Node& node, const std::string& path,
                         const std::string& nearest = "") {
  std::string allowed = "allowed: " + rule.allowed();
  if (!rule.reason.empty()) allowed += " (" + rule.reason + ")";
  throw InputError(node.at, fmt::format("{} is {}", path, node.describe()), allowed, nearest);
}

double read_number(const ValueRule& rule, const Node& node, const std::string& path, bool whole) {
  if (node.kind != Node::Kind::integer && (whole || node.kind != Node::Kind::number)) refuse(rule, node, path);
  const double value = node.kind == Node::Kind::integer ? static_cast<double>(node.integer) : node.number;
  const bool low = rule.above_minimum ? value > rule.minimum : value >= rule.minimum;
  const bool high = rule.below_maximum ? value < rule.maximum : value <= rule.maximum;
  const bool representable = std::isfinite(value) || rule.infinite;
  if (!representable || !low || !high) refuse(rule, node, path);
  return value;
}

std::string read_text(const ValueRule& rule, const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::text || node.text.empty()) refuse(rule, node, path);
  if (node.text.find('\0') != std::string::npos) refuse(rule, node, path);
  if (!envs::is_utf8(node.text)) throw InputError(node.at, path + " is no valid UTF-8", "a TOML could not hold it");
  if (rule.accepts && !rule.accepts(node.text)) refuse(rule, node, path);
  if (rule.names) {
    const std::vector<std::string> names = rule.names();
    if (std::find(names.begin(), names.end(), node.text) == names.end()) {
      refuse(rule, node, path, nearest_name(node.text, names));
    }
  }
  return node.text;
}

template <class T, class Read>
std::vector<T> read_list(const ValueRule& rule, const Node& node, const std::string& path, Read read) {
  if (node.kind != Node::Kind::array || node.items.empty()) refuse(rule, node, path);
  std::vector<T> values;
  for (size_t i = 0; i < node.items.size(); ++i) {
    values.push_back(read(rule, node.items[i], fmt::format("{}[{}]", path, i)));
    if (rule.kind != ValueKind::span && !rule.repeats &&
        std::find(values.begin(), values.end() - 1, values.back()) != values.end() - 1) {
      throw InputError(node.items[i].at, fmt::format("{} holds {} twice", path, node.items[i].describe()));
    }
  }
  return values;
}

}  // namespace

std::string kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::boolean:
      return "boolean";
    case ValueKind::integer:
      return "integer";
    case ValueKind::number:
      return "number";
    case ValueKind::text:
      return "text";
    case ValueKind::integers:
      return "list of integers";
    case ValueKind::texts:
      return "list of texts";
    case ValueKind::span:
      return "[low, high]";
  }
  return "";
}

std::string ValueRule::allowed() const {
  switch (kind) {
    case ValueKind::boolean:
      return "true or false, without quotes";
    case ValueKind::text:
      return text_rule(*this);
    case ValueKind::texts:
      return "a list of at least one text, each " + text_rule(*this);
    default:
      break;
  }
  const bool whole = kind != ValueKind::number;
  const std::string range = range_text(*this, whole);
  std::string text;
  if (kind == ValueKind::integer) text = "an integer";
  if (kind == ValueKind::number) text = "a number";
  if (kind == ValueKind::integers) text = "a list of at least one integer, each";
  if (kind == ValueKind::span) text = "[low, high] with low <= high, both integers";
  if (range.empty()) return text;
  return text + (kind == ValueKind::integers ? " " : " of ") + range;
}

Value ValueRule::read(const Node& node, const std::string& path) const {
  const auto integer = [](const ValueRule& rule, const Node& item, const std::string& name) {
    read_number(rule, item, name, true);
    return item.integer;
  };
  switch (kind) {
    case ValueKind::boolean:
      if (node.kind != Node::Kind::boolean) refuse(*this, node, path);
      return node.boolean;
    case ValueKind::integer:
      return integer(*this, node, path);
    case ValueKind::number:
      return read_number(*this, node, path, false);
    case ValueKind::text:
      return read_text(*this, node, path);
    case ValueKind::integers:
      return read_list<int64_t>(*this, node, path, integer);
    case ValueKind::texts:
      return read_list<std::string>(*this, node, path, read_text);
    case ValueKind::span:
      break;
  }
  std::vector<int64_t> pair = read_list<int64_t>(*this, node, path, integer);
  if (pair.size() != 2 || pair[0] > pair[1]) refuse(*this, node, path);
  return pair;
}

std::string value_to_toml(const Value& value) {
  struct Printer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return toml_number(v); }
    std::string operator()(const std::string& v) const { return toml_text(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const std::vector<std::string>& v) const {
      std::vector<std::string> quoted;
      for (const std::string& text : v) quoted.push_back(toml_text(text));
      return "[" + join(quoted, ", ") + "]";
    }
  };
  return std::visit(Printer{}, value);
}

const Field* find_field(const std::string& section, const std::string& key) {
  for (const Field& field : schema_fields()) {
    if (field.section == section && field.key == key) return &field;
  }
  return nullptr;
}

std::vector<std::string> section_keys(const std::string& section) {
  std::vector<std::string> keys;
  for (const Field& field : schema_fields()) {
    if (field.section == section) keys.push_back(field.key);
  }
  return keys;
}

ValueRule option_rule(const envs::Option& option) {
  ValueRule rule;
  using OptionKind = envs::Option::Kind;
  switch (option.kind) {
    case OptionKind::boolean:
      rule.kind = ValueKind::boolean;
      break;
    case OptionKind::integer:
      rule.kind = ValueKind::integer;
      break;
    case OptionKind::number:
      rule.kind = ValueKind::number;
      break;
    case OptionKind::text:
      rule.kind = ValueKind::text;
      break;
  }
  if (option.minimum < option.maximum) {
    rule.minimum = option.minimum;
    rule.maximum = option.maximum;
  }
  if (!option.allowed.empty()) rule.names = [names = option.allowed] { return names; };
  return rule;
}

std::string option_text(const Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text ? *text : value_to_toml(value);
}

std::string option_default(const envs::Option& option) {
  if (option.kind == envs::Option::Kind::text || option.default_value.empty()) return option.default_value;
  const Node node = parse_toml_value(option.default_value, {"default of " + option.name});
  return option_text(option_rule(option).read(node, option.name));
}

ValueRule parameter_rule(const algos::ParameterInfo& parameter) {
  ValueRule rule;
  if (std::holds_alternative<std::string>(parameter.default_value)) {
    rule.kind = ValueKind::text;
    rule.names = [texts = parameter.texts] { return texts; };
  } else {
    rule.kind = ValueKind::number;
    rule.minimum = parameter.minimum;
    rule.maximum = parameter.maximum;
    rule.above_minimum = parameter.above_minimum;
    rule.infinite = true;
  }
  return rule;
}

std::string parameter_to_toml(const algos::ParameterValue& value) {
  const double* number = std::get_if<double>(&value);
  return number ? toml_number(*number) : toml_text(std::get<std::string>(value));
}

std::vector<std::string> env_names() {
  std::vector<std::string> names;
  for (const envs::TaskInfo& info : envs::tasks()) names.push_back(info.name);
  return names;
}
std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const kernels::NumericProfile& profile : kernels::profiles()) names.push_back(profile.name);
  return names;
}
std::vector<std::string> group_profile_names() {
  std::vector<std::string> names = profile_names();
  names.push_back("trainer");
  return names;
}
}  // namespace motley::app
