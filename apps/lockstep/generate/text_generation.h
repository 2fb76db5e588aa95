// Generation of text after a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/text/text_schema.h"
#include "lockstep/data/text/tokenizer.h"
#include "lockstep/model/compiled/beam_search.h"
#include "lockstep/model/compiled/generation.h"

namespace lockstep::inline v0::apps {

/// The tokens that a network was trained to predict.
struct GeneratedTokens {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  bool are_targets = false;                ///< second texts of pairs, or captions
  bool are_captions = false;               ///< captions of images
  std::int64_t vocabulary_size = 0;        ///< number of logits
  std::optional<std::int32_t> begin = {};  ///< token before a text, if any
  std::optional<std::int32_t> end = {};    ///< token after a text, if any

  /// The tokens of a training on `text`. Throws the errors of TextSchema::open().
  static GeneratedTokens of(const data::TextSchema& text);
};

/// What to generate, and how.
struct GenerateOptions {
  std::string prompt;         ///< beginning of the text
  std::int64_t tokens = 100;  ///< maximum number of tokens to generate
  model::SamplingOptions sampling = {};
  std::int64_t beams = 0;  ///< number of beams; 0: tokens are sampled
  double length_penalty = 0;
};

struct Generated {
  std::string text;          ///< text after the prompt
  std::int64_t tokens = 0;   ///< number of tokens without the end token
  bool reached_end = false;  ///< whether the model generated the end token
  double seconds = 0;
  std::optional<model::Beam> beam = {};  ///< with GenerateOptions::beams
};

/// Generates in a context (Generator::context()), and passes the prompt and each piece of the text
/// to `sink` as it is generated. A target has at most as many tokens as the network has positions.
/// Throws Error (input) for a prompt that the tokenizer cannot encode or that is too long, and the
/// errors of Generator and beam_search().
Generated generate_text(model::Generator& generator, const GenerateOptions& options,
                        const GeneratedTokens& tokens, std::vector<model::InputView> context,
                        const std::function<void(const std::string&)>& sink);

}  // namespace lockstep::inline v0::apps
