// The time of work on a GPU, to choose between algorithms.
#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/cuda/cuda.h"
#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model::cuda {

/// `bytes` on the context's GPU, filled with random values of the context's precision: a GPU
/// computes with zeros faster, because it draws less power. Throws Error (device).
device::Buffer random_values(Context& context, std::size_t bytes);

/// Times work with cold caches, as in a step, where other arrays have evicted its operands.
class TrialTimer {
 public:
  /// Allocates memory that is larger than the cache. Throws Error (device).
  explicit TrialTimer(Context& context);

  /// The minimum milliseconds over a few runs of the work that `enqueue` enqueues on the context's
  /// stream. A run longer than `limit` is the last. Waits for the stream.
  float milliseconds(const std::function<void()>& enqueue, float limit);

 private:
  float time_one(const std::function<void()>& enqueue);

  Context& context_;
  device::Buffer evicting_;
  device::cuda::EventHandle begin_;
  device::cuda::EventHandle end_;
};

/// The result of `attempt`, or false if a library refuses it with an Error; for work that has an
/// alternative.
template <typename Attempt>
bool succeeds(Attempt attempt) {
  try {
    return attempt();
  } catch (const Error&) {
    static_cast<void>(cudaGetLastError());  // otherwise a later call would report this failure
    return false;
  }
}

}  // namespace lockstep::inline v0::model::cuda
