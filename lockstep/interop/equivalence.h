// Checks that a data-parallel training loop computes what it computes on one replica.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

/// What makes a loop on several ranks differ from the loop on one.
enum class Mistake : std::uint8_t {
  none,
  initial_weights,    ///< ranks begin with different parameters
  summed,             ///< gradients are added over ranks in place of averaged, or divided twice
  ranks_not_samples,  ///< averaged over ranks that have different numbers of samples
  last_batch,         ///< an incomplete batch is dropped, padded or divided in another way
  whole_batch,        ///< each rank takes as many samples as one process
  batch_statistics,   ///< the gradient of a sample depends on the others of its rank
  seed,               ///< random numbers, or the order of samples, depend on the rank
  losses,             ///< equal gradients, but other losses
};

/// The result of verify_equivalence(), the same on all ranks.
struct EquivalenceResult {
  Mistake mistake = Mistake::none;  ///< the likely cause
  std::int64_t step = 0;            ///< first step that differs, from 1; 0: none
  std::string parameter{};          ///< first parameter that differs, in the order of the optimizer
  double difference = 0;            ///< relative to the norm of its gradient
  ErrorMessage message{};           ///< what differs, and the likely cause

  /// "[verify_equivalence] expected …, got …"; empty if nothing differs.
  std::string text() const { return *this ? std::string() : message.text(); }
  explicit operator bool() const { return mistake == Mistake::none; }  ///< whether nothing differs
};

/// Options of verify_equivalence().
struct EquivalenceOptions {
  int steps = 10;           ///< steps of each optimizer to compare; later ones are not
  double tolerance = 1e-3;  ///< largest difference, relative to the norm of a parameter's gradient
};

/// The losses of the steps of this rank, each a mean over its samples; or empty.
using StepLosses = std::vector<double>;

/// See the overload below.
EquivalenceResult verify_equivalence(job::Workers& workers,
                                     const std::function<StepLosses(job::Workers&)>& loop,
                                     const EquivalenceOptions& options = {});

/// Runs `loop` on each rank alone, with Workers of one rank, then once on all ranks together, and
/// compares the reduced gradients of its first steps, and the losses if it returns StepLosses:
///
///     const auto result = lockstep::verify_equivalence(session, [&](lockstep::Workers& workers) {
///       Network network(seed);
///       Sgd sgd(network);
///       lockstep::DistributedOptimizer optimizer(workers, sgd);
///       … a few steps on the part of each global batch that workers.rank() and size() select …
///     });
///     if (!result) std::fputs(result.text().c_str(), stderr);
///
/// The loop makes everything that it changes itself, so that it starts each time from the same
/// state, and takes rank and size from the Workers that it is given. It should reach an incomplete
/// batch, and few steps are enough. The message names the first step and the first parameter whose
/// gradients differ, and the likely cause: it finds out whether another factor, or another weight
/// of each rank's own gradient, would make them equal. Keeps the gradients of all compared steps in
/// memory. Collective. Throws Error (input) if the loop creates no optimizer over its Workers, and
/// for replicas on GPUs; throws what the loop throws.
template <std::invocable<job::Workers&> Loop>
EquivalenceResult verify_equivalence(job::Session& session, Loop&& loop,
                                     const EquivalenceOptions& options = {}) {
  return verify_equivalence(
      session.workers(),
      std::function<StepLosses(job::Workers&)>([&](job::Workers& workers) -> StepLosses {
        if constexpr (std::is_void_v<std::invoke_result_t<Loop, job::Workers&>>) {
          loop(workers);
          return {};
        } else {
          return loop(workers);
        }
      }),
      options);
}

}  // namespace lockstep::inline v0::interop
