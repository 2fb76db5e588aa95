#include "lockstep/job/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::job {
namespace {

/// Exchanged between the ranks, to distinguish equal failures from different ones.
struct Summary {
  std::uint64_t message_hash = 0;
  std::int32_t exit_status = 0;
  std::int32_t consequence = 0;
};

FailureVerdict judge(const std::vector<Summary>& all, int rank) {
  const auto cause =
      std::find_if(all.begin(), all.end(), [](const Summary& one) { return one.consequence == 0; });
  const bool has_cause = cause != all.end();
  const Summary& mine = all[rank];
  const auto is_alike = [&](const Summary& one) {
    return one.message_hash == mine.message_hash && one.consequence == mine.consequence;
  };
  const auto first_alike = std::ranges::find_if(all, is_alike);
  FailureVerdict verdict;
  verdict.everyone_failed = true;
  verdict.all_alike = std::ranges::all_of(all, is_alike);
  verdict.print = first_alike - all.begin() == rank && (mine.consequence == 0 || !has_cause);
  verdict.exit_status = has_cause ? cause->exit_status : all.front().exit_status;
  return verdict;
}

}  // namespace

Failure describe_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.what(), exit_status(error.category()),
            error.category() == ErrorCategory::communication};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return {Error(ErrorCategory::data, path.empty() ? "files" : path,
                  "expected a file or directory that this user can use",
                  fmt::format("got {}", error.code().message()))
                .what(),
            exit_status(ErrorCategory::data), false};
  } catch (const std::system_error& error) {
    return {Error(ErrorCategory::device, "system",
                  "expected a system resource within the limits of this host (ulimit -a)",
                  fmt::format("got {}", error.what()))
                .what(),
            exit_status(ErrorCategory::device), false};
  } catch (const std::bad_alloc&) {
    return {
        "[memory] expected more memory than this host has; reduce the batch size or the number of "
        "replicas per host",
        exit_status(ErrorCategory::device), false};
  } catch (const nlohmann::json::exception& error) {
    // Readers should name the key and the value themselves; this one does not.
    return {fmt::format("[json] expected values of other kinds in a JSON text; this is a bug of "
                        "its reader (json.exception.{})",
                        error.id),
            1, false};
  } catch (const std::exception& error) {
    return {printable(error.what()), 1, false};
  } catch (...) {
    return {
        "[program] expected exceptions of type std::exception; the calling program threw another "
        "type, which is a bug",
        1, false};
  }
}

FailureVerdict compare_failures(const Failure& mine, allreduce::Transport& ranks, double seconds) {
  using allreduce::RingReduction;
  const auto me = static_cast<std::size_t>(ranks.rank());
  std::vector<Summary> all(static_cast<std::size_t>(ranks.size()));
  all[me] = {std::hash<std::string>{}(mine.message), mine.exit_status, mine.consequence ? 1 : 0};
  std::vector<allreduce::Slice> chunks;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    chunks.push_back({rank * sizeof(Summary), (rank + 1) * sizeof(Summary)});
  allreduce::MessageBuffers buffers;
  // Time in which this rank got no processor counts little: on a busy host the others got none
  // either.
  constexpr double kLongestPause = 0.005;
  const auto start = std::chrono::steady_clock::now();
  allreduce::AwakeClock clock(0, kLongestPause);
  try {
    RingReduction exchange(ranks,
                           {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(Summary),
                            allreduce::ElementType::uint8},
                           allreduce::ReduceOp::sum, RingReduction::Part::all_gather,
                           {.segment_bytes = kCacheLine, .segments_in_flight = 1}, buffers, chunks);
    while (!exchange.is_done()) {
      if (exchange.advance()) continue;
      if (clock.advance(seconds_since(start)) >= seconds) return {.exit_status = mine.exit_status};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const Error&) {  // a rank is lost
    return {.exit_status = mine.exit_status};
  }
  return judge(all, ranks.rank());
}

}  // namespace lockstep::inline v0::job
