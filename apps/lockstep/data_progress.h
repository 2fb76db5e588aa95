// A line that counts, for people who watch.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// Shows "VERB: 3000 of 60000 records" on standard error, in place; nothing where that is not a terminal.
class DataProgress {
 public:
  /// `total` 0: not known.
  DataProgress(std::string verb, std::int64_t total);
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;
  /// Wipes the line.
  ~DataProgress();

  void show(std::int64_t records);

 private:
  std::string verb_;
  std::int64_t total_;
  bool on_terminal_;
};

}  // namespace lockstep::apps
