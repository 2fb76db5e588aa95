// What the descriptors of the pretended cuDNN point to.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string>

#include "tests/support/pretend_cuda/convolution.h"
#include "tests/support/pretend_cuda/elements.h"

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  cudaDataType type = CUDA_R_32F;
  lockstep::pretend::Shape shape{};
  lockstep::pretend::Shape strides{};

  bool is_set() const { return shape.n > 0; }
  std::size_t bytes() const;
  bool has_adjacent_channels() const { return strides.c == 1 || shape.c == 1; }
};

struct cudnnFilterStruct {
  cudaDataType type = CUDA_R_32F;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  lockstep::pretend::Shape shape{};  // n: filters, c: channels of a group
  lockstep::pretend::Shape strides{};

  bool is_set() const { return shape.n > 0; }
  std::size_t bytes() const;
};

struct cudnnConvolutionStruct {
  lockstep::pretend::Steps steps;
  bool is_set = false;
};

namespace lockstep::pretend {

/// `status`, whose reason cudnnGetLastErrorString of this thread tells from now on.
cudnnStatus_t refuse(cudnnStatus_t status, std::string reason);

}  // namespace lockstep::pretend
