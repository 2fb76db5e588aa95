#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/metrics/auc.h"
#include "lockstep/model/metrics/classification.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/metrics/outputs.h"

namespace lockstep::inline v0::model {
namespace {

TEST(MetricSums, MeansAreOverAllSamplesOfAllParts) {
  MetricSums total{.loss_sum = 1, .samples = 1, .correct = 1, .correct_top5 = 1, .classes = 10};
  total += MetricSums{.loss_sum = 5, .samples = 3, .correct = 0, .correct_top5 = 2, .classes = 10};
  EXPECT_EQ(total.loss(), 1.5) << "not the mean of the parts' means";
  EXPECT_EQ(total.accuracy(), 0.25);
  EXPECT_EQ(total.top5_accuracy(), 0.75);
}

TEST(MetricSums, APartWithoutSamplesChangesNothing) {
  MetricSums total{.loss_sum = 2, .samples = 2, .correct = 1, .correct_top5 = 2, .classes = 10};
  total += MetricSums{};
  EXPECT_EQ(total.loss(), 1);
  EXPECT_TRUE(total.has_accuracy());
}

TEST(MetricSums, HaveTheFiveLargestOutputsOfMoreThanFiveClasses) {
  EXPECT_FALSE(MetricSums{}.has_accuracy());
  EXPECT_TRUE(MetricSums({.classes = 2}).has_accuracy());
  EXPECT_FALSE(MetricSums({.classes = 5}).has_top5());
  EXPECT_TRUE(MetricSums({.classes = 6}).has_top5());
}

TEST(MetricSums, AreNaNWithoutSamples) {
  EXPECT_TRUE(std::isnan(MetricSums{}.loss()));
  EXPECT_TRUE(std::isnan(MetricSums{}.accuracy()));
  EXPECT_TRUE(std::isnan(MetricSums{}.top5_accuracy()));
}

TEST(MetricSums, HaveANaNWithoutASign) {
  const double negative = std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0);
  EXPECT_FALSE(std::signbit(MetricSums({.loss_sum = negative, .samples = 2}).loss()));
}

TEST(MetricSums, LossIsTheMeanByWeight) {
  MetricSums total{.loss_sum = 6, .samples = 4, .correct = 1, .weight_excess = 8};
  EXPECT_EQ(total.loss(), 0.5);
  EXPECT_EQ(total.accuracy(), 0.25) << "of samples";
  total += MetricSums{.loss_sum = 0, .samples = 12, .weight_excess = -12};
  EXPECT_EQ(total.loss(), 0.5) << "samples of weight 0";
  EXPECT_TRUE(std::isnan(MetricSums({.samples = 3, .weight_excess = -3}).loss()));
}

TEST(MetricSums, AreMeansOverThePositionsThatCount) {
  MetricSums total{.loss_sum = 6,
                   .samples = 2,
                   .correct = 3,
                   .correct_top5 = 6,
                   .more_positions = 14,
                   .masked = 4};
  EXPECT_EQ(total.loss(), 0.5);
  EXPECT_EQ(total.accuracy(), 0.25);
  EXPECT_EQ(total.top5_accuracy(), 0.5);
  total +=
      MetricSums{.loss_sum = 6, .samples = 1, .weight_excess = 6, .more_positions = 7, .masked = 2};
  EXPECT_EQ(total.rows(), 24);
  EXPECT_EQ(total.positions(), 18);
  EXPECT_EQ(total.loss(), 0.5);
  EXPECT_TRUE(std::isnan(MetricSums({.samples = 2, .more_positions = 2, .masked = 4}).loss()));
}

TEST(SummableMetrics, ConvertAGradientOverSamplesToOneOverWeights) {
  const auto factor = [](const MetricSums& sums) {
    std::array<float, SummableMetrics::kSize> values{};
    SummableMetrics(sums).write(values.data());
    EXPECT_EQ(SummableMetrics(std::span<const float, SummableMetrics::kSize>(values))
                  .sums()
                  .weight_excess,
              sums.weight_excess);
    return SummableMetrics::gradient_factor(values.data());
  };
  EXPECT_EQ(factor({.samples = 61}), 1);
  EXPECT_EQ(factor({.samples = 0}), 1);
  EXPECT_EQ(factor({.samples = 6, .weight_excess = 2}), 0.75F);
  EXPECT_EQ(factor({.samples = 6, .weight_excess = -6}), 0) << "all weights are 0";
  EXPECT_EQ(factor({.samples = 6, .more_positions = 42}), 1);
  EXPECT_EQ(factor({.samples = 6, .more_positions = 42, .masked = 16}), 1.5F);
  EXPECT_EQ(factor({.samples = 6, .more_positions = 42, .masked = 48}), 0);
  EXPECT_EQ(factor({.samples = 6, .weight_excess = 32, .more_positions = 42, .masked = 16}), 0.75F);
}

TEST(SummableMetrics, RoundCountsOfLongSequences) {
  constexpr std::int64_t kBeyondFloat = (std::int64_t{1} << 26) + 1;  // not a float
  std::array<float, SummableMetrics::kSize> values{};
  SummableMetrics({.samples = 3, .more_positions = kBeyondFloat, .masked = 5}).write(values.data());
  const MetricSums sums =
      SummableMetrics(std::span<const float, SummableMetrics::kSize>(values)).sums();
  EXPECT_EQ(sums.samples, 3);
  EXPECT_NEAR(static_cast<double>(sums.positions()), kBeyondFloat - 2, 8);
  EXPECT_EQ(sums.weight_excess, 0) << "rounded alike";
  SummableMetrics({.samples = 3, .more_positions = kBeyondFloat}).write(values.data());
  EXPECT_EQ(SummableMetrics::gradient_factor(values.data()), 1);
}

TEST(SummableMetrics, StoreTheLossInTwoFloats) {
  std::array<float, SummableMetrics::kSize> values{};
  SummableMetrics({.loss_sum = 123.456789012, .samples = 61, .correct = 40, .correct_top5 = 60})
      .write(values.data());
  const MetricSums sums =
      SummableMetrics(std::span<const float, SummableMetrics::kSize>(values)).sums();
  EXPECT_NEAR(sums.loss_sum, 123.456789012, 1e-11);
  EXPECT_EQ(sums.samples, 61);
  EXPECT_EQ(sums.correct, 40);
  EXPECT_EQ(sums.correct_top5, 60);
}

TEST(SummableMetrics, CountOnlyNonFinitePartsAsNonFinite) {
  for (const double loss :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), 1e39, -1e39, 3.5e38}) {
    const SummableMetrics summable(
        {.loss_sum = loss, .samples = 5, .correct = 3, .correct_top5 = 4});
    EXPECT_EQ(summable.non_finite, 1);
    EXPECT_EQ(summable.loss_high, 0);
    EXPECT_EQ(summable.samples, 0);
  }
  EXPECT_EQ(SummableMetrics({.loss_sum = 3.4e38, .samples = 5}).non_finite, 0);
}

TEST(SummableMetrics, AreFiniteIfAllLossesAndTheirSumAre) {
  std::array<float, SummableMetrics::kSize> values{};
  SummableMetrics({.loss_sum = 3e38, .samples = 5}).write(values.data());
  EXPECT_TRUE(SummableMetrics::is_finite(values.data()));
  values[0] += values[0];
  EXPECT_FALSE(SummableMetrics::is_finite(values.data())) << "the sum of two replicas";
  SummableMetrics({.loss_sum = 1e300, .samples = 5}).write(values.data());
  EXPECT_FALSE(SummableMetrics::is_finite(values.data()));
}

// ---- Metrics by name

const Loss kEntropy = SparseCategoricalCrossentropy{};
const Loss kSquares = MeanSquaredError{};

struct MetricData {
  std::vector<float> outputs;
  std::vector<std::int32_t> labels;
  std::vector<float> values;
  std::int64_t samples = 0;
};

// Two classes, whose scores are those of the first script below.
MetricData binary_data() {
  MetricData data{.outputs = {}, .labels = {0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1}, .values = {}};
  for (const float score :
       {-2.5F, 1.25F, -0.75F, 0.5F, 2.0F, -1.0F, -2.5F, 0.5F, 3.0F, -1.5F, -0.25F, -0.5F})
    data.outputs.insert(data.outputs.end(), {0.25F, 0.25F + score});
  data.samples = 12;
  return data;
}

// 1000 samples whose probabilities are between 16 of the 200 thresholds.
MetricData close_data() {
  MetricData data{.outputs = {}, .labels = {}, .values = {}, .samples = 1000};
  std::uint32_t x = 1;
  const auto next = [&x] { return x = 1664525U * x + 1013904223U; };
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t label = next() >> 31U;
    const auto share = static_cast<float>(next() >> 16U) / 65536.0F;
    data.labels.push_back(static_cast<std::int32_t>(label));
    data.outputs.insert(data.outputs.end(),
                        {0.0F, (share - 0.5F) * 0.25F + 0.03125F * static_cast<float>(label)});
  }
  return data;
}

// Three classes that occur, and one that does not.
MetricData class_data() {
  return {
      .outputs = {2, 1,  0, -1,  0, 1,  .5F, -1,   1,   .5F, .75F, -1, 0, 2,  1,    -1,  .5F, 1.5F,
                  0, -1, 0, .5F, 2, -1, 1,   .25F, .5F, -1,  3,    0,  1, -1, .25F, .5F, 1,   -1},
      .labels = {0, 1, 2, 1, 0, 2, 1, 0, 2},
      .values = {},
      .samples = 9};
}

MetricData value_data() {
  return {.outputs = {1.5F, 2, 1.75F, 3, 3.5F, 0, 4, -1.5F, 4.5F, 3, 6.25F, .75F},
          .labels = {},
          .values = {1, 2, 2, 2.5F, 3, .5F, 4, -1, 5, 3.25F, 6, 0},
          .samples = 6};
}

/// The values of `metrics` over `data` in `parts`, whose totals are added as those of replicas.
std::vector<MetricValue> measure(const Metrics& metrics, const MetricData& data,
                                 std::int64_t parts = 1) {
  MetricTotals totals;
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto begin = static_cast<std::size_t>(data.samples * part / parts);
    const auto end = static_cast<std::size_t>(data.samples * (part + 1) / parts);
    const auto of = [&](const auto& all) {
      const std::size_t width = all.size() / static_cast<std::size_t>(data.samples);
      return std::span(all).subspan(begin * width, (end - begin) * width);
    };
    MetricTotals part_totals;
    add_batch(metrics, of(data.outputs), {.labels = of(data.labels), .values = of(data.values)},
              static_cast<std::int64_t>(end - begin), part_totals);
    add_totals(metrics, part_totals, totals);
  }
  return values_of(metrics, totals);
}

/// From Keras 3.15 (auc, auc_pr), with a logit as `p = (1 / (1 +
/// np.exp(-score))).astype("float32")`, and scikit-learn 1.9:
///
///     m = keras.metrics.AUC(curve="PR"); m.update_state(labels, p); m.result()
///     roc_auc_score(labels, score), average_precision_score(labels, score)
///     precision_score(labels, predicted, average=None), confusion_matrix(labels, predicted)
///     top_k_accuracy_score(labels, outputs, k=2), np.exp(log_loss(labels, softmax(outputs)))
///     mean_absolute_error(values, outputs), r2_score(values, outputs)
struct KnownMetric {
  const char* name;
  Loss loss;
  MetricData data;
  std::vector<double> expected;
  double tolerance = 1e-12;
};

TEST(Metrics, MatchKerasAndScikitLearnForAnyNumberOfParts) {
  constexpr double kFloat = 1e-6;  // Keras computes in float32
  const KnownMetric known[] = {
      {"auc", kEntropy, binary_data(), {0.9}, kFloat},
      {"auc", kEntropy, close_data(), {0.6037541031837463}, kFloat},
      {"auc_pr", kEntropy, binary_data(), {0.9161593914031982}, kFloat},
      {"auc_pr", kEntropy, close_data(), {0.6186412572860718}, kFloat},
      {"auc:exact=true", kEntropy, binary_data(), {0.9}},
      {"auc:exact=true", kEntropy, close_data(), {0.6036860917980554}},
      {"auc_pr:exact=true", kEntropy, binary_data(), {0.9093537414965986}},
      {"auc_pr:exact=true", kEntropy, close_data(), {0.6220290012026257}},
      {"precision", kEntropy, binary_data(), {0.8}},
      {"recall", kEntropy, binary_data(), {0.5714285714285714}},
      {"f1", kEntropy, binary_data(), {0.6666666666666666}},
      {"precision:average=macro", kEntropy, binary_data(), {0.6857142857142857}},
      {"recall:average=none", kEntropy, binary_data(), {0.8, 0.5714285714285714}},
      {"confusion", kEntropy, binary_data(), {4, 1, 3, 4}},
      {"accuracy", kEntropy, class_data(), {0.6666666666666666}},
      {"top2", kEntropy, class_data(), {0.8888888888888888}},
      {"top4", kEntropy, class_data(), {1}},
      {"precision", kEntropy, class_data(), {0.7222222222222222}},
      {"recall", kEntropy, class_data(), {0.6666666666666666}},
      {"f1", kEntropy, class_data(), {0.6793650793650793}},
      {"f1:average=none", kEntropy, class_data(), {4.0 / 7, 2.0 / 3, 0.8, 0}},
      {"confusion", kEntropy, class_data(), {2, 1, 0, 0, 1, 2, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0}},
      {"perplexity", kEntropy, class_data(), {2.2214617405080106}},
      {"mae", kSquares, value_data(), {0.375}},
      {"mse", kSquares, value_data(), {0.1875}},
      {"rmse", kSquares, value_data(), {0.4330127018922193}},
      {"r2", kSquares, value_data(), {0.9233163595199585}, 1e-7},
  };
  for (const KnownMetric& one : known) {
    const auto width = static_cast<std::int64_t>(one.data.outputs.size()) / one.data.samples;
    const Metrics metrics = make_metrics(one.name, one.loss, width);
    const std::vector<MetricValue> whole = measure(metrics, one.data);
    ASSERT_EQ(whole.size(), 1U) << one.name;
    ASSERT_EQ(whole[0].values.size(), one.expected.size()) << one.name;
    for (std::size_t i = 0; i < one.expected.size(); ++i)
      EXPECT_NEAR(whole[0].values[i], one.expected[i], one.tolerance) << one.name << " " << i;
    for (const std::int64_t parts : {2, 3, 4, 20})
      if (one.loss.index() == kEntropy.index() && std::string(one.name) != "perplexity")
        EXPECT_EQ(measure(metrics, one.data, parts), whole) << one.name << " in " << parts;
      else
        EXPECT_NEAR(measure(metrics, one.data, parts)[0].values[0], whole[0].values[0], 1e-14);
  }
}

TEST(Metrics, ReadLabelsOrValuesForBinaryLogits) {
  const MetricData two = binary_data();
  MetricData one{.outputs = {}, .labels = two.labels, .values = {}, .samples = two.samples};
  for (std::size_t i = 0; i < two.labels.size(); ++i)
    one.outputs.push_back(two.outputs[2 * i + 1] - 0.25F);
  MetricData with_values = one;
  with_values.labels.clear();
  for (const std::int32_t label : one.labels)
    with_values.values.push_back(static_cast<float>(label));
  const ClassReader binary{.kind = OutputKind::binary, .width = 1};
  const Metrics metrics = {make_auc(binary, Curve::roc),
                           make_class_score(binary, ClassScore::f1, Average::binary),
                           make_confusion(binary), make_top_k(binary, "accuracy", 1)};
  const auto expected = measure(make_metrics("auc,f1,confusion,top1", kEntropy, 2), two);
  for (const MetricData& data : {one, with_values}) {
    const auto values = measure(metrics, data, 3);
    ASSERT_EQ(values.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(values[i].values, expected[i].values);
  }
}

TEST(Metrics, IgnoreMaskedPositions) {
  const MetricData samples = class_data();  // 9 of 4 classes
  MetricData data{.outputs = samples.outputs, .labels = samples.labels, .values = {}};
  data.samples = 3;
  for (const std::size_t row : {11U, 5U, 0U}) {  // 3 samples of 4 positions
    const auto at = static_cast<std::ptrdiff_t>(std::min<std::size_t>(row, data.labels.size()));
    data.labels.insert(data.labels.begin() + at, kMasked);
    data.outputs.insert(data.outputs.begin() + 4 * at, {9, -9, 3, 7});
  }
  ASSERT_EQ(data.labels.size(), 12U);
  const Metrics metrics =
      make_metrics("accuracy,top2,precision,f1:average=none,confusion,perplexity", kEntropy, 4);
  const auto expected = measure(metrics, samples);
  for (const std::int64_t parts : {1, 3}) {
    const auto values = measure(metrics, data, parts);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = 0; k < values[i].values.size(); ++k)
        EXPECT_NEAR(values[i].values[k], expected[i].values[k], 1e-14) << values[i].name;
  }
  const auto loss_of = [](const MetricData& of) {
    return measure({make_loss_metric("next", kEntropy, 4)}, of);
  };
  EXPECT_NEAR(loss_of(data)[0].values[0], loss_of(samples)[0].values[0], 1e-14);
  EXPECT_EQ(loss_of(data)[1].values, loss_of(samples)[1].values);
  try {
    measure(make_metrics("accuracy", kEntropy, 16), data);
    ADD_FAILURE() << "metrics of another width";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[metrics] expected metrics of 4 outputs, those of each of 12 labels "
                 "(row_width()), got metrics of 16");
  }
}

TEST(Metrics, ReadTheSumsOfTheLossIfSufficient) {
  const MetricData data = class_data();
  const Metrics metrics = make_metrics("accuracy,top5,perplexity", kEntropy, 4);
  MetricTotals totals;
  for (int part = 0; part < 2; ++part) {
    add_sums(metrics,
             compute_loss(kEntropy, data.outputs, data.samples, {.labels = data.labels}, 1, {}),
             totals);
    add_batch(metrics, data.outputs, {.labels = data.labels}, data.samples, totals);
  }
  const auto values = values_of(metrics, totals);
  const auto expected = measure(metrics, data);
  ASSERT_EQ(values.size(), 3U);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i].values[0], expected[i].values[0], 1e-6) << values[i].name;
  for (const auto& metric : metrics) EXPECT_TRUE(metric->reads_sums(kEntropy)) << metric->name();
  const Loss smoothed = SparseCategoricalCrossentropy{0.1f};
  EXPECT_TRUE(metrics[0]->reads_sums(smoothed));
  EXPECT_FALSE(metrics[2]->reads_sums(smoothed)) << "its loss is another one";
  for (const auto& metric : make_metrics("top2,f1,confusion", kEntropy, 4))
    EXPECT_FALSE(metric->reads_sums(kEntropy)) << metric->name();
  EXPECT_FALSE(make_metrics("mae", MeanSquaredError{}, 1)[0]->reads_sums(MeanSquaredError{}));
}

TEST(Metrics, CountNanAsWrong) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const MetricData data{
      .outputs = {kNan, kNan, kNan, kNan}, .labels = {0, 1}, .values = {}, .samples = 2};
  for (const char* name : {"auc", "auc:exact=true", "f1", "f1:average=macro", "accuracy", "recall"})
    EXPECT_EQ(measure(make_metrics(name, kEntropy, 2), data)[0].values[0], 0) << name;
}

TEST(Metrics, AreNaNWithoutSamplesOrClasses) {
  for (const char* names : {"auc,auc_pr,accuracy,perplexity,f1:average=macro"})
    for (const MetricValue& value : values_of(make_metrics(names, kEntropy, 2), {}))
      EXPECT_TRUE(std::isnan(value.values[0])) << value.name;
  MetricData same = binary_data();
  same.labels.assign(12, 1);
  EXPECT_TRUE(std::isnan(measure(make_metrics("auc", kEntropy, 2), same)[0].values[0]));
  EXPECT_TRUE(std::isnan(measure(make_metrics("auc:exact=true", kEntropy, 2), same)[0].values[0]));
}

TEST(Metrics, HaveAnR2OfOneOrZeroForConstantTargets) {
  MetricData data{.outputs = {}, .labels = {}, .values = {}, .samples = 100};
  data.values.assign(100, 0.1F);
  data.outputs = data.values;
  const Metrics metrics = make_metrics("r2", kSquares, 1);
  EXPECT_EQ(measure(metrics, data)[0].values[0], 1);
  data.outputs[0] = 0.2F;
  EXPECT_EQ(measure(metrics, data)[0].values[0], 0);
  // Deviations of a millionth of the targets: r2_score() of scikit-learn.
  for (std::size_t i = 0; i < 100; ++i) {
    data.values[i] = 1e6F + static_cast<float>(i % 2);
    data.outputs[i] = data.values[i] + (i % 4 == 0 ? 0.5F : 0.0F);
  }
  EXPECT_NEAR(measure(metrics, data)[0].values[0], 0.75, 0.01);
}

TEST(Metrics, RejectLossesThatDoNotFit) {
  struct RefusedMetric {
    const char* names;
    Loss loss;
    std::int64_t width;
    const char* message;
  };
  const RefusedMetric all[] = {
      {"acc", kEntropy, 2,
       "[metrics] expected accuracy, top5, precision, recall, f1, auc, auc_pr, confusion, "
       "perplexity, mae, mse, rmse or r2, got \"acc\" (did you mean accuracy?)"},
      {"top0", kEntropy, 2,
       "[metrics] expected accuracy, top5, precision, recall, f1, auc, auc_pr, confusion, "
       "perplexity, mae, mse, rmse or r2, got \"top0\" (did you mean top5?)"},
      {"auc,f1", kSquares, 1, "[metrics] expected a loss of classes with auc, got mse"},
      {"mae", kEntropy, 2,
       "[metrics] expected a loss of values, such as mse, with mae, got "
       "cross-entropy"},
      {"auc", kEntropy, 10, "[metrics] expected two classes with auc, got 10"},
      {"f1:average=binary", kEntropy, 3,
       "[metrics] expected two classes with f1:average=binary, got 3"},
      {"f1:average=mean", kEntropy, 3,
       "[metrics: average] expected binary, macro or none, got \"mean\""},
      {"f1:mean", kEntropy, 3, "[metrics] expected average= as settings of f1, got \"mean\""},
      {"f1:average=", kEntropy, 3,
       "[metrics] expected average=VALUE; average='' is the empty one, got \"average=\""},
      {"f1:exact=true", kEntropy, 3,
       "[metrics] expected average= as settings of f1, got \"exact\""},
      {"mae:exact=true", kSquares, 3, "[metrics] expected mae without settings, got \"exact\""},
      {"auc:exact=yes", kEntropy, 2, "[metrics: exact] expected true or false, got \"yes\""},
      {"f1,auc,f1:average=macro", kEntropy, 2, "[metrics] expected each metric once, got f1 twice"},
      {"f1,", kEntropy, 2, "[metrics] expected a metric before and after each comma, got none"},
      {"confusion", kEntropy, 5000,
       "[metrics] expected at most 2000 classes with confusion, got 5000"},
      {"confusion", kEntropy, 1,
       "[metrics] expected at least two classes with confusion, got 1 output of "
       "cross-entropy"},
  };
  for (const RefusedMetric& one : all) {
    try {
      make_metrics(one.names, one.loss, one.width);
      ADD_FAILURE() << one.names;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), one.message);
      EXPECT_EQ(error.category(), ErrorCategory::input);
    }
  }
  EXPECT_TRUE(make_metrics("", kEntropy, 2).empty());
  EXPECT_EQ(list_metrics(make_metrics("f1,f1:average=none,top3", kEntropy, 4)),
            "f1, f1_per_class, top3");
  EXPECT_EQ(list_metrics(make_metrics("auc,auc_pr:exact=true", kEntropy, 2)),
            "auc, auc_pr (exact)");
}

/// A user-defined loss with any name.
class NamedLoss final : public CustomLoss {
 public:
  NamedLoss(std::string name, std::string activation)
      : name_(std::move(name)), activation_(std::move(activation)) {}
  std::string name() const override { return name_; }
  std::string_view activation() const override { return activation_; }
  double value(std::span<const float> outputs, const SampleTargets& /*targets*/) const override {
    return static_cast<double>(outputs[0]);
  }
  void gradient(std::span<const float> /*outputs*/, const SampleTargets& /*targets*/,
                std::span<float> gradient) const override {
    std::ranges::fill(gradient, 1.0F);
  }

 private:
  std::string name_;
  std::string activation_;
};

TEST(Metrics, FollowTheActivationOfACustomLoss) {
  struct Case {
    const char* name;
    const char* activation;
    std::int64_t width;
    const char* fits;
    const char* refused;
  };
  for (const Case& one :
       {Case{"mse", "softmax", 3, "accuracy,f1,confusion,perplexity", "mse"},
        Case{"mse", "sigmoid", 1, "auc,f1,confusion", "mae"},
        Case{"mse", "", 1, "mse,r2", "accuracy"}, Case{"cross-entropy", "", 3, "mae", "accuracy"},
        Case{"sparse-categorical-crossentropy", "", 3, "rmse", "top5"},
        Case{"bce", "", 1, "mae", "auc"}}) {
    const Loss loss = std::make_shared<NamedLoss>(one.name, one.activation);
    const std::string what = std::string(one.name) + " " + one.activation;
    EXPECT_NO_THROW(make_metrics(one.fits, loss, one.width)) << what;
    EXPECT_THROW(make_metrics(one.refused, loss, one.width), Error) << what;
    const auto output_metric = make_loss_metric("price", loss, one.width);
    EXPECT_EQ(values_of({output_metric}, {}).size(), *one.activation == '\0' ? 1U : 2U)
        << what << ": has an accuracy";
  }
}

TEST(Metrics, RejectInvalidTargetsForValues) {
  const Loss loss = std::make_shared<NamedLoss>("mse", "");
  const std::vector<float> outputs = {1, 2, 3, 4};
  const std::vector<std::int32_t> labels = {0, 1};
  for (const std::string name : {"mae", "r2"}) {
    MetricTotals totals;
    try {
      add_batch(make_metrics(name, loss, 2), outputs, {.labels = labels}, 2, totals);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "[" + name + "] expected a target value for each output, got 0 " +
                                  "values and 2 labels, and 4 outputs");
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
