// Automatic selection of the gradient bucket size.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inline v0::strategy {
class LocalReplicas;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// Small buckets start early but need more messages; large buckets start late but need fewer. The
/// best size depends on the model, the network and the number of replicas. After some warm-up
/// steps, the tuner tries each size for a few steps, and keeps the one with the shortest median
/// step time.
class BucketTuner {
 public:
  static constexpr int kWarmUpSteps = 30;   ///< steps before the first trial
  static constexpr int kSettlingSteps = 2;  ///< untimed steps of each trial
  static constexpr int kCountedSteps = 7;   ///< timed steps of each trial

  /// `bytes`: size of the flat gradient; larger buckets are not tried.
  explicit BucketTuner(std::size_t bytes);

  const std::vector<std::size_t>& sizes() const { return sizes_; }

  /// Adds the duration of a step. Returns the bucket size to set before the next step, or nullopt
  /// for no change. The result is the same on all ranks.
  std::optional<std::size_t> add_step(double seconds);

  /// Whether all sizes have been tried. seconds_of_sizes() then has this rank's median step time
  /// for each size. Replace it by that of the slowest rank before choose().
  bool has_tried_all() const { return seconds_.size() == sizes_.size(); }
  std::vector<double>& seconds_of_sizes() { return seconds_; }
  /// Returns the size with the shortest step time.
  std::size_t choose() const;
  /// "4 MiB (steps of 41.2 ms; 1 MiB 43.0, 2 MiB 41.9, …)"
  std::string describe() const;

 private:
  std::vector<std::size_t> sizes_;
  std::vector<double> seconds_;  // median step time of each size tried so far
  std::vector<double> current_;  // step times of the current trial
  int warm_up_ = 0;
  int settling_ = 0;
};

/// Tries bucket sizes on the replicas of a job, and keeps the fastest. All functions are
/// collective.
class BucketTuning {
 public:
  /// `replicas` must outlive this object.
  explicit BucketTuning(strategy::LocalReplicas& replicas) : replicas_(replicas) {}

  /// Sets the size of an earlier run; 0 for none.
  void restore(std::size_t chosen) { chosen_ = chosen; }
  /// Applies the size of an earlier run, or starts to try sizes if `tunes` is true and reductions
  /// overlap with computation.
  void begin(bool tunes);
  /// Adds the duration of a step, and changes the size at the end of a trial.
  void add_step(double seconds);
  /// The size chosen by this or an earlier run; 0 for none.
  std::size_t chosen() const { return chosen_; }

 private:
  void set_bytes(std::size_t bytes);

  strategy::LocalReplicas& replicas_;
  std::optional<BucketTuner> tuner_;  // set during the trials
  std::size_t chosen_ = 0;
};

}  // namespace lockstep::inline v0::train
