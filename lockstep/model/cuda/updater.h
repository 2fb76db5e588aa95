// Kernels of an update over flat arrays. All return when the work is on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/tensor.h"
#include "lockstep/model/updater.h"

namespace lockstep::model::cuda {

/// What lies beside each other in flat arrays belongs to one parameter for this many elements at least.
constexpr std::size_t kFlatBlock = 16;

/// Consecutive elements of one parameter that one block of threads sums; float32 elements.
struct Chunk {
  std::uint32_t parameter = 0;
  std::uint32_t elements = 0;
  std::size_t begin = 0;
};

/// The numbers of an update as memory of the GPU holds them: for parameters without and with decay.
template <typename Update>
using Numbers = std::array<Update, 2>;

/// What the decision about an update depends on, beside gradients and report.
struct DecisionNumbers {
  double clip_norm = 0;
  float loss_scale = 1;
};

/// What was decided, in memory of the GPU.
struct Decision {
  double norm = 0;  ///< of the gradient, before clipping and without the loss scale
  float scale = 1;  ///< what the gradient is to be multiplied by
  int applied = 1;
};

/// Parts that square_sums makes of `count` values.
unsigned square_sum_parts(std::size_t count);
/// partials[i] = sum of squares of the i-th part of `values`, in double.
void square_sums(const float* values, std::size_t count, double* partials, cudaStream_t stream);
/// Whether the step counts, and the factor of its gradient. `summable` is a SummableMetrics on the GPU, summed over all
/// replicas; `partials` are the `parts` square sums of the gradient, which are finite where all its elements are:
/// squares of float32 do not overflow a double.
void decide(const float* summable, const double* partials, unsigned parts, const DecisionNumbers* numbers,
            Decision* decision, cudaStream_t stream);
/// values = kept unless the step counts.
void restore_unless_applied(const Decision* decision, const float* kept, float* values, std::size_t count,
                            cudaStream_t stream);

/// The flat arrays of an update; slots as the optimizer has them. `count` is a multiple of kFlatBlock.
struct FlatArrays {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* first = nullptr;   ///< momentum, velocity or m
  float* second = nullptr;  ///< v
  TensorView weights;       ///< 16 bits, or none
  std::size_t count = 0;
  const std::uint8_t* decays = nullptr;  ///< [count / kFlatBlock]
};

/// Without effect unless the step counts.
void descend(const FlatArrays& arrays, const Sgd& sgd, const Numbers<SgdUpdate>* numbers, const Decision* decision,
             cudaStream_t stream);
void descend(const FlatArrays& arrays, const Numbers<AdamUpdate>* numbers, const Decision* decision,
             cudaStream_t stream);

/// What layer-wise optimizers need beside.
struct Layers {
  const Chunk* chunks = nullptr;  ///< [chunk_count], parameter by parameter
  std::uint32_t chunk_count = 0;
  const std::uint32_t* first_chunks = nullptr;  ///< [parameters + 1]
  std::uint32_t parameters = 0;
  const std::uint32_t* parameter_of = nullptr;  ///< [count / kFlatBlock]
  double* partials = nullptr;                   ///< [chunk_count x 2], scratch
  float* rates = nullptr;                       ///< [parameters], scratch
};
void descend(const FlatArrays& arrays, const Layers& layers, const Numbers<LarsUpdate>* numbers,
             const Decision* decision, cudaStream_t stream);
void descend(const FlatArrays& arrays, const Layers& layers, const Numbers<LambUpdate>* numbers,
             const Decision* decision, cudaStream_t stream);

// Updates on a GPU: the decision is taken there, so that the host waits once a step.

std::unique_ptr<Updater> make_updater(Context& context, const OptimizerOptions& options, const ParameterTable& table,
                                      const UpdateArrays& arrays);

}  // namespace lockstep::model::cuda
