#include "lockstep/model/cuda/loss.h"

#include <type_traits>
#include <variant>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

constexpr unsigned kWarp = 32;
constexpr unsigned kAll = 0xffffffffU;

struct Sum {
  template <typename Value>
  __device__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};

// NaN is the largest.
struct Max {
  __device__ float operator()(float a, float b) const { return b > a || b != b ? b : a; }
};

// A warp shares a row, or a block of kThreads a wide one, so that a batch of rows fills the GPU.
// Every thread receives the result of a reduction, whose order is fixed.
template <unsigned kGroup, typename Reduction, typename Value>
__device__ Value reduce(Value value, Reduction reduction) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2)
    value = reduction(value, __shfl_xor_sync(kAll, value, mask));
  if constexpr (kGroup > kWarp) {
    __shared__ Value warp_values[kGroup / kWarp];
    __syncthreads();  // the previous call may still be reading
    if (threadIdx.x % kWarp == 0) warp_values[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = warp_values[0];
    for (unsigned warp = 1; warp < kGroup / kWarp; ++warp)
      value = reduction(value, warp_values[warp]);
  }
  return value;
}

template <unsigned kGroup>
__device__ std::int64_t row_of_group() {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kGroup;
}

// Calls use(k) for this thread's elements of a row.
template <unsigned kGroup, typename Use>
__device__ void for_each_in_row(std::int64_t width, const Use& use) {
#pragma unroll 4
  for (std::int64_t k = threadIdx.x % kGroup; k < width; k += kGroup) use(k);
}

// Calls use(std::integral_constant<unsigned, number of threads of a row>, number of blocks).
template <typename Use>
void with_group(std::int64_t rows, std::int64_t width, const Use& use) {
  constexpr std::int64_t kWide = 512;
  constexpr std::int64_t kRowsOfABlock = kThreads / kWarp;
  if (width >= kWide)
    use(std::integral_constant<unsigned, kThreads>(), static_cast<unsigned>(rows));
  else
    use(std::integral_constant<unsigned, kWarp>(),
        static_cast<unsigned>((rows + kRowsOfABlock - 1) / kRowsOfABlock));
}

template <unsigned kGroup, typename T>
__device__ float row_max(const T* row, std::int64_t width) {
  float largest = widen(row[0]);
  for_each_in_row<kGroup>(width, [&](std::int64_t k) { largest = Max()(largest, widen(row[k])); });
  return reduce<kGroup>(largest, Max());
}

template <unsigned kGroup, typename T>
__global__ void softmax_rows(const T* input, std::int64_t rows, std::int64_t width, T* output) {
  const std::int64_t row = row_of_group<kGroup>();
  if (row >= rows) return;
  const T* const x = input + row * width;
  const float largest = row_max<kGroup>(x, width);
  float sum = 0;
  for_each_in_row<kGroup>(width, [&](std::int64_t k) { sum += expf(widen(x[k]) - largest); });
  sum = reduce<kGroup>(sum, Sum());
  for_each_in_row<kGroup>(width, [&](std::int64_t k) {
    output[row * width + k] = narrow<T>(expf(widen(x[k]) - largest) / sum);
  });
}

template <unsigned kGroup, typename T>
__global__ void softmax_gradient_rows(const T* output, const T* output_gradient, std::int64_t rows,
                                      std::int64_t width, T* input_gradient) {
  const std::int64_t row = row_of_group<kGroup>();
  if (row >= rows) return;
  const T* const y = output + row * width;
  const T* const g = output_gradient + row * width;
  float dot = 0;
  for_each_in_row<kGroup>(width, [&](std::int64_t k) { dot += widen(y[k]) * widen(g[k]); });
  dot = reduce<kGroup>(dot, Sum());
  for_each_in_row<kGroup>(width, [&](std::int64_t k) {
    input_gradient[row * width + k] = narrow<T>(widen(y[k]) * (widen(g[k]) - dot));
  });
}

// Whether an output precedes the label's when sorted in descending order, NaN first, ties in index
// order.
__device__ inline bool precedes(float value, std::int64_t k, float label_value,
                                std::int64_t label) {
  return (k < label && !(value < label_value)) || (k > label && !(value <= label_value));
}

// The target classes of one row: the first has `weight`, the second the remainder.
struct TrueClasses {
  std::int64_t label;
  std::int64_t partner;
  float weight;
};

__device__ inline TrueClasses classes_of(const LossArguments& a, std::int64_t row) {
  const std::int64_t label = a.labels[row];
  if (a.partner_labels == nullptr) return {label, label, 1};
  return {label, a.partner_labels[row], a.weights[row]};
}

__device__ inline float weight_of(const LossArguments& a, std::int64_t row) {
  return a.sample_weights != nullptr ? a.sample_weights[(a.first_row + row) / a.rows_per_weight]
                                     : 1;
}

// A label in range is kMasked only at one of several positions.
__device__ inline bool is_masked(const LossArguments& a, std::int64_t row) {
  return a.labels != nullptr && a.labels[row] == kMasked;
}

// The factor on the gradient of a row.
__device__ inline float factor_of(const LossArguments& a, std::int64_t row) {
  return *a.gradient_factor * a.gradient_weight * weight_of(a, row);
}

// `gradient`, or 0 for a row of weight 0, whose gradient may be NaN.
__device__ inline float masked(const LossArguments& a, std::int64_t row, float gradient) {
  return weight_of(a, row) > 0 ? gradient : 0;
}

template <unsigned kGroup, typename T>
__global__ void cross_entropy_rows(LossArguments a, const T* outputs, T* gradient,
                                   SparseCategoricalCrossentropy loss_options) {
  const float smoothing = loss_options.label_smoothing;
  const std::int64_t row = row_of_group<kGroup>();
  if (row >= a.rows) return;
  const T* const z = outputs + row * a.row_stride;
  T* const g = gradient + (gradient != nullptr ? row * a.row_stride : 0);
  if (is_masked(a, row)) {
    if (gradient != nullptr)
      for_each_in_row<kGroup>(a.width, [&](std::int64_t k) { g[k] = narrow<T>(0); });
    return;
  }
  const TrueClasses classes = classes_of(a, row);
  const auto width = static_cast<float>(a.width);
  const float largest = row_max<kGroup>(z, a.width);
  const float label_output = widen(z[classes.label]);
  const float label_logit = below_largest(label_output, largest);
  const float partner_logit = below_largest(widen(z[classes.partner]), largest);
  float sum = 0;
  float shifted_sum = 0;
  int rank = 0;
  for_each_in_row<kGroup>(a.width, [&](std::int64_t k) {
    const float value = widen(z[k]);
    const float shifted = below_largest(value, largest);
    sum += expf(shifted);
    shifted_sum += shifted;
    rank += precedes(value, k, label_output, classes.label);
  });
  sum = reduce<kGroup>(sum, Sum());
  shifted_sum = reduce<kGroup>(shifted_sum, Sum());
  rank = reduce<kGroup>(rank, Sum());
  // The gradient may overwrite the outputs, which all threads of the row have read.
  if constexpr (kGroup > kWarp)
    __syncthreads();
  else
    __syncwarp();
  if (gradient != nullptr) {
    const float factor = factor_of(a, row);
    const float normalizer = factor / sum;
    const float off_target = factor * smoothing / width;
    for_each_in_row<kGroup>(a.width, [&](std::int64_t k) {
      float value = expf(below_largest(widen(z[k]), largest)) * normalizer - off_target;
      if (k == classes.label) value -= factor * (1 - smoothing) * classes.weight;
      if (k == classes.partner && classes.weight < 1)
        value -= factor * (1 - smoothing) * (1 - classes.weight);
      g[k] = narrow<T>(masked(a, row, value));
    });
  }
  if (threadIdx.x % kGroup != 0) return;
  // An output of minus infinity, an excluded class, must not be multiplied by a weight of 0: the
  // product is NaN.
  double class_logits = 0;
  if (classes.weight > 0)
    class_logits = static_cast<double>(classes.weight) * static_cast<double>(label_logit);
  if (classes.weight < 1)
    class_logits += static_cast<double>(1 - classes.weight) * static_cast<double>(partner_logit);
  double loss = static_cast<double>(logf(sum)) - static_cast<double>(1 - smoothing) * class_logits;
  if (smoothing != 0)
    loss -= static_cast<double>(smoothing) * static_cast<double>(shifted_sum / width);
  a.row_losses[row] = {loss, rank};
}

struct Min {
  __device__ int operator()(int a, int b) const { return b < a ? b : a; }
};

// The first of the largest values of a row.
template <unsigned kGroup>
__device__ std::int64_t argmax(const float* row, std::int64_t width) {
  const float largest = row_max<kGroup>(row, width);
  auto first = static_cast<int>(width) - 1;
  for_each_in_row<kGroup>(width, [&](std::int64_t k) {
    if (row[k] == largest) first = Min()(first, static_cast<int>(k));
  });
  return reduce<kGroup>(first, Min());
}

template <unsigned kGroup, typename T>
__global__ void cross_entropy_rows(LossArguments a, const T* outputs, T* gradient,
                                   CategoricalCrossentropy loss) {
  const std::int64_t row = row_of_group<kGroup>();
  if (row >= a.rows) return;
  const T* const z = outputs + row * a.width;
  const float* const targets = a.targets + row * a.width;
  const auto width = static_cast<float>(a.width);
  const float largest = row_max<kGroup>(z, a.width);
  float sum = 0;
  float total = 0;
  for_each_in_row<kGroup>(a.width, [&](std::int64_t k) {
    sum += expf(below_largest(widen(z[k]), largest));
    total += loss.smoothed(targets[k], width);
  });
  sum = reduce<kGroup>(sum, Sum());
  total = reduce<kGroup>(total, Sum());
  const float log_sum = logf(sum);
  const std::int64_t label = argmax<kGroup>(targets, a.width);
  const float label_output = widen(z[label]);
  double result = 0;
  int rank = 0;
  for_each_in_row<kGroup>(a.width, [&](std::int64_t k) {
    const float value = widen(z[k]);
    const float shifted = below_largest(value, largest);
    const float target = loss.smoothed(targets[k], width);
    if (target != 0) result += static_cast<double>(target) * static_cast<double>(log_sum - shifted);
    if (gradient != nullptr)
      gradient[row * a.width + k] =
          narrow<T>(masked(a, row, factor_of(a, row) * (expf(shifted) / sum * total - target)));
    rank += precedes(value, k, label_output, label);
  });
  result = reduce<kGroup>(result, Sum());
  rank = reduce<kGroup>(rank, Sum());
  if (threadIdx.x % kGroup == 0) a.row_losses[row] = {result, rank};
}

template <unsigned kGroup, typename T, ElementwiseLoss Elementwise>
__global__ void elementwise_rows(LossArguments a, const T* outputs, T* gradient, Elementwise loss) {
  const std::int64_t row = row_of_group<kGroup>();
  if (row >= a.rows) return;
  const auto width = static_cast<float>(a.width);
  double sum = 0;
  std::int64_t rank = 0;
  for_each_in_row<kGroup>(a.width, [&](std::int64_t k) {
    const float output = widen(outputs[row * a.width + k]);
    const float target =
        a.labels != nullptr ? static_cast<float>(a.labels[row]) : a.targets[row * a.width + k];
    sum += loss.value(output, target);
    if constexpr (requires { loss.rank(output, target); }) rank = loss.rank(output, target);
    if (gradient != nullptr)
      gradient[row * a.width + k] =
          narrow<T>(masked(a, row, factor_of(a, row) * loss.derivative(output, target) / width));
  });
  sum = reduce<kGroup>(sum, Sum());
  if (threadIdx.x % kGroup == 0) a.row_losses[row] = {sum / static_cast<double>(width), rank};
}

// One block; each thread handles every kThreads-th row.
__global__ void add_rows(LossArguments a, std::int64_t classes) {
  double loss = 0;
  double weight_excess = 0;
  int masked_rows = 0;
  int correct = 0;
  int correct_top5 = 0;
  for (std::int64_t row = threadIdx.x; row < a.rows; row += blockDim.x) {
    if (is_masked(a, row)) {
      ++masked_rows;
      continue;
    }
    const auto weight = static_cast<double>(weight_of(a, row));
    if (weight > 0) loss += weight * a.row_losses[row].loss;
    weight_excess += weight - 1;
    correct += a.row_losses[row].rank < 1;
    correct_top5 += a.row_losses[row].rank < 5;
  }
  loss = block_sum(loss);
  weight_excess = block_sum(weight_excess);
  masked_rows = block_sum(masked_rows);
  correct = block_sum(correct);
  correct_top5 = block_sum(correct_top5);
  if (threadIdx.x != 0) return;
  a.sums->loss_sum += static_cast<double>(a.loss_weight) * loss;
  if (!a.is_first_term) return;
  a.sums->samples += a.samples;
  a.sums->more_positions += a.rows - a.samples;
  a.sums->masked += masked_rows;
  a.sums->weight_excess += weight_excess;
  a.sums->classes = classes;
  if (classes == 0) return;
  a.sums->correct += correct;
  a.sums->correct_top5 += correct_top5;
}

__global__ void write_sums(const MetricSums* sums, float* summable) {
  SummableMetrics(*sums).write(summable);
}

}  // namespace

void softmax_forward(const TensorView& input, std::int64_t width, const TensorView& output,
                     cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(input.size()) / width;
  with_type(input.type(), [&]<typename T>(T) {
    with_group(rows, width, [&](auto group, unsigned blocks) {
      launch(softmax_rows<group, T>, blocks, kThreads, stream, data<T>(input), rows, width,
             data<T>(output));
    });
  });
}

void softmax_backward(const TensorView& output, const TensorView& output_gradient,
                      std::int64_t width, const TensorView& input_gradient, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(output.size()) / width;
  with_type(output.type(), [&]<typename T>(T) {
    with_group(rows, width, [&](auto group, unsigned blocks) {
      launch(softmax_gradient_rows<group, T>, blocks, kThreads, stream, data<T>(output),
             data<T>(output_gradient), rows, width, data<T>(input_gradient));
    });
  });
}

void compute_loss(const Loss& loss, const LossArguments& a, cudaStream_t stream) {
  const auto enqueue = [&]<typename Chosen>(const Chosen& chosen) {
    if constexpr (std::is_same_v<Chosen, CustomLossPointer>) {
      check_runs_on_gpu(loss);  // throws
    } else {
      with_type(a.outputs.type(), [&]<typename T>(T) {
        with_group(a.rows, a.width, [&](auto group, unsigned blocks) {
          using Kernel = void (*)(LossArguments, const T*, T*, Chosen);
          Kernel kernel = nullptr;
          if constexpr (ElementwiseLoss<Chosen>)
            kernel = elementwise_rows<group, T, Chosen>;
          else
            kernel = static_cast<Kernel>(cross_entropy_rows<group, T>);
          launch(kernel, blocks, kThreads, stream, a, data<T>(a.outputs), data<T>(a.gradient),
                 chosen);
        });
      });
    }
  };
  std::visit(enqueue, loss);
  launch(add_rows, 1, kThreads, stream, a, class_count(loss, a.width));
}

void write_summable(const MetricSums* sums, float* summable, cudaStream_t stream) {
  launch(write_sums, 1, 1, stream, sums, summable);
}

}  // namespace lockstep::inline v0::model::cuda
