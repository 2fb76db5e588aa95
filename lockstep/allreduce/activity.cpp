#include "lockstep/allreduce/activity.h"

#include <exception>
#include <thread>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {

namespace {

constexpr auto kPhases = enum_names<Phase>({{Phase::idle, "idle"},
                                            {Phase::starting, "starting"},
                                            {Phase::input, "input"},
                                            {Phase::compute, "compute"},
                                            {Phase::update, "update"},
                                            {Phase::evaluating, "evaluating"},
                                            {Phase::saving, "saving"},
                                            {Phase::ending, "ending"}});

}  // namespace

std::string_view to_string(Phase phase) { return kPhases.name(phase); }

void Activity::set_step(std::int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  tick();
}

void Activity::set_phase(Phase phase) {
  phase_.store(phase, std::memory_order_relaxed);
  tick();
}

// Release stores and acquire loads replace fences, which ThreadSanitizer does not support: a reader
// that sees a new value also sees the odd version before it.
template <typename Change>
void Activity::change_collective(Change change) {
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  change();
  version_.store(version + 2, std::memory_order_release);
  tick();
}

std::uint64_t Activity::enter(const char* operation, int bucket) {
  const std::uint64_t number = entered_.load(std::memory_order_relaxed) + 1;
  change_collective([&] {
    operation_.store(operation, std::memory_order_release);
    bucket_.store(bucket, std::memory_order_release);
    entered_.store(number, std::memory_order_release);
  });
  return number;
}

void Activity::leave() {
  const std::uint64_t number = left_.load(std::memory_order_relaxed) + 1;
  change_collective([&] { left_.store(number, std::memory_order_release); });
}

void Activity::catch_up(std::uint64_t collectives) {
  change_collective([&] {
    entered_.store(collectives, std::memory_order_release);
    left_.store(collectives, std::memory_order_release);
  });
}

void Activity::describe_buckets(std::vector<std::string> contents) {
  const std::lock_guard lock(contents_lock_);
  contents_ = std::move(contents);
}

std::vector<std::string> Activity::bucket_contents() const {
  const std::lock_guard lock(contents_lock_);
  return contents_;
}

ActivityState Activity::state() const {
  ActivityState state;
  for (;; std::this_thread::yield()) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    state.entered = entered_.load(std::memory_order_acquire);
    state.left = left_.load(std::memory_order_acquire);
    const char* operation = operation_.load(std::memory_order_acquire);
    state.bucket = bucket_.load(std::memory_order_acquire);
    if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
    state.operation = operation;
    break;
  }
  state.step = step_.load(std::memory_order_relaxed);
  state.phase = phase_.load(std::memory_order_relaxed);
  state.changes = changes_.load(std::memory_order_relaxed);
  return state;
}

CollectiveScope::CollectiveScope(Activity* activity, const char* operation, int bucket,
                                 std::span<const std::shared_ptr<Activity>> others)
    : activity_(activity), operation_(operation), bucket_(bucket), others_(others) {
  if (activity_ == nullptr) return;
  for (const auto& other : others_) other->enter(operation, bucket);
  number_ = activity_->enter(operation, bucket);
  trace::record(trace::EventKind::begin, operation_, bucket_, number_);
}

CollectiveScope::~CollectiveScope() {
  if (activity_ == nullptr) return;
  activity_->leave();
  for (const auto& other : others_) other->leave();
  if (std::uncaught_exceptions() > exceptions_)
    trace::record(trace::EventKind::mark, "failed", -1, number_);
  trace::record(trace::EventKind::end, operation_, bucket_, number_);
}

// The names of phases are literals.
PhaseScope::PhaseScope(Activity* activity, Phase phase) : activity_(activity), phase_(phase) {
  if (activity_ == nullptr) return;
  trace::record(trace::EventKind::begin, to_string(phase_).data());
  before_ = activity_->phase();
  activity_->set_phase(phase);
}

PhaseScope::~PhaseScope() {
  if (activity_ == nullptr) return;
  activity_->set_phase(before_);
  trace::record(trace::EventKind::end, to_string(phase_).data());
}

}  // namespace lockstep::inline v0::allreduce
