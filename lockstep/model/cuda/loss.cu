#include "lockstep/model/cuda/loss.h"

#include <type_traits>
#include <variant>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::model::cuda {
namespace {

using device::cuda::launch;

constexpr unsigned kWarp = 32;
constexpr unsigned kAll = 0xffffffffU;

// One warp per row; every lane gets the result of a reduction.
template <typename Value>
__device__ Value warp_sum(Value value) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAll, value, mask);
  return value;
}

__device__ inline float warp_max(float value) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(kAll, value, mask);
    value = other > value || other != other ? other : value;
  }
  return value;
}

__device__ inline std::int64_t row_of_warp() {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
}
__device__ inline std::int64_t lane() { return threadIdx.x % kWarp; }

unsigned blocks_for_rows(std::int64_t rows) {
  constexpr std::int64_t kRowsOfABlock = kThreads / kWarp;
  return static_cast<unsigned>((rows + kRowsOfABlock - 1) / kRowsOfABlock);
}

template <typename T>
__device__ float row_max(const T* row, std::int64_t width) {
  float largest = widen(row[0]);
  for (std::int64_t k = lane(); k < width; k += kWarp) {
    const float value = widen(row[k]);
    if (value > largest || value != value) largest = value;
  }
  return warp_max(largest);
}

template <typename T>
__global__ void softmax_rows(const T* input, std::int64_t rows, std::int64_t width, T* output) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const T* const x = input + row * width;
  const float largest = row_max(x, width);
  float sum = 0;
  for (std::int64_t k = lane(); k < width; k += kWarp) sum += expf(widen(x[k]) - largest);
  sum = warp_sum(sum);
  for (std::int64_t k = lane(); k < width; k += kWarp)
    output[row * width + k] = narrow<T>(expf(widen(x[k]) - largest) / sum);
}

template <typename T>
__global__ void softmax_gradient_rows(const T* output, const T* output_gradient, std::int64_t rows,
                                      std::int64_t width, T* input_gradient) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const T* const y = output + row * width;
  const T* const g = output_gradient + row * width;
  float dot = 0;
  for (std::int64_t k = lane(); k < width; k += kWarp) dot += widen(y[k]) * widen(g[k]);
  dot = warp_sum(dot);
  for (std::int64_t k = lane(); k < width; k += kWarp)
    input_gradient[row * width + k] = narrow<T>(widen(y[k]) * (widen(g[k]) - dot));
}

// Number of outputs that precede the label's when sorted in descending order, ties in index order;
// NaN outputs come first.
template <typename T>
__device__ std::int64_t rank_of(const T* row, std::int64_t width, std::int64_t label) {
  const float chosen = widen(row[label]);
  int before = 0;
  for (std::int64_t k = lane(); k < width; k += kWarp) {
    const float value = widen(row[k]);
    if (k < label) before += !(value < chosen);
    if (k > label) before += !(value <= chosen);
  }
  return warp_sum(before);
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

template <typename T>
__global__ void cross_entropy_rows(LossArguments a, const T* outputs, T* gradient,
                                   SparseCategoricalCrossentropy loss_options) {
  const float smoothing = loss_options.label_smoothing;
  const std::int64_t row = row_of_warp();
  if (row >= a.rows) return;
  const T* const z = outputs + row * a.width;
  if (is_masked(a, row)) {
    for (std::int64_t k = lane(); gradient != nullptr && k < a.width; k += kWarp)
      gradient[row * a.width + k] = narrow<T>(0);
    return;
  }
  const TrueClasses classes = classes_of(a, row);
  const auto width = static_cast<float>(a.width);
  const float largest = row_max(z, a.width);
  const std::int64_t rank = rank_of(z, a.width, classes.label);
  const float of_label = below_largest(widen(z[classes.label]), largest);
  const float of_partner = below_largest(widen(z[classes.partner]), largest);
  float sum = 0;
  float shifted_sum = 0;
  for (std::int64_t k = lane(); k < a.width; k += kWarp) {
    const float shifted = below_largest(widen(z[k]), largest);
    sum += expf(shifted);
    shifted_sum += shifted;
  }
  sum = warp_sum(sum);
  shifted_sum = warp_sum(shifted_sum);
  __syncwarp();  // the gradient may overwrite the outputs, which all lanes have read
  if (gradient != nullptr) {
    const float factor = factor_of(a, row);
    const float normalizer = factor / sum;
    const float off_target = factor * smoothing / width;
    for (std::int64_t k = lane(); k < a.width; k += kWarp) {
      float value = expf(below_largest(widen(z[k]), largest)) * normalizer - off_target;
      if (k == classes.label) value -= factor * (1 - smoothing) * classes.weight;
      if (k == classes.partner && classes.weight < 1)
        value -= factor * (1 - smoothing) * (1 - classes.weight);
      gradient[row * a.width + k] = narrow<T>(masked(a, row, value));
    }
  }
  if (lane() != 0) return;
  // An output of minus infinity, an excluded class, must not be multiplied by a weight of 0: the
  // product is NaN.
  double of_classes = 0;
  if (classes.weight > 0)
    of_classes = static_cast<double>(classes.weight) * static_cast<double>(of_label);
  if (classes.weight < 1)
    of_classes += static_cast<double>(1 - classes.weight) * static_cast<double>(of_partner);
  double loss = static_cast<double>(logf(sum)) - static_cast<double>(1 - smoothing) * of_classes;
  if (smoothing != 0)
    loss -= static_cast<double>(smoothing) * static_cast<double>(shifted_sum / width);
  a.of_rows[row] = {loss, rank};
}

// The first of the largest values of a row.
__device__ inline std::int64_t argmax(const float* row, std::int64_t width) {
  float largest = row[0];
  int at = 0;
  for (std::int64_t k = lane(); k < width; k += kWarp)
    if (row[k] > largest) {
      largest = row[k];
      at = static_cast<int>(k);
    }
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(kAll, largest, mask);
    const int other_at = __shfl_xor_sync(kAll, at, mask);
    if (other > largest || (other == largest && other_at < at)) {
      largest = other;
      at = other_at;
    }
  }
  return at;
}

template <typename T>
__global__ void cross_entropy_rows(LossArguments a, const T* outputs, T* gradient,
                                   CategoricalCrossentropy loss) {
  const std::int64_t row = row_of_warp();
  if (row >= a.rows) return;
  const T* const z = outputs + row * a.width;
  const float* const targets = a.targets + row * a.width;
  const auto width = static_cast<float>(a.width);
  const float largest = row_max(z, a.width);
  float sum = 0;
  float total = 0;
  for (std::int64_t k = lane(); k < a.width; k += kWarp) {
    sum += expf(below_largest(widen(z[k]), largest));
    total += loss.smoothed(targets[k], width);
  }
  sum = warp_sum(sum);
  total = warp_sum(total);
  const float log_sum = logf(sum);
  double result = 0;
  for (std::int64_t k = lane(); k < a.width; k += kWarp) {
    const float shifted = below_largest(widen(z[k]), largest);
    const float target = loss.smoothed(targets[k], width);
    if (target != 0) result += static_cast<double>(target) * static_cast<double>(log_sum - shifted);
    if (gradient != nullptr)
      gradient[row * a.width + k] =
          narrow<T>(masked(a, row, factor_of(a, row) * (expf(shifted) / sum * total - target)));
  }
  result = warp_sum(result);
  const std::int64_t rank = rank_of(z, a.width, argmax(targets, a.width));
  if (lane() == 0) a.of_rows[row] = {result, rank};
}

template <typename T, ElementwiseLoss Elementwise>
__global__ void elementwise_rows(LossArguments a, const T* outputs, T* gradient, Elementwise loss) {
  const std::int64_t row = row_of_warp();
  if (row >= a.rows) return;
  const auto width = static_cast<float>(a.width);
  double sum = 0;
  std::int64_t rank = 0;
  for (std::int64_t k = lane(); k < a.width; k += kWarp) {
    const float output = widen(outputs[row * a.width + k]);
    const float target =
        a.labels != nullptr ? static_cast<float>(a.labels[row]) : a.targets[row * a.width + k];
    sum += loss.value(output, target);
    if constexpr (requires { loss.rank(output, target); }) rank = loss.rank(output, target);
    if (gradient != nullptr)
      gradient[row * a.width + k] =
          narrow<T>(masked(a, row, factor_of(a, row) * loss.derivative(output, target) / width));
  }
  sum = warp_sum(sum);
  if (lane() == 0) a.of_rows[row] = {sum / static_cast<double>(width), rank};
}

// One block; each thread handles every kThreads-th row.
__global__ void add_rows(LossArguments a, bool has_accuracy) {
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
    if (weight > 0) loss += weight * a.of_rows[row].loss;
    weight_excess += weight - 1;
    correct += a.of_rows[row].rank < 1;
    correct_top5 += a.of_rows[row].rank < 5;
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
  a.sums->has_accuracy = has_accuracy;
  if (!has_accuracy) return;
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
    launch(softmax_rows<T>, blocks_for_rows(rows), kThreads, stream, data<T>(input), rows, width,
           data<T>(output));
  });
}

void softmax_backward(const TensorView& output, const TensorView& output_gradient,
                      std::int64_t width, const TensorView& input_gradient, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(output.size()) / width;
  with_type(output.type(), [&]<typename T>(T) {
    launch(softmax_gradient_rows<T>, blocks_for_rows(rows), kThreads, stream, data<T>(output),
           data<T>(output_gradient), rows, width, data<T>(input_gradient));
  });
}

void compute_loss(const Loss& loss, const LossArguments& a, cudaStream_t stream) {
  const auto enqueue = [&]<typename Chosen>(const Chosen& chosen) {
    if constexpr (std::is_same_v<Chosen, CustomLossPointer>) {
      check_runs_on_gpu(loss);  // throws
    } else {
      with_type(a.outputs.type(), [&]<typename T>(T) {
        const auto launch_rows = [&](auto kernel) {
          launch(kernel, blocks_for_rows(a.rows), kThreads, stream, a, data<T>(a.outputs),
                 data<T>(a.gradient), chosen);
        };
        if constexpr (ElementwiseLoss<Chosen>)
          launch_rows(elementwise_rows<T, Chosen>);
        else
          launch_rows(
              static_cast<void (*)(LossArguments, const T*, T*, Chosen)>(cross_entropy_rows<T>));
      });
    }
  };
  std::visit(enqueue, loss);
  launch(add_rows, 1, kThreads, stream, a, class_count(loss, a.width) > 0);
}

void write_summable(const MetricSums* sums, float* summable, cudaStream_t stream) {
  launch(write_sums, 1, 1, stream, sums, summable);
}

}  // namespace lockstep::model::cuda
