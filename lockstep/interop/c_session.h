// What the functions of the C interface have in common.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/buffer.h"
#include "lockstep/interop/c_api.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"

/// All ranks of a session, which it owns, or a group of some of them.
struct lockstep_session {
  /// All ranks.
  explicit lockstep_session(std::unique_ptr<lockstep::job::Session> session)
      : ranks_(std::move(session)) {}
  /// Some ranks.
  explicit lockstep_session(std::unique_ptr<lockstep::job::Workers> group)
      : ranks_(std::move(group)) {}
  /// Does not own `workers`.
  explicit lockstep_session(lockstep::job::Workers& workers) : ranks_(&workers) {}

  /// The session of all ranks.
  lockstep::job::Session& session() const {
    const auto* whole = std::get_if<std::unique_ptr<lockstep::job::Session>>(&ranks_);
    return whole != nullptr ? **whole : group()->session();
  }
  /// The ranks.
  lockstep::job::Workers& workers() const {
    lockstep::job::Workers* const some = group();
    return some != nullptr ? *some : session().workers();
  }
  /// Number of this rank among them.
  int rank() const { return group() != nullptr ? group()->rank() : session().rank(); }
  /// Number of ranks.
  int size() const { return group() != nullptr ? group()->size() : session().size(); }
  /// At least `bytes` bytes that the ranks reduce without a copy, for one collective at a time.
  std::byte* memory(const lockstep::allreduce::Communicator& group, std::size_t bytes) {
    if (memory_.size() < bytes) memory_ = group.allocate(bytes);
    return static_cast<std::byte*>(memory_.data());
  }

 private:
  lockstep::job::Workers* group() const {
    if (const auto* borrowed = std::get_if<lockstep::job::Workers*>(&ranks_)) return *borrowed;
    const auto* owned = std::get_if<std::unique_ptr<lockstep::job::Workers>>(&ranks_);
    return owned != nullptr ? owned->get() : nullptr;
  }

  std::variant<std::unique_ptr<lockstep::job::Session>, std::unique_ptr<lockstep::job::Workers>,
               lockstep::job::Workers*>
      ranks_;
  lockstep::device::Buffer memory_;  // freed before `ranks_`, to which it belongs
};

namespace lockstep::inline v0::interop {

/// The calling thread's last error.
std::string& last_error();
/// Sets last_error() to the exception that is being handled, and returns its status, that of the
/// program (job/failure.h).
int report_current_exception();

/// Returns LOCKSTEP_OK, or the status of the exception of `body`: none crosses the C interface.
template <typename Body>
int guarded(const Body& body) {
  try {
    last_error().clear();
    body();
    return LOCKSTEP_OK;
  } catch (...) {
    return report_current_exception();
  }
}

/// Throws Error (input): options of `size` bytes, where this version has `known`.
[[noreturn]] void refuse_size(std::size_t size, std::size_t known, const char* function);
/// The options of a caller who may have been compiled with an earlier version, whose struct is
/// shorter.
template <typename Options>
Options known_options(const Options* given, const Options& standard, const char* function) {
  if (given == nullptr) return standard;
  if (given->size < sizeof(given->size) || given->size > sizeof(Options))
    refuse_size(given->size, sizeof(Options), function);
  Options options = standard;
  std::memcpy(&options, given, given->size);
  return options;
}

/// Throws Error (input) "[function] what, got NULL" unless `given`.
void require(bool given, const char* function, const std::string& what);
/// Throws Error (input) for a root out of range, which would end the group (Workers::broadcast).
void require_root(int root, const job::Workers& workers, const char* function);

}  // namespace lockstep::inline v0::interop
