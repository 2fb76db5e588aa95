// The kinds of groups that a test program can form: threads, ranks under mpirun, and GPUs,
// simulated or real. Each program defines its own and runs the contract tests of all routes on
// them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {

struct GroupKind {
  std::string name;  ///< letters, digits and underscores
  int size = 1;      ///< total number of members
  /// The members that this process drives; collective over the ranks of an MPI job.
  std::function<std::vector<Communicator>()> make;
  /// Whether results are bitwise equal on all members and in every run. The MPI library does not
  /// guarantee it.
  bool is_exact = true;
  /// Whether values are added in member order rather than another fixed one; for three members or
  /// more.
  bool adds_in_member_order = false;
  /// The member that an error names together with a differing last one: its neighbor if threads of
  /// one rank compare first.
  int named_with_last = 0;
  /// named_with_last for calls without values, if different.
  std::optional<int> named_with_last_in_control = {};
  /// An object that must exist while members use their memory, if any.
  std::function<std::shared_ptr<const void>()> setting = {};
};

inline std::shared_ptr<const void> setting_of(const GroupKind& kind) {
  return kind.setting ? kind.setting() : nullptr;
}

inline void run(const GroupKind& kind, const MemberBody& body) {
  const auto setting = setting_of(kind);
  run_members(kind.make(), body);
}

/// Defined by the test program.
std::vector<GroupKind> group_kinds();

/// The group kinds for which `condition`, a member of GroupKind or a function of it, is true.
template <typename Condition>
std::vector<GroupKind> kinds_with(Condition condition) {
  std::vector<GroupKind> kinds = group_kinds();
  std::erase_if(kinds, [&](const GroupKind& kind) { return !std::invoke(condition, kind); });
  return kinds;
}

inline std::ostream& operator<<(std::ostream& out, const GroupKind& kind) {
  return out << kind.name;
}

inline std::string name_of_kind(const ::testing::TestParamInfo<GroupKind>& info) {
  return info.param.name;
}

}  // namespace lockstep::inline v0::allreduce
