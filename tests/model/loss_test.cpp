#include "lockstep/model/loss/loss.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/model/tensor/tensor.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/loss_gradients.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

TEST(Loss, ReadsTheLastExtentOfClassesAtPositions) {
  EXPECT_EQ(row_width(SparseCategoricalCrossentropy{}, Shape{16, 65}), 65);
  EXPECT_EQ(row_width(SparseCategoricalCrossentropy{}, Shape{10}), 10);
  EXPECT_EQ(row_width(CategoricalCrossentropy{}, Shape{16, 65}), 16 * 65);
  EXPECT_EQ(row_width(MeanSquaredError{}, Shape{}), 1);
}

TEST(MeanSquaredErrorLoss, IsTheMeanOverOutputsSummedOverSamples) {
  const Values outputs = {1, 2, 3, 4};
  const Values targets = {1, 0, 3, 1};
  const MetricSums sums =
      compute_loss(MeanSquaredError{}, outputs, 2, {.labels = {}, .values = targets}, 1, {});
  EXPECT_DOUBLE_EQ(sums.loss_sum, (0 + 4) / 2.0 + (0 + 9) / 2.0);
  EXPECT_EQ(sums.samples, 2);
  EXPECT_FALSE(sums.has_accuracy());
}

TEST(MeanSquaredErrorLoss, RejectsMissingTargets) {
  const Labels label = {1, 2};
  EXPECT_EQ(error_of(ErrorCategory::data,
                     [&] {
                       compute_loss(MeanSquaredError{}, Values(6), 2,
                                    {.labels = label, .values = {}}, 2, {});
                     }),
            "[mse] expected 6 target values for 2 samples of 3 outputs, got 0 "
            "target values and 2 labels");
}

// The samples have weights; scripts/make_reference writes the file.
TEST(Loss, AgreesWithPyTorch) {
  const ReferenceFile reference("layers");
  const auto array = [&](const std::string& name) {
    return reference.array("loss/" + name).values;
  };
  const Values outputs = array("output");
  const Values value = array("value");
  const Values distribution = array("distribution");
  const Values weight = array("weight");
  const Labels& label = reference.integers("loss/label");
  const auto samples = static_cast<std::int64_t>(label.size());
  for (const std::string name :
       {"mse", "mae", "huber", "huber:delta=2", "bce", "bce:label_smoothing=0.2", "cross-entropy",
        "cross-entropy:label_smoothing=0.2", "cce", "cce:label_smoothing=0.2"}) {
    Targets targets{.sample_weights = weight};
    if (name.starts_with("cross-entropy"))
      targets.labels = label;
    else
      targets.values = name.starts_with("cce") ? distribution : value;
    Values gradient(outputs.size());
    const MetricSums sums = compute_loss(parse_loss(name), outputs, samples, targets, 1, gradient);
    EXPECT_NEAR(sums.loss_sum, array(name + "/sum")[0], 5e-6) << name;
    EXPECT_THAT(gradient, Pointwise(FloatNear(1e-6f), array(name + "/gradient"))) << name;
  }
}

TEST(Loss, IsZeroWithoutSamples) {
  const MetricSums sums = compute_loss(SparseCategoricalCrossentropy{}, {}, 0, {}, 64, {});
  EXPECT_EQ(sums.loss_sum, 0);
  EXPECT_EQ(sums.samples, 0);
}

TEST(Loss, GradientsOfPartsAddUpToThatOfTheWholeBatch) {
  const Values outputs = numbers(24, 8);  // 6 samples of 4 outputs
  const Labels label = labels(6, 4, 9);
  const SparseCategoricalCrossentropy loss;
  const Values whole = gradient_of(loss, outputs, 6, {.labels = label, .values = {}}, 6);
  const Values tail(outputs.begin() + 16, outputs.end());
  const Values part =
      gradient_of(loss, tail, 2, {.labels = std::span(label).subspan(4), .values = {}}, 6);
  EXPECT_EQ(part, Values(whole.begin() + 16, whole.end()))
      << "a part divides by the samples of the global batch, not by its own";
}

/// The squared distance of the outputs from their targets, which have another width.
class SquaredDistance final : public CustomLoss {
 public:
  std::string name() const override { return "squared_distance"; }
  double value(std::span<const float> outputs, const SampleTargets& targets) const override {
    double sum = 0;
    for (const float output : outputs) {
      const auto difference = static_cast<double>(output - targets.values[0]);
      sum += difference * difference;
    }
    return sum;
  }
  void gradient(std::span<const float> outputs, const SampleTargets& targets,
                std::span<float> gradient) const override {
    for (std::size_t k = 0; k < outputs.size(); ++k)
      gradient[k] = 2 * (outputs[k] - targets.values[0]);
  }
};

struct LossCase {
  const char* name;  // for parse_loss(); null: SquaredDistance
  double first;      // the loss of each sample
  double second;

  Loss loss() const { return name ? parse_loss(name) : Loss(std::make_shared<SquaredDistance>()); }
};

std::ostream& operator<<(std::ostream& out, const LossCase& one) {
  return out << to_string(one.loss());
}

/// Two samples of three outputs.
class DenseLoss : public ::testing::TestWithParam<LossCase> {
 protected:
  static constexpr std::int64_t kSamples = 2;

  Targets targets(std::span<const float> weights = {}) const {
    return {.values = values_, .sample_weights = weights};
  }
  double loss_with(const Values& weights) const {
    return compute_loss(loss_, outputs_, kSamples, targets(weights), 1, {}).loss_sum;
  }

  const Loss loss_ = GetParam().loss();
  const Values outputs_ = {1.5f, -0.5f, 0.25f, 2.5f, -3, 0.75f};
  const Values values_ = {0.2f, 0.7f, 0.1f, 0, 1, 0.4f};
};

TEST_P(DenseLoss, MatchesItsFormula) {
  EXPECT_NEAR(loss_with({1, 0}), GetParam().first, 1e-6);
  EXPECT_NEAR(loss_with({}), GetParam().first + GetParam().second, 2e-6);
}

TEST_P(DenseLoss, GradientMatchesDifferences) {
  for (const Values& weights : {Values{}, Values{0.5f, 2}})
    EXPECT_THAT(
        gradient_of(loss_, outputs_, kSamples, targets(weights), 1),
        Pointwise(FloatNear(2e-4f), numeric_gradient(loss_, outputs_, kSamples, targets(weights))));
}

TEST_P(DenseLoss, IsMultipliedByTheWeightOfASample) {
  const Values plain = gradient_of(loss_, outputs_, kSamples, targets(), 3);
  const Values weights = {0.25f, 4};
  Values expected;
  for (std::size_t i = 0; i < plain.size(); ++i) expected.push_back(plain[i] * weights[i / 3]);
  EXPECT_THAT(gradient_of(loss_, outputs_, kSamples, targets(weights), 3),
              Pointwise(FloatNear(1e-6f), expected));
  const MetricSums sums = compute_loss(loss_, outputs_, kSamples, targets(weights), 1, {});
  EXPECT_EQ(sums.weight_sum(), 4.25);
  EXPECT_EQ(sums.samples, 2);
  EXPECT_NEAR(sums.loss(), (0.25 * GetParam().first + 4 * GetParam().second) / 4.25, 1e-5);
}

TEST_P(DenseLoss, IgnoresSamplesOfWeight0) {
  Values outputs = outputs_;
  outputs[1] = std::numeric_limits<float>::quiet_NaN();
  const Values weights = {0, 1};
  Values gradient(6, 5);
  const MetricSums sums = compute_loss(loss_, outputs, kSamples, targets(weights), 1, gradient);
  EXPECT_NEAR(sums.loss(), GetParam().second, 2e-6);
  EXPECT_EQ(Values(gradient.begin(), gradient.begin() + 3), Values(3));
  EXPECT_THAT(Values(gradient.begin() + 3, gradient.end()), Each(::testing::Ne(5.0f)));
}

TEST_P(DenseLoss, RejectsInvalidWeights) {
  const auto refusal = [&](const Values& weights) {
    return error_of(ErrorCategory::data, [&] { loss_with(weights); });
  };
  EXPECT_THAT(refusal({1}), HasSubstr("] expected 2 sample weights, got 1"));
  const std::string finite =
      "] expected finite sample weights of 0 or more; sample 1 of the batch ";
  EXPECT_THAT(refusal({1, -0.5f}), HasSubstr(finite + "has -0.5"));
  EXPECT_THAT(refusal({1, std::numeric_limits<float>::infinity()}), HasSubstr(finite + "has inf"));
  EXPECT_THAT(refusal({1, std::numeric_limits<float>::quiet_NaN()}), HasSubstr(finite + "has nan"));
}

// The values are those of the formulas in double, as PyTorch and Keras define them.
INSTANTIATE_TEST_SUITE_P(
    All, DenseLoss,
    ::testing::Values(LossCase{"mse", 1.050833333, 7.4575},
                      LossCase{"mae", 0.883333333, 2.283333333},
                      LossCase{"bce", 1.008809894, 2.154782697},
                      LossCase{"bce:label_smoothing=0.2", 0.965476561, 1.966449364},
                      LossCase{"cce", 1.876951864, 6.429179775},
                      LossCase{"cce:label_smoothing=0.2", 1.788618530, 5.659417122},
                      LossCase{"huber", 0.50375, 1.85375},
                      LossCase{"huber:delta=2", 0.525416667, 3.020416667}));

TEST(CustomLossClass, ComparesOutputsWithTargetsOfAnotherWidth) {
  const Values outputs = {1, 3, 5, 5};
  const Values wanted = {2, 4};
  const Targets targets{.values = wanted};
  const Loss loss = std::make_shared<SquaredDistance>();
  EXPECT_EQ(compute_loss(loss, outputs, 2, targets, 1, {}).loss_sum, 1 + 1 + 1 + 1);
  EXPECT_EQ(gradient_of(loss, outputs, 2, targets, 2), Values({-1, 1, 1, 1}));
  EXPECT_EQ(
      error_of(
          ErrorCategory::data,
          [&] { compute_loss(loss, outputs, 2, {.values = std::span(outputs).first(3)}, 1, {}); }),
      "[squared_distance] expected a label, or an equal number of target values, for each of 2 "
      "samples, "
      "got 3 target values and 0 labels");
  EXPECT_THAT(input_error_of([&] { check_runs_on_gpu(loss); }), HasSubstr("on the CPU only"));
  EXPECT_THAT(input_error_of([] { check_options(CustomLossPointer()); }), HasSubstr("null"));
}

/// The first output of logits.
class FirstLogit final : public CustomLoss {
 public:
  explicit FirstLogit(std::string_view activation) : activation_(activation) {}
  std::string name() const override { return "mse"; }
  std::string_view activation() const override { return activation_; }
  double value(std::span<const float> outputs, const SampleTargets& /*targets*/) const override {
    return static_cast<double>(outputs[0]);
  }
  void gradient(std::span<const float> /*outputs*/, const SampleTargets& /*targets*/,
                std::span<float> gradient) const override {
    std::ranges::fill(gradient, 0.0F);
    gradient[0] = 1;
  }

 private:
  std::string_view activation_;
};

TEST(CustomLossClass, HasAnAccuracyIfItsOutputsAreLogits) {
  const Values outputs = {1, 3, 5, 4};
  const Labels label = {1, 1};
  const Values dense = {0, 1, 0, 1};
  const Values wanted = {0, 1, 1, 0};
  const auto sums = [&](std::string_view activation, const Targets& targets, std::int64_t samples) {
    return compute_loss(std::make_shared<FirstLogit>(activation), outputs, samples, targets, 1, {});
  };
  for (const Targets& targets : {Targets{.labels = label}, Targets{.values = dense}}) {
    const MetricSums class_sums = sums("softmax", targets, 2);
    EXPECT_TRUE(class_sums.has_accuracy());
    EXPECT_EQ(class_sums.correct, 1);
    EXPECT_EQ(class_sums.correct_top5, 2);
    EXPECT_EQ(class_sums.loss_sum, 6);
  }
  EXPECT_EQ(sums("sigmoid", {.values = wanted}, 4).correct, 2);
  EXPECT_FALSE(sums("", {.labels = label}, 2).has_accuracy());
  const Labels outside = {1, 2};
  EXPECT_EQ(error_of(ErrorCategory::data, [&] { sums("softmax", {.labels = outside}, 2); }),
            "[mse] expected labels 0 .. 1 for 2 classes; sample 1 of the batch has label 2");
  EXPECT_THAT(error_of(ErrorCategory::data, [&] { sums("sigmoid", {.labels = label}, 2); }),
              HasSubstr("expected 4 target values for 2 samples of 2 outputs"));
  EXPECT_EQ(input_error_of([] { check_options(std::make_shared<FirstLogit>("tanh")); }),
            "[mse] expected softmax, sigmoid or no activation, got \"tanh\"");
}

TEST(BinaryCrossentropyLoss, StaysFiniteForHugeLogits) {
  const auto of = [](float logit, float target) {
    const Values outputs = {logit};
    const Values wanted = {target};
    Values gradient(1);
    const double sum =
        compute_loss(BinaryCrossentropy{}, outputs, 1, {.values = wanted}, 1, gradient).loss_sum;
    return std::pair(sum, gradient[0]);
  };
  EXPECT_EQ(of(1000, 0), std::pair(1000.0, 1.0f));
  EXPECT_EQ(of(1000, 1), std::pair(0.0, 0.0f));
  EXPECT_EQ(of(-1000, 1), std::pair(1000.0, -1.0f));
  EXPECT_EQ(of(-1000, 0), std::pair(0.0, 0.0f));
}

struct InfiniteLogits {
  const char* loss;
  Values outputs;
  Values targets;  // a single one is the label of cross-entropy
  double value;
  Values gradient;
};

TEST(CrossEntropies, HaveTheirLimitsForInfiniteLogits) {
  constexpr float kBig = std::numeric_limits<float>::infinity();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::vector<InfiniteLogits> cases = {
      {"bce", {kBig}, {1}, 0, {0}},
      {"bce", {-kBig}, {0}, 0, {0}},
      {"bce", {kBig}, {0}, kNever, {1}},
      {"bce", {-kBig}, {1}, kNever, {-1}},
      {"bce", {kBig}, {0.5f}, kNever, {0.5f}},
      {"bce:label_smoothing=0.5", {kBig}, {1}, kNever, {0.25f}},
      {"cross-entropy", {0, kBig, -kBig}, {1}, 0, {0, 0, 0}},
      {"cross-entropy", {0, kBig, -kBig}, {0}, kNever, {-1, 1, 0}},
      {"cross-entropy", {0, -kBig}, {0}, 0, {0, 0}},
      {"cce", {0, kBig, -kBig}, {0, 1, 0}, 0, {0, 0, 0}},
      {"cce", {0, kBig, -kBig}, {1, 0, 0}, kNever, {-1, 1, 0}},
      {"cce", {kBig, 0}, {0.5f, 0.5f}, kNever, {0.5f, -0.5f}}};
  for (const InfiniteLogits& one : cases) {
    const Loss loss = parse_loss(one.loss);
    const Labels label = {static_cast<std::int32_t>(one.targets[0])};
    const bool has_label = std::holds_alternative<SparseCategoricalCrossentropy>(loss);
    const Targets targets = has_label ? Targets{.labels = label} : Targets{.values = one.targets};
    const std::string what =
        fmt::format("{} of {} with {}", one.loss, one.outputs[0], one.targets[0]);
    EXPECT_EQ(compute_loss(loss, one.outputs, 1, targets, 1, {}).loss_sum, one.value) << what;
    EXPECT_EQ(gradient_of(loss, one.outputs, 1, targets, 1), one.gradient) << what;
  }
  const Values equal = {kBig, kBig, 0};
  EXPECT_NEAR(entropy(equal, {0}).loss_sum, std::log(2.0), 1e-6) << "they share the probability";
}

TEST(BinaryCrossentropyLoss, AcceptsLabelsAndHasAnAccuracyForOneOutput) {
  const Values outputs = {2, -1, 0.5f, -3, std::numeric_limits<float>::quiet_NaN()};
  const Labels label = {1, 1, 0, 0, 0};
  const Values wanted = {1, 1, 0, 0, 0};
  const BinaryCrossentropy loss;
  const MetricSums label_sums = compute_loss(loss, outputs, 5, {.labels = label}, 1, {});
  EXPECT_TRUE(label_sums.has_accuracy());
  EXPECT_EQ(label_sums.correct, 2) << "a NaN is not correct";
  EXPECT_EQ(compute_loss(loss, outputs, 5, {.values = wanted}, 1, {}).correct, 2);
  const auto four = std::span(outputs).first(4);
  EXPECT_EQ(compute_loss(loss, four, 4, {.labels = std::span(label).first(4)}, 1, {}).loss_sum,
            compute_loss(loss, four, 4, {.values = std::span(wanted).first(4)}, 1, {}).loss_sum);
  EXPECT_FALSE(
      compute_loss(loss, four, 2, {.values = std::span(wanted).first(4)}, 1, {}).has_accuracy())
      << "several labels per sample";
  const Labels beyond = {0, 1, 2, 0, 0};
  EXPECT_THAT(error_of(ErrorCategory::data,
                       [&] { compute_loss(loss, outputs, 5, {.labels = beyond}, 1, {}); }),
              HasSubstr("expected labels 0 .. 1 for 2 classes; sample 2 of the batch has label 2"));
}

TEST(CategoricalCrossentropyLoss, MatchesLabelsForOneHotTargets) {
  const Values outputs = numbers(12, 3);
  const Labels label = {2, 0, 1};
  const Values one_hot = {0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0};
  for (const float smoothing : {0.0f, 0.1f}) {
    const MetricSums sparse = entropy(outputs, label, smoothing);
    const MetricSums dense =
        compute_loss(CategoricalCrossentropy{smoothing}, outputs, 3, {.values = one_hot}, 1, {});
    EXPECT_NEAR(dense.loss_sum, sparse.loss_sum, 1e-5);
    EXPECT_EQ(dense.correct, sparse.correct);
    EXPECT_TRUE(dense.has_accuracy());
    EXPECT_THAT(gradient_of(CategoricalCrossentropy{smoothing}, outputs, 3, {.values = one_hot}, 3),
                Pointwise(FloatNear(1e-6f), gradient_of(SparseCategoricalCrossentropy{smoothing},
                                                        outputs, 3, {.labels = label}, 3)));
  }
  const Values impossible = {0, -std::numeric_limits<float>::infinity(), 0};
  EXPECT_EQ(compute_loss(CategoricalCrossentropy{}, impossible, 1,
                         {.values = std::span(one_hot).subspan(8, 3)}, 1, {})
                .loss_sum,
            std::numeric_limits<double>::infinity())
      << "the excluded class is the true one";
  EXPECT_NEAR(compute_loss(CategoricalCrossentropy{}, impossible, 1,
                           {.values = std::span(one_hot).first(3)}, 1, {})
                  .loss_sum,
              std::log(2.0), 1e-6);
}

TEST(ClassWeights, AreAppliedToSamples) {
  std::vector<float> weights;
  const Values class_weights = {1, 4, 0.5f};
  const Labels label = {2, 0, 1};
  const Values sample_weights = {2, 3, 0};
  apply_class_weights({.labels = label}, class_weights, 3, weights);
  EXPECT_EQ(weights, Values({0.5f, 1, 4}));
  apply_class_weights({.labels = label, .sample_weights = sample_weights}, class_weights, 3,
                      weights);
  EXPECT_EQ(weights, Values({1, 3, 0}));
  const Labels partners = {1, 0, 0};
  const Values own = {0.5f, 0.25f, 0};
  apply_class_weights({.labels = label, .partner_labels = partners, .weights = own}, class_weights,
                      3, weights);
  EXPECT_EQ(weights, Values({2.25f, 1, 1}));
  const Values dense = {0, 0.5f, 0.5f, 1, 0, 0};
  apply_class_weights({.values = dense}, class_weights, 2, weights);
  EXPECT_EQ(weights, Values({2.25f, 1}));
  apply_class_weights({.values = std::span(dense).first(2)}, Values({3, 5}), 2, weights);
  EXPECT_EQ(weights, Values({3, 4})) << "of one logit";
  const Labels at_positions = {0, 1, kMasked, 2, 2, 2};
  apply_class_weights({.labels = at_positions, .sample_weights = sample_weights}, class_weights, 3,
                      weights);
  EXPECT_EQ(weights, Values({2, 8, 3, 1.5f, 0, 0})) << "of samples of two positions";
  const Values position_weights = {2, 0.5f, 7, 4, 0, 1};
  apply_class_weights({.labels = at_positions, .sample_weights = position_weights}, class_weights,
                      3, weights);
  EXPECT_EQ(weights, Values({2, 2, 7, 2, 0, 0.5f})) << "with a weight for each position";
}

TEST(ClassWeights, AreRejectedForOtherClasses) {
  const auto refusal = [](const Loss& loss, std::int64_t outputs, const Values& weights) {
    return input_error_of([&] { check_class_weights(loss, outputs, weights); });
  };
  EXPECT_EQ(refusal(Loss(), 3, {1, 2}),
            "[class-weights] expected 3 weights, one for each class, got 2 weights");
  EXPECT_EQ(refusal(BinaryCrossentropy(), 1, {1, 2}), "(no error)");
  EXPECT_EQ(refusal(MeanSquaredError(), 2, {1, 2}),
            "[class-weights] expected a loss with classes, got mse");
  EXPECT_EQ(refusal(Loss(), 2, {1, -2}),
            "[class-weights] expected finite weights of 0 or more; class 1 has -2");
  EXPECT_EQ(refusal(Loss(), 2, {std::numeric_limits<float>::infinity(), 1}),
            "[class-weights] expected finite weights of 0 or more; class 0 has inf");
  EXPECT_EQ(refusal(Loss(), 2, {0, 0}),
            "[class-weights] expected a class with a weight above 0, got 0 for all");
  EXPECT_EQ(refusal(Loss(), 2, {0, 1}), "(no error)");
}

TEST(Loss, IsParsedFromANameAndParameters) {
  for (const std::string_view name : loss_names()) EXPECT_EQ(name_of(parse_loss(name)), name);
  EXPECT_EQ(to_string(parse_loss("mae")), "mae");
  EXPECT_EQ(to_string(parse_loss("huber:delta=2.5")), "huber:delta=2.5");
  EXPECT_EQ(to_string(parse_loss("cross-entropy:label_smoothing=0.1")),
            "cross-entropy:label_smoothing=0.1");
  for (const char* wrong : {"", "huber:", "huber:delta", "huber:delta=", "huber:delta=2,",
                            "huber:delta=nan", "huber:delta=-1", "mse:delta=1", "custom_loss"})
    EXPECT_NE(input_error_of([&] { parse_loss(wrong); }), "(no error)") << wrong;
}

TEST(Loss, HasANameForLogs) {
  EXPECT_EQ(to_string(Loss(SparseCategoricalCrossentropy{})), "cross-entropy");
  EXPECT_EQ(to_string(Loss(SparseCategoricalCrossentropy{0.1f})),
            "cross-entropy:label_smoothing=0.1");
  EXPECT_EQ(to_string(Loss(MeanSquaredError{})), "mse");
}

}  // namespace
}  // namespace lockstep::inline v0::model
