#include "tensor/token_record.h"

namespace motley {

void TokenRecords::append(const TokenRecords& more) {
  const int64_t base = offsets.back();
  tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
  log_q.insert(log_q.end(), more.log_q.begin(), more.log_q.end());
  versions.insert(versions.end(), more.versions.begin(), more.versions.end());
  log_tail.insert(log_tail.end(), more.log_tail.begin(), more.log_tail.end());
  for (size_t t = 1; t < more.offsets.size(); ++t) offsets.push_back(base + more.offsets[t]);
  ids.insert(ids.end(), more.ids.begin(), more.ids.end());
  id_log_q.insert(id_log_q.end(), more.id_log_q.begin(), more.id_log_q.end());
}

bool TokenRecords::consistent(int64_t vocabulary) const {
  const size_t count = tokens.size();
  if (log_q.size() != count || versions.size() != count || log_tail.size() != count) return false;
  if (offsets.size() != count + 1 || offsets.front() != 0 || ids.size() != id_log_q.size()) return false;
  for (size_t t = 0; t < count; ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocabulary || offsets[t + 1] < offsets[t]) return false;
  }
  if (offsets.back() != static_cast<int64_t>(ids.size())) return false;
  for (size_t t = 0; t < count; ++t) {
    int64_t previous = -1;
    for (int64_t i = offsets[t]; i < offsets[t + 1]; ++i) {
      const int64_t id = ids[static_cast<size_t>(i)];
      if (id <= previous || id >= vocabulary) return false;
      previous = id;
    }
  }
  return true;
}

}  // namespace motley
