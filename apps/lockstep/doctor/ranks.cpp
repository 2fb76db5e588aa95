#include "apps/lockstep/doctor/ranks.h"

#include <algorithm>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::apps::doctor {

Ranks::Ranks(job::Session& session)
    : session_(session),
      agreement_(session),
      places_(agreement_.gather_values(
          "places", Place{session.rank(), session.node(), session.local_rank(), host_name()})) {}

std::chrono::milliseconds Ranks::limit(std::chrono::milliseconds least) const {
  constexpr std::chrono::milliseconds kAll{30000};
  const std::chrono::milliseconds spent(static_cast<std::int64_t>(1000 * session_.seconds()));
  return std::max(least, std::min(kAll - spent, kLimit));
}

std::vector<std::string> Ranks::gather(const char* check, const std::string& mine) {
  const allreduce::CollectiveScope scope(&activity_, check);
  return agreement_.gather(mine);
}

void Ranks::barrier(const char* check) {
  const allreduce::CollectiveScope scope(&activity_, check);
  session_.barrier();
}

void add_missing(Outcome& outcome, const std::vector<Missing>& missing, const std::string& remedy) {
  for (const auto& [place, why] : missing) outcome.fail(place, why, remedy);
}

}  // namespace lockstep::inline v0::apps::doctor
