#include "lockstep/model/layers/attention/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
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
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

struct AttentionSetting {
  std::string name;
  std::size_t queries = 0;
  std::size_t keys = 0;
  std::size_t width = 0;  // per head
  Attention::Options options;
  bool packed = true;
  bool segments = false;

  std::size_t heads() const { return static_cast<std::size_t>(options.heads); }
  std::size_t shared() const {
    return options.key_value_heads > 0 ? static_cast<std::size_t>(options.key_value_heads)
                                       : heads();
  }
  friend std::ostream& operator<<(std::ostream& stream, const AttentionSetting& one) {
    return stream << one.name;
  }
};

const AttentionSetting kAttentionSettings[] = {
    {.name = "packed", .queries = 5, .keys = 5, .width = 4, .options = {.heads = 2}},
    {.name = "separate",
     .queries = 6,
     .keys = 6,
     .width = 8,
     .options = {.heads = 3},
     .packed = false},
    {.name = "more_keys_than_queries",
     .queries = 9,
     .keys = 70,
     .width = 7,
     .options = {.heads = 2},
     .packed = false},
    {.name = "fewer_keys_than_queries",
     .queries = 70,
     .keys = 3,
     .width = 6,
     .options = {.heads = 4, .key_value_heads = 2, .rotary = 10},
     .packed = false},
    {.name = "grouped_queries",
     .queries = 11,
     .keys = 11,
     .width = 5,
     .options = {.heads = 6, .key_value_heads = 2}},
    {.name = "one_head_of_keys",
     .queries = 20,
     .keys = 20,
     .width = 16,
     .options = {.heads = 4, .key_value_heads = 1, .causal = true}},
    {.name = "causal_one_block",
     .queries = 64,
     .keys = 64,
     .width = 8,
     .options = {.heads = 2, .causal = true}},
    {.name = "causal_several_blocks",
     .queries = 150,
     .keys = 150,
     .width = 20,
     .options = {.heads = 2, .causal = true}},
    {.name = "rotary",
     .queries = 13,
     .keys = 13,
     .width = 10,
     .options = {.heads = 2, .rotary = 10000}},
    {.name = "segments",
     .queries = 12,
     .keys = 12,
     .width = 4,
     .options = {.heads = 2},
     .segments = true},
    {.name = "all",
     .queries = 141,
     .keys = 141,
     .width = 6,
     .options = {.heads = 4, .key_value_heads = 2, .causal = true, .rotary = 100},
     .packed = false,
     .segments = true},
    {.name = "all_packed",
     .queries = 75,
     .keys = 75,
     .width = 40,
     .options = {.heads = 2, .key_value_heads = 1, .causal = true, .rotary = 100},
     .segments = true},
};

// Sample 0 is padded, sample 1 has two documents, and sample 2 padding between documents.
std::vector<std::int32_t> segments_of(std::size_t samples, std::size_t positions) {
  std::vector<std::int32_t> all;
  for (std::size_t sample = 0; sample < samples; ++sample)
    for (std::size_t i = 0; i < positions; ++i) {
      const bool late = i >= positions * 2 / 3;
      if (sample % 3 == 0)
        all.push_back(late ? 0 : 1);
      else if (sample % 3 == 1)
        all.push_back(late ? 2 : 1);
      else
        all.push_back(static_cast<std::int32_t>(i / 3 % 4));
    }
  return all;
}

// Queries, keys and values [samples, positions, heads, width], and related arrays.
struct AttentionArrays {
  std::vector<double> parts[3];
  std::vector<double> gradients[3];
  std::vector<double> output;
};

// The formula in double, position by position.
class AttentionReference {
 public:
  AttentionReference(const AttentionSetting& setting, std::size_t samples)
      : setting_(setting), samples_(samples) {}

  void compute(AttentionArrays& a, const std::vector<double>& output_gradient,
               const std::vector<std::int32_t>& segments) const {
    rotate(a.parts[0], setting_.heads(), setting_.queries, 1);
    rotate(a.parts[1], setting_.shared(), setting_.keys, 1);
    for (std::size_t part = 0; part < 3; ++part) a.gradients[part].assign(a.parts[part].size(), 0);
    a.output.assign(a.parts[0].size(), 0);
    for (std::size_t sample = 0; sample < samples_; ++sample)
      for (std::size_t head = 0; head < setting_.heads(); ++head)
        for (std::size_t i = 0; i < setting_.queries; ++i)
          attend(a, output_gradient, segments, sample, head, i);
    rotate(a.gradients[0], setting_.heads(), setting_.queries, -1);
    rotate(a.gradients[1], setting_.shared(), setting_.keys, -1);
  }

 private:
  void attend(AttentionArrays& a, const std::vector<double>& output_gradient,
              const std::vector<std::int32_t>& segments, std::size_t sample, std::size_t head,
              std::size_t i) const {
    const std::size_t width = setting_.width;
    const std::size_t query = ((sample * setting_.queries + i) * setting_.heads() + head) * width;
    const std::size_t shared = head / (setting_.heads() / setting_.shared());
    const auto key = [&](std::size_t j) {
      return ((sample * setting_.keys + j) * setting_.shared() + shared) * width;
    };
    const auto sees = [&](std::size_t j) {
      if (setting_.options.causal && j > i) return false;
      if (segments.empty()) return true;
      const std::int32_t own = segments[sample * setting_.queries + i];
      return own != 0 && own == segments[sample * setting_.queries + j];
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    std::vector<double> weights(setting_.keys);
    double sum = 0;
    for (std::size_t j = 0; j < setting_.keys; ++j) {
      if (!sees(j)) continue;
      for (std::size_t e = 0; e < width; ++e)
        weights[j] += scale * a.parts[0][query + e] * a.parts[1][key(j) + e];
      weights[j] = std::exp(weights[j]);
      sum += weights[j];
    }
    if (sum == 0) return;
    double product = 0;
    for (std::size_t j = 0; j < setting_.keys; ++j) {
      weights[j] /= sum;
      for (std::size_t e = 0; e < width; ++e) {
        a.output[query + e] += weights[j] * a.parts[2][key(j) + e];
        product += weights[j] * a.parts[2][key(j) + e] * output_gradient[query + e];
      }
    }
    for (std::size_t j = 0; j < setting_.keys; ++j) {
      double slope = -product;
      for (std::size_t e = 0; e < width; ++e) {
        slope += output_gradient[query + e] * a.parts[2][key(j) + e];
        a.gradients[2][key(j) + e] += weights[j] * output_gradient[query + e];
      }
      for (std::size_t e = 0; e < width; ++e) {
        a.gradients[0][query + e] += scale * weights[j] * slope * a.parts[1][key(j) + e];
        a.gradients[1][key(j) + e] += scale * weights[j] * slope * a.parts[0][query + e];
      }
    }
  }

  void rotate(std::vector<double>& values, std::size_t heads, std::size_t positions,
              double direction) const {
    const auto base = static_cast<double>(setting_.options.rotary);
    if (base == 0) return;
    const std::size_t half = setting_.width / 2;
    for (std::size_t row = 0; row < values.size() / setting_.width; ++row)
      for (std::size_t e = 0; e < half; ++e) {
        const double angle = direction * static_cast<double>(row / heads % positions) *
                             std::pow(base, -static_cast<double>(e) / static_cast<double>(half));
        double& first = values[row * setting_.width + e];
        double& second = values[row * setting_.width + e + half];
        const double turned = first * std::cos(angle) - second * std::sin(angle);
        second = second * std::cos(angle) + first * std::sin(angle);
        first = turned;
      }
  }

  const AttentionSetting& setting_;
  std::size_t samples_;
};

// A network of the layer that exposes its inputs and its output.
class AttentionTrial {
 public:
  AttentionTrial(const AttentionSetting& setting, std::size_t samples)
      : setting_(setting), samples_(samples), model_(network(), device::Device{}, allocator_, {}) {
    model_.initialize(1);
    for (std::size_t k = 0; k < recordings_.size(); ++k)
      inputs_.push_back(numbers(samples * row(k), 10 + k));
    if (setting.segments) segments_ = segments_of(samples, setting.queries);
    targets_ = numbers(samples * setting.queries * setting.heads() * setting.width, 3);
  }

  std::vector<std::int32_t>& segments() { return segments_; }
  const Recording& input(std::size_t k) const { return *recordings_[k]; }
  const Recording& output() const { return *output_; }

  // Trains on `count` samples from `first` on. All trials use the same divisor.
  void train(std::size_t first, std::size_t count) {
    std::vector<InputView> views;
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      views.push_back({.features = part_of(inputs_[k], first, count)});
    if (!segments_.empty()) views.push_back({.indices = part_of(segments_, first, count)});
    const BatchView batch{.samples = static_cast<std::int64_t>(count),
                          .targets = {.labels = {}, .values = part_of(targets_, first, count)},
                          .inputs = views};
    model_.train_batch(batch, {.global_samples = 3}, MeanSquaredError{});
  }
  void train() { train(0, samples_); }

 private:
  std::size_t row(std::size_t k) const {
    const std::size_t queries = setting_.heads() * setting_.width;
    const std::size_t keys = setting_.shared() * setting_.width;
    if (setting_.packed) return setting_.queries * (queries + 2 * keys);
    return k == 0 ? setting_.queries * queries : setting_.keys * keys;
  }

  template <typename T>
  std::span<const T> part_of(const std::vector<T>& all, std::size_t first,
                             std::size_t count) const {
    const std::size_t each = all.size() / samples_;
    return std::span(all).subspan(first * each, count * each);
  }

  std::shared_ptr<const Network> network() {
    std::vector<NetworkInput> inputs;
    const std::size_t count = setting_.packed ? 1 : 3;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t positions = k == 0 ? setting_.queries : setting_.keys;
      inputs.push_back({.name = "input" + std::to_string(k),
                        .shape = {static_cast<std::int64_t>(positions),
                                  static_cast<std::int64_t>(row(k) / positions)}});
      recordings_.push_back(std::make_shared<Recording>());
    }
    if (setting_.segments)
      inputs.push_back({.name = "segments",
                        .shape = {static_cast<std::int64_t>(setting_.queries)},
                        .type = ElementType::int32});
    Network network(inputs, "attention");
    std::vector<NodeId> parts;
    for (std::size_t k = 0; k < count; ++k) {
      network.add(Shift(), {kInput - static_cast<NodeId>(k)});
      parts.push_back(network.add(Probe(recordings_[k])));
    }
    if (setting_.segments) parts.push_back(network.input("segments"));
    network.add(Attention(setting_.options), parts);
    network.add(Probe(output_));
    return std::make_shared<const Network>(std::move(network));
  }

  const AttentionSetting& setting_;
  std::size_t samples_;
  std::vector<std::shared_ptr<Recording>> recordings_;
  std::shared_ptr<Recording> output_ = std::make_shared<Recording>();
  device::HostAllocator allocator_;
  CompiledModel model_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::int32_t> segments_;
  std::vector<float> targets_;
};

// The recorded queries, keys and values.
std::vector<std::vector<double>> split(const AttentionSetting& setting, const AttentionTrial& trial,
                                       std::vector<float> Recording::*what) {
  std::vector<std::vector<double>> parts(3);
  if (!setting.packed) {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::vector<float>& values = trial.input(k).*what;
      parts[k].assign(values.begin(), values.end());
    }
    return parts;
  }
  const std::size_t keys = setting.shared() * setting.width;
  const std::size_t widths[] = {setting.heads() * setting.width, keys, keys};
  const std::vector<float>& rows = trial.input(0).*what;
  for (auto at = rows.begin(); at != rows.end();)
    for (std::size_t k = 0; k < 3; ++k) {
      const auto end = at + static_cast<std::ptrdiff_t>(widths[k]);
      parts[k].insert(parts[k].end(), at, end);
      at = end;
    }
  return parts;
}

template <typename Values>
void expect_all_near(const Values& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], 1e-5 * largest) << "element " << i;
}

class AttentionLayer : public testing::TestWithParam<AttentionSetting> {
 protected:
  void SetUp() override { set_thread_budget(1); }
};

TEST_P(AttentionLayer, MatchesTheFormula) {
  constexpr std::size_t kSamples = 3;
  AttentionTrial trial(GetParam(), kSamples);
  trial.train();
  AttentionArrays expected;
  const auto parts = split(GetParam(), trial, &Recording::values);
  std::ranges::copy(parts, expected.parts);
  const std::vector<float>& gradient = trial.output().gradient;
  AttentionReference(GetParam(), kSamples)
      .compute(expected, {gradient.begin(), gradient.end()}, trial.segments());
  expect_all_near(trial.output().values, expected.output);
  const auto gradients = split(GetParam(), trial, &Recording::gradient);
  for (std::size_t k = 0; k < 3; ++k) {
    SCOPED_TRACE(k);
    expect_all_near(gradients[k], expected.gradients[k]);
  }
}

// Neither the batch nor the number of threads changes a bit.
TEST_P(AttentionLayer, DependsOnlyOnItsSample) {
  set_thread_budget(3);
  AttentionTrial together(GetParam(), 3);
  together.train();
  set_thread_budget(1);
  AttentionTrial alone(GetParam(), 3);
  const auto sample = [](const std::vector<float>& all, std::size_t which) {
    const auto each = static_cast<std::ptrdiff_t>(all.size() / 3);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(which) * each;
    return std::vector<float>(begin, begin + each);
  };
  for (std::size_t which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    alone.train(which, 1);
    EXPECT_EQ(alone.output().values, sample(together.output().values, which));
    for (std::size_t k = 0; k < (GetParam().packed ? 1 : 3); ++k)
      EXPECT_EQ(alone.input(k).gradient, sample(together.input(k).gradient, which));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, AttentionLayer, testing::ValuesIn(kAttentionSettings),
                         [](const auto& one) { return one.param.name; });

TEST(Attention, IsZeroForPadding) {
  AttentionSetting setting = kAttentionSettings[10];
  AttentionTrial trial(setting, 2);
  std::ranges::fill(trial.segments(), 0);
  trial.train();
  EXPECT_THAT(trial.output().values, Each(0.0f));
  for (std::size_t k = 0; k < 3; ++k) EXPECT_THAT(trial.input(k).gradient, Each(0.0f));
}

Network projected_attention(const Attention::Options& options) {
  Network network({9, 5});
  network.add(Conv1D({.filters = 8 * (options.heads + 2 * options.key_value_heads), .kernel = 1}));
  network.add(Attention(options));
  return network;
}

TEST(Attention, MatchesFiniteDifferences) {
  expect_gradients_match_differences(
      projected_attention({.heads = 4, .key_value_heads = 2, .causal = true, .rotary = 100}));
}

TEST(Attention, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  const Network network =
      projected_attention({.heads = 2, .key_value_heads = 2, .causal = true, .rotary = 100});
  Trial exact(network, 3);
  Trial rounded(network, 3, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.1f), exact.predict()));
  exact.train();
  rounded.train();
  const auto expected = exact.gradient("conv1d/kernel");
  const auto [low, high] = std::ranges::minmax(expected);
  EXPECT_THAT(rounded.gradient("conv1d/kernel"),
              Pointwise(FloatNear(0.1f * (high - low)), expected));
}

// Inputs that do not match the options.
TEST(Attention, RefusesMismatchedInputsAndOptions) {
  struct Case {
    std::vector<Shape> inputs;
    Attention::Options options;
    std::string message;
    bool segments = false;
  };
  const Case cases[] = {
      {{{6, 12}},
       {},
       "expected at least one head, and key_value_heads that divide the heads, got 0 and 0"},
      {{{6, 12}}, {.heads = 3, .key_value_heads = 2}, "got 3 and 2"},
      {{{6, 12}},
       {.heads = 5},
       "expected queries, keys and values of 15 heads of the same size, got rows of 12 elements"},
      {{{6, 12}, {6, 12}}, {.heads = 2}, "expected an int32 input of the network"},
      {{{2, 6, 12}}, {.heads = 2}, "expected inputs [positions, elements], got [2, 6, 12]"},
      {{{6, 13}, {6, 12}, {6, 12}}, {.heads = 2}, "expected queries of 2 heads of the same size"},
      {{{6, 12}, {6, 12}, {6, 6}},
       {.heads = 2, .key_value_heads = 1},
       "expected keys and values [S, 6], got [6, 12] and [6, 6]"},
      {{{6, 12}, {5, 12}, {6, 12}}, {.heads = 2}, "got [5, 12] and [6, 12]"},
      {{{6, 12}, {5, 12}, {5, 12}},
       {.heads = 2, .causal = true},
       "expected equal numbers of keys and queries for causal attention, got 5 and 6"},
      {{{6, 15}},
       {.heads = 1, .rotary = 10},
       "expected heads of an even number of elements for rotary, got 5"},
      {{{6, 12}}, {.heads = 2, .rotary = -1}, "expected rotary to be 0 or the base"},
      {{{6, 1200}}, {.heads = 1}, "expected heads of at most 256 elements, got 400"},
      {{{6, 12}, {7}}, {.heads = 2}, "expected segments [6] and 6 keys, got [7] and 6 keys", true},
      {{{6, 12}, {5, 12}, {5, 12}, {6}}, {.heads = 2}, "got [6] and 5 keys", true},
      {{{6}, {6, 12}}, {.heads = 2}, "got the int32 input \"last\""},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.message);
    const bool int32_first = one.inputs.front().size() == 1;
    EXPECT_THAT(
        input_error_of([&] {
          std::vector<NetworkInput> inputs;
          std::vector<NodeId> ids;
          for (std::size_t k = 0; k < one.inputs.size(); ++k) {
            const bool last = k + 1 == one.inputs.size();
            const bool is_int32 = (one.segments && last) || (int32_first && k == 0);
            inputs.push_back({.name = is_int32 ? "last" : std::to_string(k),
                              .shape = one.inputs[k],
                              .type = is_int32 ? ElementType::int32 : ElementType::float32});
            ids.push_back(kInput - static_cast<NodeId>(k));
          }
          Network(inputs).add(Attention(one.options), ids);
        }),
        ::testing::AllOf(HasSubstr("[layer attention (attention)]"), HasSubstr(one.message)));
  }
}

TEST(Attention, RefusesNegativeSegments) {
  AttentionTrial trial(kAttentionSettings[9], 3);
  trial.segments()[17] = -1;
  EXPECT_THAT(error_of(ErrorCategory::data, [&] { trial.train(); }),
              ::testing::AllOf(HasSubstr("[layer attention] expected indices 0 .. 2147483647 for "
                                         "the input \"segments\""),
                               HasSubstr("sample 1 of the batch has -1")));
}

}  // namespace
}  // namespace lockstep::inline v0::model
