#include "lockstep/train/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/trainer_options.h"
#include "tests/strategy/training.h"
#include "tests/strategy/watched_source.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

// ---- Records

TEST(Trainer, VisitsEachRecordOnceAnEpoch) {
  for (const int replicas : {1, 3, 4}) {
    const auto source = std::make_shared<WatchedSource>(103);
    const Outcome outcome =
        train(replicas, plain_network(), data::Dataset::from_source(source).shuffle().batch(10), {},
              {.epochs = 2});
    EXPECT_EQ(source->visits(), std::vector<int>(103, 2)) << replicas << " replicas";
    ASSERT_EQ(outcome.history.epochs.size(), 2U);
    EXPECT_EQ(outcome.history.epochs[0].samples, 103);
    EXPECT_EQ(outcome.history.epochs[1].metrics.samples, 103);
  }
}

TEST(Trainer, EpochMetricsAreTheSumsOfTheSteps) {
  const Outcome outcome = train(3, plain_network(), small_data().batch(40), {}, {.epochs = 1});
  double loss = 0;
  std::int64_t correct = 0;
  for (const StepLogs& step : outcome.steps) {
    loss += step.metrics.loss_sum;
    correct += step.metrics.correct;
  }
  const model::MetricSums& epoch = outcome.history.epochs[0].metrics;
  EXPECT_NEAR(epoch.loss_sum, loss, 1e-5 * loss);
  EXPECT_EQ(epoch.correct, correct);
  EXPECT_TRUE(epoch.has_accuracy());
}

// ---- Length

TEST(Trainer, EndsAtTheFirstLimit) {
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 100})
                .history.end.steps,
            12);
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 7})
                .history.end.steps,
            7);
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 0, .steps = 8})
                .history.end.steps,
            8);
}

TEST(Trainer, ReportsAnEpochThatWasNotFinished) {
  const History history =
      train(2, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 8}).history;
  ASSERT_EQ(history.epochs.size(), 2U);
  EXPECT_TRUE(history.epochs[0].complete);
  EXPECT_FALSE(history.epochs[1].complete);
  EXPECT_EQ(history.epochs[1].samples, 80);
}

TEST(Trainer, RequiresAnEnd) {
  EXPECT_EQ(error_of([] { train(1, plain_network(), small_data().batch(40), {}, {.epochs = 0}); }),
            "[fit] expected a number of epochs or of steps; both are 0");
}

TEST(Trainer, RequiresParameters) {
  model::Network network({kClasses}, "bare");
  network.add(model::Flatten());
  network.add(model::ReLU());
  const data::Dataset dataset = data::Dataset::synthetic({kClasses}, kClasses, 20).batch(8);
  EXPECT_EQ(error_of([&] { train(2, network, dataset); }),
            "[model] expected a layer with parameters to train, got none in bare");
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 1);
  EXPECT_EQ(Trainer(*strategy, network).evaluate(dataset).samples, 20) << "needs none";
}

// ---- Evaluation and prediction

TEST(Trainer, EvaluatesExactlyOnAnyNumberOfReplicas) {
  model::MetricSums expected;
  for (const int replicas : {1, 2, 3, 4}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    const model::MetricSums sums = trainer.evaluate(small_data(1003).batch(64));
    EXPECT_EQ(sums.samples, 1003);
    EXPECT_TRUE(sums.has_accuracy());
    if (replicas == 1) expected = sums;
    EXPECT_EQ(sums.correct, expected.correct);
    EXPECT_EQ(sums.correct_top5, 1003);  // there are only 4 classes
    EXPECT_NEAR(sums.loss_sum, expected.loss_sum, 1e-6 * expected.loss_sum);
  }
}

TEST(Trainer, MeasuresTheSameOnAnyNumberOfReplicasInTrainingAndEvaluation) {
  const data::Dataset data = data::Dataset::synthetic({16}, 2, 203).batch(40);
  model::Network network({16}, "two");
  network.add(model::Dense({.units = 2}));
  TrainerOptions options{.optimizer = model::Sgd{}, .schedule = {.peak = 0}};  // stays the same
  options.metrics = model::make_metrics("auc,auc_pr:exact=true,f1,confusion,recall:average=none",
                                        options.loss, 2);
  std::vector<model::MetricValue> expected;
  for (const int replicas : {1, 2, 3, 4})
    for (const int accumulate : {1, 3}) {
      job::Session session(0, nullptr, {.quiet = true});
      const auto strategy = local_strategy(session, replicas);
      options.accumulate = accumulate;
      Trainer trainer(*strategy, network, options);
      const History history = trainer.fit(data, {.epochs = 1, .validation = data});
      const Evaluation evaluation = trainer.evaluate(data);
      if (expected.empty()) expected = evaluation.values;
      ASSERT_EQ(evaluation.values.size(), 5U);
      EXPECT_EQ(evaluation.values, expected) << replicas << " replicas";
      const EpochLogs& epoch = history.epochs.front();
      EXPECT_EQ(epoch.values, expected) << replicas << " replicas, " << accumulate << " parts";
      EXPECT_EQ(epoch.validation_values, expected) << replicas << " replicas";
      const std::vector<double>& counts = evaluation.values[3].values;
      EXPECT_EQ(counts[0] + counts[3], static_cast<double>(evaluation.correct));
      EXPECT_EQ(epoch.metric("validation_auc"), evaluation.metric("auc"));
    }
}

TEST(Trainer, FindsTheValuesOfAnEpochByTheirNamesInEvents) {
  TrainerOptions options;
  options.metrics = model::make_metrics("f1,confusion,top3", options.loss, kClasses);
  const Outcome outcome = train(2, plain_network(), small_data().batch(40), options,
                                {.epochs = 1, .validation = small_data(20).batch(10)});
  const EpochLogs& epoch = outcome.history.epochs.front();
  EXPECT_EQ(epoch.metric("loss"), epoch.metrics.loss());
  EXPECT_EQ(epoch.metric("accuracy"), epoch.metrics.accuracy());
  EXPECT_EQ(epoch.metric("validation_loss"), epoch.validation->loss());
  EXPECT_EQ(epoch.metric("f1"), epoch.values.front().values.front());
  EXPECT_EQ(epoch.metric("validation_top3"), epoch.validation_values.back().values.front());
  for (const char* name :
       {"confusion", "auc", "validation", "validation_", "f1 ", "top5", "validation_top5_accuracy"})
    EXPECT_EQ(epoch.metric(name), std::nullopt) << name;
  EXPECT_EQ(EpochLogs{}.metric("validation_loss"), std::nullopt) << "without a validation";
}

TEST(Trainer, ValidationIsAnEvaluationOfTheEpochsModel) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  Trainer trainer(*strategy, plain_network());
  const data::Dataset validation = small_data(77).batch(10);
  const History history =
      trainer.fit(small_data().batch(40), {.epochs = 1, .validation = validation});
  EXPECT_EQ(history.epochs[0].validation->loss_sum, trainer.evaluate(validation).loss_sum);
}

TEST(Trainer, ContinuesWithTheOptimizerOfTheTrainingBefore) {
  const data::Dataset dataset = small_data().batch(40);  // each epoch in the same order
  for (const int replicas : {1, 2}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer twice(*strategy, plain_network(), {.optimizer = model::Adam{}});
    twice.fit(dataset);
    const History second = twice.fit(dataset);
    EXPECT_EQ(second.end.steps, 6) << "steps count from the beginning of each training";
    EXPECT_EQ(second.epochs.front().epoch, 0);
    Trainer once(*strategy, plain_network(), {.optimizer = model::Adam{}});
    once.fit(dataset, {.epochs = 2});
    EXPECT_EQ(twice.parameter_hash(), once.parameter_hash());
  }
}

TEST(Trainer, NamesTheErrorThatMadeTheStrategyUnusable) {
  for (const int replicas : {1, 2}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    const data::Dataset dataset = small_data().batch(40);
    ASSERT_EQ(error_of([&] { trainer.fit(dataset, {.epochs = 0}); }),
              "[fit] expected a number of epochs or of steps; both are 0");
    const std::string expected =
        "[strategy] expected a new strategy after an error, which ends the group of all replicas, "
        "got one that has failed: [fit] expected a number of epochs or of steps; both are 0";
    EXPECT_EQ(error_of([&] { trainer.fit(dataset); }), expected);
    EXPECT_EQ(error_of([&] { trainer.evaluate(dataset); }), expected);
    EXPECT_EQ(error_of([&] { const Trainer other(*strategy, plain_network()); }), expected);
    Trainer(*local_strategy(session, replicas), plain_network()).fit(dataset);
  }
}

/// Samples of `classes` classes without names: the number is inferred from labels.
class Counted final : public data::RecordSource {
 public:
  explicit Counted(std::int64_t classes) : source_(data::Dataset::synthetic({16}, classes, 20)) {
    info_ = source_.source().info();
    info_.counts_classes = true;
    info_.description = "counted";
  }
  void read(std::int64_t id, data::Sample& sample) const override {
    source_.source().read(id, sample);
    sample.label() = static_cast<std::int32_t>(id % spec().classes());
  }

 private:
  data::Dataset source_;
};

TEST(Trainer, EvaluatesDataWithoutAClassOfTheModel) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 1);
  Trainer trainer(*strategy, plain_network());
  const auto counted = [](std::int64_t classes) {
    return data::Dataset::from_source(std::make_shared<Counted>(classes)).batch(8);
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(trainer.evaluate(counted(kClasses)).samples, 20);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(trainer.evaluate(counted(2)).samples, 20);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the labels of counted go up to 1, and the model has 4 outputs: if these "
                        "are not 2 of its classes, the metrics have no meaning"));
  EXPECT_THAT(error_of([&] {
                trainer.evaluate(data::Dataset::synthetic({16}, kClasses - 1, 20).batch(8));
              }),
              HasSubstr("expected 4 classes, the outputs of model plain, got 3 classes"));
  EXPECT_EQ(
      error_of([&] { trainer.evaluate(small_data().batch(8).mixup(0.2)); }),
      "[data] expected unmixed samples for evaluation or prediction; the data set uses mixup");
  EXPECT_THAT(error_of([&] {
                trainer.evaluate(data::Dataset::synthetic({16}, kClasses + 1, 20).batch(8));
              }),
              HasSubstr("expected 4 classes, the outputs of model plain, got 5 classes"));
}

TEST(Trainer, EvaluatesAndPredictsWithItsReadOptions) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  Trainer trainer(*strategy, plain_network());
  const data::Dataset dataset = small_data(103).batch(8);
  const auto ignore = [](const Predictions&) {};
  EXPECT_EQ(trainer.evaluate(dataset, {.prefetch = 5, .data_threads = 3}).loss_sum,
            trainer.evaluate(dataset).loss_sum);
  EXPECT_THAT(error_of([&] { trainer.evaluate(dataset, {.data_threads = -1}); }),
              HasSubstr("expected at least 1 thread"));
  EXPECT_THAT(error_of([&] { trainer.predict(dataset, ignore, {.prefetch = 0}); }),
              HasSubstr("expected a prefetch of at least 1 batch"));
}

/// The samples of small_data() without their labels.
data::Dataset unlabelled_data(std::int64_t records) {
  const data::Dataset labelled = small_data(records);
  return data::Dataset::from_generator({.inputs = labelled.spec().inputs}, records,
                                       [labelled](std::int64_t id, data::Sample& sample) {
                                         data::Batch one(labelled.spec());
                                         data::Sample whole = one.sample();
                                         labelled.source().read(id, whole);
                                         std::ranges::copy(whole.features(),
                                                           sample.features().begin());
                                       });
}

TEST(Trainer, PredictsInTheOrderOfTheRecordsWithAndWithoutLabels) {
  std::vector<float> expected;
  for (const int replicas : {1, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    for (const data::Dataset& dataset : {small_data(25), unlabelled_data(25)}) {
      std::vector<std::int64_t> ids;
      std::vector<float> outputs;
      trainer.predict(dataset.batch(8), [&](const Predictions& predictions) {
        EXPECT_EQ(predictions.width, kClasses);
        ids.insert(ids.end(), predictions.record_ids.begin(), predictions.record_ids.end());
        outputs.insert(outputs.end(), predictions.outputs.begin(), predictions.outputs.end());
      });
      std::vector<std::int64_t> in_order(25);
      std::iota(in_order.begin(), in_order.end(), 0);
      EXPECT_EQ(ids, in_order);
      ASSERT_EQ(outputs.size(), 25U * kClasses);
      if (expected.empty()) expected = outputs;
      EXPECT_EQ(outputs, expected) << replicas << " replicas: not even rounded otherwise";
    }
    EXPECT_THAT(error_of([&] { trainer.evaluate(unlabelled_data(25).batch(8)); }),
                HasSubstr("expected class labels for cross-entropy"));
  }
}

/// The samples of small_data(), of which some cannot be read.
data::Dataset partly_bad_data(std::int64_t records, const std::set<std::int64_t>& bad) {
  const data::Dataset good = small_data(records);
  return data::Dataset::from_generator(
      good.spec(), records, [good, bad](std::int64_t id, data::Sample& sample) {
        if (bad.contains(id))
          throw Error(ErrorCategory::data, fmt::format("record {}", id), "expected data", "none");
        good.source().read(id, sample);
      });
}

std::string problem_of(std::int64_t id) {
  return fmt::format(
      "[generator: record {0}] expected a sample; its function threw: [record {0}] expected data; "
      "none",
      id);
}

TEST(Trainer, SkipsUnreadableRecordsAndReportsThem) {
  const std::set<std::int64_t> bad = {0, 9, 10, 11, 12, 13, 14, 15, 24};
  std::vector<float> expected;  // outputs of all records
  double loss_sum = 0;          // over the readable records
  for (const int replicas : {1, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    if (expected.empty())
      trainer.predict(small_data(25).batch(8), [&](const Predictions& predictions) {
        expected.insert(expected.end(), predictions.outputs.begin(), predictions.outputs.end());
      });
    const data::Dataset dataset = partly_bad_data(25, bad).batch(8).skip_bad_records(9);
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> bad_ids;
    const auto bad_files = trainer.predict(dataset, [&](const Predictions& predictions) {
      for (std::size_t i = 0; i < predictions.record_ids.size(); ++i) {
        const std::int64_t id = predictions.record_ids[i];
        ids.push_back(id);
        for (std::int64_t k = 0; k < kClasses; ++k)
          EXPECT_EQ(predictions.outputs[i * kClasses + static_cast<std::size_t>(k)],
                    expected[static_cast<std::size_t>(id * kClasses + k)]);
      }
      for (const data::BadRecord& one : predictions.bad) {
        bad_ids.push_back(one.record_id);
        EXPECT_EQ(one.problem, problem_of(one.record_id));
      }
    });
    EXPECT_EQ(ids.size(), 16U);
    EXPECT_EQ(std::set(bad_ids.begin(), bad_ids.end()), bad);
    ASSERT_EQ(bad_files.size(), 1U);
    EXPECT_EQ(bad_files[0], (BadFile{"", 9, problem_of(0)}));
    const Evaluation sums = trainer.evaluate(dataset);
    EXPECT_EQ(sums.samples, 16);
    EXPECT_EQ(sums.bad_files, bad_files);
    if (replicas == 1) {
      for (std::int64_t id = 0; id < 25; ++id)
        if (!bad.contains(id))
          loss_sum += trainer.evaluate(small_data(25).skip(id).take(1).batch(1)).loss_sum;
    }
    EXPECT_NEAR(sums.loss_sum, loss_sum, 1e-6 * loss_sum);
  }
}

TEST(Trainer, RejectsTooManyUnreadableRecords) {
  for (const int replicas : {1, 2}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    EXPECT_THAT(error_of([&] {
                  trainer.evaluate(partly_bad_data(25, {1, 2}).batch(8).skip_bad_records(1));
                }),
                HasSubstr("expected at most 1 unreadable record; there are more"));
  }
  const auto error_in = [](const std::function<void(Trainer&)>& use) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, 1);
    Trainer trainer(*strategy, plain_network());
    return error_of([&] { use(trainer); });
  };
  EXPECT_THAT(error_in([](Trainer& trainer) {
                trainer.fit(small_data(25).batch(8),
                            {.epochs = 1,
                             .validation = partly_bad_data(25, {1}).batch(8).skip_bad_records(1)});
              }),
              HasSubstr("expected each record once for validation; bad records may be skipped"));
  EXPECT_THAT(error_in([](Trainer& trainer) {
                trainer.evaluate(partly_bad_data(2, {0, 1}).batch(8).skip_bad_records(2));
              }),
              HasSubstr("expected a readable record; all 2 are bad, such as: " + problem_of(0)));
}

TEST(Trainer, ValidationDoesNotChangeTheTraining) {
  for (const auto network : {plain_network, normalized_network}) {
    FitOptions fit{.epochs = 3};
    const Outcome without = train(2, network(), small_data().batch(40), {}, fit);
    fit.validation = small_data(50).batch(10);
    const Outcome with = train(2, network(), small_data().batch(40), {}, fit);
    EXPECT_EQ(with.parameter_hash, without.parameter_hash);
    EXPECT_EQ(with.buffers, without.buffers);
  }
}

TEST(TrainerOptions, ScaleTheRateWithTheBatch) {
  TrainerOptions options;
  options.schedule.peak = 0.1F;
  options.base_batch = 64;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.1F);
  options.rate_scaling = RateScaling::linear;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.4F);
  options.rate_scaling = RateScaling::sqrt;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.2F);
  EXPECT_EQ(effective_schedule(options, 256, 10).total_steps, 10);
}

TEST(TrainerOptions, UseTheRateOfTheOptimizerAsThePeak) {
  const auto rate = [](const TrainerOptions& options) {
    return effective_schedule(options, 64, 10).rate(0);
  };
  EXPECT_EQ(rate({.optimizer = model::Adam{}}), 1e-3F);
  for (const model::OptimizerOptions& optimizer : std::initializer_list<model::OptimizerOptions>{
           model::Sgd{.learning_rate = 0.1F}, model::Adam{.learning_rate = 0.1F},
           model::AdamW{.learning_rate = 0.1F}, model::Lars{.learning_rate = 0.1F},
           model::Lamb{.learning_rate = 0.1F}}) {
    EXPECT_EQ(rate({.optimizer = optimizer}), 0.1F) << model::to_string(optimizer);
    EXPECT_EQ(rate({.optimizer = optimizer, .schedule = {.peak = 0.1F}}), 0.1F);
  }
  EXPECT_EQ(rate({.optimizer = model::Sgd{.learning_rate = 0.1F}, .schedule = {.warmup_steps = 4}}),
            0.025F);
  EXPECT_EQ(error_of([&] {
              rate({.optimizer = model::Sgd{.learning_rate = 0.5F}, .schedule = {.peak = 0.25F}});
            }),
            "[trainer] expected one learning rate, of the optimizer or of the schedule, got "
            "learning_rate 0.5 and peak 0.25");
  EXPECT_EQ(error_of([&] { rate({.optimizer = model::Sgd{.learning_rate = -1.0F}}); }),
            "[constant schedule] expected a learning rate of 0 or more, got -1");
}

TEST(TrainerOptions, ListRateScalings) {
  EXPECT_EQ(parse_name<RateScaling>("lr-scaling", "sqrt"), RateScaling::sqrt);
  EXPECT_EQ(error_of([] { parse_name<RateScaling>("lr-scaling", "cubic"); }),
            "[lr-scaling] expected none, linear or sqrt, got \"cubic\"");
}

}  // namespace
}  // namespace lockstep::inline v0::train
