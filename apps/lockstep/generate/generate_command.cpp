// lockstep generate: text from a model that predicts the next token, also from another text or an
// image.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/data/caption_image.h"
#include "apps/lockstep/data/source_texts.h"
#include "apps/lockstep/generate/generated_output.h"
#include "apps/lockstep/generate/text_generation.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/device/device.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/job/session.h"
#include "lockstep/model/compiled/generation.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/data_warnings.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string source;               ///< source text of a pair; empty: the texts of source_file
  std::string source_file;          ///< file with one source per line; empty: none
  std::vector<std::string> images;  ///< files to describe
  std::string device = "auto";
  std::string path = "-";  ///< file for the text; "-" is standard output
  GenerateOptions text;
  model::ComputeOptions compute;  ///< --precision
  OutputArguments output;

  bool is_printed() const { return path == "-"; }
  bool has_sources() const { return !source.empty() || !source_file.empty(); }
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
struct Fields<apps::GenerateOptions> {
  using Options = apps::GenerateOptions;
  static constexpr std::tuple list{
      Field{&Options::prompt,
            {"prompt", kCommonOptions,
             "Text to continue, which is written before what is generated. Optional if the "
             "tokenizer has a token between texts, such as <|endoftext|>, and with --source, "
             "--source-file and --image"},
            {},
            {.value = "WORDS"}},
      Field{&Options::tokens,
            {"tokens", kCommonOptions,
             "Largest number of tokens to generate. A text is shorter if the model ends it; one "
             "from --source or --image has at most the length of those in the training"},
            {.min = 1}},
      Part{&Options::sampling},
      Field{&Options::beams,
            {"beams", "Beam search",
             "Do not draw tokens, but continue the N most probable texts at once and write the "
             "best one. 1: always the most probable token; 0: draw tokens"},
            {.min = 0}},
      Field{&Options::length_penalty,
            {"length_penalty", "Beam search",
             "A: the log-probability of a text of n tokens is divided by ((5 + n) / 6)^A. Larger "
             "values prefer longer texts"},
            {.min = 0},
            {.value = "A", .needs = "beams"}}};
};

/// Options of `lockstep generate`.
template <>
struct Fields<apps::GenerateArguments> {
  using Options = apps::GenerateArguments;
  static constexpr std::tuple list{
      Field{&Options::checkpoint, apps::kCheckpoint, {}, {.value = "DIR"}},
      Field{&Options::source,
            {"source", kCommonOptions,
             "Text from which a model of pairs of texts generates another; --prompt is then the "
             "beginning of the generated text"},
            {},
            {.value = "WORDS"}},
      Field{&Options::source_file,
            {"source_file", kCommonOptions,
             "File with one such text per line, or - for standard input. The output has a line for "
             "each"},
            {},
            {.value = "FILE"}},
      TextField<Options>{
          {"image", kCommonOptions,
           "Images, JPEG or PNG, that a model of captions describes; --prompt is then the "
           "beginning "
           "of each caption. The output has a line for each"},
          [](Options& options, std::string_view, std::span<const std::string> values) {
            options.images.assign(values.begin(), values.end());
          },
          [](const Options& options) { return options.images; },
          {.value = "FILE", .repeats = true}},
      Part{&Options::text},
      Field{&Options::device,
            {"devices", kCommonOptions,
             "Device: cpu:0, gpu:0, or auto, the first GPU or else the CPU"},
            {},
            {.value = "DEVICE"}},
      Field{&Options::path,
            {"output", "Output",
             "File for the text, or - for standard output, where it appears as it is generated"},
            {},
            {.value = "FILE"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

/// Those of the training. Throws Error (checkpoint).
GeneratedTokens tokens_of(const strategy::Strategy& strategy,
                          const checkpoint::RestoredCheckpoint& checkpoint) {
  const auto names = train::DataNames::of(checkpoint.state);
  if (names.text == nullptr)
    throw Error(ErrorCategory::checkpoint, checkpoint.path.string(),
                "expected a model that was trained on text (--data text:FILES)",
                "it was trained on other data");
  train::log_tokenizer_source(strategy, *names.text);
  return GeneratedTokens::of(*names.text);
}

/// `context` describes what the text is generated from.
void report_json(const GenerateArguments& arguments,
                 const checkpoint::RestoredCheckpoint& checkpoint,
                 const nlohmann::ordered_json& context, const Generated& generated) {
  nlohmann::ordered_json event = {{"event", "generate"},
                                  {"checkpoint", checkpoint.path.string()},
                                  {"step", checkpoint.state.step}};
  event.update(context);
  event["prompt"] = arguments.text.prompt;
  if (arguments.is_printed())
    event["text"] = generated.text;
  else
    event["output"] = arguments.path;
  event["tokens"] = generated.tokens;
  event["stop"] = generated.reached_end ? "end" : "length";
  if (generated.beam) {
    event["log_probability"] = generated.beam->log_probability;
    event["score"] = generated.beam->score;
  }
  event["seconds"] = generated.seconds;
  if (generated.seconds > 0)
    event["tokens_per_second"] = static_cast<double>(generated.tokens) / generated.seconds;
  event["time"] = seconds_since_1970();
  fmt::print("{}\n", dump_json(event));
}

/// The shape of the image that is the only input of a network besides its tokens. Throws Error
/// (input) for other inputs, and for images where there should be none; Error (data) for a file
/// that cannot be opened.
model::Shape image_shape(const GenerateArguments& arguments, const GeneratedTokens& tokens,
                         const std::vector<model::NetworkInput>& inputs) {
  if (tokens.are_captions == arguments.images.empty())
    throw Error(ErrorCategory::input, "image",
                tokens.are_captions
                    ? "expected --image FILE for a model of captions"
                    : "expected a model of captions (--data text:FILE:image=A,target=B)",
                tokens.are_captions ? "got none" : "it was trained on texts without images");
  if (!tokens.are_captions) return {};
  for (const std::string& file : arguments.images) InputFile{file};  // before the first caption
  std::vector<std::string> names;
  for (const model::NetworkInput& input : inputs) names.push_back(input.name);
  if (inputs.size() != 1 || inputs.front().type != ElementType::float32)
    throw Error(ErrorCategory::input, "image", "expected a network that reads an image and tokens",
                fmt::format("got the inputs tokens{}{}", names.empty() ? "" : ", ",
                            fmt::join(names, ", ")));
  return inputs.front().shape;
}

/// The sources for a network with these inputs besides its tokens; none for a model without them.
std::vector<SourceText> sources_of(const GenerateArguments& arguments,
                                   const GeneratedTokens& tokens,
                                   const std::vector<model::NetworkInput>& inputs) {
  const bool has_sources = tokens.are_targets && !tokens.are_captions;
  if (has_sources != arguments.has_sources())
    throw Error(ErrorCategory::input, "source",
                has_sources
                    ? "expected --source TEXT or --source-file FILE for a model of pairs of texts"
                    : "expected a model of pairs of texts (--data text:FILE:source=A,target=B)",
                has_sources ? "got neither" : "it was trained on texts without sources");
  std::vector<SourceText> sources;
  if (!arguments.source.empty())
    sources.emplace_back(arguments.source, *tokens.tokenizer, inputs, "source");
  if (arguments.source_file.empty()) return sources;
  for (const std::string& line : read_source_lines(arguments.source_file))
    sources.emplace_back(
        line, *tokens.tokenizer, inputs,
        fmt::format("{}: line {}", name_of_sources(arguments.source_file), sources.size() + 1));
  return sources;
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
  const ModelSource trained = model_of_checkpoint(strategy, arguments.checkpoint);
  train::Trainer trainer(
      strategy, trained.make(),
      {.loss = trained.loss, .losses = trained.losses, .compute = arguments.compute});
  const checkpoint::RestoredCheckpoint checkpoint = trainer.restore(arguments.checkpoint);
  const GeneratedTokens tokens = tokens_of(strategy, checkpoint);
  GeneratedOutput output({.path = arguments.path,
                          .is_shown = !arguments.output.json,
                          .are_lines = tokens.are_targets});
  std::int64_t texts = 0;
  std::int64_t cut = 0;
  Generated all;
  trainer.replicas().run([&](strategy::Replica& replica, int) {
    model::Generator generator(replica.model(), tokens.vocabulary_size);
    const model::Shape shape = image_shape(arguments, tokens, generator.context());
    const std::vector<SourceText> sources = sources_of(arguments, tokens, generator.context());
    const auto generate_one = [&](std::vector<model::InputView> context,
                                  const nlohmann::ordered_json& description) {
      const Generated generated =
          generate_text(generator, arguments.text, tokens, std::move(context),
                        [&](const std::string& piece) { output.write(piece); });
      output.end_text();
      if (arguments.output.json) report_json(arguments, checkpoint, description, generated);
      ++texts;
      all.tokens += generated.tokens;
      all.seconds += generated.seconds;
    };
    if (!tokens.are_targets) generate_one({}, nlohmann::ordered_json::object());
    for (const SourceText& source : sources) {
      generate_one(source.context(),
                   {{"source", source.text()}, {"source_is_cut", source.is_cut()}});
      if (source.is_cut()) ++cut;
    }
    for (const std::string& file : arguments.images) {
      const std::vector<float> image = read_image(file, trained, shape);
      generate_one({{.features = image}},
                   nlohmann::ordered_json::object({{"image", encode_bytes(file)}}));
    }
  });
  output.commit();
  if (!arguments.output.json && !arguments.output.quiet)
    fmt::print(stderr, "lockstep: generated {}{} in {:.1f} s with {} (step {}), written to {}{}\n",
               tokens.are_targets ? fmt::format("{} of ", counted(texts, "text")) : "",
               counted(all.tokens, "token"), all.seconds, printable(checkpoint.path.native()),
               checkpoint.state.step,
               arguments.is_printed() ? "standard output" : printable(arguments.path),
               cut == 0 ? "" : fmt::format("; {} cut", counted(cut, "longer source")));
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "generate",
      "Generate text with a checkpoint that was trained on text, pairs of texts, or captions\n\n"
      "Examples:\n"
      "  lockstep generate --checkpoint run --prompt 'The ' --top-p 0.9\n"
      "  lockstep generate --checkpoint captions --image a.png b.jpg --beams 3\n");
  const auto arguments = std::make_shared<GenerateArguments>();
  command->get_help_ptr()->group(kCommonOptions);
  add_fields(*command, fields_of(*arguments));
  add_fields(*command, fields_with(fields_of(arguments->compute), {"precision"}));
  command->get_option("--image")->expected(1, -1)->allow_extra_args();
  command->get_option("--source-file")->excludes("--source");
  for (const char* draw : {"--temperature", "--top-k", "--top-p", "--seed"})
    command->get_option("--beams")->excludes(draw);
  add_output_options(*command, arguments->output, "Print only warnings, errors and the text");
  command->callback([=, &status] {
    require_given("--checkpoint DIR", arguments->checkpoint);
    check_needs(fields_of(*arguments));
    status = run_session(invocation, {.quiet = arguments->output.quiet},
                         [&](job::Session& session) { return generate(session, *arguments); });
  });
}

}  // namespace lockstep::inline v0::apps
