// Finds the bucket size with which steps are shortest, by trying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::strategy {

/// Small buckets start early and cost more messages, large ones are the other way round, and where the best lies
/// depends on the model, the network and the number of replicas. So each size is tried for a few steps, after some that
/// warm up, and the one with the shortest median step stays.
class BucketTuner {
 public:
  static constexpr int kWarmUpSteps = 30;   ///< before the first try
  static constexpr int kSettlingSteps = 2;  ///< of each try, not counted
  static constexpr int kCountedSteps = 7;   ///< of each try

  /// For a flat gradient of `bytes`: sizes beyond it make no difference.
  explicit BucketTuner(std::size_t bytes);

  const std::vector<std::size_t>& sizes() const { return sizes_; }

  /// `seconds` of the step that was done. A value is the size to go on with, to be set before the next step; all ranks
  /// are told to at the same step.
  std::optional<std::size_t> add_step(double seconds);

  /// Whether all sizes have been tried: then `seconds_of_sizes` has this rank's median step of each, to be replaced by
  /// the slowest rank's before choose().
  bool has_tried_all() const { return seconds_.size() == sizes_.size(); }
  std::vector<double>& seconds_of_sizes() { return seconds_; }
  /// The size with the shortest steps.
  std::size_t choose() const;
  /// "4 MiB (steps of 41.2 ms; 1 MiB 43.0, 2 MiB 41.9, …)"
  std::string describe() const;

 private:
  std::vector<std::size_t> sizes_;
  std::vector<double> seconds_;  // of the sizes tried so far
  std::vector<double> current_;  // of the try under way
  int warm_up_ = 0;
  int settling_ = 0;
};

}  // namespace lockstep::strategy
