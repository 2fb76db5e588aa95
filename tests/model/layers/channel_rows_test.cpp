// The passes of batch normalization on a CPU, compared with their definitions in double.
#include "lockstep/model/layers/batch_normalization/channel_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/float16.h"
#include "lockstep/base/system/host.h"
#include "tests/model/support/numbers.h"

namespace lockstep::inline v0::model::cpu {
namespace {

struct RowsCase {
  std::int64_t rows, channels;
};
std::ostream& operator<<(std::ostream& out, const RowsCase& c) {
  return out << c.rows << "x" << c.channels;
}

// An array [rows, channels] of either type, with the values that it holds after rounding.
class Elements {
 public:
  Elements(std::vector<float> values, Precision precision)
      : precision_(precision), values_(std::move(values)), narrow_(values_.size()) {
    if (precision == Precision::float32) return;
    narrow(values_, narrow_);
    widen(narrow_, values_);
  }

  TensorView view() {
    if (precision_ == Precision::float32) return std::span(values_);
    return {narrow_.data(), narrow_.size(), precision_};
  }
  // The values, including those written to the view.
  std::vector<float> values() {
    if (precision_ != Precision::float32) widen(narrow_, values_);
    return values_;
  }

 private:
  Precision precision_;
  std::vector<float> values_;
  std::vector<BFloat16> narrow_;
};

constexpr double kEpsilon = 1e-3;

class ChannelRowsTest : public ::testing::TestWithParam<std::tuple<RowsCase, Precision>> {
 protected:
  static RowsCase shape() { return std::get<0>(GetParam()); }
  static Precision precision() { return std::get<1>(GetParam()); }
  static std::size_t channels() { return static_cast<std::size_t>(shape().channels); }
  static std::size_t size() { return static_cast<std::size_t>(shape().rows) * channels(); }
  static std::vector<float> random(std::uint64_t seed) { return numbers(size(), seed); }
  // The tolerance of a rounded result, relative to it, and of sums.
  static double rounding() { return precision() == Precision::float32 ? 1e-6 : 4e-3; }

  void SetUp() override {
    // A mean that is large compared with the deviation.
    std::vector<float> values = random(1);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += 3.0f * static_cast<float>(i % channels() % 5);
    input_ = Elements(std::move(values), precision());
    values_ = input_.values();
    gamma_ = numbers(channels(), 2);
    beta_ = numbers(channels(), 3);
    channel_moments(input_.view(), rows_, scratch(), means_.data(), squares_.data());
    for (std::size_t c = 0; c < channels(); ++c)
      inverse_[c] = 1 / std::sqrt(squares_[c] / static_cast<float>(shape().rows) +
                                  static_cast<float>(kEpsilon));
  }

  std::span<std::byte> scratch() { return scratch_; }
  ChannelScale scale() const {
    return {means_.data(), inverse_.data(), gamma_.data(), beta_.data()};
  }
  // Element i, normalized by the computed statistics.
  double normal(std::size_t i) {
    const std::size_t c = i % channels();
    return (double{values_[i]} - double{means_[c]}) * double{inverse_[c]};
  }
  double scaled(std::size_t i) {
    return normal(i) * double{gamma_[i % channels()]} + double{beta_[i % channels()]};
  }

  ChannelRows rows_{shape().rows, shape().channels};
  std::vector<std::byte> scratch_{rows_.scratch_bytes()};
  Elements input_{{}, Precision::float32};
  std::vector<float> values_;  // the input
  std::vector<float> gamma_, beta_;
  std::vector<float> means_ = std::vector<float>(channels());
  std::vector<float> squares_ = means_;
  std::vector<float> inverse_ = means_;
};

TEST_P(ChannelRowsTest, MatchTheDefinitionOfMoments) {
  const auto count = static_cast<double>(shape().rows);
  for (std::size_t c = 0; c < channels(); ++c) {
    double mean = 0;
    for (std::size_t i = c; i < size(); i += channels()) mean += double{values_[i]};
    mean /= count;
    double squares = 0;
    for (std::size_t i = c; i < size(); i += channels())
      squares += std::pow(double{values_[i]} - mean, 2);
    ASSERT_NEAR(means_[c], mean, 1e-6 * (1 + std::abs(mean))) << c;
    ASSERT_NEAR(squares_[c], squares, 2e-6 * count) << c;
  }
}

TEST_P(ChannelRowsTest, AreNormalized) {
  Elements added(random(4), precision());
  for (const bool adds : {false, true})
    for (const bool relu : {false, true}) {
      Elements output(random(5), precision());
      normalize(input_.view(), adds ? added.view() : TensorView(), scale(), relu, rows_, scratch(),
                output.view(), nullptr);
      const std::vector<float> more = added.values();
      const std::vector<float> found = output.values();
      for (std::size_t i = 0; i < size(); ++i) {
        double expected = scaled(i) + (adds ? double{more[i]} : 0);
        if (relu) expected = std::max(expected, 0.0);
        ASSERT_NEAR(found[i], expected, 1e-5 + rounding() * std::abs(expected)) << i;
      }
    }
}

TEST_P(ChannelRowsTest, MatchTheDefinitionOfGradients) {
  Elements added(random(4), precision());
  Elements output(random(5), precision());
  std::vector<std::uint16_t> mask(rows_.mask_bytes() / sizeof(std::uint16_t));
  normalize(input_.view(), added.view(), scale(), true, rows_, scratch(), output.view(),
            mask.data());
  const std::vector<float> outputs = output.values();
  for (const bool masks : {false, true}) {
    Elements gradient(random(6), precision());
    const std::vector<float> of_output = gradient.values();
    std::vector<double> wanted(size());
    std::vector<double> sums(2 * channels());
    for (std::size_t i = 0; i < size(); ++i) {
      wanted[i] = !masks || outputs[i] > 0 ? double{of_output[i]} : 0;
      sums[i % channels()] += wanted[i];
      sums[channels() + i % channels()] += wanted[i] * normal(i);
    }
    const GradientArrays arrays = {input_.view(), gradient.view(), masks ? mask.data() : nullptr};
    std::vector<float> found(2 * channels());
    gradient_sums(arrays, scale(), rows_, scratch(), found.data());
    const auto count = static_cast<double>(shape().rows);
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], sums[i], 1e-6 * count + 1e-5);

    // Overwrites the output's gradient.
    Elements of_added(random(7), precision());
    input_gradient(arrays, scale(), found.data(), static_cast<float>(count), rows_, scratch(),
                   gradient.view(), of_added.view());
    const std::vector<float> of_input = gradient.values();
    const std::vector<float> passed = of_added.values();
    for (std::size_t i = 0; i < size(); ++i) {
      ASSERT_EQ(double{passed[i]}, wanted[i]) << i;
      const std::size_t c = i % channels();
      const double expected = double{gamma_[c]} * double{inverse_[c]} *
                              (wanted[i] - (sums[c] + normal(i) * sums[channels() + c]) / count);
      // With a single row, deviations are 0 and the inverse is large.
      ASSERT_NEAR(of_input[i], expected,
                  1e-5 * (1 + double{inverse_[c]}) + rounding() * std::abs(expected))
          << i;
    }
  }
}

TEST_P(ChannelRowsTest, AreBitwiseEqualForAnyThreadCount) {
  const int before = thread_budget();
  const std::vector<float> means = means_;
  const std::vector<float> squares = squares_;
  Elements gradient(random(5), precision());
  const GradientArrays arrays = {input_.view(), gradient.view(), nullptr};
  std::vector<float> sums(2 * channels());
  gradient_sums(arrays, scale(), rows_, scratch(), sums.data());
  for (const int threads : {1, 3}) {
    set_thread_budget(threads);
    channel_moments(input_.view(), rows_, scratch(), means_.data(), squares_.data());
    EXPECT_EQ(means_, means);
    EXPECT_EQ(squares_, squares);
    std::vector<float> again(2 * channels());
    gradient_sums(arrays, scale(), rows_, scratch(), again.data());
    EXPECT_EQ(again, sums);
  }
  set_thread_budget(before);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RowsCase, Precision>>& test) {
  const auto& [shape, precision] = test.param;
  return fmt::format("{}x{}_{}", shape.rows, shape.channels, to_string(precision));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ChannelRowsTest,
    ::testing::Combine(::testing::Values(RowsCase{1, 3}, RowsCase{5, 1}, RowsCase{700, 1},
                                         RowsCase{33, 5}, RowsCase{40, 16}, RowsCase{999, 24},
                                         RowsCase{3000, 64}, RowsCase{70, 100}, RowsCase{100, 1001},
                                         RowsCase{67, 1024}),
                       ::testing::Values(Precision::float32, Precision::bfloat16)),
    name_of);

}  // namespace
}  // namespace lockstep::inline v0::model::cpu
