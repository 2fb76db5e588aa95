#include "apps/lockstep/checkpoint/checkpoint_export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/torch_file.h"
#include "lockstep/data/text/unicode/unicode.h"
#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/triton.h"
#include "lockstep/onnx/write_model.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/target_scale.h"
#include "lockstep/train/options/weight_names.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPreprocessing = "with-preprocessing";

/// A format and the extensions of its files. The first format is the default for an output without
/// an extension, such as a device.
struct Format {
  ExportFormat name;
  std::array<std::string_view, 2> endings;
};
constexpr std::array<Format, 3> kFormats{{{ExportFormat::safetensors, {"", ".safetensors"}},
                                          {ExportFormat::onnx, {".onnx", ".onnx"}},
                                          {ExportFormat::torch, {".pt", ".pth"}}}};

ExportFormat format_of(const ExportArguments& arguments) {
  if (arguments.format != ExportFormat::automatic) return arguments.format;
  if (arguments.layout == ExportLayout::triton) return ExportFormat::onnx;
  const std::string ending = arguments.output.extension().string();
  const auto* const found = std::ranges::find_if(kFormats, [&](const Format& format) {
    return std::ranges::find(format.endings, ending) != format.endings.end();
  });
  if (found == kFormats.end())
    throw Error(ErrorCategory::input, "command line",
                "expected --output to end in .safetensors, .onnx, .pt or .pth, or --format",
                fmt::format("got \"{}\"", arguments.output.string()));
  return found->name;
}

/// A complete file that is not yet renamed to `path`.
std::unique_ptr<AtomicFile> finished_file(const fs::path& path, std::string_view bytes) {
  remove_abandoned_temporaries(path.parent_path(), path.filename().native());
  auto file = std::make_unique<AtomicFile>(path, Durability::synced, ErrorCategory::checkpoint);
  file->write(bytes);
  file->finish();
  return file;
}

// ---- The model of a checkpoint

TrainedModel read_model(const fs::path& path, const CodeArguments& code) {
  const std::string where = (path / checkpoint::kStateFile).string();
  const checkpoint::TrainingState described =
      checkpoint::parse_training_state(checkpoint::read_small_file(where), where);
  ModelSource source = ModelSource::of_configuration(*described.configuration, where);
  read_code(source, path, code);
  model::Network network = source.make();
  std::vector<float> parameters(network.parameters().flat_size());
  std::vector<float> buffers(network.buffers().flat_size());
  const checkpoint::ReplicaArrays arrays{.parameter_table = &network.parameters(),
                                         .parameters = parameters,
                                         .buffer_table = &network.buffers(),
                                         .buffers = buffers,
                                         .slots = {}};
  checkpoint::check_checkpoint_fits(path, arrays);
  checkpoint::TrainingState state = checkpoint::read_checkpoint_files(path, arrays);
  auto names = train::DataNames::of(state);
  return {std::move(source),  std::move(network), std::move(parameters),
          std::move(buffers), std::move(state),   std::move(names)};
}

// ---- Metadata

/// The function that converts an output to probabilities, by the name of the output. Outputs
/// without one are omitted.
json activations_of(const TrainedModel& trained) {
  json activations = json::object();
  const auto add = [&](const model::NetworkOutput& output, const model::Loss& loss) {
    const std::string_view activation = model::activation_of(loss);
    if (!activation.empty() && model::final_activation(trained.network, output.node) != activation)
      activations[output.name] = activation;
  };
  const auto outputs = trained.network.outputs();
  if (trained.source.losses.empty()) {
    add(outputs.front(), trained.source.loss);
    return activations;
  }
  for (const strategy::OutputLoss& one : trained.source.losses)
    for (const model::NetworkOutput& output : outputs)
      if (output.name == one.output) add(output, one.loss);
  return activations;
}

/// Whether the network reads arrays [H, W, C], which are images [C, H, W] in ONNX.
bool has_images(const TrainedModel& trained) {
  const auto is_image = [](const model::NetworkInput& input) {
    return input.type == ElementType::float32 && input.shape.size() == 3;
  };
  return std::ranges::any_of(trained.network.inputs(), is_image);
}

/// Whether the arrays are pixels, according to the checkpoint.
bool has_pixels(const TrainedModel& trained) {
  return has_images(trained) && trained.source.reads_pixels.value_or(true);
}

/// The conversion of uint8 pixels to the input of the network.
json pixels_to_json(const TrainedModel& trained) {
  const std::optional<data::ImageRecipe>& recipe = trained.source.test_images;
  json pixels = {{"divisor", 255}};
  if (!recipe) return pixels;
  const ChannelNormalization& normalization = recipe->normalization;
  const auto channels = static_cast<std::size_t>(normalization.channels);
  if (channels > 0) {
    pixels["mean"] = std::span(normalization.mean).first(channels);
    pixels["deviation"] = std::span(normalization.deviation).first(channels);
  }
  return pixels;
}

/// Describes the tokenizer, without its path on the training machine.
json tokenizer_to_json(const data::TextSchema& text) {
  json tokenizer = {{"name", text.name()}, {"xxh3", text.hash}, {"length", text.length}};
  if (!text.vocabulary.empty()) tokenizer["vocabulary"] = text.vocabulary;
  return tokenizer;
}

using Metadata = std::map<std::string, std::string>;

void add_metadata(const char* key, const json& value, Metadata& metadata) {
  if (!value.empty()) metadata[std::string("lockstep.") + key] = dump_json(value);
}

/// What a caller needs to make the inputs and to read the outputs.
Metadata interface_of(const TrainedModel& trained, bool in_graph) {
  Metadata metadata = {{"lockstep.preprocessing", in_graph ? "graph" : "caller"}};
  const auto add = [&](const char* key, const json& value) { add_metadata(key, value, metadata); };
  add("activations", activations_of(trained));
  add("classes", trained.names.classes);
  add("targets", trained.names.targets);
  const auto& table = trained.names.table;
  if (in_graph && table)
    add("columns", onnx::number_columns(*table));
  else
    add("features", trained.names.features);
  if (has_images(trained) && !table) {
    metadata["lockstep.layout"] = "NCHW";
    if (has_pixels(trained)) add("pixels", pixels_to_json(trained));
  }
  return metadata;
}

/// What --strip-metadata leaves out: the training, and what it has learned of its data.
void add_training(const TrainedModel& trained, Metadata& metadata) {
  const auto add = [&](const char* key, const json& value) { add_metadata(key, value, metadata); };
  metadata["lockstep.network"] = trained.network.name();
  metadata["lockstep.step"] = std::to_string(trained.state.step);
  metadata["lockstep.epoch"] = std::to_string(trained.state.epoch);
  add("features", trained.names.features);
  if (trained.source.test_images && has_images(trained) && !trained.names.table) {
    add("images", trained.source.test_images->to_json());
    metadata["lockstep.image_recipe"] = trained.source.test_images->name;
  }
  if (trained.names.table) add("table", trained.names.table->to_json());
  if (trained.names.text) add("tokenizer", tokenizer_to_json(*trained.names.text));
  if (!trained.source.mapped.empty()) add("mapped", trained.source.mapped);
}

Metadata metadata_of(const TrainedModel& trained, const ExportArguments& arguments) {
  Metadata metadata = interface_of(trained, arguments.with_preprocessing);
  if (!arguments.strip_metadata) add_training(trained, metadata);
  return metadata;
}

// ---- Preprocessing in the graph

[[noreturn]] void refuse_preprocessing(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, kPreprocessing, expected, actual);
}

/// What the tokens of a text stand for.
onnx::TextCharacters characters_of(const data::TextSchema& text) {
  if (!text.target.empty() || (text.has_segments && text.column.empty()))
    refuse_preprocessing("expected a model that reads one text",
                         "it reads pairs of texts, or several lines at once");
  if (text.tokenizer == "bytes") return {};
  if (text.tokenizer != "chars")
    refuse_preprocessing(
        "expected a text of bytes or characters (tokenizer=bytes or chars)",
        fmt::format("the model reads tokens of {}, which ONNX has no operators for", text.name()));
  onnx::TextCharacters characters;
  for (std::size_t at = 0; at < text.vocabulary.size();)
    characters.codes.push_back(
        static_cast<std::int32_t>(data::next_code_point(text.vocabulary, at)));
  return characters;
}

onnx::Preprocessing preprocessing_of(const TrainedModel& trained) {
  onnx::Preprocessing steps;
  if (!trained.source.mapped.empty())
    refuse_preprocessing("expected data that were not changed by the program of the training",
                         fmt::format("they were mapped ({})", trained.source.mapped));
  if (trained.names.text) {
    steps.text = characters_of(*trained.names.text);
    return steps;
  }
  steps.table = trained.names.table;
  if (steps.table) return steps;
  if (!has_pixels(trained))
    refuse_preprocessing("expected images, a table or a text",
                         "the model reads numbers as they are stored");
  steps.pixels = trained.source.test_images ? trained.source.test_images->normalization
                                            : ChannelNormalization{};
  return steps;
}

// ---- Formats

void report(const fs::path& output, std::uint64_t bytes, const fs::path& checkpoint,
            std::ostream& out) {
  // A device may be standard output, where this line would corrupt the model.
  std::error_code unknown;
  if (fs::is_regular_file(output, unknown) || fs::is_directory(output, unknown))
    out << fmt::format("{}: {} bytes from {}\n", printable(output.native()), bytes,
                       printable(checkpoint.native()));
}

std::uint64_t export_safetensors(const fs::path& checkpoint, const fs::path& output) {
  const InputFile model(checkpoint / checkpoint::kModelFile, ErrorCategory::checkpoint);
  AtomicFile file(output, Durability::synced, ErrorCategory::checkpoint);
  std::string buffer(1 << 20, '\0');
  std::uint64_t bytes = 0;
  while (const std::size_t got = model.read_at(bytes, buffer.data(), buffer.size())) {
    file.write(std::string_view(buffer).substr(0, got));
    bytes += got;
  }
  file.commit();
  return bytes;
}

/// The tensors of the checkpoint, without the metadata of its file.
std::uint64_t export_stripped(const fs::path& checkpoint, const fs::path& output) {
  const checkpoint::SafetensorsFile file(checkpoint / checkpoint::kModelFile);
  std::vector<std::vector<float>> values;
  std::vector<checkpoint::TensorView> tensors;
  values.reserve(file.tensors().size());
  for (const checkpoint::SafetensorsFile::Entry& entry : file.tensors()) {
    auto& tensor = values.emplace_back(static_cast<std::size_t>(model::element_count(entry.shape)));
    file.read(entry, tensor);
    tensors.push_back({entry.name, entry.shape, std::span<const float>(tensor)});
  }
  return checkpoint::write_safetensors(output, tensors).bytes;
}

/// Makes the scale and offset of targets, the last step of the network, part of the dense layer
/// before them: names of PyTorch's modules have no place for them.
void fold_rescaling(TrainedModel& trained) {
  if (!train::has_scaled_targets(trained.network)) return;
  const model::NodeId last = trained.network.outputs().front().node;
  const model::Node& node = trained.network.nodes()[static_cast<std::size_t>(last)];
  const auto& function = dynamic_cast<const model::Rescaling&>(*node.layer).function();
  const model::NodeId before = node.inputs.front();
  const model::Node* const dense =
      before < 0 ? nullptr : &trained.network.nodes()[static_cast<std::size_t>(before)];
  const auto array = [&](const char* name) {
    const model::ParameterInfo* const entry =
        dense == nullptr
            ? nullptr
            : trained.network.parameters().find(fmt::format("{}/{}", dense->name, name));
    return entry == nullptr ? std::span<float>()
                            : model::ParameterTable::slice(std::span(trained.parameters), *entry);
  };
  const std::span<float> kernel = array("kernel");
  const std::span<float> bias = array("bias");
  if (dense == nullptr || dense->layer->kind() != "dense" || kernel.empty() || bias.empty())
    throw Error(ErrorCategory::input, "format",
                "expected a dense layer with a bias before the scale of the targets (--format onnx "
                "exports any layer, --no-scale-targets trains without the scale)",
                fmt::format("got {}", dense == nullptr ? "an input" : dense->name));
  for (float& weight : kernel) weight *= function.scale;
  for (float& weight : bias) weight = weight * function.scale + function.offset;
}

std::uint64_t export_torch(const fs::path& checkpoint, const fs::path& output,
                           const CodeArguments& code) {
  TrainedModel trained = read_model(checkpoint, code);
  fold_rescaling(trained);
  const std::vector<train::NamedWeight> weights = train::torch_weights(
      trained.network, trained.parameters, trained.buffers, "export", output.string());
  std::vector<std::vector<float>> moved;  // tensors whose layout was changed
  moved.reserve(weights.size());
  std::vector<checkpoint::TensorView> tensors;
  for (const train::NamedWeight& weight : weights) {
    std::span<const float> values = weight.values;
    if (weight.channels > 0 || weight.is_addend) values = moved.emplace_back(weight.stored());
    tensors.push_back({weight.name, weight.shape, values});
  }
  return checkpoint::write_torch_file(output, tensors);
}

/// The output whose last axis has the named classes.
std::optional<std::size_t> labelled_output(const onnx::Model& model, const TrainedModel& trained) {
  const std::vector<std::string>& classes = trained.names.classes;
  const auto outputs = trained.network.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto loss =
        std::ranges::find(trained.source.losses, outputs[i].name, &strategy::OutputLoss::output);
    const bool has_target =
        loss == trained.source.losses.end()
            ? trained.source.losses.empty() && i == 0
            : trained.source.losses.size() == 1 || loss->target == trained.names.target;
    const auto* const extent = std::get_if<std::int64_t>(&model.graph.outputs.at(i).shape.back());
    if (has_target && !classes.empty() && extent != nullptr && *extent == std::ssize(classes))
      return i;
  }
  return std::nullopt;
}

/// The names of the classes in the format of Triton: one per line.
std::string labels_of(const std::vector<std::string>& classes) {
  std::string labels;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].find_first_of("\n\r") != std::string::npos)
      throw Error(
          ErrorCategory::input, "layout",
          "expected names of classes without line breaks for labels.txt of --layout triton; "
          "without it, the metadata of the ONNX file have the names",
          fmt::format("got {} for class {}", describe_json(classes[i]), i));
    labels += classes[i] + '\n';
  }
  return labels;
}

/// Writes FOLDER/1/model.onnx, FOLDER/labels.txt and FOLDER/config.pbtxt.
void write_triton(const fs::path& folder, const onnx::Model& model, std::string_view bytes,
                  const TrainedModel& trained) {
  const auto labelled = labelled_output(model, trained);
  const std::string labels = labelled ? labels_of(trained.names.classes) : "";
  const fs::path version = folder / "1";
  std::error_code error;
  fs::create_directories(version, error);
  if (error)
    throw Error(ErrorCategory::checkpoint, version.string(), "expected to create the folder",
                error.message());
  try {
    std::vector<std::unique_ptr<AtomicFile>> files;
    files.push_back(finished_file(
        folder / "config.pbtxt", onnx::triton_config(model, folder.filename().string(), labelled)));
    if (labelled) files.push_back(finished_file(folder / "labels.txt", labels));
    files.push_back(finished_file(version / "model.onnx", bytes));
    for (const auto& file : files) file->publish();
    if (!labelled) fs::remove(folder / "labels.txt", error);  // left by an earlier model
  } catch (const Error&) {
    fs::remove(version, error);  // succeeds only for an empty folder
    fs::remove(folder, error);
    throw;
  }
}

/// Removes a trailing "/".
fs::path without_slash(const fs::path& output) {
  return output.has_filename() ? output : output.parent_path();
}

std::uint64_t export_onnx(const fs::path& checkpoint, const ExportArguments& arguments) {
  const TrainedModel trained = read_model(checkpoint, arguments.code);
  return write_onnx(
      onnx::export_network(trained.network,
                           {.parameters = trained.parameters, .buffers = trained.buffers},
                           onnx_options(trained, arguments)),
      trained, arguments);
}

}  // namespace

void check_export(const ExportArguments& arguments) {
  const ExportFormat format = format_of(arguments);
  const std::pair<const char*, bool> of_onnx[] = {
      {"--no-fold", arguments.keep_normalization},
      {"--with-preprocessing", arguments.with_preprocessing},
      {"--weights float16", arguments.weights == onnx::WeightStorage::float16},
      {"--layout triton", arguments.layout == ExportLayout::triton}};
  for (const auto& [option, is_given] : of_onnx)
    if (is_given && format != ExportFormat::onnx)
      throw Error(ErrorCategory::input, "command line",
                  fmt::format("expected {} only for the format onnx", option),
                  fmt::format("got {}", kNamesOf<ExportFormat>.name(format)));
}

onnx::ExportOptions onnx_options(const TrainedModel& trained, const ExportArguments& arguments) {
  const auto& text = trained.names.text;
  onnx::ExportOptions options{
      .fold = !arguments.keep_normalization,
      .weights = arguments.weights,
      // A field of a table is one document.
      .one_document = text != nullptr && !(text->column.empty() && text->source.empty()),
      .producer_version = LOCKSTEP_VERSION,
      .metadata = metadata_of(trained, arguments)};
  if (arguments.with_preprocessing) options.preprocessing = preprocessing_of(trained);
  return options;
}

std::uint64_t write_onnx(const onnx::Model& model, const TrainedModel& trained,
                         const ExportArguments& arguments) {
  const fs::path output = without_slash(arguments.output);
  const std::string bytes = onnx::write_model(model);
  if (arguments.layout == ExportLayout::triton)
    write_triton(output, model, bytes, trained);
  else
    finished_file(output, bytes)->publish();
  return bytes.size();
}

void export_checkpoint(const fs::path& checkpoint, const ExportArguments& arguments,
                       std::ostream& out) {
  const ExportFormat format = format_of(arguments);
  const fs::path output = without_slash(arguments.output);
  remove_abandoned_temporaries(output.parent_path(), output.filename().native());
  const std::uint64_t bytes = format == ExportFormat::onnx ? export_onnx(checkpoint, arguments)
                              : format == ExportFormat::torch
                                  ? export_torch(checkpoint, output, arguments.code)
                              : arguments.strip_metadata ? export_stripped(checkpoint, output)
                                                         : export_safetensors(checkpoint, output);
  report(output, bytes, checkpoint, out);
}

}  // namespace lockstep::inline v0::apps
