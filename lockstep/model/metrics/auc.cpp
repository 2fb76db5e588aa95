#include "lockstep/model/metrics/auc.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::model {
namespace {

constexpr std::size_t kThresholds = 200;
constexpr double kNoArea = std::numeric_limits<double>::quiet_NaN();

double divided(double value, double divisor) { return divisor == 0 ? 0 : value / divisor; }

std::string curve_name(Curve curve) { return curve == Curve::roc ? "auc" : "auc_pr"; }

/// The number of thresholds below a score, minus one: threshold i is i / 199, the first is below
/// all scores.
std::size_t bucket_of(double score) {
  const auto probability = static_cast<float>(1 / (1 + std::exp(-score)));
  const float above = std::ceil(probability * static_cast<float>(kThresholds - 1));
  return above < 1 ? 0 : static_cast<std::size_t>(above) - 1;
}

class BucketedAuc final : public Metric {
 public:
  BucketedAuc(const ClassReader& reader, Curve curve) : reader_(reader), curve_(curve) {}

  std::string name() const override { return curve_name(curve_); }
  // Counts by bucket of the first class, then of the second.
  std::size_t sums() const override { return 2 * kThresholds; }

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    const std::int64_t count = reader_.count(outputs, targets, samples);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = reader_.label(targets, i);
      if (label < 0) continue;
      const std::size_t first = label == 1 ? kThresholds : 0;
      ++sums[first + bucket_of(reader_.score(outputs, i, label))];
    }
  }

  std::vector<MetricValue> values(std::span<const double> sums) const override {
    // Numbers of samples of both classes above each threshold.
    std::vector<double> wrong(kThresholds);
    std::vector<double> right(kThresholds);
    double negatives = 0;
    double positives = 0;
    for (std::size_t i = kThresholds; i-- > 0;) {
      wrong[i] = negatives += sums[i];
      right[i] = positives += sums[kThresholds + i];
    }
    return {{.name = name(), .values = {area(wrong, right)}}};
  }

 private:
  double area(const std::vector<double>& wrong, const std::vector<double>& right) const {
    const double negatives = wrong.front();
    const double positives = right.front();
    if (negatives == 0 || positives == 0) return kNoArea;
    double area = 0;
    for (std::size_t i = 0; i + 1 < kThresholds; ++i) {
      if (curve_ == Curve::roc) {
        area += (right[i] + right[i + 1]) / 2 * (wrong[i] - wrong[i + 1]);
        continue;
      }
      const double all = right[i] + wrong[i];
      const double next = right[i + 1] + wrong[i + 1];
      const double more = right[i] - right[i + 1];
      const double slope = divided(more, all - next);
      const double intercept = right[i + 1] - slope * next;
      const double growth = all > 0 && next > 0 ? all / next : 1;
      area += slope * (more + intercept * std::log(growth));
    }
    return area / positives / (curve_ == Curve::roc ? negatives : 1);
  }

  ClassReader reader_;
  Curve curve_;
};

class ExactAuc final : public Metric {
 public:
  ExactAuc(const ClassReader& reader, Curve curve) : reader_(reader), curve_(curve) {}

  std::string name() const override { return curve_name(curve_); }
  std::size_t sums() const override { return 0; }  // a list of scores and labels

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    const std::int64_t count = reader_.count(outputs, targets, samples);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = reader_.label(targets, i);
      if (label < 0) continue;
      sums.push_back(reader_.score(outputs, i, label));
      sums.push_back(label == 1 ? 1 : 0);
    }
  }

  std::vector<MetricValue> values(std::span<const double> sums) const override {
    std::vector<std::pair<double, bool>> samples;
    samples.reserve(sums.size() / 2);
    for (std::size_t i = 0; i + 1 < sums.size(); i += 2)
      samples.emplace_back(sums[i], sums[i + 1] != 0);
    std::ranges::sort(samples, std::greater{});
    return {{.name = name(), .values = {area(samples)}}};
  }

 private:
  // In descending order of the scores; equal scores are one group.
  double area(const std::vector<std::pair<double, bool>>& samples) const {
    double right = 0;
    double wrong = 0;
    double area = 0;
    for (std::size_t i = 0; i < samples.size();) {
      const double score = samples[i].first;
      double positives = 0;
      double negatives = 0;
      for (; i < samples.size() && samples[i].first == score; ++i)
        ++(samples[i].second ? positives : negatives);
      if (curve_ == Curve::roc)
        area += negatives * (right + positives / 2);
      else if (positives > 0)
        area += positives * (right + positives) / (right + wrong + positives + negatives);
      right += positives;
      wrong += negatives;
    }
    if (right == 0 || wrong == 0) return kNoArea;
    return area / right / (curve_ == Curve::roc ? wrong : 1);
  }

  ClassReader reader_;
  Curve curve_;
};

}  // namespace

std::shared_ptr<const Metric> make_auc(const ClassReader& reader, Curve curve) {
  return std::make_shared<BucketedAuc>(reader, curve);
}

std::shared_ptr<const Metric> make_exact_auc(const ClassReader& reader, Curve curve) {
  return std::make_shared<ExactAuc>(reader, curve);
}

}  // namespace lockstep::inline v0::model
