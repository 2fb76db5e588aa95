// lockstep quantize: a trained model as a file of ONNX that computes with 8-bit integers.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/lockstep/checkpoint/checkpoint_export.h"
#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/restored.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/model/network/fold_normalizations.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/quantize.h"
#include "lockstep/onnx/write_model.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/check_data.h"
#include "lockstep/train/input/data_names.h"

namespace lockstep::inline v0::apps {
namespace {

struct QuantizeArguments {
  RestoredArguments restored;  ///< its data are those of the calibration
  std::string validation_data;
  ExportArguments exported;
  onnx::QuantizeOptions options;
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// Options of `lockstep quantize`.
template <>
struct Fields<apps::QuantizeArguments> {
  using Options = apps::QuantizeArguments;
  static constexpr std::tuple list{
      Part{&Options::exported}, Part{&Options::restored},
      Field{&Options::validation_data,
            {"validation_data", kCommonOptions,
             "Data with labels to compare int8 with float32 on, in the same forms as --data "
             "(default: --data)"},
            {},
            {.value = "SPEC"}},
      Part{&Options::options}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// What the command reports.
struct QuantizeResult {
  train::Evaluation before;       ///< metrics of the float32 model on the validation data
  train::Evaluation after;        ///< metrics of the quantized model
  std::uint64_t bytes = 0;        ///< size of the file
  std::uint64_t float_bytes = 0;  ///< its size with float32 weights
};

/// Points of accuracy, or without classes percent by which the loss rises.
double lost(const train::Evaluation& before, const train::Evaluation& after) {
  if (before.has_accuracy()) return 100 * (before.accuracy() - after.accuracy());
  const double least = std::numeric_limits<double>::min();
  return 100 * (after.loss() - before.loss()) / std::max(before.loss(), least);
}

/// Metrics of `network` on `validation`, as those of the restored model.
train::Evaluation evaluation_of(const Restored& restored, model::FoldedNetwork network,
                                const data::Dataset& validation, const DataArguments& data) {
  const checkpoint::ReplicaArrays arrays{.parameter_table = &network.network.parameters(),
                                         .parameters = network.parameters,
                                         .buffer_table = &network.network.buffers(),
                                         .buffers = network.buffers,
                                         .slots = {}};
  const auto trainer =
      trainer_with(*restored.strategy, network.network, arrays, restored.trainer->options());
  const data::Dataset records = train::matched(validation, restored.names);
  const train::ReadOptions read = data.read;
  return train::evaluate(trainer->replicas(), records,
                         train::one_pass(*restored.strategy, records, read))
      .value();
}

// ---- Output

ordered_json describe_row(const onnx::QuantizedLayer& layer) {
  ordered_json line = {{"layer", layer.name},
                       {"type", layer.type},
                       {"int8", layer.is_int8},
                       {"low", layer.input.low},
                       {"high", layer.input.high}};
  if (layer.decibels) line["snr"] = *layer.decibels;
  if (!layer.is_int8) line["kept_by"] = layer.kept_by;
  return line;
}

void print_json(const Restored& restored, const QuantizeArguments& arguments,
                const onnx::QuantizedModel& model, const QuantizeResult& result) {
  ordered_json event = {
      {"event", "quantize"},
      {"checkpoint", restored.checkpoint.path.string()},
      {"step", restored.checkpoint.state.step},
      {"calibration", kNamesOf<onnx::Calibration>.name(arguments.options.calibration)},
      {"calibration_samples", model.samples},
      {"weight_bits", arguments.options.weight_bits},
      {"samples", result.before.samples},
      {"layers", ordered_json::array()}};
  for (const onnx::QuantizedLayer& layer : model.layers)
    event["layers"].push_back(describe_row(layer));
  if (result.before.has_accuracy()) {
    event["float32_accuracy"] = result.before.accuracy();
    event["accuracy"] = result.after.accuracy();
  }
  event["float32_loss"] = result.before.loss();
  event["loss"] = result.after.loss();
  event["drop"] = model.drop;
  event["output"] = arguments.exported.output.string();
  event["float32_bytes"] = result.float_bytes;
  event["bytes"] = result.bytes;
  event["time"] = seconds_since_1970();
  fmt::print("{}\n", dump_json(event));
}

void print_layers(const onnx::QuantizedModel& model) {
  std::size_t width = 5;  // widest name
  std::size_t type_width = 6;
  for (const onnx::QuantizedLayer& layer : model.layers) {
    width = std::max(width, layer.name.size());
    type_width = std::max(type_width, layer.type.size());
  }
  const auto line = [&](std::string_view name, std::string_view type, std::string_view weights,
                        std::string_view low, std::string_view high, std::string_view noise,
                        std::string_view kept_by) {
    std::string text = fmt::format("{:<{}}  {:<{}}  {:<7}  {:>10}  {:>10}  {:>6}  {}", name, width,
                                   type, type_width, weights, low, high, noise, kept_by);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", printable(text));
  };
  line("layer", "type", "weights", "input from", "to", "SNR dB", "");
  for (const onnx::QuantizedLayer& layer : model.layers)
    line(layer.name, layer.type, layer.is_int8 ? "int8" : "float32",
         fmt::format("{:.4g}", layer.input.low), fmt::format("{:.4g}", layer.input.high),
         layer.decibels ? fmt::format("{:.1f}", *layer.decibels) : "-",
         layer.is_int8 ? "" : "kept by --" + layer.kept_by);
}

void print_text(const Restored& restored, const QuantizeArguments& arguments,
                const onnx::QuantizedModel& model, const QuantizeResult& result) {
  fmt::print("{} (step {}), {} from {} of {}\n", printable(restored.checkpoint.path.native()),
             restored.checkpoint.state.step,
             kNamesOf<onnx::Calibration>.name(arguments.options.calibration),
             counted(model.samples, "sample"), printable(restored.dataset.description()));
  print_layers(model);
  const auto& [before, after, bytes, float_bytes] = result;
  if (before.has_accuracy())
    fmt::print("accuracy {:.4f} in float32, {:.4f} in int8 ({:.2f} points lost)", before.accuracy(),
               after.accuracy(), model.drop);
  else
    fmt::print("loss {:.6g} in float32, {:.6g} in int8 ({:.2f}% more)", before.loss(), after.loss(),
               model.drop);
  fmt::print(", {}\n", counted(before.samples, "sample"));
  fmt::print("{}: {} bytes, {:.2f} of {} with weights in float32\n",
             printable(arguments.exported.output.native()), bytes,
             static_cast<double>(bytes) / static_cast<double>(float_bytes), float_bytes);
}

// ---- The command

/// Throws before the work what would be thrown after it.
void check_output(const fs::path& output) {
  const fs::path folder = output.has_parent_path() ? output.parent_path() : ".";
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorCategory::checkpoint, output.string(), "expected a file in a folder",
                fmt::format("{} is none", folder.string()));
  if (fs::is_directory(output, error))
    throw Error(ErrorCategory::checkpoint, output.string(), "expected a file",
                "it is a directory; --layout triton writes a folder");
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(ErrorCategory::checkpoint, output.string(),
                fmt::format("expected to be allowed to write in {}", folder.string()),
                std::generic_category().message(errno));
}

int quantize(job::Session& session, const QuantizeArguments& arguments) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "quantize", "expected one process",
                fmt::format("got {} ranks", session.size()));
  if (arguments.exported.layout == ExportLayout::file) check_output(arguments.exported.output);
  const Restored restored = restore(session, arguments.restored);
  check_losses_known(restored.source, arguments.restored.checkpoint);
  train::Trainer& trainer = *restored.trainer;
  train::check_data_fits(restored.dataset, trainer.network(), trainer.replicas().loss(),
                         train::DataUse::prediction);
  train::check_same_features(restored.dataset, restored.names);
  data::Dataset validation = restored.dataset;
  if (!arguments.validation_data.empty()) {
    DataArguments data = arguments.restored.data;
    data.data = arguments.validation_data;
    validation = open_test_data(data, restored.source, restored.names);
  }

  QuantizeResult result;
  result.before = trainer.evaluate(validation, arguments.restored.data.read);
  const checkpoint::ReplicaArrays arrays = trainer.replicas().arrays(false);
  const TrainedModel trained{.source = restored.source,
                             .network = trainer.network(),
                             .parameters = {arrays.parameters.begin(), arrays.parameters.end()},
                             .buffers = {arrays.buffers.begin(), arrays.buffers.end()},
                             .state = restored.checkpoint.state,
                             .names = restored.names};
  // Before the work, as it refuses preprocessing.
  onnx::ExportOptions options = onnx_options(trained, arguments.exported);
  const model::FoldedNetwork folded =
      model::fold_normalizations(trained.network, trained.parameters, trained.buffers);
  result.float_bytes =
      onnx::write_model(onnx::export_network(
                            folded.network,
                            {.parameters = folded.parameters, .buffers = folded.buffers}, options))
          .size();

  std::vector<train::Evaluation> tried;
  const auto drop_of = [&](const model::FoldedNetwork& network) {
    tried.push_back(evaluation_of(restored, network, validation, arguments.restored.data));
    return lost(result.before, tried.back());
  };
  onnx::QuantizeOptions how = arguments.options;
  how.threads =
      train::reading_threads(arguments.restored.data.read.data_threads, *restored.strategy);
  const onnx::QuantizedModel model = onnx::quantize(folded, restored.dataset, drop_of, how);
  result.after = tried.at(model.call);

  options.int8_layers = model.int8_layers;
  options.weight_bits = arguments.options.weight_bits;
  if (!arguments.exported.strip_metadata)
    options.metadata["lockstep.int8"] = dump_json(ordered_json{
        {"layers", model.int8_layers},
        {"calibration", kNamesOf<onnx::Calibration>.name(arguments.options.calibration)},
        {"samples", model.samples},
        {"weight_bits", arguments.options.weight_bits}});
  result.bytes = write_onnx(
      onnx::export_network(
          model.network.network,
          {.parameters = model.network.parameters, .buffers = model.network.buffers}, options),
      trained, arguments.exported);
  if (arguments.restored.output.json)
    print_json(restored, arguments, model, result);
  else if (!arguments.restored.output.quiet)
    print_text(restored, arguments, model, result);
  return 0;
}

}  // namespace

void add_quantize_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "quantize",
      "Write the model of a checkpoint as ONNX that computes with 8-bit integers: ranges are "
      "calibrated on samples, without training\n\n"
      "Example:\n"
      "  lockstep quantize --checkpoint run --data fashion-mnist:train \\\n"
      "    --validation-data fashion-mnist --output model.onnx\n");
  const auto arguments = std::make_shared<QuantizeArguments>();
  arguments->exported.format = ExportFormat::onnx;
  const std::vector<BoundField> fields =
      fields_without(fields_of(*arguments), {"format", "no_fold", "weights", "model", "trust_code",
                                             "bad_records", "metrics", "embeddings", "split"});
  add_restored_options(*command, fields, arguments->restored, "Print only warnings and errors");
  command->get_option("--output")->description("File to write (required): FILE.onnx");
  command->callback([=, &status] {
    require_given("--output FILE.onnx", arguments->exported.output.string());
    status = run_restored(invocation, arguments->restored,
                          [&](job::Session& session) { return quantize(session, *arguments); });
  });
}

}  // namespace lockstep::inline v0::apps
