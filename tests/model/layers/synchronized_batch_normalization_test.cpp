// Batch normalization that exchanges statistics with other replicas.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {
namespace {

/// An exchange without contributions of others. Records the requests among the other events.
class Alone final : public StatisticsExchange {
 public:
  Alone(int member, int members) : member_(member), members_(members) {}
  int members() const override { return members_; }
  int member() const override { return member_; }
  void sum(std::span<float> values) override {
    events.push_back(fmt::format("sum of {}", values.size()));
  }
  std::vector<std::string> events;

 private:
  int member_;
  int members_;
};

/// A fork, a ReLU that is fused into a normalization and one that is not, and parameters that
/// nothing depends on.
Network forked_network() {
  Network network({6, 5, 3});
  const NodeId first =
      network.add(Conv2D({.filters = 7, .padding = Padding::same, .use_bias = false}), {kInput});
  const NodeId normalized = network.add(BatchNormalization({.momentum = 0.5f}), {first});
  const NodeId trunk = network.add(ReLU(), {normalized});
  const NodeId second = network.add(Conv2D({.filters = 7, .padding = Padding::same}), {trunk});
  const NodeId branch = network.add(BatchNormalization({.momentum = 0.5f}), {second});
  network.add(Add(), {branch, trunk});
  network.add(Flatten());
  network.add(Dense({.units = 2}));
  return network;
}

struct Model {
  explicit Model(StatisticsExchange* statistics)
      : compiled(std::make_shared<const Network>(forked_network()), device::Device{}, allocator, {},
                 {.statistics = statistics}) {
    compiled.initialize(3);
  }

  MetricSums train(std::int64_t samples, float offset = 0, const GradientReady& ready = {}) {
    const Philox random(random_key(1, "features", 0));
    std::vector<float> features(static_cast<std::size_t>(samples) * 90);
    for (std::size_t i = 0; i < features.size(); ++i)
      features[i] = offset + to_unit_float(random.block(i, 0)[0]);
    std::vector<float> targets(static_cast<std::size_t>(samples) * 2, 0.5f);
    return compiled.train_batch(
        {.samples = samples, .features = features, .targets = {.labels = {}, .values = targets}},
        {.global_samples = std::max<std::int64_t>(samples, 1)}, MeanSquaredError{}, false, ready);
  }

  device::HostAllocator allocator;
  CompiledModel compiled;
};

void expect_close(std::span<const float> values, std::span<const float> expected,
                  double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance * static_cast<double>(std::max(largest, 1.0f)))
        << i;
}

class SynchronizedBatchNormalization : public ::testing::Test {
 protected:
  void SetUp() override { set_thread_budget(1); }
};

TEST_F(SynchronizedBatchNormalization, WithOneMemberUsesItsOwnSamples) {
  for (const std::int64_t samples : {1, 2, 5}) {
    for (const float offset : {0.0f, 100.0f}) {
      for (const int members : {1, 3}) {  // the other two have no samples
        Alone exchange(members - 1, members);
        Model together(&exchange);
        Model own(nullptr);
        const double loss = together.train(samples, offset).loss_sum;
        const double expected = own.train(samples, offset).loss_sum;
        EXPECT_NEAR(loss, expected, 1e-4 * expected);
        expect_close(together.compiled.gradients(), own.compiled.gradients(), 1e-4);
        expect_close(together.compiled.buffers(), own.compiled.buffers(), 1e-5);
      }
    }
  }
}

TEST_F(SynchronizedBatchNormalization, ExchangesOncePerLayerAndPass) {
  Alone exchange(1, 3);
  Model model(&exchange);
  model.train(2);
  EXPECT_THAT(exchange.events,
              ::testing::ElementsAre("sum of 45", "sum of 45", "sum of 14", "sum of 14"));
}

TEST_F(SynchronizedBatchNormalization, WithoutSamplesExchangesInTheSameOrder) {
  const auto events_of = [](std::int64_t samples) {
    Alone exchange(0, 2);
    Model model(&exchange);
    model.train(samples, 0,
                [&](std::size_t p) { exchange.events.push_back(fmt::format("parameter {}", p)); });
    if (samples == 0) {
      EXPECT_THAT(model.compiled.gradients(), ::testing::Each(0.0f));
      EXPECT_THAT(model.compiled.buffers(), ::testing::Each(::testing::AnyOf(0.0f, 1.0f)))
          << "no samples";
    }
    return exchange.events;
  };
  const std::vector<std::string> expected = events_of(4);
  EXPECT_EQ(expected.size(), 4 + forked_network().parameters().entries().size());
  EXPECT_EQ(events_of(0), expected);
}

TEST_F(SynchronizedBatchNormalization, DoesNotExchangeInInference) {
  Alone exchange(0, 2);
  Model model(&exchange);
  const std::vector<float> features(90, 0.25f);
  model.compiled.predict_batch(1, features);
  EXPECT_TRUE(exchange.events.empty());
}

}  // namespace
}  // namespace lockstep::inline v0::model
