#include "lockstep/allreduce/watchdog/progress.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr double kShare = 0.02;  // fraction of one core; a thread that only polls uses less
constexpr std::uint64_t kBytes = 1 << 14;  // far more than the calling thread's own reads of /proc

/// Bytes read and written by system calls.
std::uint64_t bytes_moved() {
  std::ifstream io("/proc/self/io");
  std::uint64_t sum = 0;
  std::string name;
  for (std::uint64_t bytes = 0; io >> name >> bytes;)
    if (name == "rchar:" || name == "wchar:") sum += bytes;
  return sum;
}

}  // namespace

bool ProcessProgress::made_progress() {
  const Clock::time_point now = Clock::now();
  const double seconds =
      processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_seconds(CLOCK_THREAD_CPUTIME_ID);
  const std::uint64_t bytes = bytes_moved();
  const double elapsed = std::chrono::duration<double>(now - checked_at_).count();
  const bool is_active = seconds - seconds_ > kShare * elapsed || bytes - bytes_ > kBytes;
  checked_at_ = now;
  seconds_ = seconds;
  bytes_ = bytes;
  return is_active;
}

ReplicaView ActivityAge::update(const ActivityState& state, double now,
                                bool process_made_progress) {
  const bool has_moved = !seen_ || state.entered != last_.entered || state.left != last_.left;
  if (has_moved) collective_changed_at_ = now;
  if (has_moved || state.changes != last_.changes) reported_at_ = changed_at_ = now;
  if (process_made_progress) changed_at_ = now;
  seen_ = true;
  last_ = state;
  return {.state = state,
          .still_seconds = now - changed_at_,
          .unreported_seconds = now - reported_at_,
          .collective_seconds = now - collective_changed_at_};
}

void combine_groups(std::vector<ReplicaView>& views) {
  if (std::ranges::all_of(views, [](const ReplicaView& view) { return view.group.number == 0; }))
    return;
  const ReplicaView first = views.front();
  const auto least = [&](double ReplicaView::*age) {
    return std::invoke(age, std::ranges::min(views, {}, age));
  };
  const double still = least(&ReplicaView::still_seconds);
  const double unreported = least(&ReplicaView::unreported_seconds);
  for (ReplicaView& view : views) {
    if (view.group.number != 0) {
      if (view.state.step < 0) view.state.step = first.state.step;
      view.state.phase = first.state.phase;
    } else if (&view != &views.front()) {
      continue;
    }
    view.still_seconds = still;
    view.unreported_seconds = unreported;
  }
}

}  // namespace lockstep::inline v0::allreduce
