#include "lockstep/model/compiled/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/compiled/generation.h"

namespace lockstep::inline v0::model {
namespace {

void check_beams(const BeamOptions& options) {
  const auto refuse = [](const char* expected, auto value) {
    throw Error(ErrorCategory::input, "generate", expected, fmt::format("got {}", value));
  };
  if (options.beams < 1) refuse("expected at least one beam", options.beams);
  if (options.tokens < 1) refuse("expected at least one token", options.tokens);
  if (!(options.length_penalty >= 0) || !std::isfinite(options.length_penalty))
    refuse("expected a length penalty of at least 0", options.length_penalty);
}

double score_of(double log_probability, std::int64_t length, const BeamOptions& options) {
  return log_probability / std::pow(static_cast<double>(5 + length) / 6, options.length_penalty);
}

// Beam `beam` extended by `token`.
struct Continuation {
  double log_probability;
  std::size_t beam;
  std::int32_t token;
};

// Appends the extensions of a beam by all tokens.
void add_continuations(const NextLogits& next, const std::vector<Beam>& beams, std::size_t beam,
                       std::vector<Continuation>& all) {
  const std::span<const float> logits = next(beams[beam].tokens);
  check_logits(logits);
  const auto largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double base = beams[beam].log_probability - largest - std::log(sum);
  std::int32_t token = 0;
  for (const float logit : logits)
    all.push_back({base + static_cast<double>(logit), beam, token++});
}

// Orders by descending probability, then by tokens.
bool is_before(const Continuation& a, const Continuation& b, const std::vector<Beam>& beams) {
  if (a.log_probability > b.log_probability) return true;
  if (a.log_probability < b.log_probability) return false;
  if (a.beam == b.beam) return a.token < b.token;
  return beams[a.beam].tokens < beams[b.beam].tokens;
}

bool is_better(const Beam& a, const Beam& b) {
  if (a.score > b.score) return true;
  if (a.score < b.score) return false;
  return a.tokens < b.tokens;
}

}  // namespace

std::vector<Beam> beam_search(const NextLogits& logits, const BeamOptions& options) {
  check_beams(options);
  const auto width = static_cast<std::size_t>(options.beams);
  std::vector<Beam> beams(1);  // all of the same length
  std::vector<Beam> found;
  const auto keep = [&](Beam beam, std::int64_t length) {
    beam.score = score_of(beam.log_probability, length, options);
    found.insert(std::ranges::upper_bound(found, beam, is_better), std::move(beam));
    if (found.size() > width) found.pop_back();
  };
  // Log-probabilities only decrease, and no sequence is longer.
  const auto is_settled = [&] {
    return found.size() == width &&
           found.back().score > score_of(beams.front().log_probability, options.tokens, options);
  };
  std::vector<Continuation> all;
  for (std::int64_t length = 1; length <= options.tokens; ++length) {
    all.clear();
    // At most one extension of each beam ends, so this many suffice.
    const std::size_t count = width + beams.size();
    for (std::size_t beam = 0; beam < beams.size(); ++beam) {
      add_continuations(logits, beams, beam, all);
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), count));
      std::ranges::partial_sort(all, end, [&](const Continuation& a, const Continuation& b) {
        return is_before(a, b, beams);
      });
      all.erase(end, all.end());
    }
    std::vector<Beam> continued;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Continuation& one = all[i];
      const bool has_ended = one.token == options.end;
      if (has_ended ? i >= width : continued.size() == width) continue;
      Beam beam{.tokens = beams[one.beam].tokens,
                .log_probability = one.log_probability,
                .has_ended = has_ended};
      if (has_ended) {
        keep(std::move(beam), length);
        continue;
      }
      beam.tokens.push_back(one.token);
      continued.push_back(std::move(beam));
    }
    beams = std::move(continued);
    if (beams.empty() || is_settled()) return found;
  }
  for (Beam& beam : beams) keep(std::move(beam), options.tokens);
  return found;
}

std::vector<Beam> beam_search(Generator& generator, const BeamOptions& options) {
  return beam_search(
      [&](std::span<const std::int32_t> tokens) { return generator.logits_after(tokens); },
      options);
}

}  // namespace lockstep::inline v0::model
