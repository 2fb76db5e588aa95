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
  std::string format = "auto";  ///< "auto": determined by the extension of `output`
  bool keep_normalization = false;
  bool with_preprocessing = false;
  std::string weights = "float32";
  std::string layout = "file";
  CodeArguments code;  ///< `script` is unused: there is no --model
};

/// Declares the options of `lockstep checkpoint export`, except PATH.
void add_export_options(CLI::App& command, ExportArguments& arguments);

/// Throws Error (input) for contradictory options, and for an output whose extension belongs to no
/// format.
void check_export(const ExportArguments& arguments);

/// Exports the complete and undamaged checkpoint `checkpoint`, and prints one line to `out`. The
/// output is written atomically. Throws Error.
void export_checkpoint(const std::filesystem::path& checkpoint, const ExportArguments& arguments,
                       std::ostream& out);

/// A model as used by evaluate and predict: `parameters` are the moving averages if the training
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

/// Options for the export of `trained` as ONNX: its metadata, and the preprocessing if requested.
/// Throws Error (input) if ONNX has no operators for the preprocessing.
onnx::ExportOptions onnx_options(const TrainedModel& trained, const ExportArguments& arguments);

/// Writes the file (or with the layout "triton" the folder) atomically, and returns the size of the
/// model in bytes. Throws Error.
std::uint64_t write_onnx(const onnx::Model& model, const TrainedModel& trained,
                         const ExportArguments& arguments);

}  // namespace lockstep::apps
