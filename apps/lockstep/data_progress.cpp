#include "apps/lockstep/data_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "apps/lockstep/standard_streams.h"

namespace lockstep::apps {

DataProgress::DataProgress(std::string verb, std::int64_t total)
    : verb_(std::move(verb)), total_(total), on_terminal_(is_watched(STDERR_FILENO)) {}

DataProgress::~DataProgress() {
  if (on_terminal_) std::fputs("\r\x1b[K", stderr);
}

void DataProgress::show(std::int64_t records) {
  if (!on_terminal_) return;
  const std::string of = total_ > 0 ? fmt::format(" of {}", total_) : "";
  std::fputs(fmt::format("\r{}: {}{} records\x1b[K", verb_, records, of).c_str(), stderr);
}

}  // namespace lockstep::apps
