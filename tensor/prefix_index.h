// Which pages of a KV cache hold the keys and values of which tokens, so that requests that begin alike compute their
// beginning once. A tree: a node is a page, its path from the root the tokens that lead to it. Pages that only the
// index holds are the cache of finished sequences; they give way, the one unused for longest first.
//
// Contract: everything in it was computed with the weights that the engine has now; `clear` when they change.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tensor/kv_cache.h"

namespace motley {

class PrefixIndex {
 public:
  struct Node;
  /// Keeps at most `max_unused` pages that no sequence holds.
  PrefixIndex(KvCache& cache, int64_t max_unused);
  ~PrefixIndex();

  /// Nodes added since are not ready: their rows are computed by the pass that is being planned.
  void begin_step() { ++step_; }

  struct Match {
    Node* node;                     // of the last whole page, or the root
    int32_t partial_page = -1;      // a ready page that holds the next `partial_positions` tokens too; held for the
    int64_t partial_positions = 0;  // caller, who gives it back
  };
  /// Appends the whole pages known for the beginning of `tokens` to `pages`, held for the caller.
  Match find(std::span<const int32_t> tokens, std::vector<int32_t>& pages);
  Node* root() { return root_.get(); }
  /// The child for one whole page of tokens, or null.
  Node* child(Node* parent, std::span<const int32_t> tokens);
  /// Adds a page that a sequence holds. A page that is not whole is added only if no page knows its tokens (else null).
  Node* add(Node* parent, std::span<const int32_t> tokens, int32_t page);
  /// Takes a node without children out.
  void remove(Node* node);
  /// Holds a node's page for the caller, and returns it.
  int32_t hold(Node* node);

  /// Gives back a sequence's hold on its pages, the last page first.
  void release(std::vector<int32_t>& pages);
  /// A page, in exchange for an unused one if the cache is exhausted.
  int32_t take();
  bool can_take() const { return !cache_.exhausted() || !unused_.empty(); }
  void clear();

  bool knows(int32_t page) const { return node_of(page) != nullptr; }
  int64_t unused_pages() const { return static_cast<int64_t>(unused_.size()); }
  int64_t evicted_pages() const { return evicted_; }

 private:
  void evict();

  Node* node_of(int32_t page) const;

  KvCache& cache_;
  int64_t max_unused_;
  std::unique_ptr<Node> root_;
  std::vector<Node*> node_of_page_;
  std::list<Node*> unused_;  // the oldest last; a parent is always younger than its children
  int64_t evicted_ = 0;
  uint64_t step_ = 1;
};

}  // namespace motley
