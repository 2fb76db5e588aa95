// lockstep generate: text from a model that predicts the next token, also from another text or an
// image.
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
#include <utility>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/caption_image.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/generated_text.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/source_texts.h"
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
#include "lockstep/model/beam_search.h"
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
  std::string source;               ///< a text of a pair; empty: those of the file
  std::string source_file;          ///< of one source per line; empty: none
  std::vector<std::string> images;  ///< files to describe
  std::string device = "auto";
  std::string path = "-";     ///< of the text; "-" is standard output
  std::int64_t tokens = 100;  ///< the most that are generated
  model::SamplingOptions sampling;
  std::int64_t beams = 0;  ///< 0: tokens are drawn
  double length_penalty = 0;
  model::Precision precision = model::Precision::float32;
  OutputArguments output;

  bool is_printed() const { return path == "-"; }
  bool has_sources() const { return !source.empty() || !source_file.empty(); }
};

/// The tokens of a training.
struct GeneratedTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  bool are_targets = false;                ///< of pairs of texts, or captions
  bool are_captions = false;               ///< of images
  std::int64_t vocabulary_size = 0;        ///< number of logits
  std::optional<std::int32_t> begin = {};  ///< before a text; nullopt: there is none
  std::optional<std::int32_t> end = {};    ///< after a text; nullopt: there is none
};

struct Generated {
  std::string text;          ///< after the prompt
  std::int64_t tokens = 0;   ///< without the end token
  bool reached_end = false;  ///< the model generated the end token
  double seconds = 0;
  std::optional<model::Beam> beam = {};  ///< with --beams
};

/// Those of the training. Throws Error (checkpoint).
GeneratedTokens tokens_of(const strategy::Strategy& strategy,
                          const checkpoint::RestoredCheckpoint& checkpoint) {
  const auto names = strategy::DataNames::of(checkpoint.state);
  if (names.text == nullptr)
    throw Error(ErrorCategory::checkpoint, checkpoint.path.string(),
                "expected a model that was trained on text (--data text:FILES)",
                "it was trained on other data");
  strategy::note_tokenizer(strategy, *names.text);
  GeneratedTokens tokens{.tokenizer = names.text->open(),
                         .are_targets = !names.text->target.empty(),
                         .are_captions = !names.text->image.empty()};
  if (tokens.are_targets) {
    const auto targets = data::TargetVocabulary::of(*tokens.tokenizer);
    tokens.vocabulary_size = targets.size;
    tokens.begin = targets.begin;
    tokens.end = targets.end;
  } else {
    tokens.vocabulary_size = tokens.tokenizer->vocabulary_size();
    tokens.begin = tokens.end = tokens.tokenizer->end_token();
  }
  return tokens;
}

/// The tokens to begin with. Throws Error (input).
std::vector<std::int32_t> prompt_tokens(const GeneratedTokens& of, const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  try {
    tokens = of.tokenizer->encode(prompt);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "prompt", error.message().expected, error.message().actual);
  }
  if (of.are_targets || (tokens.empty() && of.begin))
    tokens.insert(tokens.begin(), of.begin.value());
  if (tokens.empty())
    throw Error(
        ErrorCategory::input, "prompt",
        fmt::format("expected --prompt TEXT, because the tokenizer ({}) has no token between "
                    "texts to begin with",
                    of.tokenizer->name()),
        "got no text");
  return tokens;
}

/// Generates in a context, and passes the prompt and each piece of the text on as it arrives.
Generated generate_text(model::Generator& generator, const GenerateArguments& arguments,
                        const GeneratedTokens& tokens, std::vector<model::InputView> context,
                        const std::function<void(const std::string&)>& sink) {
  const auto start = prompt_tokens(tokens, arguments.prompt);
  std::int64_t most = arguments.tokens;
  if (tokens.are_targets) {  // a window would lose the beginning
    most = std::min(most, generator.positions() - std::ssize(start) + 1);
    if (most < 1)
      throw Error(ErrorCategory::input, "prompt",
                  fmt::format("expected fewer than {}, as many as the network reads",
                              counted(generator.positions(), "token")),
                  fmt::format("got {}", start.size() - 1));
  }
  generator.start(start, std::move(context));
  const bool is_at_beginning = tokens.are_targets && start.size() == 1;
  GeneratedText text(tokens.tokenizer,
                     is_at_beginning ? std::nullopt : std::optional(start.back()));
  Generated generated;
  const auto take = [&](const std::string& piece) {
    generated.text += piece;
    sink(piece);
  };
  sink(arguments.prompt);
  const auto begin = std::chrono::steady_clock::now();
  if (arguments.beams > 0) {
    const auto beams = model::beam_search(generator, {.beams = arguments.beams,
                                                      .tokens = most,
                                                      .end = tokens.end,
                                                      .length_penalty = arguments.length_penalty});
    generated.beam = beams.front();
    generated.reached_end = generated.beam->has_ended;
    generated.tokens = std::ssize(generated.beam->tokens);
    for (const std::int32_t token : generated.beam->tokens) take(text.add(token));
  }
  while (!generated.beam && generated.tokens < most) {
    const std::int32_t token = generator.next(arguments.sampling);
    generated.reached_end = token == tokens.end;
    if (generated.reached_end) break;
    ++generated.tokens;
    take(text.add(token));
  }
  take(text.finish());
  generated.seconds = seconds_since(begin);
  return generated;
}

/// `context` describes what the text is generated from.
void report_json(const GenerateArguments& arguments,
                 const checkpoint::RestoredCheckpoint& checkpoint,
                 const nlohmann::ordered_json& context, const Generated& generated) {
  nlohmann::ordered_json event = {{"event", "generate"},
                                  {"checkpoint", checkpoint.path.string()},
                                  {"step", checkpoint.state.step}};
  event.update(context);
  event["prompt"] = arguments.prompt;
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

/// Where the texts go.
class GeneratedOutput {
 public:
  /// `are_lines`: each text is a line.
  GeneratedOutput(const GenerateArguments& arguments, bool are_lines)
      : is_shown_(arguments.is_printed() && !arguments.output.json), are_lines_(are_lines) {
    if (!arguments.is_printed()) file_.emplace(arguments.path);
  }
  void write(std::string piece) {
    if (are_lines_) std::ranges::replace(piece, '\n', ' ');
    put(piece);
  }
  void end_text() {
    if (are_lines_)
      put("\n");
    else if (is_shown_ && !ends_line_)
      fmt::print("\n");
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  void put(const std::string& piece) {
    if (file_) file_->write(piece);
    if (!is_shown_ || piece.empty()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);  // as it arrives
    ends_line_ = piece.ends_with('\n');
  }

  std::optional<AtomicFile> file_;
  bool is_shown_;
  bool are_lines_;
  bool ends_line_ = false;
};

/// The shape of the image that is the only input of a network besides its tokens. Throws Error
/// (input) for other inputs, and for images where there should be none.
model::Shape image_shape(const GenerateArguments& arguments, const GeneratedTokens& tokens,
                         const std::vector<model::NetworkInput>& inputs) {
  if (tokens.are_captions == arguments.images.empty())
    throw Error(ErrorCategory::input, "image",
                tokens.are_captions
                    ? "expected --image FILE for a model of captions"
                    : "expected a model of captions (--data text:FILE:image=A,target=B)",
                tokens.are_captions ? "got none" : "it was trained on texts without images");
  if (!tokens.are_captions) return {};
  if (inputs.size() != 1 || inputs.front().type != ElementType::float32)
    throw Error(ErrorCategory::input, "image", "expected a network that reads an image and tokens",
                "it reads something else");
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
    sources.emplace_back(line, *tokens.tokenizer, inputs,
                         fmt::format("{}: line {}", arguments.source_file, sources.size() + 1));
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
  strategy::Trainer trainer(
      strategy, trained.make(),
      {.loss = trained.loss, .losses = trained.losses, .precision = arguments.precision});
  const checkpoint::RestoredCheckpoint checkpoint = trainer.restore(arguments.checkpoint);
  const GeneratedTokens tokens = tokens_of(strategy, checkpoint);
  GeneratedOutput output(arguments, tokens.are_targets);
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
          generate_text(generator, arguments, tokens, std::move(context),
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
               counted(all.tokens, "token"), all.seconds, checkpoint.path.string(),
               checkpoint.state.step, arguments.is_printed() ? "standard output" : arguments.path,
               cut == 0 ? "" : fmt::format("; {} cut", counted(cut, "longer source")));
  return 0;
}

void add_sampling_options(CLI::App& command, GenerateArguments& arguments) {
  model::SamplingOptions& sampling = arguments.sampling;
  command.option_defaults()->group("Sampling");
  std::vector<CLI::Option*> draws;
  draws.push_back(
      add_between<double>(command, "--temperature", sampling.temperature, 0.0, std::nullopt,
                          "Divides the logits: below 1 the text is more probable, above 1 more "
                          "varied. 0: always the most probable token")
          ->default_str("1"));
  draws.push_back(add_at_least(command, "--top-k", sampling.top_k, 1,
                               "Draw from the K most probable tokens only (default: all)")
                      ->type_name("K"));
  draws.push_back(add_between<double>(command, "--top-p", sampling.top_p, 0.0, 1.0,
                                      "Draw from the fewest most probable tokens whose "
                                      "probabilities sum to P only")
                      ->type_name("P")
                      ->default_str("1"));
  draws.push_back(
      add_seed(command, sampling.seed, "Seed of the draws: the same seed gives the same text"));
  command.option_defaults()->group("Beam search");
  CLI::Option* const beams =
      add_at_least(command, "--beams", arguments.beams, 1,
                   "Instead of drawing tokens, write the most probable text that a search finds "
                   "which continues N texts at once; 1 takes the most probable token each time")
          ->type_name("N");
  for (CLI::Option* const draw : draws) beams->excludes(draw);
  add_between<double>(command, "--length-penalty", arguments.length_penalty, 0.0, std::nullopt,
                      "A: the log-probability of a text of n tokens is divided by ((5 + n) / 6)^A. "
                      "Larger values prefer longer texts")
      ->type_name("A")
      ->default_str("0");
}

}  // namespace

void add_generate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "generate",
      "Generate text with a checkpoint that was trained on text, pairs of texts, or captions\n\n"
      "Examples:\n"
      "  lockstep generate --checkpoint run --prompt 'The ' --tokens 200 --temperature 0.8\n"
      "  lockstep generate --checkpoint captions --image a.png b.jpg --beams 3\n");
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
  CLI::Option* const source =
      command
          ->add_option("--source", arguments->source,
                       "Text from which a model of pairs of texts generates another; --prompt is "
                       "then how this begins")
          ->type_name("WORDS");
  command
      ->add_option("--source-file", arguments->source_file,
                   "File with such a text on each line, or - for standard input; each becomes a "
                   "line of the output")
      ->type_name("FILE")
      ->excludes(source);
  command
      ->add_option(
          "--image", arguments->images,
          "Images, JPEG or PNG, that a model of captions describes; --prompt is then how a "
          "caption begins. Each caption becomes a line of the output")
      ->type_name("FILE");
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
    if (arguments->length_penalty > 0 && arguments->beams == 0)
      throw Error(ErrorCategory::input, "command line", "expected --beams with --length-penalty",
                  "it was not given");
    job::Session session(invocation.argc, invocation.argv, {.quiet = arguments->output.quiet});
    status = session.guard([&] { return generate(session, *arguments); });
  });
}

}  // namespace lockstep::apps
