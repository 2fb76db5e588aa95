// Writes networks of all kinds with random weights as ONNX, with random inputs and Lockstep's
// outputs, for export_test.py.
//
//   random_models NETWORKS DIRECTORY
//
// NETWORKS is a folder of descriptions, of which the export must support all layers. DIRECTORY gets
// NAME.onnx, NAME.json (names, shapes and types) and NAME.in.N, NAME.out.N (the arrays).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/table/transform.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/int8_layers.h"
#include "lockstep/onnx/write_model.h"

namespace lockstep::inline v0 {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using zoo::DataInput;

constexpr std::int64_t kSamples = 1000;
constexpr std::int64_t kFewSamples = 8;            // for networks with more parameters than
constexpr std::int64_t kLargeNetwork = 1'500'000;  // this, which are slower
constexpr std::int64_t kBatch = 100;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kCategories = 5;  // range of int32 inputs
constexpr const char* kSegments = "segments";
constexpr const char* kPadded = "padded";  // an int32 input whose first sample is padding alone

enum class Preparation { none, pixels, columns };

struct Case {
  std::string name;  ///< name of the files
  std::shared_ptr<const model::Network> network;
  bool fold = true;
  bool one_document = false;
  Preparation preparation = Preparation::none;
  bool is_float16 = false;                              ///< the weights
  std::set<std::string, std::less<>> int8_layers = {};  ///< see ExportOptions

  std::int64_t samples() const {
    return network->parameters().flat_size() > kLargeNetwork ? kFewSamples : kSamples;
  }
};

constexpr ChannelNormalization kNormalization{
    .channels = 3, .mean = {0.4f, 0.5f, 0.45f}, .deviation = {0.2f, 0.3f, 0.25f}};

/// The arrays of one input.
struct RandomInput {
  std::vector<float> features;
  std::vector<float> raw;  ///< before the preparation
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> indices;

  /// `count` samples from the sample `first` on, of `elements` each.
  model::InputView view(std::int64_t first, std::int64_t count, std::int64_t elements) const {
    const auto part = [&]<typename T>(const std::vector<T>& values) -> std::span<const T> {
      if (values.empty()) return {};
      return std::span(values).subspan(static_cast<std::size_t>(first * elements),
                                       static_cast<std::size_t>(count * elements));
    };
    return {.features = part(features),
            .pixels = part(pixels),
            .indices = part(indices),
            .normalization = pixels.empty() ? ChannelNormalization{} : kNormalization};
  }
};

template <typename T>
void write_array(const fs::path& path, std::span<const T> values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

class Writer {
 public:
  explicit Writer(fs::path directory) : directory_(std::move(directory)) {}

  void write(const Case& one) {
    random_.seed(1);
    device::HostAllocator allocator;
    model::CompiledModel compiled(one.network, device::Device{}, allocator);
    compiled.initialize(1);
    randomize(compiled);
    store_rounded(one, compiled);
    onnx::ExportOptions options{
        .fold = one.fold,
        .weights = one.is_float16 ? onnx::WeightStorage::float16 : onnx::WeightStorage::float32,
        .int8_layers = one.int8_layers,
        .one_document = one.one_document};
    json about;
    std::vector<RandomInput> inputs;
    for (const model::NetworkInput& input : one.network->inputs())
      inputs.push_back(random_input(one, input, options.preprocessing));
    for (std::size_t k = 0; k < inputs.size(); ++k)
      write_input(fmt::format("{}.in.{}", one.name, k), one.network->inputs()[k], inputs[k], about);
    const onnx::Model model = onnx::export_network(
        *one.network, {.parameters = compiled.parameters(), .buffers = compiled.buffers()},
        options);
    const std::string bytes = onnx::write_model(model);
    write_array<char>(directory_ / (one.name + ".onnx"), bytes);
    const std::vector<std::vector<float>> outputs = predicted(one, compiled, inputs);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const model::NetworkOutput& output = one.network->outputs()[k];
      about["outputs"].push_back(
          {{"name", output.name}, {"shape", one.network->shape(output.node)}});
      write_array<float>(directory_ / fmt::format("{}.out.{}", one.name, k), outputs[k]);
    }
    about["samples"] = one.samples();
    const std::string text = about.dump();
    write_array<char>(directory_ / (one.name + ".json"), text);
  }

 private:
  /// Replaces the initial biases and statistics, 0 and 1.
  void randomize(model::CompiledModel& compiled) {
    std::normal_distribution<float> normal(0, 0.2f);
    std::uniform_real_distribution<float> near_one(0.7f, 1.4f);
    for (const model::ParameterInfo& entry : compiled.parameter_table().entries())
      if (entry.shape.size() == 1)
        for (float& value : model::ParameterTable::slice(compiled.parameters(), entry))
          value += normal(random_);
    for (const model::ParameterInfo& entry : compiled.buffer_table().entries())
      for (float& value : model::ParameterTable::slice(compiled.buffers(), entry))
        value = entry.name.ends_with("variance") ? near_one(random_) : normal(random_);
    compiled.parameters_changed();
  }

  /// Rounds the weights as stored in the file.
  static void store_rounded(const Case& one, model::CompiledModel& compiled) {
    const std::span<float> parameters = compiled.parameters();
    if (one.is_float16) {
      for (const model::ParameterInfo& entry : compiled.parameter_table().entries()) {
        const std::span<float> values = model::ParameterTable::slice(parameters, entry);
        if (entry.shape.size() < 2 || values.size() < 128) continue;
        std::vector<Float16> halves(values.size());
        narrow(values, halves);
        widen(halves, values);
      }
    }
    for (std::size_t i = 0; i < one.network->nodes().size(); ++i)
      if (one.int8_layers.contains(one.network->nodes()[i].name))
        onnx::round_int8_layer(*one.network, static_cast<model::NodeId>(i), parameters);
    compiled.parameters_changed();
  }

  /// The outputs of the network, in batches, because one batch of all samples would use much
  /// memory.
  static std::vector<std::vector<float>> predicted(const Case& one, model::CompiledModel& compiled,
                                                   const std::vector<RandomInput>& inputs) {
    std::vector<std::vector<float>> outputs(one.network->outputs().size());
    for (std::int64_t first = 0; first < one.samples(); first += kBatch) {
      const std::int64_t count = std::min(kBatch, one.samples() - first);
      std::vector<model::InputView> views;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        const std::int64_t elements = model::element_count(one.network->inputs()[k].shape);
        views.push_back(inputs[k].view(first, count, elements));
      }
      const auto computed = compiled.predict_outputs({.samples = count, .inputs = views});
      for (std::size_t k = 0; k < outputs.size(); ++k)
        outputs[k].insert(outputs[k].end(), computed[k].begin(), computed[k].end());
    }
    return outputs;
  }

  RandomInput random_input(const Case& one, const model::NetworkInput& input,
                           onnx::Preprocessing& steps) {
    RandomInput result;
    const std::int64_t elements = model::element_count(input.shape);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < one.samples() * elements; ++i) {
      if (input.type == ElementType::int32)
        result.indices.push_back(input.name.ends_with(kSegments)
                                     ? segment(one, i / elements, i % elements, elements)
                                 : input.name == kPadded && i < elements
                                     ? 0
                                     : static_cast<std::int32_t>(random_() % kCategories));
      else if (one.preparation == Preparation::pixels)
        result.pixels.push_back(static_cast<std::uint8_t>(random_()));
      else
        result.features.push_back(normal(random_));
    }
    if (input.type == ElementType::int32) return result;
    if (one.preparation == Preparation::pixels) steps.pixels = kNormalization;
    if (one.preparation != Preparation::columns) return result;
    result.raw = result.features;
    data::TableSchema table;
    for (std::int64_t column = 0; column < elements; ++column)
      table.features.push_back(
          {.columns = {fmt::format("column {}", column)},
           .scale = data::ColumnScale::standard,
           .offset = 0.1 * static_cast<double>(column),
           .divisor = column == 1 ? 0 : 0.3 * static_cast<double>(column + 1)});
    for (std::size_t i = 0; i < result.features.size(); ++i)
      result.features[i] = data::stored_value(
          table.features[i % static_cast<std::size_t>(elements)], double{result.raw[i]});
    steps.table = std::make_shared<const data::TableSchema>(std::move(table));
    return result;
  }

  /// One text and padding; or two documents and padding. The padding of a sample depends on it.
  static std::int32_t segment(const Case& one, std::int64_t sample, std::int64_t position,
                              std::int64_t positions) {
    if (position >= positions - sample % 4) return 0;
    return one.one_document || position < positions / 3 ? 1 : 2;
  }

  void write_input(const std::string& file, const model::NetworkInput& input,
                   const RandomInput& values, json& about) {
    const bool is_index = input.type == ElementType::int32;
    about["inputs"].push_back({{"name", input.name},
                               {"shape", input.shape},
                               {"type", is_index                 ? "int32"
                                        : !values.pixels.empty() ? "uint8"
                                                                 : "float32"}});
    if (is_index)
      write_array<std::int32_t>(directory_ / file, values.indices);
    else if (!values.pixels.empty())
      write_array<std::uint8_t>(directory_ / file, values.pixels);
    else
      write_array<float>(directory_ / file, values.raw.empty() ? values.features : values.raw);
  }

  fs::path directory_;
  std::mt19937 random_;
};

std::shared_ptr<const model::Network> shared(model::Network network) {
  return std::make_shared<const model::Network>(std::move(network));
}

/// The zoo. The sizes of networks of sequences are small.
std::vector<Case> ready_made() {
  std::vector<Case> cases;
  const auto add = [&](std::string file, model::Network network) -> Case& {
    return cases.emplace_back(Case{.name = std::move(file), .network = shared(std::move(network))});
  };
  const auto add_image = [&](const char* name, const model::Shape& input) -> Case& {
    std::string file = fmt::format("{}-{}", name, input[0]);
    std::ranges::replace(file, ':', '_');
    return add(std::move(file), zoo::make(name, input, kClasses));
  };
  for (const char* const name : {"linear", "mlp", "cnn", "lstm"}) add_image(name, {28, 28, 1});
  for (const char* const name : {"linear", "cnn", "fast_cifar", "resnet18", "resnet34", "resnet50",
                                 "resnet101", "resnet152", "mobilenet_v2", "resnet18:features"})
    add_image(name, {32, 32, 3});
  for (const char* const name : {"resnet18", "mobilenet_v2"}) add_image(name, {96, 96, 3});
  for (const char* const name : {"vit:2x64", "vit:2x64,class_token"}) add_image(name, {32, 32, 3});
  Case& kept = add_image("mobilenet_v2", {32, 32, 3});
  kept.name += "-kept";
  kept.fold = false;
  Case& pixels = add_image("cnn", {32, 32, 3});
  pixels.name += "-pixels";
  pixels.preparation = Preparation::pixels;

  Case& halves = add_image("mobilenet_v2", {32, 32, 3});
  halves.name += "-float16";
  halves.fold = false;  // the weights of the file are those that are rounded
  halves.is_float16 = true;
  // Single layers: after several, a difference of 1e-7 may round a value differently.
  for (const char* const layer :
       {R"({"type": "conv2d", "filters": 6, "kernel": [3, 2], "name": "y"})",
        R"({"type": "depthwise_conv2d", "kernel": 3, "padding": "same", "name": "y"})",
        R"({"type": "dense", "units": 5, "name": "y"})",
        R"({"type": "flatten"}, {"type": "fake_quantize", "scale": 0.02, "zero_point": 120,
            "dtype": "uint8"}, {"type": "dense", "units": 10, "name": "y"})"}) {
    const std::string text = fmt::format(
        R"({{"input": [6, 7, 4], "layers": [{{"type": "fake_quantize", "scale": 0.02,
            "zero_point": 120, "dtype": "uint8"}}, {}]}})",
        layer);
    add(fmt::format("int8-{}", cases.size()), model::network_from_json(text, "net.json"))
        .int8_layers = {"y"};
  }

  const DataInput tokens{.input = {.name = "tokens", .shape = {16}, .type = ElementType::int32},
                         .categories = kCategories};
  const DataInput segments{.input = {.name = kSegments, .shape = {16}, .type = ElementType::int32},
                           .categories = 3};
  const std::vector<DataInput> text{tokens};
  const std::vector<DataInput> documents{tokens, segments};
  for (const char* const name : {"gpt:2x64", "gpt:2x64x4,ffn=swiglu", "bert:2x64", "minilm:2x64",
                                 "lstm:2x32,embedding=16", "lstm:1x32,return_sequences"}) {
    std::string file(name);
    for (char& c : file)
      if (c == ':' || c == ',' || c == '=') c = '_';
    add(file, zoo::make(name, text, kClasses));
    add(file + "-segments", zoo::make(name, documents, kClasses)).one_document =
        file.starts_with("lstm");
  }
  const auto text_input = [](const char* name, std::int64_t positions) -> DataInput {
    return {.input = {.name = name, .shape = {positions}, .type = ElementType::int32},
            .categories = kCategories};
  };
  const std::vector<DataInput> pair{text_input("source", 12), text_input("tokens", 10)};
  const std::vector<DataInput> padded_pair{
      text_input("source", 12), text_input("source_segments", 12), text_input("tokens", 10)};
  add("seq2seq", zoo::make("seq2seq:2x16,embedding=8", pair, kClasses));
  add("seq2seq-segments", zoo::make("seq2seq:1x16", padded_pair, kClasses)).one_document = true;
  const std::vector<DataInput> picture{{.input = {.name = "image", .shape = {16, 16, 3}}},
                                       text_input("tokens", 8)};
  add("caption", zoo::make("caption:24", picture, kClasses));
  const std::vector<DataInput> table{
      {.input = {.name = "features", .shape = {6}}},
      {.input = {.name = "city", .shape = {}, .type = ElementType::int32},
       .categories = kCategories}};
  add("wide_deep", zoo::make("wide_deep", table, kClasses));
  add("wide_deep-columns", zoo::make("wide_deep", table, kClasses)).preparation =
      Preparation::columns;
  return cases;
}

/// The networks of the descriptions, which together contain every layer.
std::vector<Case> described(const fs::path& folder) {
  std::vector<Case> cases;
  std::set<std::string> types;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    const json description = json::parse(file);
    for (const json& layer : description.at("layers")) {
      types.insert(layer.at("type").get<std::string>());
      if (layer.contains("activation")) types.insert(layer.at("activation").get<std::string>());
    }
    cases.push_back({.name = entry.path().stem().string(),
                     .network = shared(model::read_network(entry.path())),
                     .one_document = true});
  }
  for (const model::LayerType& type : model::kLayerTypes)
    if (!types.contains(std::string(type.name)))
      throw std::runtime_error(
          fmt::format("no network of {} has the layer {}", folder.string(), type.name));
  return cases;
}

void write_all(const fs::path& networks, const fs::path& directory) {
  Writer writer(directory);
  for (const std::vector<Case>& cases : {ready_made(), described(networks)})
    for (const Case& one : cases) writer.write(one);
}

}  // namespace
}  // namespace lockstep::inline v0

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    lockstep::write_all(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "random_models: %s\n", error.what());
    return 1;
  }
}
