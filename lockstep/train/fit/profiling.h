// The profile of a training: the timing of steps, and its file.
#pragma once

#include <filesystem>
#include <optional>

#include "lockstep/base/file/atomic_file.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/train/fit/fit_plan.h"

namespace lockstep::inline v0::train {

/// Times the steps of the chief's first replica (FitOptions::profile).
class Profiling {
 public:
  /// `replicas` must outlive this object. With an empty `path`, nothing is done.
  Profiling(strategy::LocalReplicas& replicas, std::filesystem::path path);
  ~Profiling();  ///< ends the timing
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  /// Opens the file. Throws Error (input) if too few steps remain after `position`, Error (data) if
  /// the file cannot be written; on all ranks. Collective.
  void begin(const Position& position);
  /// Ends the timing, and measures the speed of the device. nullopt on other ranks, without a path,
  /// or, with a warning, if no step was measured.
  std::optional<model::Profile> end();
  /// Writes the file. Throws Error (data), or only warns if the training `fails_anyway`.
  void write(const model::Profile& profile, bool fails_anyway);

 private:
  strategy::LocalReplicas& replicas_;
  std::filesystem::path path_;
  std::optional<AtomicFile> file_;
  std::optional<model::StepProfile> profile_;
};

}  // namespace lockstep::inline v0::train
