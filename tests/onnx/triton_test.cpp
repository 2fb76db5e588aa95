#include "lockstep/onnx/triton.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::onnx {
namespace {

TEST(TritonConfig, DescribesInputsAndOutputs) {
  Model model;
  model.graph.inputs = {{.name = "image",
                         .type = TensorType::uint8,
                         .shape = {"batch", std::int64_t{3}, std::int64_t{4}, std::int64_t{5}}},
                        {.name = "a \"word\"", .type = TensorType::int32, .shape = {"batch"}}};
  model.graph.outputs = {
      {.name = "kind", .type = TensorType::float32, .shape = {"batch", std::int64_t{2}}}};
  EXPECT_EQ(triton_config(model, "pets", 0), R"(name: "pets"
backend: "onnxruntime"
max_batch_size: 64
input [
  {
    name: "image"
    data_type: TYPE_UINT8
    dims: [ 3, 4, 5 ]
  },
  {
    name: "a \"word\""
    data_type: TYPE_INT32
    dims: [ 1 ]
    reshape: { shape: [ ] }
  }
]
output [
  {
    name: "kind"
    data_type: TYPE_FP32
    dims: [ 2 ]
    label_filename: "labels.txt"
  }
]
dynamic_batching { }
)");
  EXPECT_EQ(triton_config(model, "pets", {}).find("labels"), std::string::npos);
  model.graph.outputs.insert(model.graph.outputs.begin(),
                             {.name = "price", .type = TensorType::float32, .shape = {"batch"}});
  const std::string second = triton_config(model, "pets", 1);
  EXPECT_GT(second.find("labels"), second.find("\"kind\""));
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
