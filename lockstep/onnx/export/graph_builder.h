// Adds operators and constants with unique names to an ONNX graph.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// The bytes of a tensor of this type (float, double, std::int32_t, std::int64_t, bool).
template <typename T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Builds a graph. Names of values are unique; those of operators are those of their first outputs.
class GraphBuilder {
 public:
  /// `stores_float16`: whether weights() stores arrays of several axes and at least
  /// kFloat16Elements as float16.
  explicit GraphBuilder(bool stores_float16 = false) : stores_float16_(stores_float16) {}

  /// Below this, the Cast takes more bytes than float16 saves.
  static constexpr std::size_t kFloat16Elements = 128;

  /// Reserves and returns `wanted`, with a number if that is in use.
  std::string unique_name(std::string_view wanted);

  /// Adds an operator with one output, and returns its name: `output`, made unique.
  std::string add(std::string type, std::vector<std::string> inputs, std::string_view output,
                  std::vector<Attribute> attributes = {});
  /// Adds an operator with several outputs, called OUTPUT_0, ….
  std::vector<std::string> add_split(std::string type, std::vector<std::string> inputs,
                                     std::string_view output, std::size_t outputs,
                                     std::vector<Attribute> attributes = {});
  /// Adds an operator with the outputs `outputs`: unique names, or empty for omitted ones.
  void add_node(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
                std::vector<Attribute> attributes = {});

  /// Adds a constant float32 array. Returns its name: `name`, made unique.
  std::string floats(std::string_view name, std::vector<std::int64_t> shape,
                     std::span<const float> values);
  /// Adds a kernel or embeddings, which may be stored as float16. Throws Error (input) of `name` if
  /// float16 cannot hold one of its finite values.
  std::string weights(std::string_view name, std::vector<std::int64_t> shape,
                      std::span<const float> values);
  /// Adds a constant of any type. Returns its name.
  std::string tensor(Tensor tensor);
  /// A float32 number; one constant for all uses.
  std::string number(float value);
  /// A list of int64 numbers; one constant for all uses.
  std::string integers(const std::vector<std::int64_t>& values);

  /// Makes the value `from` the output `to` of the graph: renames it, if an operator computes it
  /// and it is no output yet, else copies it. `to` is from unique_name().
  void output(const std::string& from, std::string to, TensorType type, std::vector<Extent> shape);

  Graph graph;  ///< what was built

 private:
  bool stores_float16_;
  std::set<std::string, std::less<>> names_;
  std::map<std::string, std::string> shared_;   // constants by type and bytes
  std::map<std::string, std::string> outputs_;  // outputs of the graph, by their former names
};

}  // namespace lockstep::inline v0::onnx
