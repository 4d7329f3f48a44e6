// Makes a schema field from a reference into what is read: its kind, setter and getter follow from the member's type.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app/schema.h"

namespace motley::app {

inline constexpr double kMany = 1e9;  // the bound of what has no bound of its own

template <class T>
struct KindOf;
template <>
struct KindOf<bool> {
  static constexpr ValueKind value = ValueKind::boolean;
};
template <>
struct KindOf<int64_t> {
  static constexpr ValueKind value = ValueKind::integer;
};
template <>
struct KindOf<uint64_t> {
  static constexpr ValueKind value = ValueKind::integer;
};
template <>
struct KindOf<double> {
  static constexpr ValueKind value = ValueKind::number;
};
template <>
struct KindOf<std::string> {
  static constexpr ValueKind value = ValueKind::text;
};
template <>
struct KindOf<std::vector<int64_t>> {
  static constexpr ValueKind value = ValueKind::integers;
};
template <>
struct KindOf<std::vector<std::string>> {
  static constexpr ValueKind value = ValueKind::texts;
};
template <>
struct KindOf<std::pair<int64_t, int64_t>> {
  static constexpr ValueKind value = ValueKind::span;
};
template <class T>
struct KindOf<std::optional<T>> : KindOf<T> {};

using Span = std::pair<int64_t, int64_t>;
template <class T>
inline constexpr bool kOptional = false;
template <class T>
inline constexpr bool kOptional<std::optional<T>> = true;

template <class T>
void assign(T& to, Value value) {
  if constexpr (kOptional<T>) {
    assign(to.emplace(), std::move(value));
  } else if constexpr (std::is_same_v<T, Span>) {
    const auto list = std::get<std::vector<int64_t>>(std::move(value));
    to = {list.at(0), list.at(1)};
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    to = static_cast<uint64_t>(std::get<int64_t>(value));
  } else {
    to = std::get<T>(std::move(value));
  }
}

template <class T>
std::optional<Value> fetch(const T& from) {
  if constexpr (kOptional<T>) {
    return from ? fetch(*from) : std::nullopt;
  } else if constexpr (std::is_same_v<T, Span>) {
    return Value(std::vector<int64_t>{from.first, from.second});
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return Value(static_cast<int64_t>(from));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return from.empty() ? std::nullopt : std::optional<Value>(from);
  } else {
    return Value(from);
  }
}

/// `ref`: (Target&, size_t index) -> the member's reference.
template <class Target = Experiment, class Ref>
BasicField<Target> field(std::string section, std::string key, Ref ref, std::string help) {
  using T = std::remove_reference_t<std::invoke_result_t<Ref, Target&, size_t>>;
  BasicField<Target> made;
  made.section = std::move(section);
  made.key = std::move(key);
  made.help = std::move(help);
  made.rule.kind = KindOf<T>::value;
  made.set = [ref](Target& e, size_t index, Value value) { assign(ref(e, index), std::move(value)); };
  made.get = [ref](Target& e, size_t index) { return fetch(ref(e, index)); };
  return made;
}

/// Of [watch] (app/schema_fields_watch.cpp).
std::vector<Field> watch_fields();
/// Of [probe] (app/schema_fields_probe.cpp).
std::vector<Field> probe_fields();

}  // namespace motley::app
