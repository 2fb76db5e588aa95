// The ranks that are being checked, and how what each measured comes to all of them.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allreduce/activity.h"
#include "apps/lockstep/doctor/finding.h"
#include "strategy/session.h"

namespace lockstep::apps::doctor {

/// Where a rank is.
struct Place {
  int rank = 0;
  int node = 0;
  int local_rank = 0;
  std::string host = {};

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Place, rank, node, local_rank, host)
};

/// What one rank measured.
template <typename Facts>
struct Reported {
  Place place = {};
  Facts facts = {};
};

/// What all ranks measured, in rank order, but for those whose measurement did not come to its end.
template <typename Facts>
struct Reports {
  std::vector<Reported<Facts>> answered = {};
  std::vector<Place> late = {};
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

/// The ranks of the job. All functions but the accessors are collective.
class Ranks {
 public:
  /// How long a rank's own measurement may take, at most.
  static constexpr std::chrono::milliseconds kLimit{8000};

  explicit Ranks(strategy::Session& session);

  strategy::Session& session() const { return session_; }
  const std::vector<Place>& places() const { return places_; }
  const Place& mine() const { return places_[static_cast<std::size_t>(session_.rank())]; }
  /// How long one may take now: less where others took their time, so that the whole examination ends within a minute.
  std::chrono::milliseconds limit() const;
  /// For the watchdog: what this rank is at.
  allreduce::Activity& activity() { return activity_; }

  /// Measures on every rank, for limit() at most, and gives all ranks what came of it. `check` must live for ever.
  template <typename Facts>
  Reports<Facts> measure(const char* check, std::function<Facts()> measurement) {
    const std::optional<Facts> mine = within<Facts>(limit(), std::move(measurement));
    return share(check, mine);
  }

  /// Gives all ranks what each has; nothing counts as late.
  template <typename Facts>
  Reports<Facts> share(const char* check, const std::optional<Facts>& mine) {
    const auto all = gather(check, mine ? nlohmann::json(*mine).dump() : "null");
    Reports<Facts> reports;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const nlohmann::json facts = nlohmann::json::parse(all[i]);
      if (facts.is_null())
        reports.late.push_back(places_[i]);
      else
        reports.answered.push_back({places_[i], facts.get<Facts>()});
    }
    return reports;
  }

  /// Every rank's text, in rank order.
  std::vector<std::string> gather(const char* check, const std::string& mine);
  void barrier(const char* check);

 private:
  strategy::Session& session_;
  allreduce::Activity activity_;
  std::vector<Place> places_;
};

/// Adds a problem for the ranks whose measurement did not end, if there are any.
void add_late(Outcome& outcome, const std::vector<Place>& late, const std::string& remedy);

}  // namespace lockstep::apps::doctor
