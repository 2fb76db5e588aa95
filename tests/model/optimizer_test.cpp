#include "model/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/error.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

ParameterTable table_of(const std::vector<std::pair<std::int64_t, bool>>& sizes_and_decay) {
  std::vector<ParameterInfo> entries;
  for (const auto& [size, decay] : sizes_and_decay) {
    ParameterInfo entry;
    entry.name = fmt::format("parameter_{}", entries.size());
    entry.shape = {size};
    entry.decay = decay;
    entries.push_back(entry);
  }
  return ParameterTable(std::move(entries));
}

// One parameter and its slots, updated by the formulas of the header in double.
struct Scalar {
  double w;
  double first = 0;
  double second = 0;

  void apply(const Sgd& sgd, double gradient, double rate, int /*step*/, bool decays) {
    const double g = gradient + (decays ? static_cast<double>(sgd.weight_decay) * w : 0);
    first = static_cast<double>(sgd.momentum) * first + g;
    w -= rate * (sgd.nesterov ? g + static_cast<double>(sgd.momentum) * first : first);
  }
  void apply(const Adam& adam, double gradient, double rate, int step, bool decays) {
    descend(adam, gradient + (decays ? static_cast<double>(adam.weight_decay) * w : 0), rate, step);
  }
  void apply(const AdamW& adam, double gradient, double rate, int step, bool decays) {
    if (decays) w -= rate * static_cast<double>(adam.weight_decay) * w;
    descend(adam, gradient, rate, step);
  }
  void descend(const auto& adam, double g, double rate, int step) {
    const double beta1 = adam.beta1;
    const double beta2 = adam.beta2;
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * g * g;
    const double m = first / (1 - std::pow(beta1, step));
    const double v = second / (1 - std::pow(beta2, step));
    w -= rate * m / (std::sqrt(v) + static_cast<double>(adam.epsilon));
  }
};

const std::vector<OptimizerOptions> kAll = {Sgd{},
                                            Sgd{.weight_decay = 0.1f},
                                            Sgd{.momentum = 0.9f, .weight_decay = 0.1f},
                                            Sgd{.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f},
                                            Adam{},
                                            Adam{.weight_decay = 0.1f},
                                            AdamW{.weight_decay = 0.1f}};

TEST(Optimizer, FollowsItsFormulaInEveryRange) {
  // Sizes around the vector width, so that whole vectors, tails and padding all occur.
  const ParameterTable table = table_of({{3, true}, {33, false}, {16, false}, {100, true}, {1, false}});
  for (const OptimizerOptions& options : kAll) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters(table.flat_size());
    std::vector<Scalar> expected(table.flat_size());
    for (const ParameterInfo& entry : table.entries()) {
      const auto start = numbers(entry.count, entry.offset);
      std::ranges::copy(start, ParameterTable::slice(std::span(parameters), entry).begin());
    }
    std::ranges::transform(parameters, expected.begin(), [](float w) { return Scalar{w}; });
    for (int step = 1; step <= 5; ++step) {
      std::vector<float> gradients(table.flat_size());
      for (const ParameterInfo& entry : table.entries()) {
        const auto values = numbers(entry.count, static_cast<std::uint64_t>(100 + step) + entry.offset);
        std::ranges::copy(values, ParameterTable::slice(std::span(gradients), entry).begin());
        for (std::size_t i = entry.offset; i < entry.offset + entry.count; ++i)
          std::visit(
              [&](const auto& chosen) {
                expected[i].apply(chosen, 0.5 * static_cast<double>(gradients[i]), 0.01, step, entry.decay);
              },
              options);
      }
      optimizer.apply(parameters, gradients, 0.01f, step, 0.5f);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i)
      ASSERT_NEAR(parameters[i], expected[i].w, 2e-6) << to_string(options) << ", element " << i;
  }
}

TEST(Optimizer, AgreesWithPyTorch) {
  const ReferenceFile reference("optimizers");
  const auto& start = reference.array("parameters").values;
  const auto& gradients = reference.array("gradients").values;
  const ParameterTable table = table_of({{static_cast<std::int64_t>(start.size()), true}});
  const std::vector<std::tuple<std::string, OptimizerOptions, float>> cases = {
      {"sgd", Sgd{.weight_decay = 0.01f}, 0.1f},
      {"momentum", Sgd{.momentum = 0.9f, .weight_decay = 0.01f}, 0.1f},
      {"nesterov", Sgd{.momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f}, 0.1f},
      {"adam", Adam{.weight_decay = 0.1f}, 0.01f},
      {"adamw", AdamW{.weight_decay = 0.1f}, 0.01f}};
  for (const auto& [name, options, rate] : cases) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters(table.flat_size());
    std::ranges::copy(start, parameters.begin());
    for (std::size_t step = 0; step < gradients.size() / start.size(); ++step) {
      std::vector<float> gradient(table.flat_size());
      std::ranges::copy(std::span(gradients).subspan(step * start.size(), start.size()), gradient.begin());
      optimizer.apply(parameters, gradient, rate, static_cast<std::int64_t>(step) + 1);
    }
    parameters.resize(start.size());
    EXPECT_THAT(parameters, Pointwise(FloatNear(2e-6f), reference.array(name).values)) << name;
  }
}

TEST(Optimizer, KeepsPaddingAtZero) {
  const ParameterTable table = table_of({{3, true}, {5, false}});
  for (const OptimizerOptions& options : kAll) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters(table.flat_size());
    std::vector<float> gradients(table.flat_size());
    for (const ParameterInfo& entry : table.entries()) {
      std::ranges::fill(ParameterTable::slice(std::span(parameters), entry), 1.0f);
      std::ranges::fill(ParameterTable::slice(std::span(gradients), entry), 1.0f);
    }
    for (std::int64_t step = 1; step <= 3; ++step) optimizer.apply(parameters, gradients, 0.1f, step);
    EXPECT_THAT(std::span(parameters).subspan(3, 13), Each(0.0f)) << to_string(options);
    EXPECT_THAT(std::span(parameters).subspan(21), Each(0.0f)) << to_string(options);
  }
}

TEST(Optimizer, NamesItsSlots) {
  const ParameterTable table = table_of({{20, true}});
  EXPECT_THAT(Optimizer(Sgd{}, table).slot_names(), IsEmpty());
  EXPECT_THAT(Optimizer(Sgd{.momentum = 0.9f}, table).slot_names(), ElementsAre("momentum"));
  EXPECT_THAT(Optimizer(Adam{}, table).slot_names(), ElementsAre("m", "v"));
  EXPECT_THAT(Optimizer(AdamW{}, table).slot_names(), ElementsAre("m", "v"));
  EXPECT_EQ(Optimizer(Adam{}, table).slot("v").size(), table.flat_size());
  EXPECT_THAT(error_of(ErrorCategory::checkpoint, [&] { Optimizer(Adam{}, table).slot("momentum"); }),
              HasSubstr("needed one of the slots m, v; got \"momentum\""));
}

TEST(Optimizer, ContinuesBitForBitFromItsSlots) {
  const ParameterTable table = table_of({{40, true}});
  const std::vector<float> gradients(table.flat_size(), 0.25f);
  for (const OptimizerOptions& options : kAll) {
    Optimizer straight(options, table);
    std::vector<float> expected(table.flat_size(), 1.0f);
    for (std::int64_t step = 1; step <= 4; ++step) straight.apply(expected, gradients, 0.1f, step);

    Optimizer before(options, table);
    Optimizer after(options, table);
    std::vector<float> parameters(table.flat_size(), 1.0f);
    for (std::int64_t step = 1; step <= 2; ++step) before.apply(parameters, gradients, 0.1f, step);
    for (const std::string& name : before.slot_names()) std::ranges::copy(before.slot(name), after.slot(name).begin());
    for (std::int64_t step = 3; step <= 4; ++step) after.apply(parameters, gradients, 0.1f, step);
    EXPECT_EQ(parameters, expected) << to_string(options);
  }
}

TEST(Optimizer, OfNoParametersDoesNothing) {
  Optimizer optimizer(Adam{}, ParameterTable());
  optimizer.apply({}, {}, 0.1f, 1);
  EXPECT_TRUE(optimizer.slot("m").empty());
}

TEST(Optimizer, RefusesOptionsOutsideTheirRange) {
  const ParameterTable table = table_of({{1, true}});
  const auto message = [&](const OptimizerOptions& options) {
    return input_error_of([&] { Optimizer(options, table); });
  };
  EXPECT_EQ(message(Sgd{.momentum = 1}), "[sgd] needed momentum from 0 to below 1; got 1");
  EXPECT_EQ(message(Sgd{.nesterov = true}), "[sgd] needed momentum above 0 for Nesterov's form; got 0");
  EXPECT_EQ(message(Sgd{.weight_decay = -1}), "[sgd] needed weight decay of 0 or more; got -1");
  EXPECT_EQ(message(Adam{.beta1 = 1.5f}), "[adam] needed beta1 from 0 to below 1; got 1.5");
  EXPECT_EQ(message(Adam{.beta2 = -0.5f}), "[adam] needed beta2 from 0 to below 1; got -0.5");
  EXPECT_EQ(message(AdamW{.epsilon = 0}), "[adamw] needed epsilon above 0; got 0");
  EXPECT_EQ(message(AdamW{.weight_decay = -0.25f}), "[adamw] needed weight decay of 0 or more; got -0.25");
}

TEST(Optimizer, ChecksTheSizesItIsGiven) {
  Optimizer optimizer(Sgd{}, table_of({{16, true}}));
  std::vector<float> right(16);
  std::vector<float> wrong(15);
  EXPECT_THROW(optimizer.apply(wrong, right, 0.1f, 1), CheckFailure);
  EXPECT_THROW(optimizer.apply(right, wrong, 0.1f, 1), CheckFailure);
  EXPECT_THROW(optimizer.apply(right, right, 0.1f, 0), CheckFailure) << "steps count from 1";
}

TEST(OptimizerOptions, ReadsLikeItsConstructor) {
  EXPECT_EQ(to_string(OptimizerOptions(Sgd{})), "sgd(weight_decay=0)");
  EXPECT_EQ(to_string(OptimizerOptions(Sgd{.momentum = 0.9f, .nesterov = true})),
            "sgd(momentum=0.9, nesterov, weight_decay=0)");
  EXPECT_EQ(to_string(OptimizerOptions(Adam{})), "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, weight_decay=0)");
  EXPECT_EQ(to_string(OptimizerOptions(AdamW{})), "adamw(beta1=0.9, beta2=0.999, epsilon=1e-07, weight_decay=0.01)");
}

TEST(GlobalNorm, IsEuclidean) {
  EXPECT_EQ(global_norm({}), 0);
  const std::vector<float> small = {3, -4};
  EXPECT_DOUBLE_EQ(global_norm(small), 5);
  for (const std::size_t size : {31, 32, 33, 1000}) {
    const std::vector<float> ones(size, 1.0f);
    EXPECT_DOUBLE_EQ(global_norm(ones), std::sqrt(static_cast<double>(size))) << size;
  }
}

TEST(GlobalNorm, NeitherOverflowsNorLosesSmallNumbers) {
  std::vector<float> values(1'000'001, 1e-4f);
  values[0] = 1;
  EXPECT_NEAR(global_norm(values), std::sqrt(1.01), 1e-6);
  const std::vector<float> huge(4, 1e30f);
  EXPECT_NEAR(global_norm(huge), 2e30, 1e24);
}

TEST(ClipScale, ShrinksOnlyWhatIsAboveTheLimit) {
  EXPECT_EQ(clip_scale(10, 5), 0.5f);
  EXPECT_EQ(clip_scale(5, 5), 1);
  EXPECT_EQ(clip_scale(1, 5), 1);
  EXPECT_EQ(clip_scale(100, 0), 1) << "0 means no clipping";
}

}  // namespace
}  // namespace lockstep::model
