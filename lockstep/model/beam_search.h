// Beam search: the most probable sequences of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::model {

class Generator;

/// What beam_search() looks for.
struct BeamOptions {
  std::int64_t beams = 4;     ///< sequences that are continued at once, and the most results
  std::int64_t tokens = 100;  ///< the most of a sequence, with the end token
  std::optional<std::int32_t> end = {};  ///< the token after a sequence; nullopt: there is none
  /// A: the score of a sequence is its log-probability, divided by ((5 + n) / 6)^A, where n is the
  /// number of its tokens with the end token (Wu et al., arXiv 1609.08144). 0: the log-probability;
  /// larger values prefer longer sequences.
  double length_penalty = 0;
};

/// A sequence that has been found.
struct Beam {
  std::vector<std::int32_t> tokens;  ///< without the end token
  double log_probability = 0;        ///< of all tokens, and of the end token if it has ended
  double score = 0;                  ///< see BeamOptions::length_penalty
  bool has_ended = false;            ///< false: it has as many tokens as are allowed
};

/// Logits of the token that follows some tokens; the same for the same tokens. Valid until the next
/// call.
using NextLogits = std::function<std::span<const float>(std::span<const std::int32_t> tokens)>;

/// The best sequences that it finds, at least one, by falling score. At each step it continues the
/// `beams` most probable sequences by all tokens. Of the results, those that are among the `beams`
/// most probable and end are kept, and as many others are continued, until no continuation can be
/// better than `beams` kept ones. One beam without a length penalty takes the most probable token
/// each time. Sequences of the same score are in the order of their tokens: the result is a pure
/// function of the arguments. Computes in double. Throws Error (input) for options out of range,
/// and Error (checkpoint) for logits of which one is NaN or infinite.
std::vector<Beam> beam_search(const NextLogits& logits, const BeamOptions& options);

/// The best continuations of the sequence that `generator` has started.
std::vector<Beam> beam_search(Generator& generator, const BeamOptions& options);

}  // namespace lockstep::model
