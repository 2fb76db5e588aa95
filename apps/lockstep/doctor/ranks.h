// The ranks that are being checked, and how what each measured comes to all of them.
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

#include "apps/lockstep/doctor/finding.h"
#include "lockstep/allreduce/activity.h"
#include "lockstep/base/json.h"
#include "lockstep/job/session.h"

namespace lockstep::apps::doctor {

/// Where a rank is.
struct Place {
  int rank = 0;
  int node = 0;
  int local_rank = 0;
  std::string host = {};

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(Place, rank, node, local_rank, host)
};

/// What one rank measured.
template <typename Facts>
struct Reported {
  Place place = {};
  Facts facts = {};
};

/// A rank that has nothing to report.
struct Missing {
  Place place = {};
  std::string why = {};
};

/// What all ranks measured, in rank order, but for those whose measurement failed or did not come to its end.
template <typename Facts>
struct Reports {
  std::vector<Reported<Facts>> answered = {};
  std::vector<Missing> missing = {};
};

/// What came of one rank's measurement.
template <typename Facts>
struct Measured {
  std::optional<Facts> facts = {};
  std::string why_none = {};
};

/// What `work` returns, or nothing where that takes longer than `limit`: then its thread is left to itself, since what
/// waits in the kernel cannot be called back. `work` owns what it uses. What it throws is thrown.
template <typename Result>
std::optional<Result> within(std::chrono::milliseconds limit, std::function<Result()> work) {
  auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
  std::future<Result> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

/// The same, with what went wrong in words.
template <typename Facts>
Measured<Facts> measured_within(std::chrono::milliseconds limit, std::function<Facts()> work) {
  try {
    if (auto facts = within<Facts>(limit, std::move(work))) return {.facts = std::move(facts)};
    return {.why_none = fmt::format("this check did not end in its time, {} s",
                                    std::chrono::round<std::chrono::seconds>(limit).count())};
  } catch (const std::exception& error) {
    return {.why_none = fmt::format("this check failed: {}", error.what())};
  }
}

/// The ranks of the job. All functions but the accessors are collective.
class Ranks {
 public:
  /// How long a rank's own measurement may take, at most.
  static constexpr std::chrono::milliseconds kLimit{8000};
  /// And at least, where it does not ask for more.
  static constexpr std::chrono::milliseconds kLeast{1000};

  explicit Ranks(job::Session& session);

  job::Session& session() const { return session_; }
  const std::vector<Place>& places() const { return places_; }
  const Place& mine() const { return places_[static_cast<std::size_t>(session_.rank())]; }
  /// How long one may take now: less where others took their time, so that the whole examination ends within a minute,
  /// but never less than `least`, which a measurement on a sound machine may take.
  std::chrono::milliseconds limit(std::chrono::milliseconds least = kLeast) const;
  /// For the watchdog: what this rank is at.
  allreduce::Activity& activity() { return activity_; }

  /// Measures on every rank, for limit(least) at most, and gives all ranks what came of it. `check` must live for ever.
  template <typename Facts>
  Reports<Facts> measure(const char* check, std::function<Facts()> measurement,
                         std::chrono::milliseconds least = kLeast) {
    return share(check, measured_within<Facts>(limit(least), std::move(measurement)));
  }

  /// Gives all ranks what each has.
  template <typename Facts>
  Reports<Facts> share(const char* check, const Measured<Facts>& mine) {
    // Facts are objects; a text in their place says why there are none.
    const nlohmann::json text = mine.facts ? nlohmann::json(*mine.facts) : nlohmann::json(mine.why_none);
    // What the system calls things need not be UTF-8.
    const auto all = gather(check, dump_json(text));
    Reports<Facts> reports;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const nlohmann::json facts = parse_json(all[i], ErrorCategory::communication, check);
      if (facts.is_string())
        reports.missing.push_back({places_[i], facts.get<std::string>()});
      else
        reports.answered.push_back({places_[i], facts.get<Facts>()});
    }
    return reports;
  }

  /// Every rank's text, in rank order.
  std::vector<std::string> gather(const char* check, const std::string& mine);
  void barrier(const char* check);

 private:
  job::Session& session_;
  allreduce::Activity activity_;
  std::vector<Place> places_;
};

/// Adds a problem for each of the ranks that have nothing to report.
void add_missing(Outcome& outcome, const std::vector<Missing>& missing, const std::string& remedy);

}  // namespace lockstep::apps::doctor
