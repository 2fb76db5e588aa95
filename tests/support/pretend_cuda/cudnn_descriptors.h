// Contents of the descriptors of the simulated cuDNN.
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

/// A dense tensor [n, h, w, c], channels last; of filters, n is their number and c the channels of
/// a group.
struct cudnnTensorStruct {
  cudaDataType type = CUDA_R_32F;
  lockstep::pretend::Shape shape{};

  bool is_set() const { return shape.n > 0; }
  std::size_t bytes() const { return shape.count() * lockstep::pretend::width_of(type); }
};

struct cudnnFilterStruct : cudnnTensorStruct {};

struct cudnnConvolutionStruct {
  lockstep::pretend::Steps steps;
  bool is_set = false;
};

namespace lockstep::inline v0::pretend {

/// Returns `status`, and sets its reason for cudnnGetLastErrorString of this thread.
cudnnStatus_t refuse(cudnnStatus_t status, std::string reason);

}  // namespace lockstep::inline v0::pretend
