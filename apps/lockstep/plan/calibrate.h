// Measures a training on one machine, for predictions of many replicas.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "apps/lockstep/plan/scaling.h"
#include "lockstep/data/dataset.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {

/// Options of calibrate().
struct CalibrationOptions {
  std::vector<std::int64_t> batches;  ///< samples per step; limited to the size of the data set
  /// Approximate duration; longer if eleven steps of each batch take more.
  double seconds = 60;
  train::ReadOptions read = {};  ///< how the data are read
  /// Called before each batch, with its number from 0; may be empty.
  std::function<void(std::size_t number, std::int64_t samples)> progress = {};
};

/// Returns the batches for 1 to `most` replicas: `global_batch` over each power of two, ascending.
/// With `weak`: `global_batch` and half of it, which determine the constant part of a step.
std::vector<std::int64_t> batches_to_measure(std::int64_t global_batch, int most, bool weak);

/// Executes training steps of the only replica of `trainer`, with a learning rate of 0, on
/// `dataset`, which is not batched. Throws Error (input) for several replicas, Error (device) if a
/// batch does not fit into the memory, and the errors of reading and of steps.
Calibration calibrate(train::Trainer& trainer, const data::Dataset& dataset,
                      const CalibrationOptions& options);

/// Returns the processor seconds of a replica to send and receive one byte between hosts: measured
/// over TCP on this host with `cores` processors, times the cost of the ring. Throws Error
/// (communication) if this host cannot connect to itself.
double measure_transfer(double cores);

}  // namespace lockstep::inline v0::apps
