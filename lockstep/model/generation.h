// Generating sequences of tokens with a network that predicts the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/model/compiled_model.h"

namespace lockstep::model {

/// How a token is drawn from logits. The restrictions apply in this order, as in Hugging Face's
/// transformers: temperature, top_k, top_p.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0 takes the largest one (the first of equals)
  std::int64_t top_k = 0;  ///< only so many of the most probable tokens; 0: all
  /// Only the fewest most probable tokens whose probabilities sum to this, at least one: nucleus
  /// sampling (Holtzman et al., arXiv 1904.09751).
  double top_p = 1;
  std::uint64_t seed = 1;  ///< of the random numbers
};

/// Draws the token at `position` of a sequence from its `logits`: a pure function of the arguments.
/// Computes in double. Throws Error (input) for a temperature, top_k or top_p that is out of range,
/// and Error (checkpoint) for logits of which one is NaN or infinite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t position);

/// Generates tokens with a network that reads int32 tokens [T], and perhaps int32 "segments" [T],
/// and whose first output are logits [T, V] of the token after each position. An output must not
/// depend on later tokens, as with causal attention. If there are more than T tokens, it reads the
/// last T of them.
///
/// Each token takes a forward pass over T positions: nothing of earlier passes is kept.
class Generator {
 public:
  /// Throws Error (input) if the network of `model`, which must outlive this object, reads or
  /// computes anything else, or if V is not `vocabulary`.
  Generator(CompiledModel& model, std::int64_t vocabulary);

  /// Replaces the sequence. Throws Error (input) if `tokens` are empty.
  void start(std::vector<std::int32_t> tokens);
  /// Draws the token after the sequence, and appends it. The position of the first token of a
  /// sequence is 0. Throws the errors of sample_token(), and Error (data) for tokens outside of the
  /// vocabulary.
  std::int32_t next(const SamplingOptions& options);
  /// All tokens, with those that start() was given.
  std::span<const std::int32_t> tokens() const { return tokens_; }

 private:
  std::span<const float> logits();

  CompiledModel& model_;
  std::size_t positions_ = 0;   // T
  std::size_t vocabulary_ = 0;  // V
  std::size_t token_input_ = 0;
  std::optional<std::size_t> segment_input_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> window_;    // [T]
  std::vector<std::int32_t> segments_;  // [T]
};

}  // namespace lockstep::model
