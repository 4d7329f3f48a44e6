#include "tensor/prefix_index.h"

#include <utility>

namespace motley {
namespace {

struct InOrder {
  using is_transparent = void;
  bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

struct PrefixIndex::Node {
  Node* parent = nullptr;
  int32_t page = -1;
  uint64_t step = 0;  // in which its rows are computed
  std::list<Node*>::iterator unused;
  bool is_unused = false;
  std::vector<int32_t> tokens;
  std::map<std::span<const int32_t>, std::unique_ptr<Node>, InOrder> children;  // by their own tokens
};

PrefixIndex::PrefixIndex(KvCache& cache, int64_t max_unused)
    : cache_(cache), max_unused_(max_unused), root_(std::make_unique<Node>()) {}
PrefixIndex::~PrefixIndex() { clear(); }

PrefixIndex::Node* PrefixIndex::node_of(int32_t page) const {
  const auto at = static_cast<size_t>(page);
  return at < node_of_page_.size() ? node_of_page_[at] : nullptr;
}

int32_t PrefixIndex::hold(Node* node) {
  cache_.hold(node->page);
  if (std::exchange(node->is_unused, false)) unused_.erase(node->unused);
  return node->page;
}

PrefixIndex::Node* PrefixIndex::child(Node* parent, std::span<const int32_t> tokens) {
  const auto found = parent->children.find(tokens);
  return found == parent->children.end() ? nullptr : found->second.get();
}

PrefixIndex::Match PrefixIndex::find(std::span<const int32_t> tokens, std::vector<int32_t>& pages) {
  const auto page_size = static_cast<size_t>(cache_.page_size());
  Match match{root_.get()};
  for (; tokens.size() >= page_size; tokens = tokens.subspan(page_size)) {
    Node* next = child(match.node, tokens.first(page_size));
    if (next == nullptr) break;
    pages.push_back(hold(next));
    match.node = next;
  }
  // The child that shares most with what is left is a neighbour of its place in the order.
  Node* best = nullptr;
  const auto consider = [&](Node* node) {
    const int64_t shared = common_prefix(tokens, node->tokens);
    if (node->step == step_ || shared <= match.partial_positions) return;
    match.partial_positions = shared;
    best = node;
  };
  const auto& children = match.node->children;
  const auto place = children.lower_bound(tokens);
  if (place != children.end()) consider(place->second.get());
  if (place != children.begin()) consider(std::prev(place)->second.get());
  if (best == nullptr) return match;
  match.partial_page = hold(best);
  return match;
}

PrefixIndex::Node* PrefixIndex::add(Node* parent, std::span<const int32_t> tokens, int32_t page) {
  if (static_cast<int64_t>(tokens.size()) < cache_.page_size()) {
    const auto place = parent->children.lower_bound(tokens);
    if (place != parent->children.end() && common_prefix(tokens, place->first) == static_cast<int64_t>(tokens.size())) {
      return nullptr;
    }
  }
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->page = page;
  node->step = step_;
  node->tokens.assign(tokens.begin(), tokens.end());
  Node* added = node.get();
  MOTLEY_CHECK(parent->children.emplace(added->tokens, std::move(node)).second, "PrefixIndex", "the page is known");
  cache_.hold(page);
  if (node_of_page_.size() <= static_cast<size_t>(page)) node_of_page_.resize(static_cast<size_t>(page) + 1);
  node_of_page_[static_cast<size_t>(page)] = added;
  return added;
}

void PrefixIndex::remove(Node* node) {
  if (node->is_unused) unused_.erase(node->unused);
  node_of_page_[static_cast<size_t>(node->page)] = nullptr;
  cache_.release(node->page);
  node->parent->children.erase(node->tokens);
}

void PrefixIndex::evict() {
  remove(unused_.back());
  ++evicted_;
}

void PrefixIndex::release(std::vector<int32_t>& pages) {
  for (; !pages.empty(); pages.pop_back()) {
    const int32_t page = pages.back();
    if (cache_.release(page) != 1) continue;
    Node* node = node_of(page);
    if (node == nullptr) continue;
    node->unused = unused_.insert(unused_.begin(), node);
    node->is_unused = true;
  }
  while (unused_pages() > max_unused_) evict();
}

int32_t PrefixIndex::take() {
  if (cache_.exhausted() && !unused_.empty()) evict();
  return cache_.take();
}

void PrefixIndex::clear() {
  // A chain of nodes is as long as a sequence: taken apart first, so that none is destroyed inside another.
  std::vector<std::unique_ptr<Node>> apart;
  const auto take_apart = [&apart](Node& node) {
    for (auto& entry : node.children) apart.push_back(std::move(entry.second));
    node.children.clear();
  };
  take_apart(*root_);
  for (Node*& node : node_of_page_) {
    if (node == nullptr) continue;
    take_apart(*node);
    cache_.release(node->page);
    node = nullptr;
  }
  unused_.clear();
}

}  // namespace motley
