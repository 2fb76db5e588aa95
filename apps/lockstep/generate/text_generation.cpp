#include "apps/lockstep/generate/text_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/lockstep/generate/generated_text.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/text/target_text.h"

namespace lockstep::inline v0::apps {
namespace {

/// The tokens of the prompt. Throws Error (input).
std::vector<std::int32_t> prompt_tokens(const GeneratedTokens& trained, const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  try {
    tokens = trained.tokenizer->encode(prompt);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "prompt", error.message().expected, error.message().actual);
  }
  if (trained.are_targets || (tokens.empty() && trained.begin))
    tokens.insert(tokens.begin(), trained.begin.value());
  if (tokens.empty())
    throw Error(
        ErrorCategory::input, "prompt",
        fmt::format("expected --prompt TEXT, because the tokenizer ({}) has no token between "
                    "texts to begin with",
                    trained.tokenizer->name()),
        "got no text");
  return tokens;
}

}  // namespace

GeneratedTokens GeneratedTokens::of(const data::TextSchema& text) {
  GeneratedTokens tokens{.tokenizer = text.open(),
                         .are_targets = !text.target.empty(),
                         .are_captions = !text.image.empty()};
  if (tokens.are_targets) {
    const auto targets = data::TargetVocabulary::for_tokenizer(*tokens.tokenizer);
    tokens.vocabulary_size = targets.size;
    tokens.begin = targets.begin;
    tokens.end = targets.end;
  } else {
    tokens.vocabulary_size = tokens.tokenizer->vocabulary_size();
    tokens.begin = tokens.end = tokens.tokenizer->end_token();
  }
  return tokens;
}

Generated generate_text(model::Generator& generator, const GenerateOptions& options,
                        const GeneratedTokens& tokens, std::vector<model::InputView> context,
                        const std::function<void(const std::string&)>& sink) {
  const auto start = prompt_tokens(tokens, options.prompt);
  std::int64_t most = options.tokens;
  if (tokens.are_targets) {  // a sliding window would drop the beginning
    most = std::min(most, generator.positions() - std::ssize(start) + 1);
    if (most < 1)
      throw Error(ErrorCategory::input, "prompt",
                  fmt::format("expected fewer than {}, as many as the network reads",
                              counted(generator.positions(), "token")),
                  fmt::format("got {}", start.size() - 1));
  }
  generator.start(start, std::move(context));
  const bool is_at_beginning = start.size() == 1 && start.front() == tokens.begin;
  GeneratedText text(tokens.tokenizer,
                     is_at_beginning ? std::nullopt : std::optional(start.back()));
  Generated generated;
  const auto take = [&](const std::string& piece) {
    generated.text += piece;
    sink(piece);
  };
  sink(options.prompt);
  const auto begin = std::chrono::steady_clock::now();
  if (options.beams > 0) {
    const auto beams = model::beam_search(generator, {.beams = options.beams,
                                                      .tokens = most,
                                                      .end = tokens.end,
                                                      .length_penalty = options.length_penalty});
    generated.beam = beams.front();
    generated.reached_end = generated.beam->has_ended;
    generated.tokens = std::ssize(generated.beam->tokens);
    for (const std::int32_t token : generated.beam->tokens) take(text.add(token));
  }
  while (!generated.beam && generated.tokens < most) {
    const std::int32_t token = generator.next(options.sampling);
    generated.reached_end = token == tokens.end;
    if (generated.reached_end) break;
    ++generated.tokens;
    take(text.add(token));
  }
  take(text.finish());
  generated.seconds = seconds_since(begin);
  return generated;
}

}  // namespace lockstep::inline v0::apps
