#include "lockstep/strategy/callbacks/summaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include <algorithm>
#include <utility>

#include "lockstep/data/image/encode_png.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/callbacks/confusion_image.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::strategy {
namespace {

using ::testing::HasSubstr;

/// The bytes of the one event file in `directory`; tags and texts stand in it as they are.
std::string events_below(const std::filesystem::path& directory) {
  const std::filesystem::directory_iterator files(directory);
  return checkpoint::read_small_file(files->path());
}

TEST(Summaries, AreWrittenForTrainingAndValidation) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 2, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 3, "model = plain")};
  TrainerOptions options;
  options.metrics = model::make_metrics("f1,confusion", options.loss, kClasses);
  train(2, plain_network(), small_data().batch(40), options, fit);
  const std::string training = events_below(directory.path() / "run" / "train");
  for (const char* text :
       {"configuration", "model = plain", "epoch_loss", "epoch_accuracy", "epoch_f1",
        "epoch_confusion", "epoch_learning_rate", "batch_loss", "batch_accuracy"})
    EXPECT_THAT(training, HasSubstr(text));
  const std::string validation = events_below(directory.path() / "run" / "validation");
  for (const char* text : {"epoch_accuracy", "epoch_f1", "epoch_confusion"})
    EXPECT_THAT(validation, HasSubstr(text));
}

TEST(Summaries, HaveTheConfusionsOfEachOutputAsImages) {
  TrainerOptions options = house_options();
  options.losses[0].metrics = model::make_metrics("confusion", options.losses[0].loss, 3);
  for (const int replicas : {1, 2, 3}) {
    const checkpoint::ScratchDirectory directory;
    FitOptions fit{.epochs = 1, .validation = house_data(41).batch(10)};
    fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, "")};
    const Outcome outcome = train(replicas, house_network(), house_data().batch(40), options, fit);
    const EpochLogs& logs = outcome.history.epochs.front();
    for (const auto& [run, values] :
         {std::pair("train", &logs.values), std::pair("validation", &logs.validation_values)}) {
      const auto matrix = std::ranges::find(*values, "kind_confusion", &model::MetricValue::name);
      ASSERT_NE(matrix, values->end());
      const std::string events = events_below(directory.path() / run);
      EXPECT_THAT(events, HasSubstr("epoch_kind_confusion")) << run;
      EXPECT_THAT(events, HasSubstr(data::to_png(confusion_image(*matrix).view()))) << run;
    }
  }
}

TEST(Summaries, HaveNoValidationWhereThereIsNone) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 0, "")};
  train(1, plain_network(), small_data().batch(40), {}, fit);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "run" / "validation"));
}

/// What is logged to `logger()`.
class LoggedLines {
 public:
  std::shared_ptr<Logger> logger() const { return logger_; }
  std::vector<std::string> lines() const { return sink_->last_formatted(); }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  std::shared_ptr<Logger> logger_ = std::make_shared<Logger>("test", sink_);
};

TEST(Summaries, OfAFullDiskWarnOnceAndTheTrainingGoesOn) {
  const checkpoint::ScratchDirectory directory;
  const LoggedLines log;
  FitOptions fit{.epochs = 3, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 1, "", log.logger())};
  {
    const checkpoint::FileSizeLimit limit(400);
    EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, fit).history.end.steps, 18);
  }
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0],
              HasSubstr("expected to write the summary; File too large; the training continues"));
  EXPECT_THAT(log.lines()[1],
              ::testing::ContainsRegex("run\\] [1-9][0-9]+ points of the summaries are lost"));
}

TEST(Summaries, OfAValidationThatCannotBeWrittenAreCounted) {
  const checkpoint::ScratchDirectory directory;
  const LoggedLines log;
  FitOptions fit{.epochs = 2, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, "", log.logger())};
  checkpoint::overwrite(directory.path() / "validation", "a file in its place");
  train(1, plain_network(), small_data().batch(40), {}, fit);
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], HasSubstr("Not a directory; the training continues"));
  EXPECT_THAT(log.lines()[1], HasSubstr("] 6 points of the summaries are lost"));
}

}  // namespace
}  // namespace lockstep::strategy
