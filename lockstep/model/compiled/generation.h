// Generating sequences of tokens with a network that predicts the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/loss/batch_view.h"

namespace lockstep::inline v0::model {

/// How a token is drawn from logits. The restrictions apply in this order, as in Hugging Face's
/// transformers: temperature, top_k, top_p.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: the largest logit (the first of equals)
  std::int64_t top_k = 0;  ///< samples from the K most probable tokens; 0: all
  /// Samples from the fewest most probable tokens whose probabilities sum to this (nucleus
  /// sampling, Holtzman et al., arXiv 1904.09751).
  double top_p = 1;
  std::uint64_t seed = 1;  ///< seed of the random numbers
};

/// Draws the token at `position` of a sequence from its `logits`: a pure function of the arguments.
/// Computes in double. Throws Error (input) for options out of range, and Error (checkpoint) if a
/// logit is NaN or infinite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t position);

/// Throws Error (checkpoint) if a logit is NaN or infinite. `logits` must not be empty.
void check_logits(std::span<const float> logits);

/// Generates tokens with a network that reads int32 tokens [T], and optionally int32 "segments"
/// [T], and whose first output are logits [T, V] of the token after each position. An output must
/// not depend on later tokens, as with causal attention. If there are several inputs, the tokens
/// are the input "tokens". Further inputs are the context of a sequence, such as a text to
/// translate.
///
/// The network reads a window of at most T tokens, which moves by T/2 (rounded down) when it is
/// full.
///
/// If the model is incremental (CompiledModel::is_incremental) and there is no context, each token
/// requires a pass over one position, which reads cached keys and values. The tokens of start(),
/// and those of the window after it has moved, are computed up to 64 at a time. Otherwise each
/// token requires a pass over T positions.
class Generator {
 public:
  /// Whether a token requires a pass over one position or over all T.
  enum class Passes { incremental, full };
  /// Throws Error (input) if the network of `model`, which must outlive this object, has other
  /// inputs or outputs, or if V is not `vocabulary`. `passes`: `incremental` applies if the model
  /// is incremental.
  Generator(CompiledModel& model, std::int64_t vocabulary, Passes passes = Passes::incremental);

  /// Replaces the sequence; call it again after the parameters have changed. `context` has one
  /// sample of each input of context(), in this order; its arrays must remain valid until the next
  /// start(). Throws Error (input) for empty `tokens` and for a context of other sizes.
  void start(std::vector<std::int32_t> tokens, std::vector<InputView> context = {});
  /// The inputs that a context consists of, in the order of Network::inputs().
  std::vector<NetworkInput> context() const;
  /// Draws the next token and appends it. The first token of a sequence has position 0. Throws the
  /// errors of sample_token(), and Error (data) for tokens outside the vocabulary.
  std::int32_t next(const SamplingOptions& options);
  /// Replaces the sequence by the tokens of start() and `continuation`, and returns the logits of
  /// the next token, valid until the next call. An incremental model computes only the positions
  /// that differ from the previous sequence. Throws Error (checkpoint) if a logit is NaN or
  /// infinite.
  std::span<const float> logits_after(std::span<const std::int32_t> continuation);
  std::int64_t positions() const { return static_cast<std::int64_t>(positions_); }  ///< T
  /// All tokens, including those of start().
  std::span<const std::int32_t> tokens() const { return tokens_; }

 private:
  std::span<const float> logits();
  std::span<const float> full_pass(std::span<const std::int32_t> window);
  std::span<const float> incremental_pass(std::span<const std::int32_t> window);
  BatchView batch_of(std::span<const std::int32_t> tokens, std::size_t count);

  CompiledModel& model_;
  bool is_incremental_;
  std::size_t positions_ = 0;  // T
  std::size_t token_input_ = 0;
  std::optional<std::size_t> segment_input_;
  std::vector<std::size_t> context_inputs_;
  std::vector<std::int32_t> tokens_;
  std::size_t started_ = 0;   // number of tokens of start()
  std::size_t begin_ = 0;     // first token of the window
  std::size_t computed_ = 0;  // positions of the window in cache_
  device::Buffer cache_;
  std::vector<InputView> inputs_;       // by network input
  std::vector<std::int32_t> padded_;    // tokens of a pass
  std::vector<std::int32_t> segments_;  // segments of a pass
};

}  // namespace lockstep::inline v0::model

namespace lockstep::inline v0 {

/// The options of sampling.
template <>
struct Fields<model::SamplingOptions> {
  using Options = model::SamplingOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{
          &Options::temperature,
          {"temperature", "Sampling",
           "Divides the logits: below 1 the text is more probable, above 1 more varied. 0: always "
           "the most probable token"},
          {.min = 0}},
      Field{&Options::top_k,
            {"top_k", "Sampling", "Draw from the K most probable tokens only; 0: from all"},
            {.min = 0},
            {.value = "K"}},
      Field{&Options::top_p,
            {"top_p", "Sampling",
             "Draw from the fewest most probable tokens whose probabilities sum to P only"},
            {.min = 0, .max = 1},
            {.value = "P"}},
      Field{&Options::seed,
            {"seed", "Sampling", "Seed of the draws: the same seed gives the same text"}}};
};

}  // namespace lockstep::inline v0
