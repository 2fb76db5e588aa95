#include "lockstep/model/compiled/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {
namespace {

constexpr const char* kTokens = "tokens";
constexpr const char* kSegments = "segments";
constexpr std::size_t kMaxPassRows = 64;  // maximum positions of an incremental pass

void check_sampling(const SamplingOptions& options) {
  const auto refuse = [](const char* expected, auto value) {
    throw Error(ErrorCategory::input, "generate", expected, fmt::format("got {}", value));
  };
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    refuse("expected a temperature of at least 0", options.temperature);
  if (options.top_k < 0) refuse("expected top_k of at least 0", options.top_k);
  if (!(options.top_p >= 0 && options.top_p <= 1))
    refuse("expected top_p from 0 to 1", options.top_p);
}

// A uniform number in [0, 1), of 53 bits.
double random_share(std::uint64_t seed, std::int64_t position) {
  const Philox random(random_key(seed, "generate"));
  const auto words = random.block(0, static_cast<std::uint64_t>(position));
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

void check_logits(std::span<const float> logits) {
  LOCKSTEP_CHECK(!logits.empty());
  const auto bad = std::ranges::find_if_not(logits, [](float x) { return std::isfinite(x); });
  if (bad != logits.end())
    throw Error(ErrorCategory::checkpoint, "generate", "expected finite logits",
                fmt::format("got {} for token {}", *bad, bad - logits.begin()));
}

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t position) {
  check_sampling(options);
  check_logits(logits);
  const auto largest = std::ranges::max_element(logits);
  if (!(options.temperature > 0)) return static_cast<std::int32_t>(largest - logits.begin());

  // The most probable tokens first.
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    return logit(a) > logit(b) || (!(logit(a) < logit(b)) && a < b);
  };
  std::size_t kept = tokens.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::ranges::partial_sort(tokens, tokens.begin() + static_cast<std::ptrdiff_t>(kept), is_before);

  std::vector<double> sums(kept);  // cumulative probabilities, not normalized
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const double distance = static_cast<double>(logit(tokens[i])) - static_cast<double>(*largest);
    sums[i] = sum += std::exp(distance / options.temperature);
  }
  const auto nucleus = std::ranges::lower_bound(sums, options.top_p * sum);
  kept = std::min(kept, static_cast<std::size_t>(nucleus - sums.begin()) + 1);
  sums.resize(kept);

  const auto drawn =
      std::ranges::upper_bound(sums, random_share(options.seed, position) * sums.back());
  // reached only by rounding
  return tokens[std::min(kept - 1, static_cast<std::size_t>(drawn - sums.begin()))];
}

Generator::Generator(CompiledModel& model, std::int64_t vocabulary, Passes passes)
    : model_(model), is_incremental_(passes == Passes::incremental && model.is_incremental()) {
  const Network& network = model.network();
  const std::span<const NetworkInput> inputs = network.inputs();
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCategory::input, network.name(), expected, actual);
  };
  std::string actual;
  std::vector<std::size_t> others;
  std::optional<std::size_t> tokens;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    actual +=
        fmt::format("{}{} {}", k == 0 ? "" : ", ", inputs[k].name, to_string(inputs[k].shape));
    if (inputs.size() > 1 && inputs[k].name == kSegments)
      segment_input_ = k;
    else if (inputs[k].name == kTokens)
      tokens = k;
    else
      others.push_back(k);
  }
  const auto are_positions = [&](std::size_t k) {
    return inputs[k].type == ElementType::int32 && inputs[k].shape.size() == 1;
  };
  if (!tokens && others.size() == 1) tokens = std::exchange(others, {}).front();
  if (!tokens || !are_positions(*tokens) ||
      (segment_input_ &&
       (!are_positions(*segment_input_) || inputs[*segment_input_].shape != inputs[*tokens].shape)))
    refuse(
        "expected a network of tokens: one int32 input [T], called tokens if there are others, "
        "and optionally its segments [T]",
        "got " + actual);
  token_input_ = *tokens;
  context_inputs_ = std::move(others);
  if (!context_inputs_.empty()) is_incremental_ = false;
  inputs_.resize(inputs.size());
  const Shape& shape = inputs[token_input_].shape;
  if (const Shape logits = {shape.front(), vocabulary}; network.output_shape() != logits)
    refuse(fmt::format("expected an output {}, a logit of each token for each position",
                       to_string(logits)),
           fmt::format("got {}", to_string(network.output_shape())));
  positions_ = static_cast<std::size_t>(shape.front());
}

std::vector<NetworkInput> Generator::context() const {
  std::vector<NetworkInput> inputs;
  for (const std::size_t k : context_inputs_) inputs.push_back(model_.network().inputs()[k]);
  return inputs;
}

void Generator::start(std::vector<std::int32_t> tokens, std::vector<InputView> context) {
  if (tokens.empty())
    throw Error(ErrorCategory::input, "generate", "expected at least one initial token",
                "got none");
  if (context.size() != context_inputs_.size())
    throw Error(ErrorCategory::input, "generate",
                fmt::format("expected a context of {}",
                            counted(std::ssize(context_inputs_), "further input")),
                fmt::format("got {}", context.size()));
  for (std::size_t i = 0; i < context.size(); ++i) {
    const NetworkInput& input = model_.network().inputs()[context_inputs_[i]];
    const std::size_t size = input.type == ElementType::int32
                                 ? context[i].indices.size()
                                 : std::max(context[i].features.size(), context[i].pixels.size());
    if (std::cmp_not_equal(size, element_count(input.shape)))
      throw Error(ErrorCategory::input, "generate",
                  fmt::format("expected {} elements of the input \"{}\"",
                              element_count(input.shape), input.name),
                  fmt::format("got {}", size));
    inputs_[context_inputs_[i]] = context[i];
  }
  tokens_ = std::move(tokens);
  started_ = tokens_.size();
  computed_ = 0;
  cache_ = {};  // a cached NaN of earlier parameters would persist: 0 * NaN is NaN
}

std::int32_t Generator::next(const SamplingOptions& options) {
  LOCKSTEP_CHECK(!tokens_.empty());
  tokens_.push_back(sample_token(logits(), options, std::ssize(tokens_)));
  return tokens_.back();
}

std::span<const float> Generator::logits_after(std::span<const std::int32_t> continuation) {
  LOCKSTEP_CHECK(!tokens_.empty());
  const std::span<const std::int32_t> before = std::span(tokens_).subspan(started_);
  const auto same = std::ranges::mismatch(before, continuation).in1 - before.begin();
  const std::size_t kept = started_ + static_cast<std::size_t>(same);
  tokens_.resize(kept);
  tokens_.insert(tokens_.end(), continuation.begin() + same, continuation.end());
  computed_ = std::min(computed_, kept - std::min(kept, begin_));
  const std::span<const float> result = logits();
  check_logits(result);
  return result;
}

// Logits of the token after the last one.
std::span<const float> Generator::logits() {
  const std::size_t step = std::max<std::size_t>(positions_ / 2, 1);
  const std::size_t excess = tokens_.size() - std::min(tokens_.size(), positions_);
  const std::size_t begin = (excess + step - 1) / step * step;
  if (std::exchange(begin_, begin) != begin) computed_ = 0;
  const std::span<const std::int32_t> window = std::span(tokens_).subspan(begin);
  return is_incremental_ ? incremental_pass(window) : full_pass(window);
}

std::span<const float> Generator::full_pass(std::span<const std::int32_t> window) {
  return model_.predict_row(batch_of(window, positions_), std::ssize(window) - 1);
}

// Computes the positions that are not cached. A pass over several positions ends at T at the
// latest, so it may begin with cached ones.
std::span<const float> Generator::incremental_pass(std::span<const std::int32_t> window) {
  computed_ = std::min(computed_, window.size() - 1);  // the last one is computed in any case
  std::span<const float> row;
  while (computed_ < window.size()) {
    const std::size_t remaining = window.size() - computed_;
    const std::size_t rows = remaining == 1 ? 1 : std::min(kMaxPassRows, positions_);
    const std::size_t first = std::min(computed_, positions_ - rows);
    const std::size_t end = std::min(first + rows, window.size());
    row = model_.predict_row(
        batch_of(window.subspan(first, end - first), rows), static_cast<std::int64_t>(end) - 1,
        {.first = static_cast<std::int64_t>(first), .count = static_cast<std::int64_t>(rows)},
        cache_);
    computed_ = end;
  }
  return row;
}

// `tokens`, padded to `count` positions. No position reads the padding after it.
BatchView Generator::batch_of(std::span<const std::int32_t> tokens, std::size_t count) {
  padded_.assign(tokens.begin(), tokens.end());
  padded_.resize(count);
  segments_.assign(tokens.size(), 1);
  segments_.resize(count);
  inputs_[token_input_].indices = padded_;
  if (segment_input_) inputs_[*segment_input_].indices = segments_;
  return {.samples = 1, .inputs = inputs_};
}

}  // namespace lockstep::inline v0::model
