// The kinds of group that a test program can form: threads in one program, ranks under mpirun in the other.
#pragma once

#include <functional>
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
  /// The same bits on all members and in every run: promised by our own routes, not by the MPI library.
  bool is_exact = true;
  /// The member that an error names beside the last one when that differs: its neighbour where threads of one rank
  /// compare first.
  int named_beside_last = 0;
  /// The same for calls that carry no values, where that is another.
  std::optional<int> named_beside_last_in_control = {};
};

inline void run(const GroupKind& kind, const MemberBody& body) { run_members(kind.make(), body); }

/// Supplied by the test program.
std::vector<GroupKind> group_kinds();

/// Those of at least two members, who can disagree.
inline std::vector<GroupKind> kinds_of_several() {
  std::vector<GroupKind> kinds = group_kinds();
  std::erase_if(kinds, [](const GroupKind& kind) { return kind.size < 2; });
  return kinds;
}

/// Those that promise exact bits.
inline std::vector<GroupKind> exact_kinds() {
  std::vector<GroupKind> kinds = group_kinds();
  std::erase_if(kinds, [](const GroupKind& kind) { return !kind.is_exact; });
  return kinds;
}

inline std::ostream& operator<<(std::ostream& out, const GroupKind& kind) { return out << kind.name; }

inline std::string name_of_kind(const ::testing::TestParamInfo<GroupKind>& info) { return info.param.name; }

}  // namespace lockstep::allreduce
