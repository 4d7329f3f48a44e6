#include "tensor/engine_schedule.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = tokens.size();
  for (const int32_t token : tokens) hash = kernels::mix(hash, static_cast<uint64_t>(token));
  return hash;
}

int64_t length(const Sequence& sequence) { return static_cast<int64_t>(sequence.cache.tokens.size()); }

}  // namespace

Schedule::Schedule(const TransformerConfig& config, const kernels::NumericProfile& profile, const EngineLimits& limits,
                   const Device& device)
    : cache(config, profile, limits.page_size, limits.max_sequences, device),
      limits_(limits),
      index_(cache, limits.max_cached_bytes / cache.bytes_per_page()) {}

std::span<const int32_t> Schedule::page_tokens(const Sequence& sequence, size_t page) const {
  const auto size = static_cast<size_t>(cache.page_size());
  return std::span(sequence.cache.tokens).subspan(page * size, size);
}

void Schedule::extend(Sequence& sequence, int64_t positions) {
  while (static_cast<int64_t>(sequence.cache.pages.size()) * cache.page_size() < positions)
    sequence.cache.pages.push_back(index_.take());
}

void Schedule::plan_rows(size_t index, int64_t end) {
  Sequence& sequence = running[index];
  extend(sequence, end);
  for (int64_t p = sequence.cache.cached; p < end; ++p) {
    rows_.push_back({index, static_cast<int32_t>(p)});
    ++(p < sequence.prompt ? counts_.prefill_rows : counts_.decode_rows);
  }
  sequence.planned = end;
  publish_planned(sequence);
  if (end < length(sequence)) return;
  sequence.draw_row = static_cast<int64_t>(rows_.size()) - 1;
  if (sequence.node != nullptr && sequence.generated == 0) leaders_.emplace(hash_of(sequence.cache.tokens), index);
}

void Schedule::plan() {
  index_.begin_step();
  rows_.clear();
  leaders_.clear();
  followers_.clear();
  for (size_t s = 0; s < running.size(); ++s) {
    running[s].draw_row = -1;
    if (length(running[s]) - running[s].cache.cached == 1) plan_rows(s, length(running[s]));
  }
  const int64_t room = limits_.max_batch_rows - static_cast<int64_t>(rows_.size());
  // One row at least: else a prompt would wait for ever.
  int64_t budget = std::max<int64_t>(1, std::min(limits_.max_prefill_rows, room));
  for (size_t s = 0; s < running.size() && budget > 0; ++s) {
    if (running[s].draw_row >= 0) continue;
    if (running[s].cache.pages.empty()) attach(running[s]);  // it starts again, perhaps on what another has computed
    const int64_t missing = length(running[s]) - running[s].cache.cached, count = std::min(missing, budget);
    plan_rows(s, running[s].cache.cached + count);
    budget -= count;
  }
  admit(budget);
}

void Schedule::admit(int64_t budget) {
  while (!waiting.empty() && static_cast<int64_t>(running.size()) < limits_.max_sequences) {
    const bool follows = follow(waiting.front());
    if (!follows && budget == 0) break;
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
    if (follows) continue;
    Sequence& sequence = running.back();
    attach(sequence);
    const int64_t count = std::min(length(sequence) - sequence.cache.cached, budget);
    plan_rows(running.size() - 1, sequence.cache.cached + count);
    budget -= count;
  }
}

/// True if this step computes the very same prompt: then there is nothing left to compute for this one.
bool Schedule::follow(Sequence& sequence) {
  if (!limits_.share_prefixes || leaders_.empty()) return false;
  const auto [begin, end] = leaders_.equal_range(hash_of(sequence.cache.tokens));
  for (auto leader = begin; leader != end; ++leader) {
    if (running[leader->second].cache.tokens != sequence.cache.tokens) continue;
    followers_.emplace_back(running.size(), leader->second);
    sequence.draw_row = running[leader->second].draw_row;
    return true;
  }
  return false;
}

/// Takes what the index knows of a new sequence, but for its last row, whose hidden state is wanted.
void Schedule::attach(Sequence& sequence) {
  if (!limits_.share_prefixes) return;
  const auto tokens = std::span(sequence.cache.tokens).first(sequence.cache.tokens.size() - 1);
  std::vector<int32_t>& pages = sequence.cache.pages;
  const PrefixIndex::Match match = index_.find(tokens, pages);
  sequence.node = match.node;
  sequence.known_pages = pages.size();
  sequence.cache.cached = static_cast<int64_t>(pages.size()) * cache.page_size();
  if (match.partial_page >= 0) {
    std::vector<int32_t> source{match.partial_page};
    // While it is held there may be no other page to copy it to: then its positions are computed.
    if (index_.can_take()) {
      pages.push_back(source[0]);  // ours to give back if taking throws
      pages.back() = index_.take();
      cache.copy(source[0], pages.back(), match.partial_positions);
      sequence.cache.cached += match.partial_positions;
    }
    index_.release(source);
  }
  counts_.shared_rows += sequence.cache.cached;
}

/// Whole pages that the coming pass completes, so that others of the same step find them.
void Schedule::publish_planned(Sequence& sequence) {
  const auto whole = static_cast<size_t>(sequence.planned / cache.page_size());
  while (sequence.node != nullptr && sequence.tail == nullptr && sequence.known_pages < whole) {
    const auto tokens = page_tokens(sequence, sequence.known_pages);
    // Somebody else's page of the same tokens takes this one's place after the pass.
    if (index_.child(sequence.node, tokens) != nullptr) return;
    sequence.node = index_.add(sequence.node, tokens, sequence.cache.pages[sequence.known_pages++]);
  }
}

/// Whole pages that are computed. Where the index has a page of the same tokens, hence of the same bits, it is used
/// instead: then whoever holds a page holds all that lead to it.
void Schedule::publish(Sequence& sequence) {
  const auto whole = static_cast<size_t>(sequence.cache.cached / cache.page_size());
  if (sequence.node == nullptr) return;
  for (; sequence.known_pages < whole; ++sequence.known_pages) {
    if (sequence.tail != nullptr) index_.remove(std::exchange(sequence.tail, nullptr));
    int32_t& page = sequence.cache.pages[sequence.known_pages];
    const auto tokens = page_tokens(sequence, sequence.known_pages);
    PrefixIndex::Node* known = index_.child(sequence.node, tokens);
    sequence.node = known != nullptr ? known : index_.add(sequence.node, tokens, page);
    if (known == nullptr) continue;
    std::vector<int32_t> own{page};
    page = index_.hold(known);
    index_.release(own);
  }
}

/// The computed positions after the last whole page.
void Schedule::publish_tail(Sequence& sequence) {
  const auto begin = sequence.known_pages * static_cast<size_t>(cache.page_size());
  const auto end = static_cast<size_t>(sequence.cache.cached);
  if (sequence.node == nullptr || begin == end) return;
  if (sequence.tail != nullptr) index_.remove(sequence.tail);
  sequence.tail = index_.add(sequence.node, std::span(sequence.cache.tokens).subspan(begin, end - begin),
                             sequence.cache.pages[sequence.known_pages]);
}

void Schedule::copy_leader(Sequence& sequence, const Sequence& leader) {
  std::vector<int32_t>& pages = sequence.cache.pages;
  const int64_t positions = length(sequence), partial = positions % cache.page_size();
  pages.assign(leader.cache.pages.begin(), leader.cache.pages.begin() + positions / cache.page_size());
  for (const int32_t page : pages) cache.hold(page);
  sequence.node = leader.node;
  sequence.known_pages = leader.known_pages;
  if (partial > 0) {
    pages.push_back(index_.take());
    cache.copy(leader.cache.pages[pages.size() - 1], pages.back(), partial);
  }
  sequence.cache.cached = sequence.planned = positions;
  counts_.shared_rows += positions;
}

void Schedule::computed() {
  for (size_t s = 0; s < running.size(); ++s) {
    Sequence& sequence = running[s];
    if (sequence.planned <= sequence.cache.cached) continue;
    sequence.cache.cached = sequence.planned;
    publish(sequence);
    if (sequence.generated == 0 && sequence.planned == length(sequence)) publish_tail(sequence);
  }
  for (const auto& [follower, leader] : followers_) copy_leader(running[follower], running[leader]);
}

void Schedule::leave(Sequence& sequence) {
  publish_tail(sequence);
  index_.release(sequence.cache.pages);
}

void Schedule::forget() {
  index_.clear();
  for (Sequence& sequence : running) {
    sequence.node = sequence.tail = nullptr;
    sequence.known_pages = 0;
  }
}

void Schedule::swap(KvOnSwap kv) {
  int64_t& rows = kv == KvOnSwap::keep ? counts_.kept_rows : counts_.dropped_rows;
  for (const Sequence& sequence : running) rows += sequence.cache.cached;
  kv == KvOnSwap::keep ? forget() : restart();
}

void Schedule::restart() {
  forget();
  for (Sequence& sequence : running) {
    index_.release(sequence.cache.pages);
    sequence.cache.cached = sequence.planned = 0;
    if (limits_.share_prefixes) sequence.node = index_.root();
  }
}

void Schedule::check_pages() const {
  std::vector<int32_t> holders(static_cast<size_t>(cache.pages_allocated()));
  for (const Sequence& sequence : running)
    for (const int32_t page : sequence.cache.pages) ++holders[static_cast<size_t>(page)];
  int64_t unused = 0;
  for (size_t p = 0; p < holders.size(); ++p) {
    const auto page = static_cast<int32_t>(p);
    unused += holders[p] == 0 && index_.knows(page);
    holders[p] += index_.knows(page);
    MOTLEY_CHECK(holders[p] == cache.holders(page), "Engine",
                 "page " + std::to_string(page) + " counts " + std::to_string(cache.holders(page)) + " holders of " +
                     std::to_string(holders[p]));
  }
  MOTLEY_CHECK(unused == index_.unused_pages(), "Engine", "the list of unused pages is not what nobody holds");
}

EngineStats Schedule::stats() const {
  EngineStats stats = counts_;
  stats.evicted_pages = index_.evicted_pages();
  stats.cached_pages = index_.unused_pages();
  stats.held_pages = cache.pages_in_use() - stats.cached_pages;
  stats.allocated_pages = cache.pages_allocated();
  return stats;
}

}  // namespace motley
