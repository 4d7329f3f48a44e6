// Which rows an engine computes in a step, and on which pages of the cache. All decode rows first, then prompts, first
// come, first served, up to a budget: a long prompt takes several steps while the running sequences go on.
//
// What is already in the cache, or computed in this very step for somebody else, is taken from there (prefix_index.h).
// A row's result does not depend on who computes it or when, so sharing and schedules change no bit.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "tensor/engine.h"
#include "tensor/engine_context.h"
#include "tensor/prefix_index.h"

namespace motley {

struct Sequence {
  GenerateRequest request;  // its tokens move to `cache`
  CachedSequence cache;
  int64_t prompt = 0;  // tokens that it came with
  int64_t generated = 0;
  int64_t planned = 0;    // tokens that have K and V when this step's pass is done
  int64_t draw_row = -1;  // whose hidden state the next token is drawn from, in this step; -1: none yet
  bool finished = false;
  // In the index: the node of the last page known there, how many pages lead to it, and the page at its end that is not
  // whole, if it is this sequence's own. Null once the weights have changed: what it holds is for nobody else then.
  PrefixIndex::Node* node = nullptr;
  size_t known_pages = 0;
  PrefixIndex::Node* tail = nullptr;
};

class Schedule {
 public:
  Schedule(const TransformerConfig& config, const kernels::NumericProfile& profile, const EngineLimits& limits,
           const Device& device = {});

  void submit(Sequence sequence) { waiting.push_back(std::move(sequence)); }
  /// Rows of the next pass, in an order in which each finds what it attends to: earlier rows may be computed earlier.
  void plan();
  std::span<const CachedRow> rows() const { return rows_; }
  /// After the pass: everything planned has its K and V.
  void computed();
  /// Gives a sequence's pages back.
  void leave(Sequence& sequence);
  /// Other weights compute what follows.
  void swap(KvOnSwap kv);
  /// After a pass that did not end: what it should have computed is computed again.
  void restart();
  EngineStats stats() const;
  /// Throws ContractError unless every page has as many holders as tables and index name it.
  void check_pages() const;

  KvCache cache;
  std::deque<Sequence> waiting;
  std::vector<Sequence> running;  // in order of admission

 private:
  /// What is in the cache is from now on for the sequences alone that hold it.
  void forget();
  void plan_rows(size_t index, int64_t end);
  void admit(int64_t budget);
  bool follow(Sequence& sequence);
  void attach(Sequence& sequence);
  void extend(Sequence& sequence, int64_t positions);
  void publish_planned(Sequence& sequence);
  void publish(Sequence& sequence);
  void publish_tail(Sequence& sequence);
  void copy_leader(Sequence& sequence, const Sequence& leader);
  std::span<const int32_t> page_tokens(const Sequence& sequence, size_t page) const;

  EngineLimits limits_;
  PrefixIndex index_;
  std::vector<CachedRow> rows_;
  std::unordered_multimap<uint64_t, size_t> leaders_;  // by the hash of a prompt that this step completes
  std::vector<std::pair<size_t, size_t>> followers_;   // running sequences with a leader's very prompt
  EngineStats counts_;
};

}  // namespace motley
