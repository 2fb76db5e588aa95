// Tensors, filters and convolutions as cuDNN describes them, and its handle.
#include "tests/support/pretend_cuda/cudnn_descriptors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::refuse;
using pretend::Shape;

std::string& last_reason() {
  thread_local std::string reason;
  return reason;
}

bool take_type(cudnnDataType_t from, cudaDataType& to) {
  if (from == CUDNN_DATA_FLOAT)
    to = CUDA_R_32F;
  else if (from == CUDNN_DATA_HALF)
    to = CUDA_R_16F;
  else if (from == CUDNN_DATA_BFLOAT16)
    to = CUDA_R_16BF;
  else
    return false;
  return true;
}

bool is_possible(const Shape& shape) { return std::min({shape.n, shape.c, shape.h, shape.w}) > 0; }

cudnnStatus_t set(cudnnTensorStruct& tensor, cudnnTensorFormat_t format, cudnnDataType_t type,
                  const Shape& shape) {
  if (format != CUDNN_TENSOR_NHWC)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a layout that nobody asks for here");
  if (!is_possible(shape))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor with a dimension that is not positive");
  if (!take_type(type, tensor.type))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a type that nobody asks for here");
  tensor.shape = shape;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnConvolutionDescriptor_t convolution, const pretend::Steps& steps,
                  cudnnConvolutionMode_t mode, cudnnDataType_t type) {
  if (steps.pad_h < 0 || steps.pad_w < 0 ||
      std::min({steps.h, steps.w, steps.dilation_h, steps.dilation_w}) < 1)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "a convolution with impossible padding, stride or dilation");
  if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "a convolution other than a cross-correlation computed in float");
  convolution->steps = steps;
  convolution->is_set = true;
  return CUDNN_STATUS_SUCCESS;
}

constexpr std::array kNames = {
    std::pair{CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
    std::pair{CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
    std::pair{CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
    std::pair{CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
              "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER"},
    std::pair{CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
    std::pair{CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
    std::pair{CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
    std::pair{CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
    std::pair{CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
};

}  // namespace

cudnnStatus_t pretend::refuse(cudnnStatus_t status, std::string reason) {
  last_reason() = std::move(reason);
  return status;
}

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  const auto* found =
      std::ranges::find(kNames, status, &std::pair<cudnnStatus_t, const char*>::first);
  return found == kNames.end() ? "CUDNN_UNKNOWN_STATUS" : found->second;
}

void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0)
    *std::copy_n(last_reason().begin(), std::min(size - 1, last_reason().size()), message) = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (pretend::readiness() != cudaSuccess)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no GPU is there");
  *handle = new cudnnContext{.device = pretend::current_gpu(), .stream = nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (stream != nullptr && pretend::device_of(stream) != handle->device)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the stream of another GPU than the handle's");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return set(*tensor, format, type, {.n = n, .c = c, .h = h, .w = w});
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return set(*filter, format, type, {.n = k, .c = c, .h = h, .w = w});
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  return set(convolution,
             {.pad_h = pad_h,
              .pad_w = pad_w,
              .h = stride_h,
              .w = stride_w,
              .dilation_h = dilation_h,
              .dilation_w = dilation_w,
              .groups = convolution->steps.groups},
             mode, type);
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (groups < 1) return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution without groups");
  convolution->steps.groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t /*convolution*/,
                                          cudnnMathType_t type) {
  const bool is_known = type == CUDNN_DEFAULT_MATH || type == CUDNN_TENSOR_OP_MATH ||
                        type == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION || type == CUDNN_FMA_MATH;
  return is_known ? CUDNN_STATUS_SUCCESS
                  : refuse(CUDNN_STATUS_BAD_PARAM, "an unknown kind of arithmetic");
}

}  // extern "C"
