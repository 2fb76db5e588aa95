// The ranks that are checked, and the exchange of their measurements.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/lockstep/doctor/report.h"
#include "lockstep/allreduce/activity.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::apps::doctor {

/// What one rank measured.
template <typename Facts>
struct Reported {
  Place place = {};
  Facts facts = {};
};

/// A rank without a measurement, and the reason.
struct Missing {
  Place place = {};
  std::string why = {};
};

/// The measurements of all ranks, in rank order, and the ranks whose measurement failed or timed
/// out.
template <typename Facts>
struct Reports {
  std::vector<Reported<Facts>> answered = {};
  std::vector<Missing> missing = {};
};

/// The result of one rank's measurement.
template <typename Facts>
struct Measured {
  std::optional<Facts> facts = {};
  std::string why_none = {};
};

/// Runs `work` in a thread. Returns its result, or nullopt if it takes longer than `limit`; the
/// thread is then left running, because a system call that blocks in the kernel cannot be
/// cancelled. `work` must own what it uses. Rethrows its exception.
template <typename Result>
std::optional<Result> within(std::chrono::milliseconds limit, std::function<Result()> work) {
  auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
  std::future<Result> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

/// Calls within(), and converts the error to a message.
template <typename Facts>
Measured<Facts> measured_within(std::chrono::milliseconds limit, std::function<Facts()> work) {
  try {
    if (auto facts = within<Facts>(limit, std::move(work))) return {.facts = std::move(facts)};
    return {.why_none = fmt::format("this check did not finish within {} s",
                                    std::chrono::round<std::chrono::seconds>(limit).count())};
  } catch (const std::exception& error) {
    return {.why_none = fmt::format("this check failed: {}", error.what())};
  }
}

/// The ranks of the job. All functions but the accessors are collective.
class Ranks {
 public:
  /// Maximum time limit of a rank's own measurement.
  static constexpr std::chrono::milliseconds kLimit{8000};
  /// Default minimum time limit.
  static constexpr std::chrono::milliseconds kLeast{1000};

  explicit Ranks(job::Session& session);

  job::Session& session() const { return session_; }
  const job::Agreement& agreement() const { return agreement_; }
  const std::vector<Place>& places() const { return places_; }
  const Place& mine() const { return places_[session_.rank()]; }
  /// The time limit of the next measurement. It decreases with the elapsed time, so that all checks
  /// end within a minute, but not below `least`, which a measurement on a healthy machine may take.
  std::chrono::milliseconds limit(std::chrono::milliseconds least = kLeast) const;
  /// The current activity of this rank, for the watchdog.
  allreduce::Activity& activity() { return activity_; }

  /// Measures on every rank, for at most limit(least), and distributes the results to all ranks.
  /// `check` must have static lifetime.
  template <typename Facts>
  Reports<Facts> measure(const char* check, std::function<Facts()> measurement,
                         std::chrono::milliseconds least = kLeast) {
    return share(check, measured_within<Facts>(limit(least), std::move(measurement)));
  }

  /// Distributes each rank's result to all ranks.
  template <typename Facts>
  Reports<Facts> share(const char* check, const Measured<Facts>& mine) {
    // Facts are a JSON object; a string instead is the error.
    const nlohmann::json text =
        mine.facts ? nlohmann::json(*mine.facts) : nlohmann::json(mine.why_none);
    const allreduce::CollectiveScope scope(&activity_, check);
    Reports<Facts> reports;
    for (const nlohmann::json& facts : agreement_.gather_values(check, text)) {
      const Place& place = places_[reports.answered.size() + reports.missing.size()];
      if (facts.is_string())
        reports.missing.push_back({place, facts.get<std::string>()});
      else
        reports.answered.push_back({place, facts.get<Facts>()});
    }
    return reports;
  }

  /// All-gathers the texts of the ranks, in rank order.
  std::vector<std::string> gather(const char* check, const std::string& mine);
  void barrier(const char* check);

 private:
  job::Session& session_;
  job::Agreement agreement_;
  allreduce::Activity activity_;
  std::vector<Place> places_;
};

/// Remedy for a check that did not finish for an unknown reason.
inline constexpr const char* kCheckTheHost =
    "log in to that host and check what its processes are waiting for";

/// Adds a problem for each missing rank.
void add_missing(Outcome& outcome, const std::vector<Missing>& missing, const std::string& remedy);

}  // namespace lockstep::inline v0::apps::doctor
