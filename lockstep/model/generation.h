// Generating sequences of tokens with a network that predicts the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/batch_view.h"
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

/// Throws Error (checkpoint) for logits of which one is NaN or infinite. There must be some.
void check_logits(std::span<const float> logits);

/// Generates tokens with a network that reads int32 tokens [T], and perhaps int32 "segments" [T],
/// and whose first output are logits [T, V] of the token after each position. An output must not
/// depend on later tokens, as with causal attention. Of several inputs, the tokens are the one
/// called "tokens". Other inputs than these two are the context of a sequence, such as a text to
/// translate, which the network reads for each token.
///
/// The network reads all tokens, up to T of them. Of more it reads those from a multiple of T/2
/// (rounded down) on, the smallest that leaves at most T: the window moves by T/2 when it is full.
///
/// If the model is incremental (CompiledModel::is_incremental), a token takes a pass over one
/// position, which reads the keys and values of those before. The tokens of start(), and those of
/// the window after it has moved, are computed up to 64 at a time. If the model is not, each token
/// takes a pass over T positions; so it does in a context.
class Generator {
 public:
  /// Whether a token takes a pass over one position or over all of them.
  enum class Passes { incremental, full };
  /// Throws Error (input) if the network of `model`, which must outlive this object, reads or
  /// computes anything else, or if V is not `vocabulary`. `passes`: `incremental` is used where the
  /// model is.
  Generator(CompiledModel& model, std::int64_t vocabulary, Passes passes = Passes::incremental);

  /// Replaces the sequence; call it again after the parameters have changed. Throws Error (input)
  /// if `tokens` are empty. `context` has one sample of each input of context(), in this order; its
  /// arrays must stay valid until the next start(). Throws Error (input) for other sizes.
  void start(std::vector<std::int32_t> tokens, std::vector<InputView> context = {});
  /// The inputs that a context consists of, in the order of Network::inputs().
  std::vector<NetworkInput> context() const;
  /// Draws the token after the sequence, and appends it. The position of the first token of a
  /// sequence is 0. Throws the errors of sample_token(), and Error (data) for tokens outside of the
  /// vocabulary.
  std::int32_t next(const SamplingOptions& options);
  /// Logits of the token that follows those of start() and `continuation`, which becomes the
  /// sequence. Computes only what differs from the sequence before, if the model is incremental.
  /// Valid until the next call. Throws Error (checkpoint) if one is NaN or infinite.
  std::span<const float> logits_after(std::span<const std::int32_t> continuation);
  std::int64_t positions() const { return static_cast<std::int64_t>(positions_); }  ///< T
  /// All tokens, with those that start() was given.
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
  std::size_t started_ = 0;   // tokens of start()
  std::size_t begin_ = 0;     // of the tokens that are read
  std::size_t computed_ = 0;  // of these, those that the cache is of
  device::Buffer cache_;
  std::vector<InputView> inputs_;       // of the network
  std::vector<std::int32_t> padded_;    // the tokens of a pass
  std::vector<std::int32_t> segments_;  // of a pass
};

}  // namespace lockstep::model

namespace lockstep {

template <>
struct Fields<model::SamplingOptions> {
  using Options = model::SamplingOptions;
  static constexpr std::tuple list{
      Field{
          &Options::temperature,
          {"temperature", "Sampling",
           "Divides the logits: below 1 the text is more probable, above 1 more varied. 0: always "
           "the most probable token"},
          {.least = 0}},
      Field{&Options::top_k,
            {"top_k", "Sampling", "Draw from the K most probable tokens only; 0: from all"},
            {.least = 0},
            {.value = "K"}},
      Field{&Options::top_p,
            {"top_p", "Sampling",
             "Draw from the fewest most probable tokens whose probabilities sum to P only"},
            {.least = 0, .most = 1},
            {.value = "P"}},
      Field{&Options::seed,
            {"seed", "Sampling", "Seed of the draws: the same seed gives the same text"}}};
};

}  // namespace lockstep
