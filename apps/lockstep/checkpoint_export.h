// lockstep checkpoint export: a trained model as a file for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/lockstep/model_source.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/model/network.h"
#include "lockstep/onnx/export.h"
#include "lockstep/strategy/fit/data_names.h"

namespace CLI {
class App;
}

namespace lockstep::apps {

struct ExportArguments {
  std::filesystem::path output;
  std::string format = "auto";  ///< by the ending of `output`
  bool keep_normalization = false;
  bool with_preprocessing = false;
  std::string weights = "float32";
  std::string layout = "file";
  CodeArguments code;  ///< without --model
};

/// Declares the options of `lockstep checkpoint export` but PATH.
void add_export_options(CLI::App& command, ExportArguments& arguments);

/// Throws Error (input) for options that do not fit each other, and for an output that ends as none
/// of the formats.
void check_export(const ExportArguments& arguments);

/// Exports the complete and undamaged checkpoint `checkpoint`, and prints a line about it to `out`.
/// The output appears whole or not at all. Throws Error.
void export_checkpoint(const std::filesystem::path& checkpoint, const ExportArguments& arguments,
                       std::ostream& out);

/// A model as evaluate and predict use it: the parameters are their moving averages if the training
/// had them.
struct TrainedModel {
  ModelSource source;
  model::Network network;
  std::vector<float> parameters;
  std::vector<float> buffers;
  checkpoint::TrainingState state;
  strategy::DataNames names;
};

/// Declares --with-preprocessing and --layout.
void add_onnx_options(CLI::App& command, ExportArguments& arguments);

/// How `trained` is exported as ONNX: with its metadata, and the preprocessing if the arguments ask
/// for it, which throws Error (input) if ONNX has no operators for it.
onnx::ExportOptions onnx_options(const TrainedModel& trained, const ExportArguments& arguments);

/// Writes the file, or with the layout "triton" the folder, and returns the bytes of the model. It
/// appears whole or not at all. Throws Error.
std::uint64_t write_onnx(const onnx::Model& model, const TrainedModel& trained,
                         const ExportArguments& arguments);

}  // namespace lockstep::apps
