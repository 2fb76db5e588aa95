// lockstep generate: text from a model that predicts the next token, or describes an image.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/caption_image.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/generated_text.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/base/atomic_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/text/target_text.h"
#include "lockstep/data/text/tokenizer.h"
#include "lockstep/device/device.h"
#include "lockstep/job/device_share.h"
#include "lockstep/job/session.h"
#include "lockstep/model/generation.h"
#include "lockstep/strategy/fit/data_fit.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string prompt;
  std::vector<std::string> images;  ///< files to describe
  std::string device = "auto";
  std::string path = "-";     ///< of the text; "-" is standard output
  std::int64_t tokens = 100;  ///< the most that are generated
  model::SamplingOptions sampling;
  model::Precision precision = model::Precision::float32;
  OutputArguments output;

  bool is_printed() const { return path == "-"; }
};

struct Generated {
  std::string text;          ///< after the prompt
  std::int64_t tokens = 0;   ///< without the end token
  bool reached_end = false;  ///< the model generated the end token
  double seconds = 0;
};

/// The tokenizer of the training. Throws Error (checkpoint), and Error (input) unless there are
/// images for captions alone.
std::shared_ptr<const data::Tokenizer> tokenizer_of(
    const checkpoint::RestoredCheckpoint& checkpoint, const GenerateArguments& arguments) {
  const auto names = strategy::DataNames::of(checkpoint.state.configuration);
  if (names.text == nullptr)
    throw Error(ErrorCategory::checkpoint, checkpoint.path.string(),
                "expected a model that was trained on text (--data text:FILES)",
                "it was trained on other data");
  if (const bool describes = !names.text->image.empty(); describes == arguments.images.empty())
    throw Error(ErrorCategory::input, describes ? checkpoint.path.string() : "image",
                describes ? "expected --image FILE, because the model describes images"
                          : "expected a model that was trained on captions of images (--data "
                            "text:FILE:image=COLUMN,target=COLUMN)",
                describes ? "it was not given" : "it was trained on text alone");
  return names.text->open();
}

/// The tokens to begin with. Throws Error (input).
std::vector<std::int32_t> prompt_tokens(const data::Tokenizer& tokenizer,
                                        const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  try {
    tokens = tokenizer.encode(prompt);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "prompt", error.message().expected, error.message().actual);
  }
  if (tokens.empty() && tokenizer.end_token()) return {*tokenizer.end_token()};
  if (tokens.empty())
    throw Error(
        ErrorCategory::input, "prompt",
        fmt::format("expected --prompt TEXT, because the tokenizer ({}) has no token between "
                    "texts to begin with",
                    tokenizer.name()),
        "got no text");
  return tokens;
}

/// Generates, and passes the prompt and each piece of the text on as it arrives.
Generated generate_text(model::CompiledModel& model, const GenerateArguments& arguments,
                        const std::shared_ptr<const data::Tokenizer>& tokenizer,
                        const std::function<void(const std::string&)>& sink) {
  model::Generator generator(model, tokenizer->vocabulary_size());
  generator.start(prompt_tokens(*tokenizer, arguments.prompt));
  GeneratedText text(tokenizer, generator.tokens().back());
  Generated generated;
  const auto take = [&](const std::string& piece) {
    generated.text += piece;
    sink(piece);
  };
  sink(arguments.prompt);
  const auto begin = std::chrono::steady_clock::now();
  while (generated.tokens < arguments.tokens) {
    const std::int32_t token = generator.next(arguments.sampling);
    generated.reached_end = token == tokenizer->end_token();
    if (generated.reached_end) break;
    ++generated.tokens;
    take(text.add(token));
  }
  take(text.finish());
  generated.seconds = seconds_since(begin);
  return generated;
}

void report(const GenerateArguments& arguments, const checkpoint::RestoredCheckpoint& checkpoint,
            const Generated& generated) {
  const std::string path = checkpoint.path.string();
  if (arguments.output.json) {
    nlohmann::ordered_json event = {{"event", "generate"},
                                    {"checkpoint", path},
                                    {"step", checkpoint.state.step},
                                    {"prompt", arguments.prompt}};
    if (arguments.is_printed())
      event["text"] = generated.text;
    else
      event["output"] = arguments.path;
    event["tokens"] = generated.tokens;
    event["stop"] = generated.reached_end ? "end" : "length";
    event["seconds"] = generated.seconds;
    if (generated.seconds > 0)
      event["tokens_per_second"] = static_cast<double>(generated.tokens) / generated.seconds;
    event["time"] = seconds_since_1970();
    fmt::print("{}\n", dump_json(event));
  } else if (!arguments.output.quiet) {
    fmt::print(stderr, "lockstep: generated {} in {:.1f} s with {} (step {}), written to {}\n",
               counted(generated.tokens, "token"), generated.seconds, path, checkpoint.state.step,
               arguments.is_printed() ? "standard output" : arguments.path);
  }
}

/// The caption of an image.
Generated generate_caption(model::CompiledModel& model, const GenerateArguments& arguments,
                           const data::Tokenizer& tokenizer, const ModelSource& source,
                           const std::string& file) {
  const auto begin = std::chrono::steady_clock::now();
  const auto around = data::TargetTokens::of(tokenizer);
  const auto inputs = model.network().inputs();
  const auto image = std::ranges::find(inputs, ElementType::float32, &model::NetworkInput::type);
  if (image == inputs.end())
    throw Error(ErrorCategory::input, model.network().name(), "expected a network of images",
                "it reads none");
  model::Generator generator(model, around.vocabulary_size);
  const std::vector<float> features = read_image(file, source, image->shape);
  generator.start({around.begin}, {{.features = features}});
  const std::int64_t positions = model.network().output_shape().front();
  Generated generated;
  std::vector<std::int32_t> tokens;
  while (generated.tokens < std::min(arguments.tokens, positions)) {
    const std::int32_t token = generator.next(arguments.sampling);
    generated.reached_end = token == around.end;
    if (generated.reached_end) break;
    ++generated.tokens;
    // The tokens around texts may not be of the tokenizer.
    if (token < tokenizer.vocabulary_size()) tokens.push_back(token);
  }
  std::string bytes = tokenizer.decode(tokens);
  generated.text = take_characters(bytes);
  generated.seconds = seconds_since(begin);
  return generated;
}

void report_caption(const GenerateArguments& arguments,
                    const checkpoint::RestoredCheckpoint& checkpoint, const std::string& image,
                    const Generated& generated) {
  nlohmann::ordered_json event = {{"event", "generate"},
                                  {"checkpoint", checkpoint.path.string()},
                                  {"step", checkpoint.state.step},
                                  {"image", encode_bytes(image)}};
  if (arguments.is_printed())
    event["text"] = generated.text;
  else
    event["output"] = arguments.path;
  event["tokens"] = generated.tokens;
  event["stop"] = generated.reached_end ? "end" : "length";
  event["seconds"] = generated.seconds;
  event["time"] = seconds_since_1970();
  fmt::print("{}\n", dump_json(event));
}

/// A line for each image.
void describe_images(const GenerateArguments& arguments, const ModelSource& source,
                     const checkpoint::RestoredCheckpoint& checkpoint,
                     const data::Tokenizer& tokenizer, model::CompiledModel& model) {
  std::optional<AtomicFile> file;
  if (!arguments.is_printed()) file.emplace(arguments.path);
  Generated all;
  for (const std::string& image : arguments.images) {
    const Generated one = generate_caption(model, arguments, tokenizer, source, image);
    all.tokens += one.tokens;
    all.seconds += one.seconds;
    if (file) file->write(one.text + "\n");
    if (arguments.output.json) report_caption(arguments, checkpoint, image, one);
    if (!file && !arguments.output.json) fmt::print("{}\n", one.text);
  }
  if (file) file->commit();
  if (!arguments.output.json) report(arguments, checkpoint, all);
}

/// The only device of --devices.
device::Device chosen_device(const job::Session& session, const std::string& name) {
  const auto devices = job::choose_devices(session, name);
  if (name != "auto" && devices.size() != 1)
    throw Error(ErrorCategory::input, "devices", "expected one device, such as gpu:0",
                fmt::format("got \"{}\"", name));
  return devices.front();
}

int generate(job::Session& session, const GenerateArguments& arguments) {
  strategy::OneDeviceStrategy strategy(session, chosen_device(session, arguments.device));
  const ModelSource source = model_of_checkpoint(strategy, arguments.checkpoint);
  strategy::Trainer trainer(
      strategy, source.make(),
      {.loss = source.loss, .losses = source.losses, .precision = arguments.precision});
  const checkpoint::RestoredCheckpoint checkpoint = trainer.restore(arguments.checkpoint);
  const auto tokenizer = tokenizer_of(checkpoint, arguments);
  if (!arguments.images.empty()) {
    trainer.replicas().run([&](strategy::Replica& replica, int) {
      describe_images(arguments, source, checkpoint, *tokenizer, replica.model());
    });
    return 0;
  }
  std::optional<AtomicFile> file;
  if (!arguments.is_printed()) file.emplace(arguments.path);
  const bool is_shown = arguments.is_printed() && !arguments.output.json;
  bool ends_line = false;
  const auto write = [&](const std::string& piece) {
    if (file) file->write(piece);
    if (!is_shown || piece.empty()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);  // as it arrives
    ends_line = piece.ends_with('\n');
  };
  Generated generated;
  trainer.replicas().run([&](strategy::Replica& replica, int) {
    generated = generate_text(replica.model(), arguments, tokenizer, write);
  });
  if (is_shown && !ends_line) fmt::print("\n");
  if (file) file->commit();
  report(arguments, checkpoint, generated);
  return 0;
}

void add_sampling_options(CLI::App& command, GenerateArguments& arguments) {
  model::SamplingOptions& sampling = arguments.sampling;
  command.option_defaults()->group("Sampling");
  add_between<double>(command, "--temperature", sampling.temperature, 0.0, std::nullopt,
                      "Divides the logits: below 1 the text is more probable, above 1 more varied. "
                      "0: always the most probable token")
      ->default_str("1");
  add_at_least(command, "--top-k", sampling.top_k, 1,
               "Draw from the K most probable tokens only (default: all)")
      ->type_name("K");
  add_between<double>(command, "--top-p", sampling.top_p, 0.0, 1.0,
                      "Draw from the fewest most probable tokens whose probabilities sum to P only")
      ->type_name("P")
      ->default_str("1");
  add_seed(command, sampling.seed, "Seed of the draws: the same seed gives the same text");
}

}  // namespace

void add_generate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "generate",
      "Generate text with a checkpoint that was trained on text, or captions of images\n\n"
      "Examples:\n"
      "  lockstep generate --checkpoint run --prompt 'The ' --tokens 200 --temperature 0.8\n"
      "  lockstep generate --checkpoint captions --image a.png b.jpg --temperature 0\n");
  const auto arguments = std::make_shared<GenerateArguments>();
  command->get_help_ptr()->group(kCommonOptions);
  command->option_defaults()->group(kCommonOptions);
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "A directory of checkpoints (the newest is used), DIR:best (the best one of a "
                   "training with --keep-best), or a single checkpoint; required")
      ->type_name("DIR");
  command
      ->add_option("--prompt", arguments->prompt,
                   "Text to continue, which is written before what is generated. May be left out "
                   "if the tokenizer has a token between texts, such as <|endoftext|>")
      ->type_name("WORDS");
  command
      ->add_option("--image", arguments->images,
                   "Images to describe, JPEG or PNG, with a model that was trained on captions; "
                   "each caption is a line")
      ->type_name("FILE")
      ->excludes("--prompt");
  add_at_least(*command, "--tokens", arguments->tokens, 1,
               "Number of tokens to generate; fewer if the model ends the text")
      ->default_str(std::to_string(arguments->tokens));
  command
      ->add_option("--devices", arguments->device,
                   "Device: cpu:0, gpu:0, or auto, the first GPU or else the CPU")
      ->type_name("DEVICE")
      ->capture_default_str();
  add_sampling_options(*command, *arguments);
  add_precision_option(*command, arguments->precision);
  command
      ->add_option("--output", arguments->path,
                   "File for the text, or - for standard output, where it appears as it is "
                   "generated")
      ->type_name("FILE")
      ->capture_default_str()
      ->group("Output");
  add_output_options(*command, arguments->output, "Print only warnings, errors and the text");
  command->callback([=, &status] {
    require_given("--checkpoint DIR", arguments->checkpoint);
    job::Session session(invocation.argc, invocation.argv, {.quiet = arguments->output.quiet});
    status = session.guard([&] { return generate(session, *arguments); });
  });
}

}  // namespace lockstep::apps
