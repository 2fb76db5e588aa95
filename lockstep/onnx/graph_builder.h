// Adds operators and constants to a graph of ONNX, each with a name of its own.
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

namespace lockstep::onnx {

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

  /// Below this, a Cast takes more of a file than is saved.
  static constexpr std::size_t kFloat16Elements = 128;

  /// `wanted`, or with a number if that is taken. Takes it.
  std::string unique_name(std::string_view wanted);

  /// Adds an operator with one output, called `output` or like it, and returns its name.
  std::string add(std::string type, std::vector<std::string> inputs, std::string_view output,
                  std::vector<Attribute> attributes = {});
  /// The same with several outputs, called OUTPUT_0, ….
  std::vector<std::string> add_split(std::string type, std::vector<std::string> inputs,
                                     std::string_view output, std::size_t outputs,
                                     std::vector<Attribute> attributes = {});
  /// The same with given outputs, of unique names or empty for those that are left out.
  void add_node(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
                std::vector<Attribute> attributes = {});

  /// Adds a constant array of float32 called `name` or like it. Returns its name.
  std::string floats(std::string_view name, std::vector<std::int64_t> shape,
                     std::span<const float> values);
  /// The same of a kernel or embeddings, which may be stored as float16. Throws Error (input) of
  /// `name` if float16 cannot hold one of its finite values.
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
  std::map<std::string, std::string> outputs_;  // of the graph, by the names they had before
};

}  // namespace lockstep::onnx
