// Cross-entropy of labels: its values and gradients, mixtures of two labels, labels at positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/model/loss/loss.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/loss_gradients.h"
#include "tests/model/support/numbers.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

TEST(CrossEntropy, EqualsTheLogarithmOfTheClassesForEqualOutputs) {
  EXPECT_NEAR(entropy(Values(30, 7.5f), {0, 3, 9}).loss_sum, 3 * std::log(10.0), 1e-6);
}

TEST(CrossEntropy, EqualsTheLogisticLossForTwoClasses) {
  EXPECT_NEAR(entropy({1.5f, -0.5f}, {0}).loss_sum, std::log1p(std::exp(-2.0)), 1e-7);
  EXPECT_NEAR(entropy({1.5f, -0.5f}, {1}).loss_sum, std::log1p(std::exp(2.0)), 1e-6);
}

TEST(CrossEntropy, StaysFiniteForHugeOutputs) {
  EXPECT_EQ(entropy({1e30f, -1e30f, 0}, {0}).loss_sum, 0);
  EXPECT_NEAR(entropy({20000, 10000}, {1}).loss_sum, 10000, 1e-3);
}

TEST(CrossEntropy, IgnoresClassesExcludedByMinusInfinity) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(entropy({0, kNever, 0}, {2}).loss_sum, std::log(2.0), 1e-6);
}

TEST(CrossEntropy, PropagatesNaN) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(entropy({0, kNan, 1}, {0}).loss_sum));
  EXPECT_TRUE(std::isnan(entropy({kNan, 0, 1}, {1}).loss_sum));
  EXPECT_EQ(entropy(Values(10, kNan), {0}).correct, 0) << "a diverged model is not correct";
}

// Rows of several blocks, and one that ends in the middle of one.
TEST(CrossEntropy, MatchesItsFormulaForManyClasses) {
  for (const std::size_t width : {16U, 512U, 1300U}) {
    Values outputs = numbers(width, 7);
    for (float& output : outputs) output *= 20;
    outputs[width / 3] = -std::numeric_limits<float>::infinity();
    double sum = 0;
    for (const float output : outputs) sum += std::exp(static_cast<double>(output));
    const Labels label = {static_cast<std::int32_t>(width - 2)};
    const auto chosen = static_cast<double>(outputs[width - 2]);
    EXPECT_NEAR(entropy(outputs, label).loss_sum, std::log(sum) - chosen, 1e-5);
    const Values gradient =
        gradient_of(SparseCategoricalCrossentropy{}, outputs, 1, {.labels = label}, 2);
    for (std::size_t k = 0; k < width; ++k)
      EXPECT_NEAR(gradient[k],
                  (std::exp(static_cast<double>(outputs[k])) / sum - (k == width - 2 ? 1 : 0)) / 2,
                  1e-6)
          << k;
    EXPECT_EQ(gradient[width / 3], 0);
    std::int64_t before = 0;
    for (const float output : outputs) before += output > outputs[width - 2];
    EXPECT_EQ(entropy(outputs, label).correct_top5, before < 5 ? 1 : 0);
    outputs[width / 2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(entropy(outputs, label).loss_sum)) << width;
  }
}

TEST(CrossEntropy, SmoothingMixesInTheMeanOverClasses) {
  const Values outputs = {2, -1, 0.5f, 0};
  double mean = 0;
  for (std::int32_t k = 0; k < 4; ++k) mean += entropy(outputs, {k}).loss_sum / 4;
  EXPECT_NEAR(entropy(outputs, {2}, 0.1f).loss_sum,
              0.9 * entropy(outputs, {2}).loss_sum + 0.1 * mean, 1e-6);
}

TEST(CrossEntropy, GradientIsSoftmaxMinusTargetOverTheDivisor) {
  const Values outputs = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  const Labels label = {1};
  EXPECT_THAT(
      gradient_of(SparseCategoricalCrossentropy{}, outputs, 1, {.labels = label, .values = {}}, 4),
      Pointwise(FloatNear(1e-7f), {0.125f / 4, (0.25f - 1) / 4, 0.625f / 4}));
}

TEST(CrossEntropy, GradientMatchesDifferences) {
  const Values outputs = numbers(35, 3);  // 5 samples of 7 outputs
  const Labels label = labels(5, 7, 4);
  for (const float smoothing : {0.0f, 0.2f}) {
    const SparseCategoricalCrossentropy loss{smoothing};
    const Targets targets{.labels = label, .values = {}};
    EXPECT_THAT(gradient_of(loss, outputs, 5, targets, 1),
                Pointwise(FloatNear(1e-4f), numeric_gradient(loss, outputs, 5, targets)))
        << smoothing;
  }
}

class MixedCrossEntropy : public ::testing::TestWithParam<float> {
 protected:
  static constexpr std::int64_t kSamples = 5;

  Targets own() const { return {.labels = labels_}; }
  Targets partner() const { return {.labels = partners_}; }
  Targets mixed() const {
    return {.labels = labels_, .partner_labels = partners_, .weights = weights_};
  }

  const SparseCategoricalCrossentropy loss_{GetParam()};
  const Values outputs_ = numbers(35, 3);  // 5 samples of 7 outputs
  const Labels labels_ = labels(5, 7, 4);
  const Labels partners_ = {labels_[0], 6, 0, 3, 5};
  const Values weights_ = {0.25f, 0, 1, 0.5f, 0.9f};
};

TEST_P(MixedCrossEntropy, IsTheSumOfBothByWeight) {
  double expected = 0;
  const Values own = gradient_of(loss_, outputs_, kSamples, this->own(), 3);
  const Values partner = gradient_of(loss_, outputs_, kSamples, this->partner(), 3);
  Values gradient(outputs_.size());
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Values row(outputs_.begin() + static_cast<std::ptrdiff_t>(7 * i),
                     outputs_.begin() + static_cast<std::ptrdiff_t>(7 * i + 7));
    const auto weight = static_cast<double>(weights_[i]);
    expected += weight * entropy(row, {labels_[i]}, GetParam()).loss_sum +
                (1 - weight) * entropy(row, {partners_[i]}, GetParam()).loss_sum;
    for (std::size_t k = 7 * i; k < 7 * i + 7; ++k)
      gradient[k] = weights_[i] * own[k] + (1 - weights_[i]) * partner[k];
  }
  const MetricSums sums = compute_loss(loss_, outputs_, kSamples, mixed(), 3, {});
  EXPECT_NEAR(sums.loss_sum, expected, 1e-5);
  EXPECT_THAT(gradient_of(loss_, outputs_, kSamples, mixed(), 3),
              Pointwise(FloatNear(1e-6f), gradient));
  EXPECT_THAT(gradient_of(loss_, outputs_, kSamples, mixed(), 1),
              Pointwise(FloatNear(1e-4f), numeric_gradient(loss_, outputs_, kSamples, mixed())));
  EXPECT_EQ(sums.correct, compute_loss(loss_, outputs_, kSamples, this->own(), 3, {}).correct)
      << "of the own labels";
}

TEST_P(MixedCrossEntropy, IsBitIdenticalToOneLabelOfFullWeight) {
  const Values all(5, 1.0f);
  const Targets alone{.labels = labels_, .partner_labels = partners_, .weights = all};
  EXPECT_EQ(gradient_of(loss_, outputs_, kSamples, alone, 3),
            gradient_of(loss_, outputs_, kSamples, own(), 3));
  EXPECT_EQ(compute_loss(loss_, outputs_, kSamples, alone, 3, {}).loss_sum,
            compute_loss(loss_, outputs_, kSamples, own(), 3, {}).loss_sum);
}

INSTANTIATE_TEST_SUITE_P(Smoothing, MixedCrossEntropy, ::testing::Values(0.0f, 0.2f));

TEST(CrossEntropy, IgnoresExcludedClassesOfWeightZero) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Values outputs = {0, kNever, 0};
  const auto loss_of = [&](Labels own, Labels partner, Values weight) {
    return compute_loss(SparseCategoricalCrossentropy{}, outputs, 1,
                        {.labels = own, .partner_labels = partner, .weights = weight}, 1, {})
        .loss_sum;
  };
  EXPECT_NEAR(loss_of({2}, {1}, {1}), std::log(2.0), 1e-6);
  EXPECT_NEAR(loss_of({1}, {2}, {0}), std::log(2.0), 1e-6);
}

TEST(CrossEntropy, RejectsInvalidMixtures) {
  const Labels own = {0, 1};
  const auto refusal = [&](const Labels& partners, const Values& weights) {
    const Targets targets{.labels = own, .partner_labels = partners, .weights = weights};
    return error_of(ErrorCategory::data, [&] {
      compute_loss(SparseCategoricalCrossentropy{}, Values(6), 2, targets, 2, {});
    });
  };
  const std::string loss = "[cross-entropy] ";
  EXPECT_EQ(refusal({1}, {1, 1}), loss + "expected 2 partner labels and 2 weights, got 1 and 2");
  EXPECT_EQ(refusal({}, {1, 1}), loss + "expected 2 partner labels and 2 weights, got 0 and 2");
  EXPECT_EQ(refusal({1, 3}, {1, 1}),
            loss + "expected labels 0 .. 2 for 3 classes; sample 1 of the batch has label 3");
  EXPECT_EQ(refusal({1, 2}, {1, 1.5f}),
            loss + "expected mixup weights from 0 to 1; sample 1 of the batch has 1.5");
  EXPECT_THAT(refusal({1, 2}, {std::numeric_limits<float>::quiet_NaN(), 0}),
              HasSubstr("sample 0 of the batch has nan"));
}

TEST(CrossEntropy, TheFirstOfEqualOutputsIsThePrediction) {
  EXPECT_EQ(entropy({3, 3, 1}, {0}).correct, 1);
  EXPECT_EQ(entropy({3, 3, 1}, {1}).correct, 0);
}

TEST(CrossEntropy, TopFiveCountsEqualOutputsInTheirOrder) {
  const Values equal(8, 1.0f);
  EXPECT_EQ(entropy(equal, {4}).correct_top5, 1);
  EXPECT_EQ(entropy(equal, {5}).correct_top5, 0);
  const Values falling = {9, 8, 7, 6, 5, 4, 3};
  EXPECT_EQ(entropy(falling, {4}).correct_top5, 1);
  EXPECT_EQ(entropy(falling, {5}).correct_top5, 0);
}

TEST(CrossEntropy, CountsSamplesAndHasClasses) {
  const MetricSums sums = entropy({1, 0, 0, 1, 1, 0}, {0, 0, 0});
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.correct, 2);
  EXPECT_TRUE(sums.has_accuracy());
}

TEST(CrossEntropy, RejectsALabelOutsideTheClasses) {
  EXPECT_EQ(error_of(ErrorCategory::data,
                     [] {
                       entropy(Values(30), {0, 9, 10});
                     }),
            "[cross-entropy] expected labels 0 .. 9 for 10 classes; sample 2 of "
            "the batch has label 10");
  EXPECT_THAT(error_of(ErrorCategory::data, [] { entropy(Values(10), {-1}); }),
              HasSubstr("sample 0 of the batch has label -1"));
}

TEST(CrossEntropy, RejectsTargetsOfAnotherKind) {
  const Values values(20);
  EXPECT_EQ(error_of(ErrorCategory::data,
                     [&] {
                       compute_loss(SparseCategoricalCrossentropy{}, values, 2,
                                    {.labels = {}, .values = values}, 2, {});
                     }),
            "[cross-entropy] expected 2 labels, one for each sample, got 0 "
            "labels and 20 target values");
}

TEST(CrossEntropy, RejectsSmoothingOutsideItsRange) {
  EXPECT_THAT(input_error_of([] {
                entropy({1, 2}, {0}, 1.0f);
              }),
              HasSubstr("expected label smoothing from 0 to below 1, got 1"));
  EXPECT_THAT(input_error_of([] { entropy({1, 2}, {0}, -0.1f); }), HasSubstr("got -0.1"));
}

/// 3 samples of 4 positions of 5 classes.
class PositionsOfCrossEntropy : public ::testing::TestWithParam<float> {
 protected:
  static constexpr std::int64_t kSamples = 3;
  static constexpr std::size_t kWidth = 5;

  /// The sum of the losses by the formula, in double.
  double expected(const Values& weights_of_rows) const {
    const auto smoothing = static_cast<double>(GetParam());
    double sum = 0;
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      if (labels_[row] == kMasked) continue;
      double exponentials = 0;
      for (std::size_t k = 0; k < kWidth; ++k)
        exponentials += std::exp(static_cast<double>(outputs_[row * kWidth + k]));
      for (std::size_t k = 0; k < kWidth; ++k) {
        const double own = k == static_cast<std::size_t>(labels_[row]) ? 1 - smoothing : 0;
        sum += static_cast<double>(weights_of_rows[row]) * (own + smoothing / kWidth) *
               (std::log(exponentials) - static_cast<double>(outputs_[row * kWidth + k]));
      }
    }
    return sum;
  }
  static Values times_four(const Values& sample_weights) {
    Values row_weights;
    for (const float weight : sample_weights) row_weights.insert(row_weights.end(), 4, weight);
    return row_weights;
  }

  const Loss loss_ = SparseCategoricalCrossentropy{GetParam()};
  Values outputs_ = numbers(60, 5);
  const Labels labels_ = {4, 0, kMasked, 2, 1, 1, 3, kMasked, kMasked, kMasked, 0, 2};
  const Values weights_ = {0.5f, 2, 0.25f};
};

TEST_P(PositionsOfCrossEntropy, SumUnmaskedPositions) {
  const MetricSums sums = compute_loss(loss_, outputs_, kSamples, {.labels = labels_}, 1, {});
  EXPECT_NEAR(sums.loss_sum, expected(Values(12, 1)), 1e-5);
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.rows(), 12);
  EXPECT_EQ(sums.positions(), 8);
  EXPECT_EQ(sums.weight_sum(), 8);
  EXPECT_EQ(sums.weight_excess, 0);
  EXPECT_NEAR(sums.loss(), expected(Values(12, 1)) / 8, 1e-6);
  EXPECT_EQ(sums.accuracy(), static_cast<double>(sums.correct) / 8);
  const MetricSums weighted = compute_loss(loss_, outputs_, kSamples,
                                           {.labels = labels_, .sample_weights = weights_}, 1, {});
  EXPECT_NEAR(weighted.loss_sum, expected(times_four(weights_)), 1e-5);
  EXPECT_EQ(weighted.weight_sum(), 3 * 0.5 + 3 * 2 + 2 * 0.25);
  const Values values = numbers(12, 9);
  Values squares;
  for (const float x : values) squares.push_back(x * x);
  EXPECT_NEAR(
      compute_loss(loss_, outputs_, kSamples, {.labels = labels_, .sample_weights = squares}, 1, {})
          .loss_sum,
      expected(squares), 1e-5);
}

TEST_P(PositionsOfCrossEntropy, MatchAnEqualNumberOfSamples) {
  Labels kept;
  Values kept_outputs;
  for (std::size_t row = 0; row < labels_.size(); ++row) {
    if (labels_[row] == kMasked) continue;
    kept.push_back(labels_[row]);
    kept_outputs.insert(kept_outputs.end(), &outputs_[row * kWidth],
                        &outputs_[row * kWidth] + kWidth);
  }
  const MetricSums rows = compute_loss(loss_, kept_outputs, 8, {.labels = kept}, 1, {});
  const MetricSums sums = compute_loss(loss_, outputs_, kSamples, {.labels = labels_}, 1, {});
  EXPECT_EQ(sums.loss_sum, rows.loss_sum);
  EXPECT_EQ(sums.correct, rows.correct);
  EXPECT_EQ(sums.correct_top5, rows.correct_top5);
  const Values expected_gradient = gradient_of(loss_, kept_outputs, 8, {.labels = kept}, 3);
  const Values gradient = gradient_of(loss_, outputs_, kSamples, {.labels = labels_}, 3);
  auto next = expected_gradient.begin();
  for (std::size_t i = 0; i < gradient.size(); ++i)
    EXPECT_EQ(gradient[i], labels_[i / kWidth] == kMasked ? 0 : *next++) << i;
}

TEST_P(PositionsOfCrossEntropy, GradientMatchesDifferences) {
  for (const Values& weights : {Values{}, weights_}) {
    const Targets targets{.labels = labels_, .sample_weights = weights};
    EXPECT_THAT(gradient_of(loss_, outputs_, kSamples, targets, 1),
                Pointwise(FloatNear(2e-4f), numeric_gradient(loss_, outputs_, kSamples, targets)));
  }
}

TEST_P(PositionsOfCrossEntropy, IgnoreMaskedPositions) {
  const MetricSums expected = compute_loss(loss_, outputs_, kSamples, {.labels = labels_}, 1, {});
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (labels_[i / kWidth] == kMasked) outputs_[i] = std::numeric_limits<float>::quiet_NaN();
  Values gradient(outputs_.size(), 5);
  const MetricSums sums = compute_loss(loss_, outputs_, kSamples, {.labels = labels_}, 1, gradient);
  EXPECT_EQ(sums.loss_sum, expected.loss_sum);
  for (const float value : gradient) EXPECT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Smoothing, PositionsOfCrossEntropy, ::testing::Values(0.0f, 0.2f));

TEST(CrossEntropy, IsZeroForMaskedPositionsOnly) {
  const Labels masked(6, kMasked);
  Values gradient(12, 5);
  const MetricSums sums = compute_loss(SparseCategoricalCrossentropy{}, numbers(12, 1), 3,
                                       {.labels = masked}, 3, gradient);
  EXPECT_EQ(sums.samples, 3);
  EXPECT_EQ(sums.weight_sum(), 0);
  EXPECT_TRUE(std::isnan(sums.loss()));
  EXPECT_THAT(gradient, Each(0.0f));
  EXPECT_EQ(error_of(ErrorCategory::data, [&] { require_weights(sums, "epoch 2"); }),
            "[epoch 2] expected weights whose sum is above 0, got weight 0, or masked labels, at "
            "all 6 positions of 3 samples");
}

TEST(CrossEntropy, RejectsInvalidLabelsOfPositions) {
  const Values outputs(24);  // 2 samples of 3 positions of 4 classes
  const auto refusal = [&](const Labels& labels, std::int64_t positions = 0) {
    return error_of(ErrorCategory::data, [&] {
      check_targets(SparseCategoricalCrossentropy{}, 2, 12, {.labels = labels}, positions);
    });
  };
  EXPECT_EQ(refusal({0, 1, 2, 3, -1, -1}), "(no error)");
  EXPECT_EQ(refusal({0, 1, 2, 3, -1, -2}),
            "[cross-entropy] expected labels 0 .. 3 for 4 classes, or -1 to mask a position; "
            "sample 1 of the batch has label -2 at position 2");
  EXPECT_THAT(refusal({0, 4, 2, 3, -1, 0}),
              HasSubstr("sample 0 of the batch has label 4 at position 1"));
  EXPECT_EQ(refusal({0, 1, 2, 3}, 3),
            "[cross-entropy] expected 6 labels, 3 for each sample, got 4 labels and 0 target "
            "values");
  EXPECT_THAT(refusal({0, 11}, 3), HasSubstr("expected 6 labels, 3 for each sample, got 2"));
  EXPECT_THAT(refusal({0, 1, 2, 3}, 1), HasSubstr("expected 2 labels, one for each sample, got 4"));
  EXPECT_THAT(refusal({0, 1, 2, 3, 0}, 3), HasSubstr("expected 6 labels, 3 for each sample"));
  const Labels labels = {0, 1, 2, 3, 0, 0};
  const Values label_weights = {1, 1, 1, 1, 1, -2};
  EXPECT_THAT(error_of(ErrorCategory::data,
                       [&] {
                         check_targets(SparseCategoricalCrossentropy{}, 2, 12,
                                       {.labels = labels, .sample_weights = label_weights});
                       }),
              HasSubstr("weights of 0 or more; sample 1 of the batch has -2"));
  const Labels partners = {0, 1};
  const Values weights = {1, 1};
  EXPECT_THAT(error_of(ErrorCategory::data,
                       [&] {
                         compute_loss(
                             SparseCategoricalCrossentropy{}, outputs, 2,
                             {.labels = labels, .partner_labels = partners, .weights = weights}, 2,
                             {});
                       }),
              HasSubstr("expected unmixed samples with labels of several positions"));
  for (const char* other : {"bce", "cce", "mse"})
    EXPECT_THAT(
        error_of(ErrorCategory::data,
                 [&] { compute_loss(parse_loss(other), outputs, 2, {.labels = labels}, 2, {}); }),
        HasSubstr("expected 24 target values"));
}

TEST(Targets, MustBeProbabilitiesForCrossEntropies) {
  const auto refusal = [](const Loss& loss, std::vector<float> values,
                          std::vector<float> weights = {}) -> std::string {
    try {
      check_targets(loss, 2, 2, {.values = values, .sample_weights = weights});
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::data);
      return error.what();
    }
    return "";
  };
  const Loss binary = BinaryCrossentropy{};
  const Loss categorical = CategoricalCrossentropy{};
  EXPECT_EQ(refusal(binary, {0, 1, 0.5F, 1}), "");
  EXPECT_EQ(refusal(binary, {0, 1, 147, 1}),
            "[bce] expected target values from 0 to 1; sample 1 of the batch has "
            "147");
  EXPECT_EQ(refusal(binary, {0, 1, 147, 1}, {1, 0}), "") << "of weight 0";
  EXPECT_EQ(refusal(binary, {0, NAN, 0, 1}), "") << "as any loss that is not finite";
  EXPECT_EQ(refusal(categorical, {0.25F, 0.75F, 1, 0}), "");
  EXPECT_EQ(refusal(categorical, {0.25F, 0.75F, 1, 1}), "") << "weighted, as in Keras";
  EXPECT_EQ(refusal(categorical, {0.25F, 0.75F, 1, -1}),
            "[cce] expected target values from 0 to 1; sample 1 of the batch has -1");
}

}  // namespace
}  // namespace lockstep::inline v0::model
