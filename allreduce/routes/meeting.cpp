#include "allreduce/routes/meeting.h"

#include <numeric>

#include "device/error.h"

namespace lockstep::allreduce {

Meeting::Meeting(int members, int first_number)
    : numbers_(static_cast<std::size_t>(members)), barrier_(members), turns_(numbers_.size()) {
  std::iota(numbers_.begin(), numbers_.end(), first_number);
  for (auto& calls : calls_) calls.resize(numbers_.size());
  for (auto& data : data_) data.resize(numbers_.size());
}

Meeting::Table Meeting::meet(int member, const Call& call, std::byte* data) {
  // A broken barrier no longer keeps members from writing to a table that others still read.
  if (barrier_.is_broken()) raise_failure();
  const auto index = static_cast<std::size_t>(member);
  const std::size_t table = turns_[index].meetings++ % 2;
  calls_[table][index] = call;
  data_[table][index] = data;
  wait();
  if (const auto difference = find_difference(calls_[table], numbers_)) {
    fail(*difference);
    difference->raise();
  }
  return {calls_[table], data_[table]};
}

void Meeting::wait() {
  if (!barrier_.arrive_and_wait()) raise_failure();
}

void Meeting::raise_failure() const {
  const std::optional<Failure> reason = failure();
  LOCKSTEP_CHECK(reason.has_value());
  reason->raise();
}

void Meeting::fail(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  barrier_.break_up();
}

std::optional<Failure> Meeting::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace lockstep::allreduce
