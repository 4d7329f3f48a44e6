#include "algos/audit/mismatch.h"

#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "algos/nearest_name.h"
#include "kernels/profile.h"

namespace motley::algos::audit {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw std::invalid_argument("mismatch \"" + text + "\": " + why);
}

template <class Number>
Number parse_number(const std::string& text, std::string_view value, const std::string& allowed) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) refuse(text, allowed);
  return number;
}

std::vector<std::string> names() {
  std::vector<std::string> all{"none", "stale", "scale", "noise", "top-p"};
  for (const kernels::NumericProfile& profile : kernels::profiles()) all.push_back(profile.name);
  return all;
}

void read_piece(const std::string& text, const std::string& piece, Mismatch& into, std::set<std::string>& seen) {
  const size_t equals = piece.find('=');
  const std::string kind = piece.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : piece.substr(equals + 1);
  const bool is_profile = kernels::find_profile(piece) != nullptr;
  if (!seen.insert(is_profile ? "profile" : kind).second) {
    refuse(text, is_profile ? "a sampler computes in one profile" : "\"" + kind + "\" stands there twice");
  }
  if (piece == "none") return;
  if (is_profile) {
    into.profile = piece;
  } else if (kind == "stale") {
    const std::string allowed = "stale needs a number of gradient steps from 0 to " + std::to_string(kWalk);
    into.stale = parse_number<int64_t>(text, value, allowed);
    if (into.stale < 0 || into.stale > kWalk) refuse(text, allowed);
  } else if (kind == "scale") {
    into.scale = parse_number<double>(text, value, "scale needs a number in (0, 100]");
    if (!(into.scale > 0.0 && into.scale <= 100.0)) refuse(text, "scale needs a number in (0, 100]");
  } else if (kind == "noise") {
    into.noise = parse_number<double>(text, value, "noise needs a standard deviation from 0 to 10");
    if (!(into.noise >= 0.0 && into.noise <= 10.0)) refuse(text, "noise needs a standard deviation from 0 to 10");
  } else if (kind == "top-p") {
    into.top_p = parse_number<double>(text, value, "top-p needs a number in (0, 1]");
    if (!(into.top_p > 0.0 && into.top_p <= 1.0)) refuse(text, "top-p needs a number in (0, 1]");
  } else {
    refuse(text, unknown_name_message("piece", kind, names()));
  }
}

}  // namespace

Mismatch parse_mismatch(const std::string& text) {
  Mismatch mismatch;
  mismatch.name = text;
  std::set<std::string> seen;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    read_piece(text, text.substr(at, end - at), mismatch, seen);
    at = end + 1;
  }
  return mismatch;
}

}  // namespace motley::algos::audit
