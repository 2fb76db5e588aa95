#include "lockstep/model/cpu/relu.h"

#include <Eigen/Core>
#include <algorithm>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Calls each(i, count) for the registers of an array: count is kLanes except for the last one.
template <typename Each>
void for_lanes(std::int64_t size, const Each& each) {
  constexpr std::int64_t kPart = 16'384;  // minimum elements that justify a thread
  const std::int64_t parts = std::max(size / kPart, std::int64_t{1});
  const auto threads = static_cast<int>(std::min(parts, std::int64_t{thread_budget()}));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t end = part + 1 < parts ? (part + 1) * kPart : size;
    std::int64_t i = part * kPart;
    for (; i + kLanes <= end; i += kLanes) each(i, kLanes);
    if (i < end) each(i, end - i);
  }
}

// to[i] = function(from[i]...) of Lanes, for elements of T.
template <typename T, typename Function, typename... From>
void map_lanes(std::int64_t size, const Function& function, T* to, const From*... from) {
  for_lanes(size, [&](std::int64_t i, std::int64_t count) {
    store_partial(function(load_partial(from + i, count)...), to + i, count);
  });
}

template <typename T>
T* elements_of(const TensorView& view) {
  return static_cast<T*>(view.data());
}

template <typename T>
void relu_of(const TensorView& input, const TensorView& output) {
  map_lanes(
      std::ssize(output), [](const Lanes& x) { return x <= 0 ? Lanes{} : x; },
      elements_of<T>(output), elements_of<const T>(input));
}

template <typename T>
void gradient_of(const TensorView& output, const TensorView& output_gradient,
                 const TensorView& input_gradient) {
  map_lanes(
      std::ssize(output), [](const Lanes& y, const Lanes& dy) { return y > 0 ? dy : Lanes{}; },
      elements_of<T>(input_gradient), elements_of<const T>(output),
      elements_of<const T>(output_gradient));
}

}  // namespace

void relu(const TensorView& input, const TensorView& output) {
  if (output.type() == Precision::float32)
    relu_of<float>(input, output);
  else
    relu_of<Eigen::bfloat16>(input, output);
}

void relu_gradient(const TensorView& output, const TensorView& output_gradient,
                   const TensorView& input_gradient) {
  if (output.type() == Precision::float32)
    gradient_of<float>(output, output_gradient, input_gradient);
  else
    gradient_of<Eigen::bfloat16>(output, output_gradient, input_gradient);
}

}  // namespace lockstep::inline v0::model::cpu
