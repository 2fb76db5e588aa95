// A model of ONNX in memory: what a file contains that Lockstep writes and reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::onnx {

/// Types of elements, with the numbers of TensorProto.DataType.
enum class TensorType : std::int32_t {
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  int32 = 6,
  int64 = 7,
  string = 8,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  bfloat16 = 16,
};

/// A constant array, row-major.
struct Tensor {
  std::string name;
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape;
  std::string bytes;  ///< the elements, little-endian (raw_data)
};

/// An option of an operator.
struct Attribute {
  std::string name;
  std::variant<float, std::int64_t, std::string, Tensor, std::vector<float>,
               std::vector<std::int64_t>, std::vector<std::string>>
      value;
};

/// An operator. An input may be empty: an optional one that is left out.
struct Node {
  std::string name;
  std::string type;    ///< such as "Conv"
  std::string domain;  ///< empty: the operators of ONNX
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
};

/// An extent: a number, or the name of one that is free, such as "batch".
using Extent = std::variant<std::int64_t, std::string>;

/// An input or output of a graph.
struct Value {
  std::string name;
  TensorType type = TensorType::float32;
  std::vector<Extent> shape;
};

/// Nodes in an order in which they can run.
struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<Value> inputs;  ///< without the initializers
  std::vector<Value> outputs;
};

/// The content of a file.
struct Model {
  std::int64_t ir_version = 8;
  std::int64_t opset = 17;  ///< version of the operators of ONNX
  std::string producer;
  std::string producer_version;
  Graph graph;
  std::map<std::string, std::string> metadata;  ///< metadata_props
};

}  // namespace lockstep::onnx
