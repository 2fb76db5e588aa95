#include "lockstep/data/pipeline/bad_records.h"

#include <fmt/format.h>

namespace lockstep::data {

void throw_too_many_bad(std::int64_t limit, std::string_view one) {
  throw Error(ErrorCategory::data, "bad records",
              fmt::format("expected at most {} unreadable record{}", limit, limit == 1 ? "" : "s"),
              fmt::format("there are more, such as: {}", one));
}

void BadRecords::note(std::int64_t record_id, const Error& error) {
  if (!limit_) throw error;
  const std::scoped_lock lock(mutex_);
  problems_.emplace(record_id, error.what());
  if (static_cast<std::int64_t>(problems_.size()) > *limit_) throw_too_many_bad(*limit_, error.what());
}

std::vector<BadRecord> BadRecords::list() const {
  const std::scoped_lock lock(mutex_);
  std::vector<BadRecord> list;
  for (const auto& [record_id, problem] : problems_) list.push_back({record_id, problem});
  return list;
}

}  // namespace lockstep::data
