// Over whose samples batch normalization takes its statistics in training.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::strategy {

/// Each replica's own, those of all replicas, or those of groups of replicas that follow each other.
struct NormalizationScope {
  /// Each replica's own samples, those of all, or those of groups of replicas.
  enum class Kind { local, sync, group };
  Kind kind = Kind::local;  ///< which of them
  int group = 0;            ///< replicas of each group; of Kind::group

  /// How many of `replicas` normalize together: 1 for each alone. Throws Error (input) where groups do not divide them.
  int members(int replicas) const;
};

/// Reads "local", "sync", "group:K". Throws Error (input) that lists them.
NormalizationScope parse_normalization_scope(std::string_view name);
std::string to_string(const NormalizationScope& scope);  ///< the text that `--bn` takes

}  // namespace lockstep::strategy
