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

#include "apps/lockstep/command_line/arguments.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer_options.h"

namespace CLI {
class App;
}

namespace lockstep::inline v0::apps {

/// The user's options for the code of a checkpoint. A TorchScript file is a program.
struct CodeArguments {
  std::string script;       ///< --model: the file; empty: the copy in the checkpoint
  bool is_trusted = false;  ///< --trust-code: run the copy regardless of its permissions
};

/// The key, in the configuration of a checkpoint, of the options that were set and their values.
inline constexpr const char* kOptionsKey = "options";

/// The data required to construct a network.
struct ModelSource {
  /// Its key in the configuration that checkpoints store.
  static constexpr const char* kKey = "model";

  std::string name;                         ///< value of --model, such as "cnn" or "net.json"
  std::string description = {};             ///< JSON text; empty for a named network
  model::Shape input_shape = {};            ///< shape of the first input
  std::vector<zoo::DataInput> inputs = {};  ///< inputs of the data; empty for a stored network
  std::int64_t outputs = 0;  ///< number of classes (per position) or regression targets
  model::Loss loss = {};     ///< first loss of the training
  /// All losses of the training, with named outputs; empty if `loss` is the only one, on the first
  /// output.
  std::vector<strategy::OutputLoss> losses = {};
  /// More than `losses` has if a checkpoint does not describe all of them, because its program has
  /// a custom loss.
  std::int64_t loss_count = 1;
  std::string images = kImagesAsStored;               ///< --images of the training
  std::optional<bool> reads_pixels = {};              ///< SourceInfo::has_images, if known
  std::optional<data::ImageRecipe> test_images = {};  ///< the recipe, if the checkpoint has one
  /// Changes of the training data that only their program can repeat: "2 maps"; empty if none.
  std::string mapped = {};
  std::string metrics = {};  ///< --metrics of the training; empty: none, or no training of `train`
  bool autoencodes = false;  ///< --autoencoder of the training
  /// The input feature, if the training data were TFRecord files, and the shape in which it (or an
  /// image) is stored.
  std::string input_feature = {};
  model::Shape stored_shape = {};
  /// Hash (xxh3-64) of the TorchScript file `name`. Such a source stores its `inputs`.
  std::optional<std::uint64_t> script = {};
  /// The contents of that file; null in a stored source until read_code().
  std::shared_ptr<const std::string> code = {};

  /// Runs the TorchScript file, if it is one. Throws Error (input).
  model::Network make() const;
  /// The value that checkpoints store under kKey; the trainer stores the network itself. For a
  /// TorchScript file: its path and hash, the inputs and the losses.
  nlohmann::json to_json() const;
  /// The model that a checkpoint's configuration describes, written by `lockstep train` or by a
  /// trainer of the library. `where` is for the message of Error (checkpoint).
  static ModelSource of_configuration(const nlohmann::json& configuration,
                                      const std::string& where);
};

/// The network `name` (the value of --model) for samples of `spec`, with `loss` as its first loss.
/// An ONNX file is converted to a description, as in JSON files; with `reset_head`, its last layer,
/// if dense, gets one unit per class of the data. Throws Error (input).
ModelSource choose_model(const std::string& name, const data::SampleSpec& spec,
                         const model::Loss& loss, const std::string& images,
                         bool reset_head = false);

/// Whether `name`, a value of --model, is an ONNX file, which also contains the initial weights.
bool is_onnx(std::string_view name);

/// The model of the checkpoint `path`, or of the newest checkpoint in the directory `path`. The
/// chief reads it, and the code as read_code(). Throws Error (checkpoint), and Error (input).
/// Collective.
ModelSource model_of_checkpoint(const strategy::Strategy& strategy,
                                const std::filesystem::path& path, const CodeArguments& code = {});

/// Sets `source.code` if `source`, the model of the checkpoint `path`, is a TorchScript file: to
/// `code.script`, or the copy in the checkpoint; a path that the checkpoint names is never read.
/// Throws Error (checkpoint) if there is no file, if another user may have written an untrusted
/// copy, or if it is not the file of the training; Error (input) for a superfluous `code.script`.
void read_code(ModelSource& source, const std::filesystem::path& path, const CodeArguments& code);

/// Throws Error (input) if ranks have different TorchScript files, whose parameters may have the
/// same names and shapes, and Error (checkpoint) if a training of `source` would resume from a
/// checkpoint of another one. Collective.
void check_script(const strategy::Strategy& strategy, const train::CheckpointPlan& plan,
                  const ModelSource& source);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

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

}  // namespace lockstep::inline v0
