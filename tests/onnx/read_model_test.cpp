// Valid and damaged ONNX files.
#include "lockstep/onnx/read_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <ostream>
#include <protozero/pbf_writer.hpp>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

using protozero::pbf_writer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Write = std::function<void(pbf_writer&)>;

std::string message_with(const Write& write) {
  std::string bytes;
  pbf_writer writer(bytes);
  write(writer);
  return bytes;
}

/// A file with a graph of the fields that `graph` writes.
std::string file_with(const Write& graph) {
  return message_with([&](pbf_writer& model) {
    model.add_int64(1, 8);
    model.add_message(7, message_with(graph));
    model.add_message(8, message_with([](pbf_writer& opset) { opset.add_int64(2, 17); }));
  });
}

/// A file with an initializer "w" of the fields that `tensor` writes.
std::string file_with_tensor(const Write& tensor) {
  return file_with([&](pbf_writer& graph) {
    graph.add_message(5, message_with([&](pbf_writer& writer) {
                        writer.add_string(8, "w");
                        tensor(writer);
                      }));
  });
}

/// A file with a node "n" of type If with an attribute "a" of the fields that `attribute` writes.
std::string file_with_attribute(const Write& attribute) {
  return file_with([&](pbf_writer& graph) {
    graph.add_message(1, message_with([&](pbf_writer& node) {
                        node.add_message(5, message_with([&](pbf_writer& writer) {
                                           writer.add_string(1, "a");
                                           attribute(writer);
                                         }));
                        node.add_string(3, "n");
                        node.add_string(4, "If");
                      }));
  });
}

void add_shape(pbf_writer& tensor, std::initializer_list<std::int64_t> shape) {
  tensor.add_packed_int64(1, shape.begin(), shape.end());
}

std::string read_error(const std::string& bytes) {
  try {
    read_model(bytes, "net.onnx");
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

TEST(OnnxReader, ReadsElementsFromTheFieldsOfTheirTypes) {
  const std::array<float, 2> floats{1.5f, -2};
  const Model packed = read_model(file_with_tensor([&](pbf_writer& tensor) {
    tensor.add_packed_float(4, floats.begin(), floats.end());  // before its shape
    add_shape(tensor, {2});
    tensor.add_int32(2, 1);
  }));
  const Model single = read_model(file_with_tensor([&](pbf_writer& tensor) {
    tensor.add_int64(1, 2);
    tensor.add_int32(2, 1);
    tensor.add_float(4, floats[0]);
    tensor.add_float(4, floats[1]);
  }));
  const Model raw = read_model(file_with_tensor([&](pbf_writer& tensor) {
    add_shape(tensor, {2});
    tensor.add_int32(2, 1);
    tensor.add_bytes(9, reinterpret_cast<const char*>(floats.data()), 8);
  }));
  for (const Model* const model : {&packed, &single, &raw}) {
    const Tensor& tensor = model->graph.initializers.front();
    EXPECT_EQ(tensor.name, "w");
    EXPECT_THAT(tensor.shape, ElementsAre(2));
    EXPECT_EQ(tensor.bytes, std::string(reinterpret_cast<const char*>(floats.data()), 8));
  }
}

TEST(OnnxReader, NarrowsElementsThatAreStoredAsInt32) {
  const std::array<std::int32_t, 3> values{0x3c00, 0xffff, 1};
  const Model model = read_model(file_with_tensor([&](pbf_writer& tensor) {
    add_shape(tensor, {3});
    tensor.add_int32(2, 10);
    tensor.add_packed_int32(5, values.begin(), values.end());
  }));
  EXPECT_EQ(model.graph.initializers.front().bytes, std::string("\x00\x3c\xff\xff\x01\x00", 6));
}

TEST(OnnxReader, DoesNotCountInitializersAmongTheInputs) {
  const auto value = [](const char* name) {
    return message_with([&](pbf_writer& writer) {
      writer.add_string(1, name);
      writer.add_message(
          2, message_with([](pbf_writer& type) {
            type.add_message(
                1, message_with([](pbf_writer& tensor) {
                  tensor.add_int32(1, 1);
                  tensor.add_message(
                      2, message_with([](pbf_writer& shape) {
                        shape.add_message(
                            1, message_with([](pbf_writer& extent) { extent.add_string(2, "N"); }));
                        shape.add_message(
                            1, message_with([](pbf_writer& extent) { extent.add_int64(1, 4); }));
                      }));
                }));
          }));
    });
  };
  const Model model = read_model(file_with([&](pbf_writer& graph) {
    graph.add_message(11, value("x"));
    graph.add_message(11, value("w"));
    graph.add_message(5, message_with([](pbf_writer& tensor) {
                        tensor.add_string(8, "w");
                        tensor.add_int32(2, 1);
                        tensor.add_float(4, 1);
                      }));
  }));
  ASSERT_EQ(model.graph.inputs.size(), 1U);
  EXPECT_EQ(model.graph.inputs.front().name, "x");
  EXPECT_THAT(model.graph.inputs.front().shape,
              ElementsAre(Extent(std::string("N")), Extent(std::int64_t{4})));
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;
};

std::ostream& operator<<(std::ostream& out, const BadFile& one) { return out << one.name; }

class OnnxBadFile : public ::testing::TestWithParam<BadFile> {};

TEST_P(OnnxBadFile, IsRejected) {
  EXPECT_THAT(read_error(GetParam().bytes),
              AllOf(HasSubstr("[net.onnx] expected "), HasSubstr(GetParam().message)));
}

std::string tensor_of(std::int32_t type, std::initializer_list<std::int64_t> shape,
                      std::size_t bytes) {
  return file_with_tensor([&](pbf_writer& tensor) {
    add_shape(tensor, shape);
    tensor.add_int32(2, type);
    tensor.add_bytes(9, std::string(bytes, 'x'));
  });
}

const BadFile kBadFiles[] = {
    {"empty", "", "the file is empty"},
    {"text", "hello, world", "the file is damaged or of another format"},
    {"zip", "PK\x03\x04 and so on", "the file is damaged or of another format"},
    {"without_a_graph", message_with([](pbf_writer& model) { model.add_int64(1, 8); }),
     "the file has no graph"},
    {"without_operators", message_with([](pbf_writer& model) {
       model.add_int64(1, 8);
       model.add_message(7, std::string());
     }),
     "expected a version of the operators of ONNX"},
    {"two_graphs", file_with([](pbf_writer&) {}) + file_with([](pbf_writer&) {}),
     "expected one graph"},
    {"control_flow",
     file_with_attribute([](pbf_writer& attribute) { attribute.add_message(6, std::string()); }),
     "expected a graph without control flow; node \"n\" (If) contains a graph"},
    {"attribute_of_an_unknown_type",
     file_with_attribute([](pbf_writer& attribute) { attribute.add_enum(20, 13); }),
     "\"a\" of node \"n\" (If) is of the type 13"},
    {"sparse_weights", file_with([](pbf_writer& graph) { graph.add_message(15, std::string()); }),
     "expected dense weights"},
    {"weights_in_another_file", file_with_tensor([](pbf_writer& tensor) {
       tensor.add_int32(2, 1);
       tensor.add_message(13, message_with([](pbf_writer& entry) {
                            entry.add_string(1, "location");
                            entry.add_string(2, "net.onnx.data");
                          }));
       tensor.add_enum(14, 1);
     }),
     "the values of \"w\" are in another file, \"net.onnx.data\""},
    {"too_few_bytes", tensor_of(1, {2, 3}, 20), "expected 24 bytes of values for \"w\", got 20"},
    {"too_many_bytes", tensor_of(1, {2, 3}, 28), "expected 24 bytes of values for \"w\", got 28"},
    {"negative_extent", tensor_of(1, {-2}, 8), "one of \"w\" is -2"},
    {"extents_whose_product_overflows", tensor_of(1, {1 << 30, 1 << 30, 1 << 30}, 4),
     "expected tensors of at most 2 GiB"},
    {"too_many_dimensions", tensor_of(1, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4),
     "expected tensors of at most 16 dimensions"},
    {"texts", tensor_of(8, {1}, 1), "the type of \"w\" is 8"},
    {"unknown_type", tensor_of(99, {1}, 1), "the type of \"w\" is 99"},
    {"values_in_the_field_of_another_type", file_with_tensor([](pbf_writer& tensor) {
       tensor.add_int32(2, 1);
       tensor.add_int64(7, 5);
     }),
     "expected the values of \"w\" in the field of its type"},
    {"two_values_for_one", file_with_tensor([](pbf_writer& tensor) {
       tensor.add_int32(2, 1);
       tensor.add_float(4, 5);
       tensor.add_float(4, 5);
     }),
     "expected 4 bytes of values for \"w\", got 8 or more"},
    {"input_of_no_type", file_with([](pbf_writer& graph) {
       graph.add_message(11, message_with([](pbf_writer& value) { value.add_string(1, "x"); }));
     }),
     "expected tensors as inputs and outputs of the graph"},
};

INSTANTIATE_TEST_SUITE_P(Files, OnnxBadFile, ::testing::ValuesIn(kBadFiles),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(OnnxReader, RejectsAFileThatIsCutShort) {
  const std::string whole = tensor_of(1, {2, 3}, 24);
  EXPECT_EQ(read_error(whole), "no error");
  for (std::size_t size = 0; size < whole.size() - 4; ++size)  // the version comes last
    EXPECT_NE(read_error(whole.substr(0, size)), "no error") << size;
}

TEST(OnnxReader, LimitsTheMemoryOfSmallFiles) {
  const std::string bytes = file_with_attribute([](pbf_writer& attribute) {
    const std::vector<std::int64_t> many((std::size_t{1} << 20) + 1, 1);
    attribute.add_packed_int64(8, many.begin(), many.end());
  });
  EXPECT_THAT(read_error(bytes),
              HasSubstr("expected at most 1048576 names, attributes and numbers"));
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
