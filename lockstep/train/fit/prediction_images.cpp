#include "lockstep/train/fit/prediction_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::train {
namespace {

/// Converts `features` of one image to pixels: 0 to 1 become black to white, or the smallest to the
/// largest value if a map or a normalization has changed this range.
void to_pixels(std::span<const float> features, std::uint8_t* pixels) {
  constexpr float kLargest = 255;
  auto [low, high] = std::ranges::minmax(features);
  if (low >= 0 && high <= 1) {
    low = 0;
    high = 1;
  }
  const float range = high > low && std::isfinite(high - low) ? high - low : 1;
  for (const float feature : features) {
    const float shade = (feature - low) / range;
    *pixels++ = static_cast<std::uint8_t>(
        std::lround(kLargest * (shade >= 0 ? std::min(shade, 1.0F) : 0.0F)));  // NaN: black
  }
}

/// Returns the class with the highest score, and its probability. `outputs`: outputs for one
/// sample, logits unless `is_activated`.
std::pair<std::int32_t, double> best_class(std::span<const float> outputs, bool is_activated) {
  std::vector<double> scores(outputs.begin(), outputs.end());
  // One output for two classes.
  if (scores.size() == 1) scores.insert(scores.begin(), is_activated ? 1 - scores.front() : 0);
  const auto best = std::ranges::max_element(scores);
  double probability = *best;
  if (!is_activated) {
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - *best);
    probability = 1 / sum;
  }
  return {static_cast<std::int32_t>(best - scores.begin()), probability};
}

/// Returns the index in `targets` of the target of `term`, as in MicroBatches; nullopt if there is
/// none.
template <typename Targets>
std::optional<std::size_t> target_of(const model::LossTerm& term, const Targets& targets,
                                     bool is_only) {
  if (targets.empty()) return std::nullopt;
  if (term.target.empty() || (is_only && targets.size() == 1)) return 0;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (targets[i].name == term.target) return i;
  return std::nullopt;
}

}  // namespace

void check_prediction_images(const FitOptions& fit, const model::Network& network,
                             const model::TotalLoss& loss) {
  if (fit.prediction_images == 0) return;
  const auto refuse = [&](std::string_view actual) {
    throw Error(
        ErrorCategory::input, "prediction-images",
        fmt::format("expected a number of validation images with a class each, up to {}, or 0",
                    kMaxPredictionImages),
        fmt::format("got {}{}", fit.prediction_images, actual));
  };
  if (fit.prediction_images < 0 || fit.prediction_images > kMaxPredictionImages) refuse("");
  if (!fit.validation) refuse(" and no validation data");
  const data::SampleSpec& spec = fit.validation->spec();
  const std::vector<std::int64_t>& shape = spec.shape();
  if (shape.size() != 3 || (shape[2] != 1 && shape[2] != 3) ||
      spec.inputs.front().type != ElementType::float32)
    refuse(fmt::format(" and {}, not images of 1 or 3 channels", to_string(spec)));
  const model::LossTerm& term = loss[0];
  const auto place = target_of(term, spec.targets, loss.terms().size() == 1);
  const model::Shape& outputs = network.shape(network.outputs()[term.output].node);
  const std::int64_t width = model::row_width(term.loss, outputs);
  if (!place || spec.targets[*place].classes == 0 || !spec.targets[*place].shape.empty() ||
      model::class_count(term.loss, width) == 0 || model::element_count(outputs) != width)
    refuse(fmt::format(" and {} with the loss {}", to_string(spec), to_string(term.loss)));
}

ImagePredictions PredictionImages::predict(const data::Dataset& validation, std::int64_t step) {
  if (images_.empty()) read(validation);
  const model::LossTerm& term = replicas_.loss()[0];
  const model::Network& network = replicas_.network();
  const std::string_view activation = model::activation_of(term.loss);
  const bool is_activated =
      activation.empty() ||
      model::final_activation(network, network.outputs()[term.output].node) == activation;
  const strategy::Strategy& strategy = replicas_.strategy();
  replicas_.run([&](strategy::Replica& replica, int local) {
    if (local != 0) return;
    const allreduce::PhaseScope evaluating(&strategy.activity(local), allreduce::Phase::evaluating);
    const std::span<const float> outputs =
        replica.predict(batch_, {0, batch_.samples})[term.output];
    const std::size_t width = outputs.size() / predictions_.size();
    for (std::size_t i = 0; i < predictions_.size(); ++i) {
      const auto [predicted, probability] =
          best_class(outputs.subspan(i * width, width), is_activated);
      predictions_[i].predicted = predicted;
      predictions_[i].probability = probability;
    }
  });
  return {.step = step,
          .images = images_,
          .predictions = predictions_,
          .has_class_names = target_ == 0};
}

void PredictionImages::read(const data::Dataset& validation) {
  const std::int64_t count = std::min(count_, validation.size());
  const auto stream = validation.batch(count).stream({.last_step = 1, .pixels = true});
  std::vector<data::Batch> parts;
  LOCKSTEP_CHECK(stream->next(parts));
  batch_ = std::move(parts.front());
  const auto place =
      target_of(replicas_.loss()[0], batch_.targets, replicas_.loss().terms().size() == 1);
  LOCKSTEP_CHECK(place.has_value());
  target_ = *place;
  const std::span<const std::int32_t> labels =
      std::as_const(batch_.targets[target_]).as<std::int32_t>();
  const std::vector<std::int64_t>& shape = validation.spec().shape();
  const auto extent = [&](std::size_t axis) { return static_cast<int>(shape[axis]); };
  const auto elements = static_cast<std::size_t>(validation.spec().feature_count());
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch_.samples); ++i) {
    data::Image& image = images_.emplace_back();
    image.reshape(extent(0), extent(1), extent(2));
    if (const auto pixels = std::as_const(batch_).pixels(); !pixels.empty())
      std::ranges::copy(pixels.subspan(i * elements, elements), image.span().pixels);
    else
      to_pixels(std::as_const(batch_).features().subspan(i * elements, elements),
                image.span().pixels);
    predictions_.push_back({.label = labels[i]});
  }
}

}  // namespace lockstep::inline v0::train
