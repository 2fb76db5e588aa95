// A progress line on a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// Prints "VERB: 3000 of 60000 records" on standard error and updates it in place, if that is a terminal.
class DataProgress {
 public:
  /// `total`: 0 if unknown.
  DataProgress(std::string verb, std::int64_t total);
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;
  /// Clears the line.
  ~DataProgress();

  void show(std::int64_t records);

 private:
  std::string verb_;
  std::int64_t total_;
  bool on_terminal_;
};

}  // namespace lockstep::apps
