#include "lockstep/model/optimizer/optimizer.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::inline v0::model {
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
  void apply(const RmsProp& rmsprop, double gradient, double rate, int /*step*/, bool decays) {
    const double g = gradient + (decays ? static_cast<double>(rmsprop.weight_decay) * w : 0);
    first =
        static_cast<double>(rmsprop.rho) * first + (1 - static_cast<double>(rmsprop.rho)) * g * g;
    second = static_cast<double>(rmsprop.momentum) * second +
             g / (std::sqrt(first) + static_cast<double>(rmsprop.epsilon));
    w -= rate * second;
  }
  void apply(const Adagrad& adagrad, double gradient, double rate, int /*step*/, bool decays) {
    const double g = gradient + (decays ? static_cast<double>(adagrad.weight_decay) * w : 0);
    first += g * g;
    w -= rate * g /
         (std::sqrt(static_cast<double>(adagrad.initial_accumulator) + first) +
          static_cast<double>(adagrad.epsilon));
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

using ElementWise = std::variant<Sgd, Adam, AdamW, RmsProp, Adagrad>;
const std::vector<ElementWise> kElementWise = {
    Sgd{},
    Sgd{.weight_decay = 0.1f},
    Sgd{.momentum = 0.9f, .weight_decay = 0.1f},
    Sgd{.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f},
    Adam{},
    Adam{.weight_decay = 0.1f},
    AdamW{.weight_decay = 0.1f},
    RmsProp{},
    RmsProp{.rho = 0.99f, .momentum = 0.9f, .weight_decay = 0.1f},
    Adagrad{.weight_decay = 0.1f},
    Adagrad{.initial_accumulator = 0, .epsilon = 1e-10f}};

OptimizerOptions options_of(const ElementWise& optimizer) {
  return std::visit([](const auto& chosen) { return OptimizerOptions(chosen); }, optimizer);
}

std::vector<OptimizerOptions> many_options() {
  std::vector<OptimizerOptions> options = all_optimizers();
  for (const ElementWise& optimizer : kElementWise) options.push_back(options_of(optimizer));
  return options;
}

TEST(Optimizer, FollowsItsFormulaInEveryRange) {
  // Sizes around the vector width, so that whole vectors, tails and padding all occur.
  const ParameterTable table =
      table_of({{3, true}, {33, false}, {16, false}, {100, true}, {1, false}});
  for (const ElementWise& options : kElementWise) {
    Optimizer optimizer(options_of(options), table);
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
        const auto values =
            numbers(entry.count, static_cast<std::uint64_t>(100 + step) + entry.offset);
        std::ranges::copy(values, ParameterTable::slice(std::span(gradients), entry).begin());
        for (std::size_t i = entry.offset; i < entry.offset + entry.count; ++i)
          std::visit(
              [&](const auto& chosen) {
                expected[i].apply(chosen, 0.5 * static_cast<double>(gradients[i]), 0.01, step,
                                  entry.decay);
              },
              options);
      }
      optimizer.apply(parameters, gradients, 0.01f, step, 0.5f);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i)
      ASSERT_NEAR(parameters[i], expected[i].w, 2e-6)
          << to_string(options_of(options)) << ", element " << i;
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
      {"adamw", AdamW{.weight_decay = 0.1f}, 0.01f},
      {"rmsprop", RmsProp{.weight_decay = 0.1f}, 0.01f},
      {"rmsprop_momentum", RmsProp{.rho = 0.99f, .momentum = 0.9f}, 0.01f},
      {"adagrad", Adagrad{.weight_decay = 0.1f}, 0.1f}};
  for (const auto& [name, options, rate] : cases) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters(table.flat_size());
    std::ranges::copy(start, parameters.begin());
    for (std::size_t step = 0; step < gradients.size() / start.size(); ++step) {
      std::vector<float> gradient(table.flat_size());
      std::ranges::copy(std::span(gradients).subspan(step * start.size(), start.size()),
                        gradient.begin());
      optimizer.apply(parameters, gradient, rate, static_cast<std::int64_t>(step) + 1);
    }
    parameters.resize(start.size());
    EXPECT_THAT(parameters, Pointwise(FloatNear(2e-6f), reference.array(name).values)) << name;
  }
}

TEST(Optimizer, LayerWiseRatesAgreeWithNumPy) {
  const ReferenceFile reference("layer_wise_optimizers");
  const std::vector<std::tuple<std::string, OptimizerOptions, float>> cases = {
      {"lars", Lars{}, 1},
      {"lars_strong",
       Lars{.momentum = 0.5f, .weight_decay = 0.1f, .trust_coefficient = 0.02f, .epsilon = 1e-3f},
       1},
      {"lamb", Lamb{}, 0.01f},
      {"lamb_strong", Lamb{.beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 1e-3f, .weight_decay = 0.5f},
       0.01f}};
  std::vector<ParameterInfo> layers;
  for (const char* name : {"kernel", "bias", "zero_kernel", "still_kernel", "gamma"}) {
    ParameterInfo& layer = layers.emplace_back();
    layer.name = name;
    layer.shape = reference.array(fmt::format("start/{}", name)).shape;
    layer.decay = layer.name.ends_with("kernel");
  }
  const ParameterTable table(layers);
  const auto& rates = reference.array("rates").values;
  // Row `row` of each layer's array in the file, as a flat array.
  const auto flat = [&](const std::string& prefix, std::size_t row) {
    std::vector<float> values(table.flat_size());
    for (const ParameterInfo& layer : table.entries()) {
      const std::span rows(reference.array(prefix + "/" + layer.name).values);
      std::ranges::copy(rows.subspan(row * layer.count, layer.count),
                        values.begin() + layer.offset);
    }
    return values;
  };
  for (const auto& [name, options, factor] : cases) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters = flat("start", 0);
    for (std::size_t step = 0; step < rates.size(); ++step) {
      optimizer.apply(parameters, flat("gradient", step), factor * rates[step],
                      static_cast<std::int64_t>(step) + 1);
      const std::vector<float> expected = flat(name, step);
      for (const ParameterInfo& layer : table.entries()) {
        const auto wanted = ParameterTable::slice(std::span(expected), layer);
        const float largest = std::ranges::max(wanted, {}, [](float x) { return std::abs(x); });
        EXPECT_THAT(ParameterTable::slice(std::span(parameters), layer),
                    Pointwise(FloatNear(1e-6f * std::abs(largest)), wanted))
            << name << ", " << layer.name << " after step " << step + 1;
      }
    }
  }
}

TEST(Optimizer, LayerWiseRatesDoNotChangeWithTheScaleOfTheGradient) {
  const ParameterTable table = table_of({{50, true}});
  const std::vector<float> start = numbers(table.flat_size(), 1);
  for (const OptimizerOptions& options :
       {OptimizerOptions(Lars{.weight_decay = 0}),
        OptimizerOptions(Lamb{.epsilon = 1e-12f, .weight_decay = 0})}) {
    std::array<std::vector<float>, 2> moved = {start, start};
    for (const std::size_t large : {0U, 1U}) {
      Optimizer optimizer(options, table);
      for (std::int64_t step = 1; step <= 3; ++step) {
        std::vector<float> gradients =
            numbers(table.flat_size(), static_cast<std::uint64_t>(1 + step));
        for (float& gradient : gradients) gradient *= large == 1 ? 1024 : 1;
        // The scale contributes a half, so that the norm must include the scale.
        optimizer.apply(moved[large], gradients, 0.1f, step, large == 1 ? 0.5f : 1);
      }
    }
    EXPECT_NE(moved[0], start);
    EXPECT_THAT(moved[1], Pointwise(FloatNear(1e-6f), moved[0])) << to_string(options);
  }
}

TEST(Optimizer, LayerWiseRatesExcludeBiasesAndNormalization) {
  const ParameterTable table = table_of({{40, false}});
  const std::vector<float> start = numbers(table.flat_size(), 1);
  const std::vector<float> gradients = numbers(table.flat_size(), 2);
  std::vector<float> momentum = start;
  std::vector<float> lars = start;
  std::vector<float> adam = start;
  std::vector<float> lamb = start;
  Optimizer sgd(Sgd{.momentum = 0.9f}, table);
  Optimizer by_lars(Lars{.weight_decay = 0.5f}, table);
  Optimizer by_adam(Adam{.epsilon = 1e-6f}, table);
  Optimizer by_lamb(Lamb{.weight_decay = 0.5f}, table);
  for (std::int64_t step = 1; step <= 3; ++step) {
    sgd.apply(momentum, gradients, 0.01f, step);
    by_lars.apply(lars, gradients, 0.01f, step);
    by_adam.apply(adam, gradients, 0.01f, step);
    by_lamb.apply(lamb, gradients, 0.01f, step);
  }
  EXPECT_THAT(lars, Pointwise(FloatNear(1e-6f), momentum));
  EXPECT_THAT(lamb, Pointwise(FloatNear(1e-6f), adam));
}

TEST(Optimizer, LayerWiseRatesAreThePlainRateWhereANormIsZero) {
  const ParameterTable table = table_of({{20, true}});
  const std::vector<float> zeros(table.flat_size());
  const std::vector<float> ones(table.flat_size(), 1.0f);
  std::vector<float> from_zero = zeros;
  Optimizer(Lars{}, table).apply(from_zero, ones, 0.5f, 1);
  EXPECT_THAT(from_zero, Each(-0.5f));
  std::vector<float> still = ones;
  Optimizer(Lars{.weight_decay = 0.25f}, table).apply(still, zeros, 0.5f, 1);
  EXPECT_THAT(still, Each(1 - 0.5f * 0.25f));
  from_zero = zeros;
  Optimizer(Lamb{.epsilon = 1e-12f}, table).apply(from_zero, ones, 0.5f, 1);
  EXPECT_THAT(from_zero, Each(FloatNear(-0.5f, 1e-6f)));
  still = ones;
  Optimizer(Lamb{.weight_decay = 0}, table).apply(still, zeros, 0.5f, 1);
  EXPECT_EQ(still, ones);
}

TEST(UpdateRanges, AreOnePerLayerOnlyForLayerWiseOptimizers) {
  const ParameterTable table =
      table_of({{3, true}, {20, true}, {5, false}, {16, false}, {1, true}});
  const auto bounds = [&](const OptimizerOptions& options) {
    std::vector<std::tuple<std::size_t, std::size_t, bool>> result;
    for (const UpdateRange& range : update_ranges(options, table))
      result.emplace_back(range.begin, range.end, range.group.decay);
    return result;
  };
  using Range = std::tuple<std::size_t, std::size_t, bool>;
  EXPECT_THAT(bounds(Adam{}),
              ElementsAre(Range{0, 48, true}, Range{48, 80, false}, Range{80, 96, true}));
  EXPECT_THAT(bounds(Lamb{}),
              ElementsAre(Range{0, 16, true}, Range{16, 48, true}, Range{48, 64, false},
                          Range{64, 80, false}, Range{80, 96, true}));
}

TEST(Optimizer, UpdatesEachGroupWithItsOwnRateAndDecay) {
  std::vector<ParameterInfo> entries(3);
  for (ParameterInfo& entry : entries) {
    entry.name = fmt::format("parameter_{}", &entry - entries.data());
    entry.shape = {20};
  }
  entries[1].rate_factor = 0.5f;
  entries[2].rate_factor = 2;
  entries[2].weight_decay = 0.25f;
  const ParameterTable table(entries);
  const std::vector<float> gradients = numbers(table.flat_size(), 1);
  for (OptimizerOptions options : many_options()) {
    Optimizer grouped(options, table);
    std::vector<float> parameters = numbers(table.flat_size(), 2);
    const std::vector<float> start = parameters;
    grouped.apply(parameters, gradients, 0.1f, 1);
    for (const ParameterInfo& entry : table.entries()) {
      if (entry.weight_decay) *find_hyperparameter(options, "weight_decay") = *entry.weight_decay;
      const ParameterTable alone = table_of({{20, true}});
      const auto part = [&](const std::vector<float>& flat) {
        return std::vector<float>(flat.begin() + static_cast<std::ptrdiff_t>(entry.offset),
                                  flat.begin() + static_cast<std::ptrdiff_t>(entry.offset + 32));
      };
      std::vector<float> expected = part(start);
      Optimizer(options, alone).apply(expected, part(gradients), 0.1f * entry.rate_factor, 1);
      expected.resize(20);
      std::vector<float> updated = part(parameters);
      updated.resize(20);
      EXPECT_EQ(updated, expected) << to_string(options) << ", " << entry.name;
    }
  }
}

TEST(Optimizer, KeepsPaddingAtZero) {
  const ParameterTable table = table_of({{3, true}, {5, false}});
  for (const OptimizerOptions& options : many_options()) {
    Optimizer optimizer(options, table);
    std::vector<float> parameters(table.flat_size());
    std::vector<float> gradients(table.flat_size());
    for (const ParameterInfo& entry : table.entries()) {
      std::ranges::fill(ParameterTable::slice(std::span(parameters), entry), 1.0f);
      std::ranges::fill(ParameterTable::slice(std::span(gradients), entry), 1.0f);
    }
    for (std::int64_t step = 1; step <= 3; ++step)
      optimizer.apply(parameters, gradients, 0.1f, step);
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
  EXPECT_THAT(Optimizer(Lars{}, table).slot_names(), ElementsAre("velocity"));
  EXPECT_THAT(Optimizer(RmsProp{}, table).slot_names(), ElementsAre("mean_square"));
  EXPECT_THAT(Optimizer(RmsProp{.momentum = 0.5f}, table).slot_names(),
              ElementsAre("mean_square", "momentum"));
  EXPECT_THAT(Optimizer(Adagrad{}, table).slot_names(), ElementsAre("sum_of_squares"));
  EXPECT_THAT(Optimizer(Lamb{}, table).slot_names(), ElementsAre("m", "v"));
  EXPECT_EQ(Optimizer(Adam{}, table).slot("v").size(), table.flat_size());
  EXPECT_THAT(
      error_of(ErrorCategory::checkpoint, [&] { Optimizer(Adam{}, table).slot("momentum"); }),
      HasSubstr("expected one of the slots m, v, got \"momentum\""));
}

TEST(Optimizer, ContinuesBitForBitFromItsSlots) {
  const ParameterTable table = table_of({{40, true}});
  const std::vector<float> gradients(table.flat_size(), 0.25f);
  for (const OptimizerOptions& options : many_options()) {
    Optimizer straight(options, table);
    std::vector<float> expected(table.flat_size(), 1.0f);
    for (std::int64_t step = 1; step <= 4; ++step) straight.apply(expected, gradients, 0.1f, step);

    Optimizer before(options, table);
    Optimizer after(options, table);
    std::vector<float> parameters(table.flat_size(), 1.0f);
    for (std::int64_t step = 1; step <= 2; ++step) before.apply(parameters, gradients, 0.1f, step);
    for (const std::string& name : before.slot_names())
      std::ranges::copy(before.slot(name), after.slot(name).begin());
    for (std::int64_t step = 3; step <= 4; ++step) after.apply(parameters, gradients, 0.1f, step);
    EXPECT_EQ(parameters, expected) << to_string(options);
  }
}

TEST(Optimizer, DoesNothingWithoutParameters) {
  Optimizer optimizer(Adam{}, ParameterTable());
  optimizer.apply({}, {}, 0.1f, 1);
  EXPECT_TRUE(optimizer.slot("m").empty());
}

TEST(Optimizer, RejectsOptionsOutsideTheirRange) {
  const ParameterTable table = table_of({{1, true}});
  const auto message = [&](const OptimizerOptions& options) {
    return input_error_of([&] { Optimizer(options, table); });
  };
  EXPECT_EQ(message(Sgd{.momentum = 1}), "[sgd] expected momentum from 0 to below 1, got 1");
  EXPECT_EQ(message(Sgd{.nesterov = true}),
            "[sgd] expected momentum above 0 for Nesterov momentum, got 0");
  EXPECT_EQ(message(Sgd{.weight_decay = -1}), "[sgd] expected weight decay of 0 or more, got -1");
  EXPECT_EQ(message(Adam{.beta1 = 1.5f}), "[adam] expected beta1 from 0 to below 1, got 1.5");
  EXPECT_EQ(message(Adam{.beta2 = -0.5f}), "[adam] expected beta2 from 0 to below 1, got -0.5");
  EXPECT_EQ(message(AdamW{.epsilon = 0}), "[adamw] expected epsilon above 0, got 0");
  EXPECT_EQ(message(AdamW{.weight_decay = -0.25f}),
            "[adamw] expected weight decay of 0 or more, got -0.25");
  EXPECT_EQ(message(Lars{.momentum = 1}), "[lars] expected momentum from 0 to below 1, got 1");
  EXPECT_EQ(message(Lars{.weight_decay = -1}), "[lars] expected weight decay of 0 or more, got -1");
  EXPECT_EQ(message(Lars{.trust_coefficient = 0}),
            "[lars] expected a trust coefficient above 0, got 0");
  EXPECT_EQ(message(Lars{.epsilon = -1}), "[lars] expected epsilon of 0 or more, got -1");
  EXPECT_EQ(message(Lamb{.epsilon = 0}), "[lamb] expected epsilon above 0, got 0");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(Adam{.epsilon = kInfinity}), "[adam] expected epsilon above 0, got inf");
  EXPECT_EQ(message(AdamW{.weight_decay = kInfinity}),
            "[adamw] expected weight decay of 0 or more, got inf");
  EXPECT_EQ(message(RmsProp{.rho = 1}), "[rmsprop] expected rho from 0 to below 1, got 1");
  EXPECT_EQ(message(RmsProp{.momentum = 1}),
            "[rmsprop] expected momentum from 0 to below 1, got 1");
  EXPECT_EQ(message(RmsProp{.epsilon = 0}), "[rmsprop] expected epsilon above 0, got 0");
  EXPECT_EQ(message(Adagrad{.initial_accumulator = -1}),
            "[adagrad] expected an initial accumulator of 0 or more, got -1");
}

TEST(Optimizer, ChecksTheSizesOfItsArguments) {
  Optimizer optimizer(Sgd{}, table_of({{16, true}}));
  std::vector<float> right(16);
  std::vector<float> wrong(15);
  EXPECT_THROW(optimizer.apply(wrong, right, 0.1f, 1), CheckFailure);
  EXPECT_THROW(optimizer.apply(right, wrong, 0.1f, 1), CheckFailure);
  EXPECT_THROW(optimizer.apply(right, right, 0.1f, 0), CheckFailure) << "steps count from 1";
}

TEST(OptimizerOptions, HaveNamesAndHyperparametersByName) {
  std::vector<std::string> names;
  for (OptimizerOptions& options : many_options()) {
    names.push_back(name_of(options));
    EXPECT_TRUE(to_string(options).starts_with(names.back() + ":"));
    float* const decay = find_hyperparameter(options, "weight_decay");
    ASSERT_NE(decay, nullptr) << names.back();
    *decay = 0.375f;
    EXPECT_THAT(to_string(options), HasSubstr("weight_decay=0.375"));
    EXPECT_EQ(find_hyperparameter(options, "learning_rate"), nullptr);
  }
  names.resize(all_optimizers().size());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"sgd", "adam", "adamw", "lars", "lamb"}));
  OptimizerOptions sgd = Sgd{.momentum = 0.5f};
  EXPECT_EQ(*find_hyperparameter(sgd, "momentum"), 0.5f);
  EXPECT_EQ(find_hyperparameter(sgd, "beta1"), nullptr);
}

TEST(OptimizerOptions, PrintsInTheGrammarOfOptions) {
  EXPECT_EQ(to_string(OptimizerOptions(Sgd{})), "sgd:momentum=0,weight_decay=0,nesterov=false");
  EXPECT_EQ(to_string(OptimizerOptions(Sgd{.momentum = 0.9f, .nesterov = true})),
            "sgd:momentum=0.9,weight_decay=0,nesterov=true");
  EXPECT_EQ(to_string(OptimizerOptions(Adam{})),
            "adam:beta1=0.9,beta2=0.999,epsilon=1e-07,weight_decay=0");
  EXPECT_EQ(to_string(OptimizerOptions(AdamW{})),
            "adamw:beta1=0.9,beta2=0.999,epsilon=1e-07,weight_decay=0.01");
  EXPECT_EQ(to_string(OptimizerOptions(Lars{})),
            "lars:momentum=0.9,weight_decay=0.0005,trust_coefficient=0.001,epsilon=1e-09");
  EXPECT_EQ(to_string(OptimizerOptions(Lamb{})),
            "lamb:beta1=0.9,beta2=0.999,epsilon=1e-06,weight_decay=0.01");
  EXPECT_EQ(to_string(OptimizerOptions(RmsProp{})),
            "rmsprop:rho=0.9,momentum=0,epsilon=1e-07,weight_decay=0");
  EXPECT_EQ(to_string(OptimizerOptions(Adagrad{})),
            "adagrad:initial_accumulator=0.1,epsilon=1e-07,weight_decay=0");
}

/// A CustomOptimizer with these names and this decay, which records its arguments and changes
/// nothing.
class NamedOptimizer final : public CustomOptimizer {
 public:
  NamedOptimizer(std::string name, std::vector<std::string> slots, float decay = 0)
      : name_(std::move(name)), slots_(std::move(slots)), decay_(decay) {}
  std::string name() const override { return name_; }
  std::vector<std::string> slots() const override { return slots_; }
  std::vector<std::pair<std::string, float>> hyperparameters() const override {
    return {{"warmth", 0.5F}, {"depth", 3.0F}};
  }
  float weight_decay() const override { return decay_; }
  void update(const UpdateElements& elements, const UpdateNumbers& numbers) const override {
    sizes.push_back(elements.values.size());
    gradients.push_back(elements.gradients.front());
    rates.push_back(numbers.learning_rate);
    decays.push_back(numbers.weight_decay);
    steps.push_back(numbers.step);
  }
  mutable std::vector<std::size_t> sizes;
  mutable std::vector<float> gradients;
  mutable std::vector<float> rates;
  mutable std::vector<float> decays;
  mutable std::vector<std::int64_t> steps;

 private:
  std::string name_;
  std::vector<std::string> slots_;
  float decay_;
};

TEST(CustomOptimizerClass, ReceivesTheElementsAndNumbersOfEachParameter) {
  ParameterInfo kernel{.name = "kernel", .shape = {5000}, .decay = true, .initializer = {}};
  ParameterInfo bias{.name = "bias", .shape = {3}, .initializer = {}};
  ParameterInfo head{.name = "head",
                     .shape = {7},
                     .decay = true,
                     .initializer = {},
                     .rate_factor = 0.5F,
                     .weight_decay = 0.25F};
  bias.decay = false;
  const ParameterTable table({kernel, bias, head});
  const auto optimizer =
      std::make_shared<NamedOptimizer>("named", std::vector<std::string>{"a", "b", "c"}, 0.125F);
  Optimizer updates(CustomOptimizerPointer(optimizer), table);
  EXPECT_THAT(updates.slot_names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(updates.slot("c").size(), table.flat_size());
  std::vector<float> parameters(table.flat_size());
  const std::vector<float> gradients(table.flat_size(), 3.0F);
  updates.apply(parameters, gradients, 0.5F, 9, 0.5F);
  std::vector<std::size_t> counts(3);  // elements of each parameter, however they are divided
  for (std::size_t i = 0; i < optimizer->sizes.size(); ++i) {
    const std::size_t parameter = optimizer->decays[i] == 0.125F ? 0
                                  : optimizer->decays[i] == 0    ? 1
                                                                 : 2;
    counts[parameter] += optimizer->sizes[i];
    EXPECT_EQ(optimizer->decays[i], parameter == 2 ? 0.25F : parameter == 1 ? 0 : 0.125F);
    EXPECT_EQ(optimizer->rates[i], parameter == 2 ? 0.25F : 0.5F);
  }
  EXPECT_THAT(counts, ElementsAre(5000, 3, 7)) << "no padding";
  EXPECT_THAT(optimizer->gradients, Each(1.5F));
  EXPECT_THAT(optimizer->steps, Each(9));
}

TEST(CustomOptimizerClass, DescribesItselfAndRunsOnTheCpuOnly) {
  const OptimizerOptions options =
      std::make_shared<NamedOptimizer>("named", std::vector<std::string>{});
  EXPECT_EQ(name_of(options), "named");
  EXPECT_EQ(to_string(options), "named:warmth=0.5,depth=3");
  EXPECT_EQ(learning_rate_of(options), std::nullopt);
  OptimizerOptions copy = options;
  EXPECT_EQ(find_hyperparameter(copy, "warmth"), nullptr);
  EXPECT_FALSE(is_layer_wise(options));
  EXPECT_NO_THROW(check_runs_on_gpu(Sgd{}));
  EXPECT_EQ(input_error_of([&] { check_runs_on_gpu(options); }),
            "[named] expected a built-in optimizer on a GPU, got a CustomOptimizer, which "
            "runs on the CPU only");
}

TEST(CustomOptimizerClass, IsRejectedWithNamesThatCheckpointsCannotStore) {
  const auto refusal = [](const CustomOptimizerPointer& optimizer) {
    return input_error_of([&] { Optimizer(optimizer, ParameterTable()); });
  };
  const auto named = [&](const char* name, const std::vector<std::string>& slots, float decay = 0) {
    return refusal(std::make_shared<NamedOptimizer>(name, slots, decay));
  };
  EXPECT_EQ(refusal(nullptr), "[optimizer] expected an optimizer, got a null pointer");
  const std::string letters =
      "[optimizer] expected letters, digits, \"_\", \"-\" and \".\" as the ";
  EXPECT_EQ(named("", {}), letters + "name of the optimizer, got \"\"");
  EXPECT_EQ(named("my(x)", {}), letters + "name of the optimizer, got \"my(x)\"");
  EXPECT_EQ(named("my", {"a/b"}), letters + "name of a slot, got \"a/b\"");
  EXPECT_EQ(named("my", {"a", "b", "a"}),
            "[my] expected slots of different names, got \"a\" twice");
  EXPECT_EQ(named("my", {"average"}),
            "[my] expected another name of a slot, got \"average\", which is the average of the "
            "parameters");
  EXPECT_EQ(named("my", {}, -1), "[my] expected weight decay of 0 or more, got -1");
  EXPECT_EQ(named("My-0.1", {"first_moment"}), "(no error)");
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

TEST(AllFinite, FindsAValueAtAnyPositionAndLength) {
  EXPECT_TRUE(all_finite({}));
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{200}}) {
    std::vector<float> values(size, -std::numeric_limits<float>::max());
    EXPECT_TRUE(all_finite(values)) << size;
    for (std::size_t i = 0; i < size; ++i)
      for (const float bad :
           {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN()}) {
        const float before = std::exchange(values[i], bad);
        EXPECT_FALSE(all_finite(values)) << i << " of " << size;
        values[i] = before;
      }
  }
}

TEST(ClipScale, ShrinksOnlyWhatIsAboveTheLimit) {
  EXPECT_EQ(clip_scale(10, 5), 0.5f);
  EXPECT_EQ(clip_scale(5, 5), 1);
  EXPECT_EQ(clip_scale(1, 5), 1);
  EXPECT_EQ(clip_scale(100, 0), 1) << "0 means no clipping";
}

}  // namespace
}  // namespace lockstep::inline v0::model
