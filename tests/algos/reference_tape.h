// Reverse-mode differentiation of scalars in float64, for references that are written as a loss: every operation is a
// node on one tape. Nothing of the engine is used.
#pragma once

#include <cmath>
#include <vector>

namespace reference {

/// A number that a loss may depend on. Numbers without a node are constants.
struct Scalar {
  double value = 0.0;
  int node = -1;
  Scalar() = default;
  Scalar(double constant) : value(constant) {}  // NOLINT: constants and numbers mix
  Scalar(double value, int node) : value(value), node(node) {}
};

/// One loss at a time: `clear` before the next.
class Tape {
 public:
  static Tape& get() {
    thread_local Tape tape;
    return tape;
  }
  void clear() { nodes_.clear(); }
  Scalar variable(double value) { return {value, add(-1, 0.0, -1, 0.0)}; }
  Scalar record(double value, const Scalar& a, double da, const Scalar& b = {}, double db = 0.0) {
    if (a.node < 0 && b.node < 0) return {value};
    return {value, add(a.node, da, b.node, db)};
  }
  /// d loss / d node for every node.
  std::vector<double> gradients(const Scalar& loss) const {
    std::vector<double> slope(nodes_.size(), 0.0);
    if (loss.node < 0) return slope;
    slope[static_cast<size_t>(loss.node)] = 1.0;
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (slope[i] == 0.0) continue;  // also keeps infinite partials of what the loss does not depend on out of it
      const Node& node = nodes_[i];
      if (node.a >= 0 && node.da != 0.0) slope[static_cast<size_t>(node.a)] += slope[i] * node.da;
      if (node.b >= 0 && node.db != 0.0) slope[static_cast<size_t>(node.b)] += slope[i] * node.db;
    }
    return slope;
  }

 private:
  struct Node {
    int a, b;
    double da, db;
  };
  int add(int a, double da, int b, double db) {
    nodes_.push_back({a, b, da, db});
    return static_cast<int>(nodes_.size()) - 1;
  }
  std::vector<Node> nodes_;
};

inline Scalar operator+(const Scalar& a, const Scalar& b) {
  return Tape::get().record(a.value + b.value, a, 1.0, b, 1.0);
}
inline Scalar operator-(const Scalar& a, const Scalar& b) {
  return Tape::get().record(a.value - b.value, a, 1.0, b, -1.0);
}
inline Scalar operator*(const Scalar& a, const Scalar& b) {
  return Tape::get().record(a.value * b.value, a, b.value, b, a.value);
}
inline Scalar operator/(const Scalar& a, double b) { return Tape::get().record(a.value / b, a, 1.0 / b); }
inline Scalar operator-(const Scalar& a) { return Tape::get().record(-a.value, a, -1.0); }
inline Scalar exp(const Scalar& a) {
  const double e = std::exp(a.value);
  return Tape::get().record(e, a, e);
}
inline Scalar log(const Scalar& a) { return Tape::get().record(std::log(a.value), a, 1.0 / a.value); }
/// The value alone: no gradient flows through it.
inline double sg(const Scalar& a) { return a.value; }
/// Of equal numbers the first.
inline Scalar min(const Scalar& a, const Scalar& b) { return b.value < a.value ? b : a; }
inline Scalar max(const Scalar& a, const Scalar& b) { return b.value > a.value ? b : a; }
inline Scalar clip(const Scalar& a, double low, double high) { return min(max(a, low), high); }

}  // namespace reference
