#include "lockstep/train/callbacks/json_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

std::vector<nlohmann::json> events_of(const std::string& text) {
  std::vector<nlohmann::json> events;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    events.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return events;
}

TEST(JsonEvents, AreOneObjectPerLine) {
  CapturedFile file;
  FitOptions fit{.epochs = 1, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 2)};
  const Outcome outcome = train(2, plain_network(), small_data().batch(40), {}, fit);
  const auto events = events_of(file.text());
  ASSERT_EQ(events.size(), 6U);  // start, steps 2, 4 and 6, epoch, end

  EXPECT_EQ(events[0]["event"], "start");
  EXPECT_EQ(events[0]["world_size"], 2);
  EXPECT_EQ(events[0]["ranks"], 1);
  EXPECT_EQ(events[0]["nodes"], 1);
  EXPECT_EQ(events[0]["strategy"], "mirrored");
  EXPECT_EQ(events[0]["allreduce"], "in-process");
  EXPECT_EQ(events[0]["precision"], "float32");
  EXPECT_EQ(events[0]["bn"], "local");
  EXPECT_EQ(events[0]["global_batch"], 40);
  EXPECT_EQ(events[0]["per_replica_batch"], 20);
  EXPECT_EQ(events[0]["parameters"], 16 * 12 + 12 + 12 * 4 + 4);
  EXPECT_EQ(events[0]["steps_per_epoch"], 6);

  EXPECT_EQ(events[2]["event"], "step");
  EXPECT_EQ(events[2]["step"], 4);
  EXPECT_EQ(events[2]["epoch"], 0);
  EXPECT_DOUBLE_EQ(events[2]["loss"], outcome.losses[3]);
  EXPECT_EQ(events[2]["learning_rate"], 0.001);
  EXPECT_GT(events[2]["samples_per_second"], 0);

  EXPECT_EQ(events[4]["event"], "epoch");
  EXPECT_EQ(events[4]["samples"], 203);
  EXPECT_EQ(events[4]["complete"], true);
  EXPECT_DOUBLE_EQ(events[4]["loss"], outcome.history.epochs[0].metrics.loss());
  EXPECT_DOUBLE_EQ(events[4]["validation_accuracy"],
                   outcome.history.epochs[0].validation->accuracy());
  EXPECT_EQ(events[4]["validation_samples"], 20);

  EXPECT_EQ(events[5]["event"], "end");
  EXPECT_EQ(events[5]["steps"], 6);
  EXPECT_EQ(events[5]["steps_trained"], 6);
  EXPECT_EQ(events[5]["parameter_hash"].get<std::string>().size(), 16U);
  EXPECT_FALSE(events[0].contains("run"));
}

TEST(JsonEvents, HaveTheMetricsOfTheOptions) {
  CapturedFile file;
  TrainerOptions options;
  options.metrics = model::make_metrics("f1,recall:average=none,confusion", options.loss, kClasses);
  FitOptions fit{.epochs = 1, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 0)};
  const EpochLogs epoch =
      train(2, plain_network(), small_data().batch(40), options, fit).history.epochs.front();
  const nlohmann::json event = events_of(file.text())[1];
  EXPECT_DOUBLE_EQ(event["f1"], *epoch.metric("f1"));
  EXPECT_DOUBLE_EQ(event["validation_f1"], *epoch.metric("validation_f1"));
  EXPECT_EQ(event["recall_per_class"], nlohmann::json(epoch.values[1].values));
  std::vector<double> counts;
  for (const nlohmann::json& row : event["validation_confusion"]) {
    ASSERT_EQ(row.size(), 4U);
    for (const nlohmann::json& count : row) counts.push_back(count);
  }
  EXPECT_EQ(counts, epoch.validation_values[2].values);
}

TEST(JsonEvents, CountTrainedSteps) {
  const checkpoint::ScratchDirectory directory;
  for (const int trained : {6, 0}) {  // the second training has no steps
    CapturedFile file;
    FitOptions fit{.epochs = 1};
    fit.checkpoint.directory = directory.path();
    fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 2)};
    train(1, plain_network(), small_data().batch(40), {}, fit);
    const nlohmann::json end = events_of(file.text()).back();
    EXPECT_EQ(end["steps"], 6);
    EXPECT_EQ(end["steps_trained"], trained);
  }
}

TEST(JsonEvents, HaveTimesAndTheNameOfTheRun) {
  CapturedFile file;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 2, "wide")};
  const double before = seconds_since_1970();
  train(1, plain_network(), small_data().batch(40), {}, fit);
  const auto events = events_of(file.text());
  double last = before;
  for (const nlohmann::json& event : events) {
    EXPECT_GE(event["time"].get<double>(), last) << event;
    last = event["time"];
  }
  EXPECT_LE(last, seconds_since_1970());
  EXPECT_EQ(events[0]["run"], "wide");
}

TEST(JsonEvents, HaveBreakdownsAndVerdicts) {
  CapturedFile file;
  JsonEvents events(file.get(), 10);
  events.on_train_begin({});
  for (int step = 1; step <= 20; ++step)
    events.on_batch_end({.step = step,
                         .samples = 1,
                         .breakdown = {.input = 0.0625, .compute = 0.03125, .other = 0.015625},
                         .data_workers = 1});
  EpochLogs logs;
  logs.breakdown = {.update = 0.5};
  logs.verdict = Verdict{.bound_by = "", .text = "nothing"};
  events.on_epoch_end(logs);
  const auto all = events_of(file.text());
  ASSERT_EQ(all.size(), 4U);
  for (const int step : {1, 2}) {
    EXPECT_EQ(all[step]["breakdown"], nlohmann::json::parse(R"({"input": 0.0625, "compute": 0.03125,
        "communication": 0, "waiting": 0, "update": 0, "checkpoint": 0, "other": 0.015625})"));
    EXPECT_EQ(all[step]["bound_by"], "input");
    EXPECT_EQ(all[step]["verdict"].get<std::string>().rfind("bound by input: ", 0), 0U);
  }
  EXPECT_EQ(all[3]["breakdown"]["update"], 0.5);
  EXPECT_EQ(all[3]["verdict"], "nothing");
  EXPECT_FALSE(all[3].contains("bound_by"));
}

TEST(JsonEvents, HaveNoBreakdownOfTheFirstStepAndNoVerdictOnFewSteps) {
  CapturedFile file;
  JsonEvents events(file.get(), 1);
  events.on_train_begin({});
  for (int step = 1; step <= 3; ++step)
    events.on_batch_end({.step = step, .samples = 1, .breakdown = {.compute = 1}});
  events.on_epoch_end({});
  const auto all = events_of(file.text());
  EXPECT_FALSE(all[1].contains("breakdown"));
  EXPECT_EQ(all[2]["breakdown"]["compute"], 1);
  EXPECT_FALSE(all[4].contains("breakdown"));
  for (const nlohmann::json& event : all) EXPECT_FALSE(event.contains("verdict")) << event;
}

/// The event `end` of a training whose epochs have these validation metrics, or these metrics of
/// training.
nlohmann::json end_after(const std::vector<model::MetricSums>& epochs, bool validated) {
  CapturedFile file;
  JsonEvents events(file.get(), 0);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    EpochLogs logs;
    logs.epoch = static_cast<std::int64_t>(epoch);
    logs.metrics = validated ? model::MetricSums{.loss_sum = 1, .samples = 1} : epochs[epoch];
    if (validated) logs.validation = epochs[epoch];
    events.on_epoch_end(logs);
  }
  events.on_train_end({});
  return events_of(file.text()).back();
}

TEST(JsonEvents, EndWithTheBestEpoch) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto of_classes = [](double loss, std::int64_t correct) {
    return model::MetricSums{
        .loss_sum = loss, .samples = 4, .correct = correct, .correct_top5 = 4, .classes = 10};
  };
  const nlohmann::json validated =
      end_after({of_classes(2, 1), of_classes(6, 3), of_classes(4, 3), of_classes(kNan, 4)}, true);
  EXPECT_EQ(validated["best_epoch"], 1) << "the first with the highest accuracy";
  EXPECT_EQ(validated["best_validation_accuracy"], 0.75);
  EXPECT_EQ(validated["best_validation_loss"], 1.5);
  EXPECT_FALSE(validated.contains("best_loss"));

  const nlohmann::json regression = end_after(
      {{.loss_sum = 3, .samples = 2}, {.loss_sum = 2, .samples = 2}, {.loss_sum = 2, .samples = 2}},
      false);
  EXPECT_EQ(regression["best_epoch"], 1) << "the first with the lowest loss";
  EXPECT_EQ(regression["best_loss"], 1);
  EXPECT_FALSE(regression.contains("best_accuracy"));

  EXPECT_FALSE(end_after({model::MetricSums{}}, false).contains("best_epoch"))
      << "no step was good";
}

TEST(JsonEvents, CanOmitSteps) {
  CapturedFile file;
  FitOptions fit{.epochs = 2};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 0)};
  train(1, plain_network(), small_data().batch(40), {}, fit);
  EXPECT_EQ(events_of(file.text()).size(), 4U);
}

TEST(JsonEvents, HaveTheMeanTimesOfEachReplica) {
  CapturedFile file;
  JsonEvents events(file.get(), 2);
  TrainBegin begin;
  begin.first_step = 1;
  events.on_train_begin(begin);
  const std::array<allreduce::BusySeconds, 2> slow = {{{.input = 1}, {.compute = 1}}};
  events.on_batch_end({.step = 2, .samples = 1, .communication = {.exposed = 7}, .busy = slow});
  const std::array<allreduce::BusySeconds, 2> first = {
      {{.input = 0.001, .compute = 0.010}, {.input = 0.002, .compute = 0.020}}};
  const std::array<allreduce::BusySeconds, 2> second = {
      {{.input = 0.001, .compute = 0.030}, {.input = 0.002, .compute = 0.020}}};
  for (std::int64_t step = 3; step <= 6; ++step)
    events.on_batch_end({.step = step,
                         .samples = 1,
                         .communication = {.exposed = 7 + 0.25 * static_cast<double>(step - 2)},
                         .busy = step % 2 == 1 ? first : second});
  auto written = events_of(file.text());
  ASSERT_EQ(written.size(), 4U);
  for (const char* time : {"replica_input_ms", "exposed_communication_ms", "breakdown"})
    EXPECT_FALSE(written[1].contains(time)) << "of the first step of the run";
  written.erase(written.begin(), written.begin() + 2);
  for (const auto& event : written) {
    EXPECT_EQ(event["exposed_communication_ms"], 250);
    EXPECT_EQ(event["replica_input_ms"], (nlohmann::json{1.0, 2.0}));
    EXPECT_EQ(event["replica_compute_ms"], (nlohmann::json{20.0, 20.0}));
    EXPECT_EQ(event["replica_waiting_ms"], (nlohmann::json{5.5, 4.5}))
        << "11 ms in one step and none in the other; none and 9 ms";
  }
}

TEST(JsonEvents, HaveNoReplicaTimesForOneReplica) {
  CapturedFile file;
  JsonEvents events(file.get(), 1);
  events.on_epoch_begin(0);
  const std::array<allreduce::BusySeconds, 1> busy = {};
  events.on_batch_end({.step = 1, .samples = 1, .busy = busy});
  EXPECT_FALSE(events_of(file.text())[0].contains("replica_waiting_ms"));
}

TEST(JsonEvents, HaveTheOptionsOfTheProgram) {
  CapturedFile file;
  JsonEvents events(file.get(), 0, "", {{"optimizer", "adam"}, {"seed", "1"}});
  events.on_train_begin({});
  EXPECT_EQ(events_of(file.text())[0]["options"],
            (nlohmann::json{{"optimizer", "adam"}, {"seed", "1"}}));
}

TEST(JsonEvents, AreValidJsonForAnyNumbers) {
  CapturedFile file;
  JsonEvents events(file.get(), 1);
  events.on_epoch_begin(0);
  StepLogs logs;
  logs.step = 1;
  logs.metrics.loss_sum = std::numeric_limits<double>::infinity();
  logs.metrics.samples = 1;
  events.on_batch_end(logs);
  EXPECT_TRUE(events_of(file.text())[0]["loss"].is_null());
}

TEST(JsonEvents, LossDoesNotEndTheTraining) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  FitOptions fit{.epochs = 2};
  fit.callbacks = {std::make_shared<JsonEvents>(full, 1)};
  EXPECT_EQ(train(1, plain_network(), small_data(15).batch(3), {}, fit).history.end.steps, 10);
  EXPECT_NE(std::ferror(full), 0);
  std::fclose(full);
}

/// Sets a locale with a decimal comma during its lifetime, as in a program that uses Lockstep. Few
/// machines have such a locale, so it writes glibc's file format (locale/loadlocale.c): magic,
/// count, offsets, values.
class DecimalComma {
 public:
  DecimalComma() {
    constexpr std::array<std::uint32_t, 8> kHeader = {
        0x20031115U ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48};
    constexpr std::array<char, 4> kStrings = {',', 0, '.', 0};  // decimal point, thousands
    constexpr std::array<std::uint32_t, 3> kWords = {0, ',', '.'};
    const std::filesystem::path path = scratch_.path() / "comma";
    std::filesystem::create_directory(path);
    std::ofstream file(path / "LC_NUMERIC", std::ios::binary);
    file.write(reinterpret_cast<const char*>(kHeader.data()), sizeof(kHeader));
    file.write(kStrings.data(), sizeof(kStrings));
    file.write(reinterpret_cast<const char*>(kWords.data()), sizeof(kWords));
    file.write("UTF-8", 6);
    file.close();
    ::setenv("LOCPATH", scratch_.path().c_str(), 1);
    is_set_ = std::setlocale(LC_NUMERIC, "comma") != nullptr;
  }
  ~DecimalComma() {
    std::setlocale(LC_NUMERIC, "C");
    ::unsetenv("LOCPATH");
  }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;
  bool is_set() const { return is_set_; }

 private:
  checkpoint::ScratchDirectory scratch_;
  bool is_set_ = false;
};

TEST(JsonEvents, AreIndependentOfTheLocale) {
  const DecimalComma locale;
  ASSERT_TRUE(locale.is_set());
  ASSERT_EQ(std::strtod("0.5", nullptr), 0) << "the comma is in use";
  CapturedFile file;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 1)};
  train(1, plain_network(), small_data().batch(203), {.schedule = {.peak = 0.25F}}, fit);
  const auto events = events_of(file.text());
  ASSERT_EQ(events.size(), 4U);  // start, step, epoch, end
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i]["learning_rate"], 0.25) << events[i];
}

}  // namespace
}  // namespace lockstep::inline v0::train
