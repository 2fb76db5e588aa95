// The text that a network generates after a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/text/text_schema.h"
#include "lockstep/data/text/tokenizer.h"
#include "lockstep/model/beam_search.h"
#include "lockstep/model/generation.h"

namespace lockstep::apps {

/// The tokens that a network was trained to predict.
struct GeneratedTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  bool are_targets = false;                ///< of pairs of texts, or captions
  bool are_captions = false;               ///< of images
  std::int64_t vocabulary_size = 0;        ///< number of logits
  std::optional<std::int32_t> begin = {};  ///< before a text; nullopt: there is none
  std::optional<std::int32_t> end = {};    ///< after a text; nullopt: there is none

  /// Those of a training on such text. Throws the errors of TextSchema::open().
  static GeneratedTokens of(const data::TextSchema& text);
};

/// What to generate, and how.
struct GenerateOptions {
  std::string prompt;         ///< how the text begins
  std::int64_t tokens = 100;  ///< the most that are generated
  model::SamplingOptions sampling = {};
  std::int64_t beams = 0;  ///< 0: tokens are drawn
  double length_penalty = 0;
};

struct Generated {
  std::string text;          ///< after the prompt
  std::int64_t tokens = 0;   ///< without the end token
  bool reached_end = false;  ///< the model generated the end token
  double seconds = 0;
  std::optional<model::Beam> beam = {};  ///< with GenerateOptions::beams
};

/// Generates in a context (Generator::context()), and passes the prompt and each piece of the text
/// to `sink` as it arrives. A target has at most as many tokens as the network has positions.
/// Throws Error (input) for a prompt that the tokenizer cannot encode or that is too long, and the
/// errors of Generator and beam_search().
Generated generate_text(model::Generator& generator, const GenerateOptions& options,
                        const GeneratedTokens& tokens, std::vector<model::InputView> context,
                        const std::function<void(const std::string&)>& sink);

}  // namespace lockstep::apps
