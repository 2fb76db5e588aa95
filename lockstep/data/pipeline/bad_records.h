// Accounting of unreadable records.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {

/// A record that could not be read.
struct BadRecord {
  std::int64_t record_id = 0;  ///< id of the record
  std::string problem;         ///< with file, record, byte offset and kind
};

/// Collects unreadable records; each counts once, however often it is encountered. Thread-safe.
class BadRecords {
 public:
  /// `limit` is the maximum number of bad records; nullopt: none is allowed.
  explicit BadRecords(std::optional<std::int64_t> limit) : limit_(limit) {}

  /// Rethrows `error` if no bad records are allowed; throws Error (data) if this one exceeds the limit.
  void note(std::int64_t record_id, const Error& error);
  /// Sorted by id.
  std::vector<BadRecord> list() const;

 private:
  std::optional<std::int64_t> limit_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> problems_;
};

/// Throws the Error (data) for more than `limit` bad records, with `one` as an example.
[[noreturn]] void throw_too_many_bad(std::int64_t limit, std::string_view one);

}  // namespace lockstep::data
