// The one table of the keys that an experiment's TOML may hold. It drives parsing, the hints of error messages, --set,
// --dry-run and docs/experiment.md. Defaults are those of actors/experiment.h.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "actors/experiment.h"
#include "app/document.h"

namespace motley::app {

enum class ValueKind : uint8_t { boolean, integer, number, text, integers, texts, span };
/// A span [low, high] is a list of two integers.
using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;

/// What a value may be.
struct ValueRule {
  ValueKind kind = ValueKind::text;
  double minimum = -std::numeric_limits<double>::infinity();  // of a number, or of every number of a list
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false, below_maximum = false;  // the bound itself is out
  bool infinite = false;                              // +inf too, where there is no maximum
  bool repeats = false;                               // of a list: values may stand twice
  std::function<std::vector<std::string>()> names;    // a text must be one of them; absent: any but the empty text
  std::function<bool(const std::string&)> accepts;    // a further test of a text, described by `form`
  std::string form;
  std::string reason;  // why the range is what it is, for messages

  /// `an integer of at least 1`; for the error messages and the page.
  std::string allowed() const;
  /// Throws InputError at the value's position unless `node` is such a value. Whole numbers are numbers too.
  Value read(const Node& node, const std::string& path) const;
};
std::string kind_name(ValueKind kind);
std::string value_to_toml(const Value& value);

/// A key of a TOML that is read into a Target.
template <class Target>
struct BasicField {
  std::string section;  // "" is the top of the file; "tasks" and "samplers" are lists of tables
  std::string key;
  std::string help;
  ValueRule rule;
  std::string default_note;  // where the default is a rule, not a value
  std::function<void(Target&, size_t index, Value)> set;
  std::function<std::optional<Value>(Target&, size_t index)> get;  // none: the key has no value

  BasicField between(double low, double high) && {
    rule.minimum = low;
    rule.maximum = high;
    return std::move(*this);
  }
  BasicField at_least(double low) && { return std::move(*this).between(low, std::numeric_limits<double>::infinity()); }
  BasicField above(double low, double high) && {  // low < value <= high
    rule.above_minimum = true;
    return std::move(*this).between(low, high);
  }
  BasicField below(double low, double high) && {  // low <= value < high
    rule.below_maximum = true;
    return std::move(*this).between(low, high);
  }
  BasicField one_of(std::function<std::vector<std::string>()> names) && {
    rule.names = std::move(names);
    return std::move(*this);
  }
  BasicField shaped(std::string form, std::function<bool(const std::string&)> accepts) && {
    rule.form = std::move(form);
    rule.accepts = std::move(accepts);
    return std::move(*this);
  }
  BasicField since(std::string reason) && {
    rule.reason = std::move(reason);
    return std::move(*this);
  }
  BasicField repeated() && {
    rule.repeats = true;
    return std::move(*this);
  }
  BasicField defaults_to(std::string note) && {
    default_note = std::move(note);
    return std::move(*this);
  }
};
using Field = BasicField<Experiment>;

struct SectionInfo {
  std::string name, help;
  bool list = false;
};
/// In the order in which they are printed.
const std::vector<SectionInfo>& schema_sections();
const std::vector<Field>& schema_fields();
const Field* find_field(const std::string& section, const std::string& key);
std::vector<std::string> section_keys(const std::string& section);

/// Rules of what the registries define: a task's own keys, and a correction's parameters ([algo.parameters]).
ValueRule option_rule(const envs::Option& option);
/// Options are kept as text: a text as it stands, all else as TOML writes it.
std::string option_text(const Value& value);
/// Its default in the same form; empty: none.
std::string option_default(const envs::Option& option);
ValueRule parameter_rule(const algos::ParameterInfo& parameter);
std::string parameter_to_toml(const algos::ParameterValue& value);
std::vector<std::string> env_names();
std::vector<std::string> profile_names();
std::vector<std::string> group_profile_names();  // with "trainer"

/// The text of docs/experiment.md.
std::string schema_page();

/// A section of a page of keys: its title as TOML writes it ("" for the top of the file), what it is for, and its rows.
struct KeyRow {
  std::string key, type, value, allowed, help;  // value: the default
};
std::string key_table(const std::string& title, const std::string& help, const std::vector<KeyRow>& rows);

/// Names end up in folder and metric names, and in --set paths, where digits alone are an index.
bool is_name(const std::string& text);
inline constexpr const char* kNameForm = "a letter, then letters, digits, '-', '_' or '+', at most 64 in all";

}  // namespace motley::app
