// The replicas over which batch normalization computes its statistics in training.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::strategy {

/// Each replica, all replicas, or groups of consecutive replicas.
struct NormalizationScope {
  /// As `--bn` names them.
  enum class Kind { local, sync, group };
  Kind kind = Kind::local;  ///< which of these
  int group = 0;            ///< replicas per group, for Kind::group

  /// The number of replicas, out of `replicas`, that normalize together. Throws Error (input) if
  /// the group size does not divide `replicas`.
  int members(int replicas) const;
};

/// Parses "local", "sync" or "group:K". Throws Error (input).
NormalizationScope parse_normalization_scope(std::string_view name);
std::string to_string(const NormalizationScope& scope);  ///< in the syntax of `--bn`

}  // namespace lockstep::strategy
