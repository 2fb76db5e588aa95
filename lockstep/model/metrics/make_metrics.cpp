#include "lockstep/model/metrics/make_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/model/metrics/auc.h"
#include "lockstep/model/metrics/classification.h"
#include "lockstep/model/metrics/outputs.h"
#include "lockstep/model/metrics/regression.h"

namespace lockstep::inline v0::model {
namespace {

constexpr std::string_view kWhere = "metrics";
constexpr std::string_view kTop = "top";

constexpr std::array<std::string_view, 13> kMetricNames = {
    "accuracy",  "top5",       "precision", "recall", "f1",   "auc", "auc_pr",
    "confusion", "perplexity", "mae",       "mse",    "rmse", "r2"};

constexpr auto kBooleans = enum_names<bool>({{true, "true"}, {false, "false"}});
constexpr auto kAverages = enum_names<Average>(
    {{Average::binary, "binary"}, {Average::macro, "macro"}, {Average::none, "none"}});

[[noreturn]] void refuse_metric(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, kWhere, expected, actual);
}

/// Creates metrics for outputs of one loss.
struct MetricFactory {
  const Loss& loss;
  ClassReader reader;

  /// The metric of "f1:average=macro".
  std::shared_ptr<const Metric> make(Spec spec) const {
    const std::string& name = spec.head();
    if (name == "mae" || name == "mse" || name == "rmse" || name == "r2") {
      spec.finish();
      return value_metric(name);
    }
    const std::optional<std::int64_t> k = name.starts_with(kTop)
                                              ? parse_number<std::int64_t>(name.substr(kTop.size()))
                                              : std::nullopt;
    if (!(k && *k > 0) && std::ranges::find(kMetricNames, name) == kMetricNames.end())
      refuse_name(kWhere, name, kMetricNames);
    require_classes(name);
    if (name.starts_with("auc")) return auc_metric(spec);
    if (name == "precision" || name == "recall" || name == "f1") return class_metric(spec);
    spec.finish();
    if (name == "accuracy") return make_top_k(reader, "accuracy", 1);
    if (name == "confusion") return confusion();
    if (reader.kind != OutputKind::classes)
      refuse_metric(fmt::format("expected a loss of several classes with {}", name),
                    "got " + to_string(loss));
    return name == "perplexity" ? make_perplexity(reader) : make_top_k(reader, name, *k);
  }

 private:
  void require_classes(std::string_view name) const {
    if (reader.kind == OutputKind::values)
      refuse_metric(fmt::format("expected a loss of classes with {}", name),
                    "got " + to_string(loss));
    if (reader.classes() < 2)
      refuse_metric(fmt::format("expected at least two classes with {}", name),
                    fmt::format("got {} of {}", counted(reader.width, "output"), to_string(loss)));
  }

  std::shared_ptr<const Metric> value_metric(std::string_view name) const {
    if (reader.kind != OutputKind::values)
      refuse_metric(fmt::format("expected a loss of values, such as mse, with {}", name),
                    "got " + to_string(loss));
    if (name == "r2") return make_r2(reader.width);
    return make_error_metric(name == "mae"   ? ErrorKind::absolute
                             : name == "mse" ? ErrorKind::squared
                                             : ErrorKind::root);
  }

  std::shared_ptr<const Metric> auc_metric(Spec& spec) const {
    const std::string& name = spec.head();
    if (!reader.has_scores())
      refuse_metric(fmt::format("expected two classes with {}", name),
                    fmt::format("got {}", reader.classes()));
    const Curve curve = name == "auc" ? Curve::roc : Curve::precision_recall;
    bool is_exact = false;
    spec.read("exact", is_exact, kBooleans);
    spec.finish();
    return is_exact ? make_exact_auc(reader, curve) : make_auc(reader, curve);
  }

  std::shared_ptr<const Metric> class_metric(Spec& spec) const {
    const std::string& name = spec.head();
    Average average = reader.classes() == 2 ? Average::binary : Average::macro;
    spec.read("average", average, kAverages);
    spec.finish();
    if (average == Average::binary && reader.classes() > 2)
      refuse_metric(fmt::format("expected two classes with {}:average=binary", name),
                    fmt::format("got {}", reader.classes()));
    return make_class_score(reader,
                            name == "precision" ? ClassScore::precision
                            : name == "recall"  ? ClassScore::recall
                                                : ClassScore::f1,
                            average);
  }

  std::shared_ptr<const Metric> confusion() const {
    constexpr std::int64_t kMaxClasses = 2000;  // 32 MB of counts
    if (reader.classes() > kMaxClasses)
      refuse_metric(fmt::format("expected at most {} classes with confusion", kMaxClasses),
                    fmt::format("got {}", reader.classes()));
    return make_confusion(reader);
  }
};

/// Sums of losses, weights, correct positions and positions.
class LossMetric final : public Metric {
 public:
  LossMetric(std::string output, const Loss& loss, std::int64_t width)
      : output_(std::move(output)), loss_(loss), has_classes_(class_count(loss, width) > 0) {}

  std::string name() const override { return output_ + "_loss"; }
  std::size_t sums() const override { return 4; }
  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    const MetricSums more = compute_loss(loss_, outputs, samples, targets, 1, {});
    sums[0] += more.loss_sum;
    sums[1] += more.weight_sum();
    sums[2] += static_cast<double>(more.correct);
    sums[3] += static_cast<double>(more.positions());
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    const auto mean = [](double sum, double count) {
      return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<MetricValue> all = {{.name = name(), .values = {mean(sums[0], sums[1])}}};
    if (has_classes_)
      all.push_back({.name = output_ + "_accuracy", .values = {mean(sums[2], sums[3])}});
    return all;
  }

 private:
  std::string output_;
  Loss loss_;
  bool has_classes_;
};

class NamedMetric final : public Metric {
 public:
  NamedMetric(std::string output, std::shared_ptr<const Metric> metric)
      : prefix_(std::move(output) + "_"), metric_(std::move(metric)) {}

  std::string name() const override { return prefix_ + metric_->name(); }
  std::size_t sums() const override { return metric_->sums(); }
  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    metric_->add(outputs, targets, samples, sums);
  }
  bool reads_sums(const Loss& loss) const override { return metric_->reads_sums(loss); }
  void add_sums(const MetricSums& samples, std::vector<double>& sums) const override {
    metric_->add_sums(samples, sums);
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    std::vector<MetricValue> all = metric_->values(sums);
    for (MetricValue& value : all) value.name = prefix_ + value.name;
    return all;
  }

 private:
  std::string prefix_;
  std::shared_ptr<const Metric> metric_;
};

}  // namespace

std::shared_ptr<const Metric> make_loss_metric(std::string output, const Loss& loss,
                                               std::int64_t width) {
  return std::make_shared<LossMetric>(std::move(output), loss, width);
}

std::shared_ptr<const Metric> with_output_name(std::string output,
                                               std::shared_ptr<const Metric> metric) {
  return std::make_shared<NamedMetric>(std::move(output), std::move(metric));
}

Metrics make_metrics(std::string_view names, const Loss& loss, std::int64_t width) {
  const MetricFactory factory{.loss = loss, .reader = {.kind = output_kind(loss), .width = width}};
  Metrics metrics;
  if (names.empty()) return metrics;
  for (const std::string& text : split_specs(kWhere, names)) {
    if (text.empty()) refuse_metric("expected a metric before and after each comma", "got none");
    const auto metric = factory.make(Spec::parse(kWhere, text));
    for (const auto& other : metrics)
      if (other->name() == metric->name())
        refuse_metric("expected each metric once", fmt::format("got {} twice", metric->name()));
    metrics.push_back(metric);
  }
  return metrics;
}

std::string metric_names() { return list_names(kMetricNames); }

}  // namespace lockstep::inline v0::model
