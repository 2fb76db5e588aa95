// The kinds of groups that a test program can form: threads, ranks under mpirun, and GPUs,
// pretended or real. Each program supplies its own, and compiles the promises of all routes against
// them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace lockstep::allreduce {

struct GroupKind {
  std::string name;  ///< letters, digits and underscores
  int size = 1;      ///< members in all
  /// The members that this process drives; collective over the ranks of an MPI job.
  std::function<std::vector<Communicator>()> make;
  /// The same bits on all members and in every run: promised by our own routes, not by the MPI
  /// library.
  bool is_exact = true;
  /// Rather than in another fixed order; for three members or more.
  bool adds_in_member_order = false;
  /// The member that an error names besides the last one when that differs: its neighbour where
  /// threads of one rank compare first.
  int named_beside_last = 0;
  /// The same for calls that carry no values, where that is another.
  std::optional<int> named_beside_last_in_control = {};
  /// What has to exist while members use their memory, if anything.
  std::function<std::shared_ptr<const void>()> setting = {};
};

inline std::shared_ptr<const void> setting_of(const GroupKind& kind) {
  return kind.setting ? kind.setting() : nullptr;
}

inline void run(const GroupKind& kind, const MemberBody& body) {
  const auto setting = setting_of(kind);
  run_members(kind.make(), body);
}

/// Supplied by the test program.
std::vector<GroupKind> group_kinds();

/// Those of which `condition`, a member of GroupKind or a function of it, is true.
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

}  // namespace lockstep::allreduce
