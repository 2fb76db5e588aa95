// Records that cannot be read, and how many of them are put up with.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {

/// A record that was asked for and could not be read.
struct BadRecord {
  std::int64_t record_id = 0;  ///< of the record that could not be read
  std::string problem;         ///< with file, record, byte offset and kind
};

/// Notes them; each counts once, however often it is met. Thread-safe.
class BadRecords {
 public:
  /// `limit`: how many may be noted; none: not one.
  explicit BadRecords(std::optional<std::int64_t> limit) : limit_(limit) {}

  /// Throws `error` again where none is allowed, else Error (data) for one more than the limit.
  void note(std::int64_t record_id, const Error& error);
  /// In the order of ids.
  std::vector<BadRecord> list() const;

 private:
  std::optional<std::int64_t> limit_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> problems_;
};

/// Throws the Error (data) that more than `limit` records are bad, `one` among them.
[[noreturn]] void throw_too_many_bad(std::int64_t limit, std::string_view one);

}  // namespace lockstep::data
