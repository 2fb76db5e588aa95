#include "lockstep/model/cuda/updater.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/loss/metric_sums.h"
#include "lockstep/model/optimizer/optimizer_options.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// Float32 elements of a pack; all packs are whole, since arrays consist of whole flat blocks.
constexpr int kPackElements = 4;
using FloatPack = Values<float, kPackElements>;

// Loads packs that are not accessed again before the next step: the cache evicts them first.
__device__ FloatPack load_once(const float* from) {
  return values_of<float, kPackElements>(__ldcs(reinterpret_cast<const uint4*>(from)));
}
__device__ void store_once(float* to, const FloatPack& values) {
  uint4 bits;
  memcpy(&bits, &values, kPackBytes);
  __stcs(reinterpret_cast<uint4*>(to), bits);
}

// Resident blocks of `square` per multiprocessor: those of square_sum_parts() are then one wave on
// a GPU with 128 multiprocessors or more.
constexpr int kSquareBlocks = 8;

__global__ void __launch_bounds__(kThreads, kSquareBlocks)
    square(const float* values, std::size_t count, double* partials) {
  constexpr int kPacks = 2;  // whose loads are issued before the first is used
  const std::size_t packs = count / kPackElements;
  double sum = 0;
  for (std::size_t first = first_index(); first < packs; first += kPacks * index_stride()) {
    FloatPack loaded[kPacks] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const std::size_t pack = first + k * index_stride();
      if (pack < packs) loaded[k] = load<float, kPackElements>(values + pack * kPackElements);
    }
#pragma unroll
    for (const FloatPack& v : loaded)
#pragma unroll
      for (int i = 0; i < kPackElements; ++i)
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
  Decision result;
  const float weight_factor = SummableMetrics::gradient_factor(summable);
  result.scale = weight_factor / numbers->loss_scale;
  result.average_decay = numbers->average_decay;
  const double norm =
      sqrt(sum) * static_cast<double>(weight_factor) / static_cast<double>(numbers->loss_scale);
  result.applied = SummableMetrics::is_finite(summable) &&
                   !SummableMetrics::is_weightless(summable) && norm - norm == 0;  // finite
  if (numbers->clip_norm > 0 && result.applied != 0) {
    result.norm = norm;
    if (norm > numbers->clip_norm) result.scale *= static_cast<float>(numbers->clip_norm / norm);
  }
  *decision = result;
}

__global__ void restore(const Decision* decision, const float* kept, float* values,
                        std::size_t count) {
  if (decision->applied != 0) return;
  for (std::size_t i = first_index(); i < count; i += index_stride()) values[i] = kept[i];
}

// Writes four parameters, and their 16-bit copy if there is one. The next pass reads either.
template <typename Weight>
__device__ void store_parameters(const FloatPack& w, std::size_t offset, float* parameters,
                                 Weight* weights) {
  if constexpr (std::is_same_v<Weight, float>) {
    store<float, kPackElements>(parameters + offset, w);
  } else {
    store_once(parameters + offset, w);
    struct alignas(kPackElements * sizeof(Weight)) Narrow {
      Weight elements[kPackElements];
    } narrowed;
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) narrowed.elements[i] = narrow<Weight>(w.elements[i]);
    *reinterpret_cast<Narrow*>(weights + offset) = narrowed;
  }
}

// The constants of an update in a kernel.
template <typename Update>
struct Constants {
  const Update* group_updates;
  float average_decay;
  const std::uint32_t* parameter_of;
  const float* rates;
};

// Updates kPacks packs, kThreads packs apart: all loads are issued before the first use.
template <int kPacks, typename Weight, typename Update>
__device__ void descend_packs(const FlatArrays& a, Weight* weights,
                              const Constants<Update>& constants, std::size_t first_pack) {
  constexpr std::size_t kSlots = Update::kSlots.size();
  FloatPack w[kPacks];
  FloatPack g[kPacks];
  FloatPack first[kPacks];
  FloatPack second[kPacks];
  FloatPack average[kPacks];
  std::uint8_t group[kPacks];
  float rate[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::size_t offset = (first_pack + k * kThreads) * kPackElements;
    w[k] = load_once(a.parameters + offset);
    g[k] = load_once(a.gradients + offset);
    if constexpr (kSlots > 0) first[k] = load_once(a.first + offset);
    if constexpr (kSlots > 1) second[k] = load_once(a.second + offset);
    if (a.average != nullptr) average[k] = load_once(a.average + offset);
    group[k] = a.groups[offset / kFlatBlock];
    if constexpr (LayerWise<Update>)
      rate[k] = constants.rates[constants.parameter_of[offset / kFlatBlock]];
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::size_t offset = (first_pack + k * kThreads) * kPackElements;
    Update update = constants.group_updates[group[k]];
    if constexpr (LayerWise<Update>) update.rate = rate[k];
#pragma unroll
    for (int i = 0; i < kPackElements; ++i)
      at_element<Update>(i, w[k].elements, first[k].elements, second[k].elements, g[k].elements,
                         [&](auto&... element) { update.descend(element...); });
    store_parameters(w[k], offset, a.parameters, weights);
    if constexpr (kSlots > 0) store_once(a.first + offset, first[k]);
    if constexpr (kSlots > 1) store_once(a.second + offset, second[k]);
    if (a.average == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kPackElements; ++i)
      average[k].elements[i] =
          follow(average[k].elements[i], w[k].elements[i], constants.average_decay);
    store_once(a.average + offset, average[k]);
  }
}

// One wave of blocks processes tiles of kTilePacks packs, and then the remaining packs. The last
// tiles are processed first: `square` has just read their gradients, so the cache still has them.
constexpr int kDescendBlocks = 3;  // resident per multiprocessor
constexpr int kPacksOfAThread = 2;
constexpr std::size_t kTilePacks = std::size_t{kPacksOfAThread} * kThreads;

template <typename Weight, typename Update>
__global__ void __launch_bounds__(kThreads, kDescendBlocks)
    descend_all(FlatArrays a, Weight* weights, const Numbers<Update>* numbers,
                const Decision* decision, const std::uint32_t* parameter_of, const float* rates) {
  if (decision->applied == 0) return;
  __shared__ Update group_updates[kMaxGroups];
  if (threadIdx.x < kMaxGroups) {
    group_updates[threadIdx.x] = (*numbers)[threadIdx.x];
    group_updates[threadIdx.x].scale *= decision->scale;
  }
  __syncthreads();
  const Constants<Update> constants{group_updates, decision->average_decay, parameter_of, rates};
  const std::size_t packs = a.count / kPackElements;
  const std::size_t tiles = packs / kTilePacks;
  for (std::size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    descend_packs<kPacksOfAThread>(a, weights, constants,
                                   (tiles - 1 - tile) * kTilePacks + threadIdx.x);
  for (std::size_t pack = tiles * kTilePacks + first_index(); pack < packs; pack += index_stride())
    descend_packs<1>(a, weights, constants, pack);
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

// The norms for layer_rate(). Also updates the slots from the gradient.
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
  return std::min(blocks_for(count / kPackElements), kMaxParts);
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
             const Decision* decision, int multiprocessors, cudaStream_t stream) {
  if (arrays.count == 0) return;
  const std::size_t useful = (arrays.count / kPackElements + kTilePacks - 1) / kTilePacks;
  const auto wave = static_cast<std::size_t>(multiprocessors) * kDescendBlocks;
  const auto blocks = static_cast<unsigned>(std::min(useful, wave));
  const auto enqueue = [&]<typename Update>(const Numbers<Update>* numbers) {
    if constexpr (LayerWise<Update>) {
      launch(norms_of_chunks<Update>, layers.chunk_count, kThreads, stream, arrays, layers, numbers,
             decision);
      launch(rates_of_layers<Update>, blocks_for(layers.parameters), kThreads, stream, arrays,
             layers, numbers);
    }
    with_type(arrays.weights.type(), [&]<typename Weight>(Weight) {
      launch(descend_all<Weight, Update>, blocks, kThreads, stream, arrays,
             data<Weight>(arrays.weights), numbers, decision, layers.parameter_of, layers.rates);
    });
  };
  std::visit(enqueue, any_numbers);
}

}  // namespace lockstep::inline v0::model::cuda
