// What the descriptors of the graph API of the pretended cuDNN point to.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/pretend_cuda/convolution.h"

namespace lockstep::pretend {

/// A convolution whose output is summed up channel by channel: the one kind of graph that is known
/// here.
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
    std::vector<std::byte> bytes;  // but for descriptors
    std::vector<std::weak_ptr<const GraphDescriptor>>
        others;  // which must live until this one is finalized
  };

  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  // What is known once it is finalized, of graphs and all that is made of them.
  std::optional<SummedConvolution> graph;
  int engine = -1;
  std::size_t workspace_bytes = 0;
};

/// The descriptor behind a handle; ends the program where there is none.
std::shared_ptr<GraphDescriptor> graph_descriptor(cudnnBackendDescriptor_t handle);

/// Makes of the attributes of `descriptor` what is known once it is finalized.
cudnnStatus_t finalize(GraphDescriptor& descriptor);

}  // namespace lockstep::pretend
