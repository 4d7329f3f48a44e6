// What a sampler records for every token that it draws (design, "The flow of data", 4), in flat arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley {

/// Which probabilities are recorded besides the drawn token's own.
enum class RecordKind : uint8_t {
  sampled,     // nothing more
  candidates,  // the candidate set of top-p / top-k and the log-probability of each member
  top_k,       // the K most probable ids, their log q, and the log of the mass outside them
  full,        // the whole vocabulary
};

/// Entry t describes the t-th drawn token. Candidate lists are CSR, ids ascending within a token.
/// When sampling is truncated (top-p < 1 or top-k > 0) the candidate set is recorded whatever `kind` asks for.
struct TokenRecords {
  std::vector<int32_t> tokens;
  std::vector<float> log_q;         // under the distribution the token was really drawn from
  std::vector<uint64_t> versions;   // the weight version that computed the token
  std::vector<int64_t> offsets{0};  // [tokens + 1] into ids and id_log_q; all equal when nothing is listed
  std::vector<int32_t> ids;
  std::vector<float> id_log_q;
  std::vector<float> log_tail;  // log of the sampler's mass outside the listed ids: -inf when the list is the
                                // support, 0 when nothing is listed

  size_t size() const { return tokens.size(); }
  /// Appends the records of `more` (another object) after these.
  void append(const TokenRecords& more);
  /// True when array lengths, offsets and candidate order agree with each other: to be checked on data from outside.
  bool consistent(int64_t vocabulary) const;
  bool operator==(const TokenRecords&) const = default;
};

}  // namespace motley
