// Beam search: the most probable sequences of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::inline v0::model {

class Generator;

/// Options of beam_search().
struct BeamOptions {
  std::int64_t beams = 4;     ///< sequences extended per step, and maximum number of results
  std::int64_t tokens = 100;  ///< maximum length of a sequence, with the end token
  std::optional<std::int32_t> end = {};  ///< the token that ends a sequence; nullopt: none
  /// A: the score of a sequence is its log-probability, divided by ((5 + n) / 6)^A, where n is the
  /// number of its tokens with the end token (Wu et al., arXiv 1609.08144). 0: the log-probability;
  /// larger values prefer longer sequences.
  double length_penalty = 0;
};

/// A result of beam_search().
struct Beam {
  std::vector<std::int32_t> tokens;  ///< without the end token
  double log_probability = 0;        ///< sum over the tokens, with the end token if `has_ended`
  double score = 0;                  ///< see BeamOptions::length_penalty
  bool has_ended = false;            ///< false: it reached BeamOptions::tokens
};

/// Returns the logits of the token after `tokens`, a pure function of them. The span is valid until
/// the next call.
using NextLogits = std::function<std::span<const float>(std::span<const std::int32_t> tokens)>;

/// Returns the best sequences, at least one, by descending score. Each step extends the `beams`
/// most probable sequences by every token. Of the `beams` most probable extensions, those that end
/// become results; the `beams` best others are extended next. The search stops when no extension
/// can beat `beams` results. One beam without a length penalty is greedy decoding. Ties are ordered
/// by tokens, so the result is a pure function of the arguments. Computes in double. Throws Error
/// (input) for options out of range, and Error (checkpoint) if a logit is NaN or infinite.
std::vector<Beam> beam_search(const NextLogits& logits, const BeamOptions& options);

/// Returns the best continuations of the sequence of `generator`.
std::vector<Beam> beam_search(Generator& generator, const BeamOptions& options);

}  // namespace lockstep::inline v0::model
