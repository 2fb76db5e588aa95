#include "lockstep/onnx/write_model.h"

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/onnx/export/graph_builder.h"

namespace lockstep::inline v0::onnx {
namespace {

template <typename T>
std::string little_endian(std::vector<T> values) {
  return bytes_of(std::span<const T>(values));
}

/// A model with one of each element.
Model mixed_model() {
  Model model;
  model.producer = "lockstep";
  model.producer_version = "1";
  model.graph.name = "net";
  model.graph.nodes.push_back(
      {.name = "y",
       .type = "Mixed",
       .domain = "own",
       .inputs = {"x", "", "w"},
       .outputs = {"y"},
       .attributes = {{"f", 0.5f},
                      {"i", std::int64_t{-2}},
                      {"s", std::string("text")},
                      {"t", Tensor{.name = {},
                                   .type = TensorType::int32,
                                   .shape = {1},
                                   .bytes = little_endian<std::int32_t>({7})}},
                      {"fs", std::vector<float>{1, 2}},
                      {"is", std::vector<std::int64_t>{3, -1}},
                      {"ss", std::vector<std::string>{"a", ""}}}});
  model.graph.initializers.push_back({.name = "w",
                                      .type = TensorType::float32,
                                      .shape = {2, 1},
                                      .bytes = little_endian<float>({1, -2})});
  model.graph.inputs.push_back(
      {.name = "x", .type = TensorType::float32, .shape = {"batch", std::int64_t{2}}});
  model.graph.outputs.push_back(
      {.name = "y", .type = TensorType::int32, .shape = {std::int64_t{0}}});
  model.metadata = {{"b", "2"}, {"a", "1"}};
  return model;
}

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The result of SerializeToString() of Python's onnx 1.23 for this model.
constexpr const char* kMixedBytes =
    "080812086c6f636b737465701a01313adb010a93010a01780a000a01771201791a017922054d697865642a0b"
    "0a0166150000003fa001012a110a016918feffffffffffffffff01a001022a0c0a0173220474657874a00103"
    "2a120a01742a0a080110064a0407000000a001042a110a0266733d0000803f3d00000040a001062a140a0269"
    "73400340ffffffffffffffffff01a001072a0c0a0273734a01614a00a001083a036f776e12036e65742a1308"
    "02080110014201774a080000803f000000c05a180a017812130a110801120d0a07120562617463680a020802"
    "620f0a0179120a0a08080612040a02080042040a00101142070a036f776e100172060a016112013172060a01"
    "62120132";

TEST(WriteModel, WritesTheBytesOfPythonsOnnx) {
  EXPECT_EQ(hexadecimal(write_model(mixed_model())), kMixedBytes);
}

TEST(WriteModel, RejectsModelsBeyondTheProtobufLimit) {
  const std::size_t bytes = write_model(mixed_model()).size();
  EXPECT_EQ(write_model(mixed_model(), bytes).size(), bytes);
  for (const std::size_t limit : {bytes - 1, std::size_t{7}}) {
    try {
      write_model(mixed_model(), limit);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("[ONNX] expected a model of at most {} bytes, got {} bytes", limit,
                            limit == 7 ? 8 : bytes));
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
