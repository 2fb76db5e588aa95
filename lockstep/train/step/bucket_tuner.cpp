#include "lockstep/train/step/bucket_tuner.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/replica/replica.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr std::array<std::size_t, 6> kSizes = {kMebibyte,     2 * kMebibyte,  4 * kMebibyte,
                                               8 * kMebibyte, 16 * kMebibyte, 32 * kMebibyte};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

BucketTuner::BucketTuner(std::size_t bytes) {
  for (const std::size_t size : kSizes)
    if (sizes_.empty() || size < bytes) sizes_.push_back(size);
}

std::optional<std::size_t> BucketTuner::add_step(double seconds) {
  if (has_tried_all()) return std::nullopt;
  if (warm_up_ < kWarmUpSteps) {
    if (++warm_up_ < kWarmUpSteps) return std::nullopt;
    return sizes_.front();
  }
  if (settling_++ < kSettlingSteps) return std::nullopt;
  current_.push_back(seconds);
  if (current_.size() < kCountedSteps) return std::nullopt;
  seconds_.push_back(median(std::move(current_)));
  current_.clear();
  settling_ = 0;
  if (has_tried_all()) return std::nullopt;
  return sizes_[seconds_.size()];
}

std::size_t BucketTuner::choose() const {
  LOCKSTEP_CHECK(has_tried_all());
  return sizes_[std::ranges::min_element(seconds_) - seconds_.begin()];
}

std::string BucketTuner::describe() const {
  std::string others;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    others += fmt::format("{}{} MiB {:.1f} ms", i == 0 ? "" : ", ", sizes_[i] / kMebibyte,
                          seconds_[i] * 1000);
  return fmt::format("{} MiB; median step time with {}", choose() / kMebibyte, others);
}

void BucketTuning::begin(bool tunes) {
  if (chosen_ > 0)
    set_bytes(chosen_);
  else if (tunes && replicas_.strategy().group(0).overlaps())
    tuner_.emplace(replicas_.network().trained().element_count() * sizeof(float));
}

void BucketTuning::add_step(double seconds) {
  if (!tuner_) return;
  if (const auto next = tuner_->add_step(seconds)) return set_bytes(*next);
  if (!tuner_->has_tried_all()) return;
  const strategy::Strategy& strategy = replicas_.strategy();
  strategy.ranks()
      .all_reduce(std::span(tuner_->seconds_of_sizes()), allreduce::ReduceOp::max)
      .wait();
  chosen_ = tuner_->choose();
  set_bytes(chosen_);
  if (strategy.is_chief())
    strategy.session().logger()->info(fmt::format("buckets of {}", tuner_->describe()));
  tuner_.reset();
}

void BucketTuning::set_bytes(std::size_t bytes) {
  replicas_.run([bytes](strategy::Replica& replica, int) { replica.set_bucket_bytes(bytes); });
}

}  // namespace lockstep::inline v0::train
