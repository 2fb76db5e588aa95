#include "lockstep/model/cuda/updater.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/metric_sums.h"
#include "lockstep/model/optimizer_options.h"

namespace lockstep::model::cuda {
namespace {

using device::cuda::launch;

constexpr int kTake =
    4;  // float32 elements per pack; all packs are whole, since arrays consist of whole flat blocks

__global__ void square(const float* values, std::size_t count, double* partials) {
  double sum = 0;
  for (std::size_t pack = first_index(); pack < count / kTake; pack += index_stride()) {
    const Values<float, kTake> v = load<float, kTake>(values + pack * kTake);
#pragma unroll
    for (int i = 0; i < kTake; ++i)
      sum += static_cast<double>(v.elements[i]) * static_cast<double>(v.elements[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void decide_at_once(const float* summable, const double* partials, unsigned parts,
                               const DecisionNumbers* numbers, Decision* decision) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < parts; i += blockDim.x) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  Decision made;
  const float of_weights = SummableMetrics::gradient_factor(summable);
  made.scale = of_weights / numbers->loss_scale;
  made.average_decay = numbers->average_decay;
  const double norm =
      sqrt(sum) * static_cast<double>(of_weights) / static_cast<double>(numbers->loss_scale);
  made.applied = SummableMetrics::is_finite(summable) &&
                 !SummableMetrics::is_weightless(summable) && norm - norm == 0;  // finite
  if (numbers->clip_norm > 0 && made.applied != 0) {
    made.norm = norm;
    if (norm > numbers->clip_norm) made.scale *= static_cast<float>(numbers->clip_norm / norm);
  }
  *decision = made;
}

__global__ void restore(const Decision* decision, const float* kept, float* values,
                        std::size_t count) {
  if (decision->applied != 0) return;
  for (std::size_t i = first_index(); i < count; i += index_stride()) values[i] = kept[i];
}

// Writes four parameters, and their 16-bit copy if there is one.
template <typename Weight>
__device__ void store_parameters(const Values<float, kTake>& w, std::size_t at, float* parameters,
                                 Weight* weights) {
  store<float, kTake>(parameters + at, w);
  if constexpr (!std::is_same_v<Weight, float>) {
    struct alignas(kTake * sizeof(Weight)) Narrow {
      Weight elements[kTake];
    } narrowed;
#pragma unroll
    for (int i = 0; i < kTake; ++i) narrowed.elements[i] = narrow<Weight>(w.elements[i]);
    *reinterpret_cast<Narrow*>(weights + at) = narrowed;
  }
}

template <typename Weight, typename Update>
__global__ void __launch_bounds__(kThreads)
    descend_all(FlatArrays a, Weight* weights, const Numbers<Update>* numbers,
                const Decision* decision, const std::uint32_t* parameter_of, const float* rates) {
  if (decision->applied == 0) return;
  constexpr std::size_t kSlots = Update::kSlots.size();
  __shared__ Update of_group[kMaxGroups];
  if (threadIdx.x < kMaxGroups) {
    of_group[threadIdx.x] = (*numbers)[threadIdx.x];
    of_group[threadIdx.x].scale *= decision->scale;
  }
  __syncthreads();
  for (std::size_t pack = first_index(); pack < a.count / kTake; pack += index_stride()) {
    const std::size_t at = pack * kTake;
    const std::size_t block = at / kFlatBlock;
    Update update = of_group[a.groups[block]];
    if constexpr (LayerWise<Update>) update.rate = rates[parameter_of[block]];
    Values<float, kTake> w = load<float, kTake>(a.parameters + at);
    const Values<float, kTake> g = load<float, kTake>(a.gradients + at);
    Values<float, kTake> first{};
    Values<float, kTake> second{};
    if constexpr (kSlots > 0) first = load<float, kTake>(a.first + at);
    if constexpr (kSlots > 1) second = load<float, kTake>(a.second + at);
#pragma unroll
    for (int i = 0; i < kTake; ++i)
      at_element<Update>(i, w.elements, first.elements, second.elements, g.elements,
                         [&](auto&... element) { update.descend(element...); });
    store_parameters(w, at, a.parameters, weights);
    if (a.average != nullptr) {
      Values<float, kTake> average = load<float, kTake>(a.average + at);
#pragma unroll
      for (int i = 0; i < kTake; ++i)
        average.elements[i] = follow(average.elements[i], w.elements[i], decision->average_decay);
      store<float, kTake>(a.average + at, average);
    }
    if constexpr (kSlots > 0) store<float, kTake>(a.first + at, first);
    if constexpr (kSlots > 1) store<float, kTake>(a.second + at, second);
  }
}

// Sums of squares of two quantities over a chunk: norms(i) returns both.
template <typename Norms>
__device__ void sum_chunk(const Chunk& chunk, double* partials, Norms norms) {
  double first = 0;
  double second = 0;
  for (std::size_t i = threadIdx.x; i < chunk.elements; i += blockDim.x) {
    float a = 0;
    float b = 0;
    norms(chunk.begin + i, a, b);
    first += static_cast<double>(a) * static_cast<double>(a);
    second += static_cast<double>(b) * static_cast<double>(b);
  }
  first = block_sum(first);
  second = block_sum(second);
  if (threadIdx.x != 0) return;
  partials[2 * blockIdx.x] = first;
  partials[2 * blockIdx.x + 1] = second;
}

// The norms that layer_rate() takes. Also lets the slots follow the gradient.
template <typename Update>
__global__ void norms_of_chunks(FlatArrays a, Layers layers, const Numbers<Update>* numbers,
                                const Decision* decision) {
  if (decision->applied == 0) return;
  const Chunk chunk = layers.chunks[blockIdx.x];
  Update update = (*numbers)[a.groups[chunk.begin / kFlatBlock]];
  update.scale *= decision->scale;
  sum_chunk(chunk, layers.partials, [&](std::size_t i, float& parameter, float& other) {
    parameter = a.parameters[i];
    other =
        at_element<Update>(i, a.parameters, a.first, a.second, a.gradients, [&](auto&... element) {
          update.follow(element...);
          return update.along(element...);
        });
  });
}

template <typename Update>
__global__ void rates_of_layers(FlatArrays a, Layers layers, const Numbers<Update>* numbers) {
  const auto parameter = static_cast<std::uint32_t>(first_index());
  if (parameter >= layers.parameters) return;
  double first = 0;
  double second = 0;
  for (std::uint32_t chunk = layers.first_chunks[parameter];
       chunk < layers.first_chunks[parameter + 1]; ++chunk) {
    first += layers.partials[2 * chunk];
    second += layers.partials[2 * chunk + 1];
  }
  const std::size_t begin = layers.chunks[layers.first_chunks[parameter]].begin;
  const Update update = (*numbers)[a.groups[begin / kFlatBlock]];
  layers.rates[parameter] =
      update.adapts ? update.layer_rate(sqrt(first), sqrt(second)) : update.rate;
}

}  // namespace

unsigned square_sum_parts(std::size_t count) {
  constexpr unsigned kMaxParts = 1024;
  return std::min(blocks_for(count / kTake), kMaxParts);
}

void square_sums(const float* values, std::size_t count, double* partials, cudaStream_t stream) {
  launch(square, square_sum_parts(count), kThreads, stream, values, count, partials);
}

void decide(const float* summable, const double* partials, unsigned parts,
            const DecisionNumbers* numbers, Decision* decision, cudaStream_t stream) {
  launch(decide_at_once, 1, kThreads, stream, summable, partials, parts, numbers, decision);
}

void restore_unless_applied(const Decision* decision, const float* kept, float* values,
                            std::size_t count, cudaStream_t stream) {
  if (count > 0)
    launch(restore, blocks_for(count), kThreads, stream, decision, kept, values, count);
}

void descend(const FlatArrays& arrays, const Layers& layers, const AnyNumbers& any_numbers,
             const Decision* decision, cudaStream_t stream) {
  if (arrays.count == 0) return;
  const auto enqueue = [&]<typename Update>(const Numbers<Update>* numbers) {
    if constexpr (LayerWise<Update>) {
      launch(norms_of_chunks<Update>, layers.chunk_count, kThreads, stream, arrays, layers, numbers,
             decision);
      launch(rates_of_layers<Update>, blocks_for(layers.parameters), kThreads, stream, arrays,
             layers, numbers);
    }
    with_type(arrays.weights.type(), [&]<typename Weight>(Weight) {
      launch(descend_all<Weight, Update>, blocks_for(arrays.count / kTake), kThreads, stream,
             arrays, data<Weight>(arrays.weights), numbers, decision, layers.parameter_of,
             layers.rates);
    });
  };
  std::visit(enqueue, any_numbers);
}

}  // namespace lockstep::model::cuda
