// Convolutions of the simulated cuDNN. Each direction has two algorithms: a fast one without a
// workspace, whose gradient sums vary in rounding, and a deterministic one that fills its
// workspace.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/support/pretend_cuda/cudnn_descriptors.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::Problem;
using pretend::refuse;

constexpr std::size_t kAlignment = 16;

enum class Direction { forward, data, filter };

// A tensor or filters in the memory of a GPU.
struct Array {
  cudaDataType type;
  std::size_t count;
  void* data;

  std::size_t bytes() const { return count * pretend::width_of(type); }
  std::vector<float> load() const { return pretend::load_all(type, data, count); }
  // The old values are not read if `beta` is zero.
  void store(const std::vector<float>& values, float alpha, float beta) const {
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      const float before = beta == 0 ? 0 : beta * pretend::load(type, data, at);
      pretend::store(type, data, at, alpha * values[i] + before);
    }
  }
};

Array array_of(const cudnnTensorStruct& tensor, const void* data) {
  return {tensor.type, tensor.shape.count(), const_cast<void*>(data)};
}

// The arguments of a call; depending on the direction, x or y are gradients.
struct Call {
  Direction direction;
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y;

  Problem problem() const { return {x->shape, filter->shape, y->shape, convolution->steps}; }
};

cudnnStatus_t check(const Call& call) {
  if (call.handle == nullptr || call.x == nullptr || call.filter == nullptr ||
      call.convolution == nullptr || call.y == nullptr || !call.x->is_set() ||
      !call.filter->is_set() || !call.convolution->is_set || !call.y->is_set())
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is missing or was not set");
  const Problem problem = call.problem();
  const std::ptrdiff_t groups = problem.steps.groups;
  if (problem.x.c != problem.filter.c * groups || problem.filter.n % groups != 0)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("{} channels, and {} filters of {} channels in {} groups",
                              problem.x.c, problem.filter.n, problem.filter.c, groups));
  const pretend::Shape y = pretend::output_shape(problem.x, problem.filter, problem.steps);
  if (problem.y != y)
    return refuse(
        CUDNN_STATUS_BAD_PARAM,
        fmt::format("an output [{}, {}, {}, {}] where [{}, {}, {}, {}] comes out", problem.y.n,
                    problem.y.c, problem.y.h, problem.y.w, y.n, y.c, y.h, y.w));
  if (call.x->type != call.filter->type || call.x->type != call.y->type)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "input, filters and output of different types");
  return CUDNN_STATUS_SUCCESS;
}

constexpr int kPlain = 0;      // the algorithm without a workspace, in each direction
constexpr int kWithSpace = 1;  // the algorithm with a workspace
constexpr int kAlgorithms = 2;

std::size_t workspace_of(const Call& call, int algorithm) {
  return algorithm == kPlain ? 0 : 1024 + 4 * call.problem().filter.count();
}

std::vector<float> result_of(Direction direction, const Problem& problem, const Array& first,
                             const Array& second, bool backwards) {
  if (direction == Direction::forward)
    return pretend::convolve(problem, first.load(), second.load());
  if (direction == Direction::data)
    return pretend::gradient_of_data(problem, first.load(), second.load());
  return pretend::gradient_of_filter(problem, first.load(), second.load(), backwards);
}

cudnnStatus_t check_memory(const Array& array) {
  if (array.data == nullptr) return refuse(CUDNN_STATUS_BAD_PARAM, "a null pointer");
  if (!pretend::is_aligned(array.data, kAlignment))
    return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                  fmt::format("a pointer to {}", fmt::ptr(array.data)));
  pretend::check_is_on_gpu("cuDNN", array.data, array.bytes());
  return CUDNN_STATUS_SUCCESS;
}

struct Space {
  void* data;
  std::size_t bytes;
};

// The operands of a call, in the order of its result's function.
struct Operands {
  Array first;
  Array second;
  Array result;
};

Operands operands_of(const Call& call, const void* x, const void* filter, const void* y) {
  const Array in_x = array_of(*call.x, x);
  const Array in_filter = array_of(*call.filter, filter);
  const Array in_y = array_of(*call.y, y);
  if (call.direction == Direction::forward) return {in_x, in_filter, in_y};
  if (call.direction == Direction::data) return {in_y, in_filter, in_x};
  return {in_x, in_y, in_filter};
}

cudnnStatus_t run(const Call& call, const Operands& operands, int algorithm, Space space,
                  const void* alpha, const void* beta) {
  static std::atomic<unsigned> calls{0};
  if (const cudnnStatus_t status = check(call); status != CUDNN_STATUS_SUCCESS) return status;
  if (algorithm != kPlain && algorithm != kWithSpace)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("algorithm {}", algorithm));
  const std::size_t needed = workspace_of(call, algorithm);
  if (space.bytes < needed || (needed > 0 && space.data == nullptr))
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("a workspace of {} bytes where {} are needed", space.bytes, needed));
  for (const Array& array : {operands.first, operands.second, operands.result})
    if (const cudnnStatus_t status = check_memory(array); status != CUDNN_STATUS_SUCCESS)
      return status;
  if (needed > 0) {
    if (!pretend::is_aligned(space.data, kAlignment))
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a workspace that is not aligned");
    pretend::check_is_on_gpu("cuDNN", space.data, needed);
  }
  const bool backwards = algorithm == kPlain && calls++ % 2 == 1;
  const cudaError_t status = pretend::enqueue(
      call.handle->stream,
      [=, direction = call.direction, problem = call.problem(),
       scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta)] {
        if (needed > 0) std::memset(space.data, 0xff, needed);
        operands.result.store(
            result_of(direction, problem, operands.first, operands.second, backwards), scale, keep);
      });
  return status == cudaSuccess ? CUDNN_STATUS_SUCCESS
                               : refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(status));
}

// The algorithms with times, the fastest first; those that do not fit into the workspace have none.
template <typename Perf>
cudnnStatus_t list(const Call& call, std::size_t space, int most, int* count, Perf* found) {
  if (most < 1) return refuse(CUDNN_STATUS_BAD_PARAM, "no algorithm was asked for");
  if (const cudnnStatus_t status = check(call); status != CUDNN_STATUS_SUCCESS) return status;
  *count = std::min(most, kAlgorithms);
  for (int algorithm = 0; algorithm < *count; ++algorithm) {
    Perf perf{};
    perf.algo = static_cast<decltype(perf.algo)>(algorithm);
    perf.memory = workspace_of(call, algorithm);
    perf.status = perf.memory <= space ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    perf.time = perf.memory <= space ? 0.5F * static_cast<float>(algorithm + 1) : -1.0F;
    const bool has_same_bits = algorithm == kWithSpace || call.direction == Direction::forward;
    perf.determinism = has_same_bits ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    perf.mathType = CUDNN_DEFAULT_MATH;
    found[algorithm] = perf;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Tries all algorithms on the memory of the caller: it waits for the GPU, and what was in the
// result is gone.
template <typename Perf>
cudnnStatus_t find(const Call& call, const Operands& operands, Space space, int most, int* count,
                   Perf* found) {
  if (const cudnnStatus_t status = list(call, space.bytes, most, count, found);
      status != CUDNN_STATUS_SUCCESS)
    return status;
  for (const Array& array : {operands.first, operands.second, operands.result})
    if (const cudnnStatus_t status = check_memory(array); status != CUDNN_STATUS_SUCCESS)
      return status;
  if (pretend::check_no_capture() != cudaSuccess || pretend::is_captured(call.handle->stream))
    return refuse(CUDNN_STATUS_EXECUTION_FAILED,
                  "algorithms are not tried while a stream is captured");
  if (space.bytes > 0) pretend::check_is_on_gpu("cuDNN", space.data, space.bytes);
  const std::size_t used = std::min(space.bytes, workspace_of(call, kWithSpace));
  const cudaError_t status = pretend::perform(call.handle->stream, [=] {
    operands.result.store(std::vector<float>(operands.result.count, 12345.0F), 1.0F, 0.0F);
    if (used > 0) std::memset(space.data, 0xff, used);
  });
  return status == cudaSuccess ? CUDNN_STATUS_SUCCESS
                               : refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(status));
}

// The algorithms' own numbers: IMPLICIT_GEMM and IMPLICIT_PRECOMP_GEMM forward, ALGO_0 and ALGO_1
// backward.
static_assert(static_cast<int>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) == kPlain &&
              static_cast<int>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) == kWithSpace &&
              static_cast<int>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) == kWithSpace &&
              static_cast<int>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1) == kWithSpace);

constexpr std::size_t kAnySpace = std::size_t{1} << 40;

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y, int most, int* count,
    cudnnConvolutionFwdAlgoPerf_t* found) {
  return list({Direction::forward, handle, x, w, conv, y}, kAnySpace, most, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dx, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return list({Direction::data, handle, dx, w, conv, dy}, kAnySpace, most, count, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return list({Direction::filter, handle, x, dw, conv, dy}, kAnySpace, most, count, found);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_descriptor, const void* x,
    cudnnFilterDescriptor_t w_descriptor, const void* w, cudnnConvolutionDescriptor_t conv,
    cudnnTensorDescriptor_t y_descriptor, void* y, int most, int* count,
    cudnnConvolutionFwdAlgoPerf_t* found, void* space, size_t bytes) {
  const Call call = {Direction::forward, handle, x_descriptor, w_descriptor, conv, y_descriptor};
  return find(call, operands_of(call, x, w, y), {space, bytes}, most, count, found);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_descriptor, const void* w,
    cudnnTensorDescriptor_t dy_descriptor, const void* dy, cudnnConvolutionDescriptor_t conv,
    cudnnTensorDescriptor_t dx_descriptor, void* dx, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* found, void* space, size_t bytes) {
  const Call call = {Direction::data, handle, dx_descriptor, w_descriptor, conv, dy_descriptor};
  return find(call, operands_of(call, dx, w, dy), {space, bytes}, most, count, found);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_descriptor, const void* x,
    cudnnTensorDescriptor_t dy_descriptor, const void* dy, cudnnConvolutionDescriptor_t conv,
    cudnnFilterDescriptor_t dw_descriptor, void* dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* found, void* space, size_t bytes) {
  const Call call = {Direction::filter, handle, x_descriptor, dw_descriptor, conv, dy_descriptor};
  return find(call, operands_of(call, x, dw, dy), {space, bytes}, most, count, found);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_descriptor, const void* x,
                                      cudnnFilterDescriptor_t w_descriptor, const void* w,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* space,
                                      size_t bytes, const void* beta,
                                      cudnnTensorDescriptor_t y_descriptor, void* y) {
  const Call call = {Direction::forward, handle, x_descriptor, w_descriptor, conv, y_descriptor};
  return run(call, operands_of(call, x, w, y), algorithm, {space, bytes}, alpha, beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w_descriptor, const void* w,
                                           cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* space,
                                           size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  const Call call = {Direction::data, handle, dx_descriptor, w_descriptor, conv, dy_descriptor};
  return run(call, operands_of(call, dx, w, dy), algorithm, {space, bytes}, alpha, beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x_descriptor, const void* x,
                                             cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* space,
                                             size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t dw_descriptor, void* dw) {
  const Call call = {Direction::filter, handle, x_descriptor, dw_descriptor, conv, dy_descriptor};
  return run(call, operands_of(call, x, dw, dy), algorithm, {space, bytes}, alpha, beta);
}

}  // extern "C"
