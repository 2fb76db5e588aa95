// Kernels of an update over flat arrays. All functions return when the work is enqueued on
// `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Every aligned block of this many elements in the flat arrays belongs to one parameter.
constexpr std::size_t kFlatBlock = 16;

/// Consecutive float32 elements of one parameter that one thread block sums.
struct Chunk {
  std::uint32_t parameter = 0;
  std::uint32_t elements = 0;
  std::size_t begin = 0;
};

/// Maximum number of groups of parameters with different constants.
constexpr std::size_t kMaxGroups = 16;

/// The constants of an update in GPU memory, for each group of parameters.
template <typename Update>
using Numbers = std::array<Update, kMaxGroups>;

template <typename... Updates>
std::variant<const Numbers<Updates>*...> pointers_to_numbers(const std::variant<Updates...>&);
/// A pointer to the constants of any kind of update.
using AnyNumbers = decltype(pointers_to_numbers(std::declval<OptimizerUpdate>()));

/// Inputs of the decision about an update, in addition to gradients and metrics.
struct DecisionNumbers {
  double clip_norm = 0;
  float loss_scale = 1;
  float average_decay = 0;  ///< see model::follow()
};

/// The decision, in GPU memory.
struct Decision {
  double norm = 0;  ///< gradient norm, before clipping, without the loss scale
  float scale = 1;  ///< factor on the gradient
  int applied = 1;
  float average_decay = 0;
};

/// Number of partial sums that square_sums() computes for `count` values.
unsigned square_sum_parts(std::size_t count);
/// partials[i] = sum of squares of the i-th part of `values`, in double.
void square_sums(const float* values, std::size_t count, double* partials, cudaStream_t stream);
/// Decides whether to apply the step, and computes the factor on its gradient. `summable` is a
/// SummableMetrics on the GPU, summed over all replicas. `partials` are the `parts` square sums of
/// the gradient, which are finite if all its elements are: squares of float32 do not overflow a
/// double.
void decide(const float* summable, const double* partials, unsigned parts,
            const DecisionNumbers* numbers, Decision* decision, cudaStream_t stream);
/// values = kept, unless the step is applied.
void restore_unless_applied(const Decision* decision, const float* kept, float* values,
                            std::size_t count, cudaStream_t stream);

/// The flat arrays of an update, with the slots of the optimizer. `count` is a multiple of
/// kFlatBlock.
struct FlatArrays {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* first = nullptr;    ///< the first slot, or null
  float* second = nullptr;   ///< the second slot, or null
  float* average = nullptr;  ///< moving average of the parameters, or null
  TensorView weights;        ///< 16 bits, or empty
  std::size_t count = 0;
  const std::uint8_t* groups = nullptr;  ///< [count / kFlatBlock], indices into Numbers
};

/// Additional arrays of layer-wise optimizers.
struct Layers {
  const Chunk* chunks = nullptr;  ///< [chunk_count], parameter by parameter
  std::uint32_t chunk_count = 0;
  const std::uint32_t* first_chunks = nullptr;  ///< [parameters + 1]
  std::uint32_t parameters = 0;
  const std::uint32_t* parameter_of = nullptr;  ///< [count / kFlatBlock]
  double* partials = nullptr;                   ///< [chunk_count x 2], scratch
  float* rates = nullptr;                       ///< [parameters], scratch
};
/// Updates parameters, weights and slots, with one wave of blocks on a GPU of `multiprocessors`.
/// `layers` is read by layer-wise optimizers. No effect unless the step is applied.
void descend(const FlatArrays& arrays, const Layers& layers, const AnyNumbers& numbers,
             const Decision* decision, int multiprocessors, cudaStream_t stream);

// The updater of a GPU. Decisions are made on the GPU, so that the host waits once per step.

std::unique_ptr<Updater> make_updater(Context& context, const OptimizerOptions& options,
                                      const ParameterTable& table, const UpdateArrays& arrays);

}  // namespace lockstep::inline v0::model::cuda
