// An ONNX model in memory: the parts of a file that Lockstep reads and writes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::inline v0::onnx {

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
  std::string name;                       ///< unique in its graph
  TensorType type = TensorType::float32;  ///< type of the elements
  std::vector<std::int64_t> shape;        ///< empty: one number
  std::string bytes;                      ///< the elements, little-endian (raw_data)
};

/// An option of an operator.
struct Attribute {
  std::string name;  ///< such as "axis"
  std::variant<float, std::int64_t, std::string, Tensor, std::vector<float>,
               std::vector<std::int64_t>, std::vector<std::string>>
      value;  ///< its alternative is its type in the file
};

/// An operator. An empty input is an optional one that is omitted.
struct Node {
  std::string name;                   ///< may be empty
  std::string type;                   ///< such as "Conv"
  std::string domain;                 ///< empty: the operators of ONNX
  std::vector<std::string> inputs;    ///< names of values
  std::vector<std::string> outputs;   ///< names of values
  std::vector<Attribute> attributes;  ///< others have their defaults
};

/// A fixed extent, or the name of a free one, such as "batch".
using Extent = std::variant<std::int64_t, std::string>;

/// An input or output of a graph.
struct Value {
  std::string name;                       ///< unique in its graph
  TensorType type = TensorType::float32;  ///< type of the elements
  std::vector<Extent> shape;              ///< with the batch
};

/// Nodes in an order in which they can run.
struct Graph {
  std::string name;                  ///< shown by other programs; has no meaning
  std::vector<Node> nodes;           ///< each after those whose outputs it reads
  std::vector<Tensor> initializers;  ///< constants, such as weights
  std::vector<Value> inputs;         ///< without the initializers
  std::vector<Value> outputs;        ///< results of nodes, inputs or constants
};

/// The content of a file.
struct Model {
  std::int64_t ir_version = 8;                  ///< version of the format of the file
  std::int64_t opset = 17;                      ///< version of the operators of ONNX
  std::string producer;                         ///< the program that wrote it
  std::string producer_version;                 ///< version of that program
  Graph graph;                                  ///< the network
  std::map<std::string, std::string> metadata;  ///< metadata_props
};

}  // namespace lockstep::inline v0::onnx
