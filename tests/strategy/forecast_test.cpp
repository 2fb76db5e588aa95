// Training on windows of a table's rows: several replicas, a resume, and predictions.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/table/schema.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

constexpr std::int64_t kWindow = 6;

class Forecast : public ::testing::Test {
 protected:
  /// Two series of sines of 40 rows each.
  data::Dataset table(data::CsvOptions options = {}) const {
    const auto file = directory_.path() / "table.csv";
    std::ofstream out(file);
    out << "series,level\n";
    for (int i = 0; i < 40; ++i)
      out << "a," << std::sin(0.5 * i) << "\nb," << 1 + std::sin(0.3 * i) << "\n";
    out.close();
    if (options.targets.empty()) options.targets = {"level"};
    if (!options.schema) {
      options.window = kWindow;
      options.series = "series";
    }
    return data::Dataset::from_csv(file, options);
  }
  static model::Network network(std::int64_t outputs = 1) {
    model::Network network({kWindow, 1}, "lstm");
    network.add(model::LSTM({.units = 6}));
    network.add(model::Dense({.units = outputs}));
    return network;
  }
  static TrainerOptions options() {
    return {.loss = model::MeanSquaredError{},
            .optimizer = model::Sgd{.momentum = 0.9F},
            .schedule = {.peak = 0.05F}};
  }

  const checkpoint::ScratchDirectory directory_;
};

TEST_F(Forecast, IsTrainedTheSameByAnyNumberOfReplicas) {
  const data::Dataset data = table().shuffle().batch(10);
  EXPECT_EQ(data.size(), 2 * (40 - kWindow));
  const FitOptions fit{.epochs = 0, .steps = 20};
  const Outcome one = train(1, network(), data, options(), fit);
  ASSERT_EQ(one.losses.size(), 20U);
  const auto sum = [&](auto begin) { return std::accumulate(begin, begin + 5, 0.0); };
  EXPECT_LT(sum(one.losses.end() - 5), sum(one.losses.begin()));
  for (const int replicas : {2, 3}) {
    const Outcome several = train(replicas, network(), data, options(), fit);
    ASSERT_EQ(several.losses.size(), one.losses.size());
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(several.losses[i], one.losses[i], 1e-5 * one.losses[i])
          << replicas << " replicas, step " << i;
  }
}

TEST_F(Forecast, ResumesExactly) {
  const data::Dataset data = table().shuffle().batch(10);
  const auto run = [&](const std::string& name, const data::Dataset& windows, std::int64_t steps) {
    FitOptions fit{.epochs = 3, .steps = steps};
    fit.checkpoint.directory = directory_.path() / name;
    fit.checkpoint.save_every = 9;
    return train(2, network(), windows, options(), fit);
  };
  const Outcome expected = run("straight", data, 0);
  run("run", data, 9);
  for (const auto& [changed, message] : {std::pair(data::CsvOptions{.horizon = 2}, "expected the"),
                                         {data::CsvOptions{.stride = 2}, "expected the"}})
    EXPECT_THAT(error_of([&] { run("run", table(changed).shuffle().batch(10), 0); }),
                HasSubstr(message));
  EXPECT_EQ(run("run", data, 0).parameter_hash, expected.parameter_hash);
}

TEST_F(Forecast, PredictsAfterTheLastRow) {
  const data::Dataset windows = table({.steps = 2});
  job::Session session(0, nullptr, {.quiet = true});
  for (const int replicas : {1, 3}) {
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, network(2), options());
    trainer.fit(windows.shuffle().batch(10), {.epochs = 1, .progress = false});
    const auto evaluated = trainer.evaluate(windows.batch(10));
    EXPECT_EQ(evaluated.samples, 2 * (40 - kWindow - 1));
    const data::Dataset rows =
        table({.schema = windows.source().info().table, .may_lack_labels = true});
    std::int64_t predicted = 0;
    trainer.predict(rows.batch(10), [&](const Predictions& predictions) {
      EXPECT_EQ(predictions.width, 2);
      predicted += std::ssize(predictions.record_ids);
    });
    EXPECT_EQ(predicted, 2 * (40 - kWindow + 1));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
