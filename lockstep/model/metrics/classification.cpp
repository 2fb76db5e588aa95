#include "lockstep/model/metrics/classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep::inline v0::model {
namespace {

/// The quotient; 0 for a divisor of 0.
double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double mean_of(double sum, double count) {
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

/// Calls visit(index, label) for each classification that has a label.
template <typename Visit>
void each_label(const ClassReader& reader, std::span<const float> outputs, const Targets& targets,
                std::int64_t samples, Visit visit) {
  const std::int64_t count = reader.count(outputs, targets, samples);
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t label = reader.label(targets, i); label >= 0) visit(i, label);
}

class TopK final : public Metric {
 public:
  TopK(const ClassReader& reader, std::string name, std::int64_t k)
      : reader_(reader), name_(std::move(name)), k_(k) {}

  std::string name() const override { return name_; }
  std::size_t sums() const override { return 2; }  // correct, all

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    each_label(reader_, outputs, targets, samples, [&](std::int64_t i, std::int64_t label) {
      sums[0] += is_right(outputs, i, label) ? 1 : 0;
      ++sums[1];
    });
  }
  bool reads_sums(const Loss& loss) const override {
    return std::holds_alternative<SparseCategoricalCrossentropy>(loss) && (k_ == 1 || k_ == 5);
  }
  void add_sums(const MetricSums& samples, std::vector<double>& sums) const override {
    sums[0] += static_cast<double>(k_ == 1 ? samples.correct : samples.correct_top5);
    sums[1] += static_cast<double>(samples.positions());
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    return {{.name = name_, .values = {mean_of(sums[0], sums[1])}}};
  }

 private:
  bool is_right(std::span<const float> outputs, std::int64_t i, std::int64_t label) const {
    if (reader_.kind == OutputKind::binary) return reader_.predicted(outputs, i, label) == label;
    const std::span<const float> row = reader_.row(outputs, i);
    const float chosen = row[static_cast<std::size_t>(label)];
    std::int64_t before = 0;  // NaN ranks first
    for (std::int64_t k = 0; k < reader_.width; ++k) {
      const float other = row[static_cast<std::size_t>(k)];
      if (k != label) before += k < label ? !(other < chosen) : !(other <= chosen);
    }
    return before < k_;
  }

  ClassReader reader_;
  std::string name_;
  std::int64_t k_;
};

class PrecisionRecall final : public Metric {
 public:
  PrecisionRecall(const ClassReader& reader, ClassScore score, Average average)
      : reader_(reader), score_(score), average_(average) {}

  std::string name() const override {
    const char* const name = score_ == ClassScore::precision ? "precision"
                             : score_ == ClassScore::recall  ? "recall"
                                                             : "f1";
    return average_ == Average::none ? std::string(name) + "_per_class" : name;
  }
  // Three sums per class: correct, labels, predictions.
  std::size_t sums() const override { return 3 * static_cast<std::size_t>(reader_.classes()); }

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    const auto class_sums = [&](std::int64_t one) {
      return &sums[static_cast<std::size_t>(3 * one)];
    };
    each_label(reader_, outputs, targets, samples, [&](std::int64_t i, std::int64_t label) {
      const std::int64_t predicted = reader_.predicted(outputs, i, label);
      if (predicted == label) ++class_sums(label)[0];
      ++class_sums(label)[1];
      ++class_sums(predicted)[2];
    });
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    std::vector<double> scores;
    double total = 0;
    double occurring = 0;
    for (std::size_t one = 0; one + 2 < sums.size(); one += 3) {
      scores.push_back(score_of(sums[one], sums[one + 1], sums[one + 2]));
      total += scores.back();
      occurring += sums[one + 1] + sums[one + 2] > 0 ? 1 : 0;
    }
    if (average_ == Average::none)
      return {{.name = name(), .values = scores, .shape = {reader_.classes()}}};
    return {{.name = name(),
             .values = {average_ == Average::binary ? scores[1] : mean_of(total, occurring)}}};
  }

 private:
  double score_of(double right, double labels, double predictions) const {
    if (score_ == ClassScore::precision) return ratio(right, predictions);
    if (score_ == ClassScore::recall) return ratio(right, labels);
    return ratio(2 * right, labels + predictions);
  }

  ClassReader reader_;
  ClassScore score_;
  Average average_;
};

class Confusion final : public Metric {
 public:
  explicit Confusion(const ClassReader& reader) : reader_(reader) {}

  std::string name() const override { return "confusion"; }
  std::size_t sums() const override {
    return static_cast<std::size_t>(reader_.classes() * reader_.classes());
  }
  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    each_label(reader_, outputs, targets, samples, [&](std::int64_t i, std::int64_t label) {
      const std::int64_t predicted = reader_.predicted(outputs, i, label);
      ++sums[static_cast<std::size_t>(label * reader_.classes() + predicted)];
    });
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    return {{.name = name(),
             .values = std::vector<double>(sums.begin(), sums.end()),
             .shape = {reader_.classes(), reader_.classes()}}};
  }

 private:
  ClassReader reader_;
};

class Perplexity final : public Metric {
 public:
  explicit Perplexity(const ClassReader& reader) : reader_(reader) {}

  std::string name() const override { return "perplexity"; }
  std::size_t sums() const override { return 2; }  // cross-entropy, samples

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    each_label(reader_, outputs, targets, samples, [&](std::int64_t i, std::int64_t label) {
      const std::span<const float> row = reader_.row(outputs, i);
      const auto largest = static_cast<double>(*std::ranges::max_element(row));
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
      sums[0] +=
          std::log(sum) + largest - static_cast<double>(row[static_cast<std::size_t>(label)]);
      ++sums[1];
    });
  }
  bool reads_sums(const Loss& loss) const override {
    const auto* const own = std::get_if<SparseCategoricalCrossentropy>(&loss);
    return own != nullptr && own->label_smoothing == 0;
  }
  void add_sums(const MetricSums& samples, std::vector<double>& sums) const override {
    sums[0] += samples.loss_sum;
    sums[1] += static_cast<double>(samples.positions());
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    return {{.name = name(), .values = {std::exp(mean_of(sums[0], sums[1]))}}};
  }

 private:
  ClassReader reader_;
};

}  // namespace

std::shared_ptr<const Metric> make_top_k(const ClassReader& reader, std::string name,
                                         std::int64_t k) {
  return std::make_shared<TopK>(reader, std::move(name), k);
}

std::shared_ptr<const Metric> make_class_score(const ClassReader& reader, ClassScore score,
                                               Average average) {
  return std::make_shared<PrecisionRecall>(reader, score, average);
}

std::shared_ptr<const Metric> make_confusion(const ClassReader& reader) {
  return std::make_shared<Confusion>(reader);
}

std::shared_ptr<const Metric> make_perplexity(const ClassReader& reader) {
  return std::make_shared<Perplexity>(reader);
}

}  // namespace lockstep::inline v0::model
