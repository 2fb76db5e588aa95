// The replicas over which batch normalization computes its statistics in training.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inline v0::model {
class Network;
struct Node;
}  // namespace lockstep::inline v0::model

namespace lockstep::inline v0::strategy {

/// Each replica, all replicas, or groups of consecutive replicas.
struct NormalizationScope {
  /// Values of `--bn`.
  enum class Kind { local, sync, group };
  Kind kind = Kind::local;  ///< which of these
  int group = 0;            ///< replicas per group, for Kind::group

  /// Returns how many of `replicas` normalize together. Throws Error (input) if the group size does
  /// not divide `replicas`.
  int members(int replicas) const;
};

/// Parses "local", "sync" or "group:K". Throws Error (input).
NormalizationScope parse_normalization_scope(std::string_view name);
/// Overload for option fields.
inline void parse_field(NormalizationScope& scope, std::string_view /*name*/,
                        std::string_view text) {
  scope = parse_normalization_scope(text);
}
std::string to_string(const NormalizationScope& scope);  ///< in the syntax of `--bn`

/// Returns the first batch normalization of `network` that has a single value per channel in a
/// micro-batch of a global batch of `samples`. It cannot train: the normalized value is always 0,
/// and so is the variance. Null if there is none. `accumulate`: micro-batches of each replica.
const model::Node* find_normalization_of_one_value(const model::Network& network,
                                                   std::int64_t samples, int replicas,
                                                   int accumulate, const NormalizationScope& scope);

}  // namespace lockstep::inline v0::strategy
