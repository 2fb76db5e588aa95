#include "lockstep/model/layers/recurrent/recurrent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Ge;
using ::testing::IsNan;
using ::testing::Le;
using ::testing::Not;
using ::testing::Pointwise;

constexpr std::int64_t kPositions = 4;
constexpr std::int64_t kFeatures = 3;
constexpr std::int64_t kUnits = 5;
constexpr std::int64_t kSequences = 3;

struct RecurrentCase {
  std::string kind;
  RecurrentOptions options;

  Network network(Shape shape = {kPositions, kFeatures}) const {
    Network made(std::move(shape));
    made.add(Shift());  // shows the gradient of the input
    add_to(made);
    return made;
  }
  void add_to(Network& network) const {
    if (kind == "lstm") network.add(LSTM(options));
    if (kind == "gru") network.add(GRU(options));
    if (kind == "simple_rnn") network.add(SimpleRNN(options));
  }
  std::int64_t gates() const { return kind == "lstm" ? 4 : kind == "gru" ? 3 : 1; }
  std::string name() const {
    return kind + (options.return_sequences ? "_sequences" : "") +
           (options.go_backwards ? "_backwards" : "") +
           (options.bidirectional ? "_bidirectional" : "") + (options.use_bias ? "" : "_no_bias") +
           (options.recurrent_bias ? "_two_biases" : "");
  }

  friend std::ostream& operator<<(std::ostream& stream, const RecurrentCase& one) {
    return stream << one.name();
  }
};

std::vector<RecurrentCase> recurrent_cases() {
  std::vector<RecurrentCase> cases;
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    for (const bool sequences : {false, true})
      for (const RecurrentOptions& options :
           {RecurrentOptions{}, RecurrentOptions{.go_backwards = true},
            RecurrentOptions{.bidirectional = true},
            RecurrentOptions{.bidirectional = true, .use_bias = false},
            RecurrentOptions{.bidirectional = true, .recurrent_bias = true}}) {
        if (options.recurrent_bias && kind == std::string("gru")) continue;  // always has one
        RecurrentCase one{kind, options};
        one.options.units = kUnits;
        one.options.return_sequences = sequences;
        cases.push_back(one);
      }
  return cases;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The outputs [kPositions][kUnits] for one sample, from its first step on: the formulas of the
// cells, element by element in double.
std::vector<std::vector<double>> outputs_of(Trial& trial, const RecurrentCase& test,
                                            const std::string& prefix,
                                            const std::vector<std::vector<double>>& inputs) {
  const auto array = [&](const std::string& name) -> std::vector<double> {
    const std::string full = test.kind + "/" + prefix + name;
    if (trial.network().parameters().find(full) == nullptr)
      return std::vector<double>(static_cast<std::size_t>(test.gates() * kUnits));
    const auto values = trial.parameter(full);
    return {values.begin(), values.end()};
  };
  const std::vector<double> kernel = array("kernel");
  const std::vector<double> recurrent_kernel = array("recurrent_kernel");
  const std::vector<double> bias = array("bias");
  const std::vector<double> recurrent_bias = array("recurrent_bias");
  const auto sum = [](const std::vector<double>& weights, std::size_t row,
                      const std::vector<double>& values) {
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      total += weights[row * values.size() + i] * values[i];
    return total;
  };
  std::vector<double> h(kUnits);
  std::vector<double> c(kUnits);
  std::vector<std::vector<double>> outputs;
  for (const std::vector<double>& x : inputs) {
    std::vector<double> next(kUnits);
    for (std::size_t u = 0; u < kUnits; ++u) {
      const auto input_product = [&](std::size_t gate) {
        return sum(kernel, gate * kUnits + u, x) + bias[gate * kUnits + u];
      };
      const auto recurrent_product = [&](std::size_t gate) {
        return sum(recurrent_kernel, gate * kUnits + u, h) + recurrent_bias[gate * kUnits + u];
      };
      const auto gate_sum = [&](std::size_t gate) {
        return input_product(gate) + recurrent_product(gate);
      };
      if (test.kind == "simple_rnn") {
        next[u] = std::tanh(gate_sum(0));
      } else if (test.kind == "gru") {
        const double z = logistic(gate_sum(1));
        next[u] =
            (1 - z) * std::tanh(input_product(2) + logistic(gate_sum(0)) * recurrent_product(2)) +
            z * h[u];
      } else {
        c[u] = logistic(gate_sum(1)) * c[u] + logistic(gate_sum(0)) * std::tanh(gate_sum(2));
        next[u] = logistic(gate_sum(3)) * std::tanh(c[u]);
      }
    }
    h = next;
    outputs.push_back(h);
  }
  return outputs;
}

std::vector<float> expected_outputs(Trial& trial, const RecurrentCase& test) {
  std::vector<float> expected;
  for (std::int64_t n = 0; n < kSequences; ++n) {
    std::vector<std::vector<double>> inputs(kPositions, std::vector<double>(kFeatures));
    const auto offset = trial.parameter("shift/offset");
    for (std::size_t i = 0; i < offset.size(); ++i)
      inputs[i / kFeatures][i % kFeatures] =
          trial.features()[static_cast<std::size_t>(n) * offset.size() + i] + offset[i];
    if (test.options.go_backwards) std::ranges::reverse(inputs);
    auto outputs = outputs_of(trial, test, "", inputs);
    if (test.options.bidirectional) {
      std::ranges::reverse(inputs);
      auto others = outputs_of(trial, test, "backward_", inputs);
      if (test.options.return_sequences) std::ranges::reverse(others);
      for (std::size_t t = 0; t < kPositions; ++t)
        outputs[t].insert(outputs[t].end(), others[t].begin(), others[t].end());
    }
    for (std::size_t t = test.options.return_sequences ? 0 : kPositions - 1; t < kPositions; ++t)
      expected.insert(expected.end(), outputs[t].begin(), outputs[t].end());
  }
  return expected;
}

class RecurrentLayer : public testing::TestWithParam<RecurrentCase> {};

TEST_P(RecurrentLayer, ComputesTheFormulasOfItsCell) {
  Trial trial(GetParam().network(), kSequences);
  const std::int64_t outputs = (GetParam().options.bidirectional ? 2 : 1) * kUnits;
  EXPECT_EQ(trial.network().output_shape(),
            GetParam().options.return_sequences ? Shape({kPositions, outputs}) : Shape({outputs}));
  const std::vector<float> expected = expected_outputs(trial, GetParam());
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(2e-6f), expected));
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(2e-6f), expected)) << "again";
}

TEST_P(RecurrentLayer, MatchesFiniteDifferences) {
  expect_gradients_match_differences(GetParam().network());
}

TEST_P(RecurrentLayer, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Network network({{.name = "words", .shape = {kPositions}, .type = ElementType::int32}});
  network.add(Embedding({.vocabulary = 5, .dimension = kFeatures}));
  GetParam().add_to(network);
  Trial exact(network, kSequences);
  Trial rounded(network, kSequences, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.03f), exact.predict()));
  exact.train();
  rounded.train();
  for (const ParameterInfo& entry : exact.model().parameter_table().entries())
    EXPECT_THAT(rounded.gradient(entry.name),
                Pointwise(FloatNear(0.03f), exact.gradient(entry.name)))
        << entry.name;
}

TEST_P(RecurrentLayer, IsReadBackFromItsDescription) {
  Network network({kPositions, kFeatures});
  GetParam().add_to(network);
  const auto described = network_to_json(network);
  ASSERT_TRUE(described);
  const Network read = network_from_json(described->dump(), "net.json");
  EXPECT_EQ(network_to_json(read), described);
  EXPECT_EQ(read.output_shape(), network.output_shape());
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentLayer, testing::ValuesIn(recurrent_cases()),
                         [](const auto& test) { return test.param.name(); });

TEST(RecurrentLayers, MatchFiniteDifferencesWhenStacked) {
  Network network({kPositions, kFeatures});
  network.add(LSTM({.units = 4, .return_sequences = true}));
  network.add(GRU({.units = 3, .return_sequences = true, .bidirectional = true}));
  network.add(SimpleRNN({.units = 2}));
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(network);
}

TEST(RecurrentLayers, HaveTheSameGradientsIfOthersAreFrozen) {
  const RecurrentCase test{"gru", {.units = kUnits, .bidirectional = true}};
  Trial whole(test.network(), kSequences);
  whole.train();
  for (const char* frozen : {"gru/*", "gru/backward_kernel", "gru/kernel", "shift/*"}) {
    SCOPED_TRACE(frozen);
    Network network = test.network();
    network.freeze(std::vector<std::string>{frozen});
    Trial trial(std::move(network), kSequences);
    for (const ParameterInfo& entry : trial.model().parameter_table().entries())
      std::ranges::copy(whole.parameter(entry.name), trial.parameter(entry.name).begin());
    trial.model().parameters_changed();
    trial.train();
    for (const ParameterInfo& entry : trial.model().parameter_table().entries()) {
      if (!entry.trained) continue;
      EXPECT_THAT(trial.gradient(entry.name),
                  Pointwise(FloatNear(1e-6f), whole.gradient(entry.name)))
          << entry.name;
    }
  }
}

TEST(RecurrentLayers, ReadOneStep) {
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    expect_gradients_match_differences(
        RecurrentCase{kind, {.units = 2, .return_sequences = true}}.network({1, 1}));
}

TEST(RecurrentLayers, PropagateNaN) {
  for (const char* kind : {"lstm", "gru", "simple_rnn"}) {
    Trial trial(RecurrentCase{kind, {.units = 16}}.network(), kSequences);
    trial.features()[1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> outputs = trial.predict();
    EXPECT_THAT(std::span(outputs).first(16), Each(IsNan())) << kind;
    EXPECT_THAT(std::span(outputs).subspan(16), Each(Not(IsNan()))) << kind;
  }
}

TEST(RecurrentLayers, SaturateWithoutOverflow) {
  for (const char* kind : {"lstm", "gru", "simple_rnn"})
    for (const float input : {-1e30f, 1e30f}) {
      Trial trial(RecurrentCase{kind, {.units = 16}}.network(), kSequences);
      std::ranges::fill(trial.features(), input);
      EXPECT_THAT(trial.predict(), Each(AllOf(Ge(-1.0f), Le(1.0f)))) << kind;
      trial.train();
      EXPECT_THAT(trial.gradient(std::string(kind) + "/recurrent_kernel"), Each(Not(IsNan())));
    }
}

TEST(RecurrentLayers, InitializeAsInKeras) {
  Network network({kPositions, kFeatures});
  network.add(LSTM({.units = 8, .return_sequences = true, .bidirectional = true}));
  network.add(LSTM({.units = 2, .return_sequences = true, .recurrent_bias = true}),
              {network.last()}, "two");
  network.add(GRU({.units = 4}));
  Trial trial(std::move(network), 1);
  trial.model().initialize(3);
  const auto bias = trial.parameter("lstm/backward_bias");
  EXPECT_THAT(bias.subspan(8, 8), Each(1.0f)) << "forget gates";
  EXPECT_THAT(bias.first(8), Each(0.0f));
  EXPECT_THAT(bias.subspan(16), Each(0.0f));
  EXPECT_THAT(trial.parameter("two/bias"), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(trial.parameter("two/recurrent_bias"), Each(0.0f));
  EXPECT_THAT(trial.parameter("gru/bias"), Each(0.0f));
  EXPECT_THAT(trial.parameter("gru/recurrent_bias"), Each(0.0f));
  const auto [low, high] = std::ranges::minmax(trial.parameter("lstm/kernel"));
  const float limit = std::sqrt(6.0f / (3 + 32));
  EXPECT_GE(low, -limit);
  EXPECT_LT(low, -0.7f * limit);
  EXPECT_LE(high, limit);
  const ParameterTable& table = trial.network().parameters();
  EXPECT_EQ(table.find("lstm/kernel")->shape, Shape({32, 3}));
  EXPECT_EQ(table.find("lstm/recurrent_kernel")->shape, Shape({32, 8}));
  EXPECT_TRUE(table.find("lstm/recurrent_kernel")->decay);
  EXPECT_FALSE(table.find("gru/recurrent_bias")->decay);
  EXPECT_FALSE(table.find("two/recurrent_bias")->decay);
  EXPECT_EQ(table.find("two/recurrent_bias")->shape, Shape({8}));
  EXPECT_EQ(table.find("gru/kernel")->shape, Shape({12, 2}));
}

TEST(RecurrentLayers, CheckTheirInputAndOptions) {
  EXPECT_EQ(input_error_of([] { Network({7}).add(LSTM({.units = 2})); }),
            "[layer lstm (lstm)] expected an input [positions, features], got [7]");
  EXPECT_EQ(input_error_of([] {
              Network({7, 5}).add(GRU({}));
            }),
            "[layer gru (gru)] expected at least one unit, got 0");
  EXPECT_EQ(
      input_error_of([] {
        Network({7, 5}).add(SimpleRNN({.units = 2, .go_backwards = true, .bidirectional = true}));
      }),
      "[layer simple_rnn (simple_rnn)] expected go_backwards or bidirectional, got both");
  EXPECT_EQ(input_error_of([] {
              Network({7, 5}).add(LSTM({.units = 2, .use_bias = false, .recurrent_bias = true}));
            }),
            "[layer lstm (lstm)] expected use_bias with recurrent_bias, got recurrent_bias alone");
  EXPECT_EQ(input_error_of([] {
              network_from_json(R"({"input": [7, 5], "layers": [{"type": "lstm"}]})", "net.json");
            }),
            "[net.json: layer 0 (lstm)] expected \"units\"; the key is missing");
}

}  // namespace
}  // namespace lockstep::inline v0::model
