// Contents of the descriptors of the graph API of the simulated cuDNN.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/pretend_cuda/convolution.h"

namespace lockstep::inline v0::pretend {

/// A convolution with sums of its output by channel: the only supported kind of graph.
struct SummedConvolution {
  struct Array {
    std::int64_t id = 0;
    std::size_t bytes = 0;
  };
  cudaDataType type = CUDA_R_16F;
  Problem problem;
  Array x, filter, y, sums, squares;
};

struct GraphDescriptor {
  struct Attribute {
    cudnnBackendAttributeType_t type;
    std::int64_t count = 0;
    std::vector<std::byte> bytes;  // values other than descriptors
    std::vector<std::weak_ptr<const GraphDescriptor>>
        others;  // which must live until this one is finalized
  };

  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  // Set by finalize() for graphs and objects built from them.
  std::optional<SummedConvolution> graph;
  int engine = -1;
  std::size_t workspace_bytes = 0;
};

/// The descriptor of a handle; ends the program if there is none.
std::shared_ptr<GraphDescriptor> graph_descriptor(cudnnBackendDescriptor_t handle);

/// Checks and evaluates the attributes of `descriptor`.
cudnnStatus_t finalize(GraphDescriptor& descriptor);

}  // namespace lockstep::inline v0::pretend
