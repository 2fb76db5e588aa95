// lockstep checkpoint export: a trained model as a file for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/lockstep/model_source.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/model/network/network.h"
#include "lockstep/onnx/export.h"
#include "lockstep/train/input/data_names.h"

namespace lockstep::inline v0::apps {

/// The format of an exported file; `automatic` follows from its ending.
enum class ExportFormat { automatic, safetensors, onnx, torch };
/// What an ONNX export writes: one file, or a folder of a Triton model repository.
enum class ExportLayout { file, triton };

struct ExportArguments {
  std::filesystem::path output;
  ExportFormat format = ExportFormat::automatic;
  bool keep_normalization = false;
  bool with_preprocessing = false;
  bool strip_metadata = false;
  onnx::WeightStorage weights = onnx::WeightStorage::float32;
  ExportLayout layout = ExportLayout::file;
  CodeArguments code;  ///< `script` is unused: there is no --model
};

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
  train::DataNames names;
};

/// Options for the export of `trained` as ONNX: its metadata, and the preprocessing if requested.
/// Throws Error (input) if ONNX has no operators for the preprocessing.
onnx::ExportOptions onnx_options(const TrainedModel& trained, const ExportArguments& arguments);

/// Writes the file (or with the layout "triton" the folder) atomically, and returns the size of the
/// model in bytes. Throws Error.
std::uint64_t write_onnx(const onnx::Model& model, const TrainedModel& trained,
                         const ExportArguments& arguments);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<apps::ExportFormat> =
    enum_names<apps::ExportFormat>({{apps::ExportFormat::automatic, "auto"},
                                    {apps::ExportFormat::safetensors, "safetensors"},
                                    {apps::ExportFormat::onnx, "onnx"},
                                    {apps::ExportFormat::torch, "torch"}});
template <>
inline constexpr auto kNamesOf<apps::ExportLayout> = enum_names<apps::ExportLayout>(
    {{apps::ExportLayout::file, "file"}, {apps::ExportLayout::triton, "triton"}});

/// Options of `lockstep checkpoint export`; `quantize` has some of them.
template <>
struct Fields<apps::ExportArguments> {
  using Options = apps::ExportArguments;
  static constexpr std::tuple list{
      Field{&Options::output,
            {"output", kCommonOptions, "File to write: FILE.safetensors, FILE.onnx or FILE.pt"},
            {},
            {.value = "PATH"}},
      Field{&Options::format,
            {"format", "File",
             "Format of the file; auto: by its ending. torch is a state_dict for torch.load"},
            {},
            {.value = "FORMAT"}},
      Field{&Options::keep_normalization,
            {"no_fold", "File",
             "onnx: keep batch normalizations, instead of folding them into the layers before "
             "them, and dropouts, to train on from the file"}},
      Field{&Options::weights,
            {"weights", "File",
             "onnx: how arrays of weights are stored. float16 makes half of the file; programs "
             "still compute in float32"}},
      Field{&Options::with_preprocessing,
            {"with_preprocessing", "File",
             "onnx: the graph prepares its inputs: it normalizes uint8 pixels, and makes features "
             "of the columns of a table: numbers, words (string), dates (int64 seconds)"}},
      Field{&Options::strip_metadata,
            {"strip_metadata", "File",
             "onnx, safetensors: write no metadata about the training and its data (step, settings "
             "of images, columns and statistics of tables, tokenizer)"}},
      Field{&Options::layout,
            {"layout", "File",
             "onnx: write one file, or a folder --output for a model repository of NVIDIA Triton"}},
      Part{&Options::code}};
};

}  // namespace lockstep::inline v0
