// Serves an exported classifier with onnxruntime, without Lockstep: reads samples from standard
// input, a line of numbers separated by commas for each, and prints the class of each:
//
//     lockstep checkpoint export iris --with-preprocessing --output iris.onnx
//     example_onnxruntime iris.onnx < flowers.csv
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: example_onnxruntime MODEL.onnx < SAMPLES.csv");
  const Ort::Env environment;
  Ort::Session session(environment, argv[1], Ort::SessionOptions());
  Ort::AllocatorWithDefaultOptions allocator;
  const auto input = session.GetInputNameAllocated(0, allocator);
  const auto output = session.GetOutputNameAllocated(0, allocator);
  const auto type = session.GetInputTypeInfo(0);
  auto shape = type.GetTensorTypeAndShapeInfo().GetShape();  // [batch, …]
  if (type.GetTensorTypeAndShapeInfo().GetElementType() != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    throw std::runtime_error("expected a model whose input is float32");
  std::int64_t width = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) width *= shape[axis];

  std::vector<float> numbers;
  shape[0] = 0;
  for (std::string line; std::getline(std::cin, line); ++shape[0]) {
    std::istringstream fields(line);
    char comma;
    for (float number; fields >> number; fields >> comma) numbers.push_back(number);
    if (!fields.eof() || static_cast<std::int64_t>(numbers.size()) != (shape[0] + 1) * width)
      throw std::runtime_error("expected " + std::to_string(width) + " numbers, got " + line);
  }
  if (shape[0] == 0) throw std::runtime_error("expected samples on standard input, got none");
  const auto samples = Ort::Value::CreateTensor<float>(allocator.GetInfo(), numbers.data(),
                                                       numbers.size(), shape.data(), shape.size());
  const char *const inputs[] = {input.get()}, *const outputs[] = {output.get()};
  const auto results = session.Run(Ort::RunOptions(), inputs, &samples, 1, outputs, 1);

  const auto names =
      session.GetModelMetadata().LookupCustomMetadataMapAllocated("lockstep.classes", allocator);
  const auto classes = nlohmann::json::parse(names ? names.get() : "[]");
  const auto columns = results[0].GetTensorTypeAndShapeInfo().GetShape().at(1);
  for (const float* row = results[0].GetTensorData<float>(); shape[0]-- > 0; row += columns) {
    const auto best = static_cast<std::size_t>(std::max_element(row, row + columns) - row);
    std::cout << (classes.empty() ? std::to_string(best) : classes.at(best).get<std::string>())
              << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
