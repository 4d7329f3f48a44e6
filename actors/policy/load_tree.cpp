#include "actors/policy/load_tree.h"

#include <limits>

namespace motley::actors {

constexpr int64_t kAbsent = std::numeric_limits<int64_t>::max();

void LoadTree::update(size_t node) {
  const size_t left = winner_[2 * node], right = winner_[2 * node + 1];
  winner_[node] = sessions_[right] < sessions_[left] ? right : left;
  sum_[node] = sum_[2 * node] + sum_[2 * node + 1];
}

void LoadTree::grow(size_t places) {
  size_t width = 1;
  while (width < places) width *= 2;
  std::vector<double> leaves(width, 0.0);
  for (size_t place = 0; place < sessions_.size(); ++place) leaves[place] = sum_[sessions_.size() + place];
  sessions_.resize(width, kAbsent);
  winner_.assign(2 * width, 0);
  sum_.assign(2 * width, 0.0);
  for (size_t place = 0; place < width; ++place) {
    winner_[width + place] = place;
    sum_[width + place] = leaves[place];
  }
  for (size_t node = width - 1; node >= 1; --node) update(node);
}

void LoadTree::set(size_t place, int64_t sessions, double capacity) {
  if (place >= sessions_.size()) grow(place + 1);
  sessions_[place] = sessions;
  size_t node = sessions_.size() + place;
  sum_[node] = capacity;
  while ((node /= 2) >= 1) update(node);
}

void LoadTree::clear(size_t place) {
  if (place < sessions_.size()) set(place, kAbsent, 0.0);
}

std::optional<size_t> LoadTree::least() const {
  if (sessions_.empty() || sessions_[winner_[1]] == kAbsent) return std::nullopt;
  return winner_[1];
}

}  // namespace motley::actors
