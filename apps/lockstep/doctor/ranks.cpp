#include "apps/lockstep/doctor/ranks.h"

#include <algorithm>

#include "device/cpu.h"

namespace lockstep::apps::doctor {

Ranks::Ranks(strategy::Session& session) : session_(session) {
  const Place mine{session.rank(), session.node(), session.local_rank(), device::host_name()};
  for (const std::string& text : gather("places", nlohmann::json(mine).dump()))
    places_.push_back(nlohmann::json::parse(text).get<Place>());
}

std::chrono::milliseconds Ranks::limit() const {
  constexpr std::chrono::milliseconds kAll{40000};
  constexpr std::chrono::milliseconds kLeast{1000};
  const std::chrono::milliseconds spent(static_cast<std::int64_t>(1000 * session_.seconds()));
  return std::clamp(kAll - spent, kLeast, kLimit);
}

std::vector<std::string> Ranks::gather(const char* check, const std::string& mine) {
  const allreduce::CollectiveScope scope(&activity_, check);
  return session_.all_gather(mine);
}

void Ranks::barrier(const char* check) {
  const allreduce::CollectiveScope scope(&activity_, check);
  session_.barrier();
}

void add_late(Outcome& outcome, const std::vector<Place>& late, const std::string& remedy) {
  for (const Place& place : late)
    outcome.add({.ranks = {place.rank},
                 .level = Level::problem,
                 .what = fmt::format("this check did not end in its time, {} s or less", Ranks::kLimit.count() / 1000),
                 .remedy = remedy});
}

}  // namespace lockstep::apps::doctor
