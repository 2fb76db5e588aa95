// The network of a command: from a name, a file (JSON, ONNX, TorchScript), or a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer_options.h"

namespace CLI {
class App;
}

namespace lockstep::apps {

/// What the user says about the code of a checkpoint. A TorchScript file is a program.
struct CodeArguments {
  std::string script;       ///< --model: the file; empty: the one in the checkpoint
  bool is_trusted = false;  ///< --trust-code: the one in the checkpoint, whoever may write it
};

/// Everything that is needed to construct a network.
struct ModelSource {
  /// Its key in the configuration that checkpoints store.
  static constexpr const char* kKey = "model";

  std::string name;               ///< as given, "cnn" or "net.json"; or the file it was read from
  std::string description = {};   ///< JSON text; empty for a named network
  model::Shape input_shape = {};  ///< of the first input
  std::vector<zoo::DataInput> inputs = {};  ///< of the data; empty for a stored network
  std::int64_t outputs = 0;                 ///< classes (of a position), or targets of a regression
  model::Loss loss = {};                    ///< the first of the training
  /// All losses of the training, of named outputs; empty if `loss` is the only one, of the first
  /// output.
  std::vector<strategy::OutputLoss> losses = {};
  /// More than `losses` if a checkpoint does not describe all of them: its program has a loss of
  /// its own.
  std::int64_t loss_count = 1;
  std::string images = kImagesAsStored;               ///< of the training
  std::optional<bool> reads_pixels = {};              ///< SourceInfo::has_images, if known
  std::optional<data::ImageRecipe> test_images = {};  ///< the recipe, if the checkpoint has one
  /// How the training data were changed in ways that only their program can repeat: "2 maps"; empty
  /// if they were not.
  std::string mapped = {};
  /// The Example feature that was the input, if the training data were TFRecord files, and its
  /// shape, or that of images as they are stored.
  std::string input_feature = {};
  model::Shape stored_shape = {};
  /// If `name` is a TorchScript file: its xxh3-64. Such a source has `inputs` when stored, too.
  std::optional<std::uint64_t> script = {};
  /// The contents of that file; null in a stored source until read_code().
  std::shared_ptr<const std::string> code = {};

  /// Runs the TorchScript file, if it is one. Throws Error (input).
  model::Network make() const;
  /// What checkpoints store under kKey, in addition to the network, which the trainer stores. Of a
  /// TorchScript file: its path and its hash, the inputs and the losses.
  nlohmann::json to_json() const;
  /// The model that a checkpoint's configuration describes, written by `lockstep train` or by a
  /// trainer of the library. `where` is for the message of Error (checkpoint).
  static ModelSource of_configuration(const nlohmann::json& configuration,
                                      const std::string& where);
};

/// The network `name` (the value of --model) for samples of `spec`, with `loss` as the first of its
/// training. A file of ONNX becomes a description, as that of a JSON file; with `reset_head` its
/// last layer, if it is dense, has as many units as the data have classes. Throws Error (input).
ModelSource choose_model(const std::string& name, const data::SampleSpec& spec,
                         const model::Loss& loss, const std::string& images,
                         bool reset_head = false);

/// Whether `name`, a value of --model, is for a file of ONNX, which also has the initial weights.
bool is_onnx(std::string_view name);

/// The model of the checkpoint `path`, or of the newest checkpoint in the directory `path`. The
/// chief reads it, and the code as read_code(). Throws Error (checkpoint), and Error (input).
/// Collective.
ModelSource model_of_checkpoint(const strategy::Strategy& strategy,
                                const std::filesystem::path& path, const CodeArguments& code = {});

/// Sets `source.code` if the checkpoint `path`, of which `source` is the model, is of a TorchScript
/// file: `code.script`, or the one in the checkpoint; never a path that the checkpoint names.
/// Throws Error (checkpoint) if there is none, if another user may have written the one in the
/// checkpoint, which is not trusted, or if it is not the one of the training; Error (input) for a
/// `code.script` that the checkpoint does not need.
void read_code(ModelSource& source, const std::filesystem::path& path, const CodeArguments& code);

/// Throws Error (input) if ranks have different TorchScript files, whose parameters may have the
/// same names and shapes, and Error (checkpoint) if a training of `source` would resume from a
/// checkpoint of another one. Collective.
void check_script(const strategy::Strategy& strategy, const strategy::CheckpointPlan& plan,
                  const ModelSource& source);

}  // namespace lockstep::apps

namespace lockstep {

template <>
struct Fields<apps::CodeArguments> {
  using Options = apps::CodeArguments;
  static constexpr std::tuple list{
      Field{&Options::script,
            {"model", kCommonOptions,
             "The TorchScript file of the training, which is a program and is run (default: the "
             "one in the checkpoint)"},
            {},
            {.value = "FILE.pt"}},
      Field{&Options::is_trusted,
            {"trust_code", kCommonOptions,
             "Run the TorchScript file in the checkpoint, which is a program, even if another user "
             "may have written it"}}};
};

}  // namespace lockstep
