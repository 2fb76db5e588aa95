#include "lockstep/model/layers/additive_attention/additive_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

struct AdditiveSetting {
  std::string name;
  std::size_t queries = 0;
  std::size_t keys = 0;
  std::size_t units = 0;
  std::size_t width = 0;
  bool segments = false;

  std::size_t elements(std::size_t input) const {
    return input == 0 ? queries * units : keys * (input == 1 ? units : width);
  }
  friend std::ostream& operator<<(std::ostream& stream, const AdditiveSetting& one) {
    return stream << one.name;
  }
};

constexpr std::size_t kAttended = 3;  // samples

const AdditiveSetting kAdditiveSettings[] = {
    {.name = "one_of_each", .queries = 1, .keys = 1, .units = 1, .width = 1},
    {.name = "whole_lines", .queries = 8, .keys = 16, .units = 32, .width = 16},
    {.name = "parts_of_lines", .queries = 11, .keys = 21, .units = 19, .width = 5},
    {.name = "segments", .queries = 5, .keys = 7, .units = 6, .width = 9, .segments = true},
    {.name = "many_keys", .queries = 9, .keys = 70, .units = 33, .width = 40, .segments = true},
};

// Sample 0 is padded at its end, sample 1 everywhere, sample 2 has some between its documents.
std::vector<std::int32_t> padded_keys(std::size_t keys) {
  std::vector<std::int32_t> all;
  for (std::size_t sample = 0; sample < kAttended; ++sample)
    for (std::size_t s = 0; s < keys; ++s)
      all.push_back(sample == 0   ? (s >= keys * 2 / 3 ? 0 : 1)
                    : sample == 1 ? 0
                                  : static_cast<std::int32_t>(s % 3));
  return all;
}

// The formula in double, and its gradients.
struct AdditiveReference {
  std::array<std::vector<double>, 3> gradients;
  std::vector<double> scale_gradient;
  std::vector<double> output;

  AdditiveReference(const AdditiveSetting& setting, const std::array<std::vector<float>, 3>& inputs,
                    std::span<const float> scale, const std::vector<std::int32_t>& segments,
                    const std::vector<float>& output_gradient)
      : scale_gradient(setting.units), output(kAttended * setting.queries * setting.width) {
    for (std::size_t k = 0; k < 3; ++k) gradients[k].assign(kAttended * setting.elements(k), 0);
    for (std::size_t row = 0; row < kAttended * setting.queries; ++row) {
      const std::size_t first = row / setting.queries * setting.keys;
      const auto hidden = [&](std::size_t s, std::size_t u) {
        return std::tanh(static_cast<double>(inputs[0][row * setting.units + u]) +
                         static_cast<double>(inputs[1][(first + s) * setting.units + u]));
      };
      std::vector<double> weights(setting.keys);
      double sum = 0;
      for (std::size_t s = 0; s < setting.keys; ++s) {
        if (!segments.empty() && segments[first + s] == 0) continue;
        double score = 0;
        for (std::size_t u = 0; u < setting.units; ++u)
          score += static_cast<double>(scale[u]) * hidden(s, u);
        sum += weights[s] = std::exp(score);
      }
      if (sum == 0) continue;
      double product = 0;
      std::vector<double> slopes(setting.keys);
      for (std::size_t s = 0; s < setting.keys; ++s) {
        weights[s] /= sum;
        for (std::size_t d = 0; d < setting.width; ++d) {
          const auto value = static_cast<double>(inputs[2][(first + s) * setting.width + d]);
          const auto gradient = static_cast<double>(output_gradient[row * setting.width + d]);
          output[row * setting.width + d] += weights[s] * value;
          gradients[2][(first + s) * setting.width + d] += weights[s] * gradient;
          slopes[s] += gradient * value;
        }
        product += weights[s] * slopes[s];
      }
      for (std::size_t s = 0; s < setting.keys; ++s)
        for (std::size_t u = 0; u < setting.units; ++u) {
          const double slope = weights[s] * (slopes[s] - product);
          const double value = hidden(s, u);
          const double gradient = slope * static_cast<double>(scale[u]) * (1 - value * value);
          scale_gradient[u] += slope * value;
          gradients[0][row * setting.units + u] += gradient;
          gradients[1][(first + s) * setting.units + u] += gradient;
        }
    }
  }
};

// A network of the layer that exposes its inputs and its output.
class AdditiveTrial {
 public:
  explicit AdditiveTrial(const AdditiveSetting& setting)
      : setting_(setting), model_(network(), device::Device{}, allocator_, {}) {
    model_.initialize(4);
    for (std::size_t k = 0; k < 3; ++k)
      features_.push_back(numbers(kAttended * setting.elements(k), 10 + k));
    if (setting.segments) segments_ = padded_keys(setting.keys);
    targets_ = numbers(kAttended * setting.queries * setting.width, 3);
  }

  std::vector<std::int32_t>& segments() { return segments_; }
  CompiledModel& model() { return model_; }
  const Recording& input(std::size_t k) const { return *recordings_[k]; }
  const Recording& output() const { return *output_; }
  std::span<const float> scale() { return scale_part(model_.parameters()); }
  std::span<const float> scale_gradient() { return scale_part(model_.gradients()); }

  // Calls use(batch) with `count` samples from `first` on.
  template <typename Use>
  void with_batch(std::size_t first, std::size_t count, const Use& use) const {
    std::vector<InputView> views;
    for (const std::vector<float>& all : features_)
      views.push_back({.features = part_of(all, first, count)});
    if (!segments_.empty()) views.push_back({.indices = part_of(segments_, first, count)});
    use(BatchView{.samples = static_cast<std::int64_t>(count),
                  .targets = {.labels = {}, .values = part_of(targets_, first, count)},
                  .inputs = views});
  }
  // All trials use the same divisor.
  void train(std::size_t first = 0, std::size_t count = kAttended) {
    with_batch(first, count, [&](const BatchView& batch) {
      model_.train_batch(batch, {.global_samples = kAttended}, MeanSquaredError{});
    });
  }

 private:
  template <typename T>
  static std::span<const T> part_of(const std::vector<T>& all, std::size_t first,
                                    std::size_t count) {
    const std::size_t each = all.size() / kAttended;
    return std::span(all).subspan(first * each, count * each);
  }

  std::span<const float> scale_part(std::span<const float> all) const {
    const ParameterInfo* const info = model_.parameter_table().find("additive_attention/scale");
    return all.subspan(info->offset, setting_.units);
  }

  std::shared_ptr<const Network> network() {
    std::vector<NetworkInput> inputs;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t positions = k == 0 ? setting_.queries : setting_.keys;
      inputs.push_back({.name = "input" + std::to_string(k),
                        .shape = {static_cast<std::int64_t>(positions),
                                  static_cast<std::int64_t>(setting_.elements(k) / positions)}});
    }
    if (setting_.segments)
      inputs.push_back({.name = "segments",
                        .shape = {static_cast<std::int64_t>(setting_.keys)},
                        .type = ElementType::int32});
    Network network(inputs, "additive");
    std::vector<NodeId> parts;
    for (std::size_t k = 0; k < 3; ++k) {
      network.add(Shift(), {kInput - static_cast<NodeId>(k)});
      parts.push_back(network.add(Probe(recordings_[k])));
    }
    if (setting_.segments) parts.push_back(network.input("segments"));
    network.add(AdditiveAttention(), parts);
    network.add(Probe(output_));
    return std::make_shared<const Network>(std::move(network));
  }

  const AdditiveSetting& setting_;
  std::array<std::shared_ptr<Recording>, 3> recordings_ = {
      std::make_shared<Recording>(), std::make_shared<Recording>(), std::make_shared<Recording>()};
  std::shared_ptr<Recording> output_ = std::make_shared<Recording>();
  device::HostAllocator allocator_;
  CompiledModel model_;
  std::vector<std::vector<float>> features_;
  std::vector<std::int32_t> segments_;
  std::vector<float> targets_;
};

template <typename Values>
void expect_additive_near(const Values& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], 1e-5 * largest + 1e-8) << "element " << i;
}

class AdditiveAttentionLayer : public testing::TestWithParam<AdditiveSetting> {
 protected:
  void SetUp() override { set_thread_budget(1); }
};

TEST_P(AdditiveAttentionLayer, MatchesTheFormula) {
  AdditiveTrial trial(GetParam());
  const auto expected = [&] {
    return AdditiveReference(GetParam(),
                             {trial.input(0).values, trial.input(1).values, trial.input(2).values},
                             trial.scale(), trial.segments(), trial.output().gradient);
  };
  trial.train();
  const AdditiveReference reference = expected();
  expect_additive_near(trial.output().values, reference.output);
  for (std::size_t k = 0; k < 3; ++k) {
    SCOPED_TRACE(k);
    expect_additive_near(trial.input(k).gradient, reference.gradients[k]);
  }
  expect_additive_near(trial.scale_gradient(), reference.scale_gradient);
  trial.with_batch(0, kAttended, [&](const BatchView& batch) {
    const std::span<const float> outputs = trial.model().predict_batch(batch);
    expect_additive_near(std::vector<float>(outputs.begin(), outputs.end()), reference.output);
  });
}

// Neither the batch nor the number of threads changes a bit.
TEST_P(AdditiveAttentionLayer, DependsOnlyOnItsSample) {
  set_thread_budget(3);
  AdditiveTrial together(GetParam());
  together.train();
  set_thread_budget(1);
  AdditiveTrial alone(GetParam());
  const auto sample = [](const std::vector<float>& all, std::size_t which) {
    const auto each = static_cast<std::ptrdiff_t>(all.size() / kAttended);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(which) * each;
    return std::vector<float>(begin, begin + each);
  };
  for (std::size_t which = 0; which < kAttended; ++which) {
    SCOPED_TRACE(which);
    alone.train(which, 1);
    EXPECT_EQ(alone.output().values, sample(together.output().values, which));
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_EQ(alone.input(k).gradient, sample(together.input(k).gradient, which));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, AdditiveAttentionLayer, testing::ValuesIn(kAdditiveSettings),
                         [](const auto& one) { return one.param.name; });

TEST(AdditiveAttention, IsZeroWithoutKeys) {
  AdditiveTrial trial(kAdditiveSettings[3]);
  std::ranges::fill(trial.segments(), 0);
  trial.train();
  EXPECT_THAT(trial.output().values, Each(0.0f));
  for (std::size_t k = 0; k < 3; ++k) EXPECT_THAT(trial.input(k).gradient, Each(0.0f));
  EXPECT_THAT(trial.scale_gradient(), Each(0.0f));
}

Network projected_additive_attention() {
  Network network({9, 5});
  const NodeId keys = network.add(Conv1D({.filters = 6, .kernel = 1}));
  const NodeId queries = network.add(Cropping1D({.before = 2, .after = 3}));
  network.add(AdditiveAttention(), {queries, keys, keys});
  return network;
}

TEST(AdditiveAttention, MatchesFiniteDifferences) {
  expect_gradients_match_differences(projected_additive_attention());
}

TEST(AdditiveAttention, TrainsWithItsScaleFrozen) {
  Network network = projected_additive_attention();
  const std::vector<std::string> scale = {"additive_attention/*"};
  network.freeze(scale);
  expect_gradients_match_differences(network);
}

TEST(AdditiveAttention, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial exact(projected_additive_attention(), 3);
  Trial rounded(projected_additive_attention(), 3, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.1f), exact.predict()));
  exact.train();
  rounded.train();
  for (const char* const name : {"conv1d/kernel", "additive_attention/scale"}) {
    const auto expected = exact.gradient(name);
    const auto [low, high] = std::ranges::minmax(expected);
    EXPECT_THAT(rounded.gradient(name), Pointwise(FloatNear(0.1f * (high - low)), expected));
  }
}

TEST(AdditiveAttention, RefusesMismatchedInputs) {
  struct Case {
    std::vector<Shape> inputs;
    std::string message;
  };
  const Case cases[] = {
      {{{6, 4}, {6, 4}},
       "expected queries, keys and values, and optionally segments, got 2 inputs"},
      {{{6}, {6, 4}, {6, 4}}, "expected inputs [positions, elements], got [6]"},
      {{{6, 4}, {5, 3}, {5, 8}}, "expected keys [S, 4], as wide as the queries, got [5, 3]"},
      {{{6, 4}, {5, 4}, {6, 8}}, "expected values [5, D], one for each key, got [6, 8]"},
      {{{6, 4}, {5, 4}, {5, 8}, {6}}, "expected segments [5] of the keys, got [6]"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.message);
    EXPECT_THAT(input_error_of([&] {
                  std::vector<NetworkInput> inputs;
                  std::vector<NodeId> ids;
                  for (std::size_t k = 0; k < one.inputs.size(); ++k) {
                    inputs.push_back({.name = std::to_string(k),
                                      .shape = one.inputs[k],
                                      .type = k == 3 ? ElementType::int32 : ElementType::float32});
                    ids.push_back(kInput - static_cast<NodeId>(k));
                  }
                  Network(inputs).add(AdditiveAttention(), ids);
                }),
                ::testing::AllOf(HasSubstr("[layer additive_attention (additive_attention)]"),
                                 HasSubstr(one.message)));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
