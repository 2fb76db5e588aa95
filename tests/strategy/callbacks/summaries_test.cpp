#include "lockstep/train/tensorboard/summaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/image/encode_png.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/train/tensorboard/confusion_image.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::HasSubstr;

/// The bytes of the only event file in `directory`; tags and texts are not encoded.
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

/// The histograms over steps of a training on `replicas`: [low, high, count]... of each tag.
std::map<std::string, std::vector<std::vector<double>>> histograms_of(
    int replicas, const TrainerOptions& options) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 1, .steps = 4};
  fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, "", nullptr,
                                               SummaryOptions{.histogram_every = 2})};
  train(replicas, plain_network(), small_data().batch(40), options, fit);
  std::map<std::string, std::vector<std::vector<double>>> histograms;
  const std::string bytes = events_below(directory.path() / "train");
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t length = data::record_length(rest.substr(0, data::kRecordHeaderBytes));
    protozero::pbf_reader event(rest.data() + data::kRecordHeaderBytes, length);
    rest.remove_prefix(data::kRecordHeaderBytes + length + data::kRecordFooterBytes);
    if (!event.next(5)) continue;
    protozero::pbf_reader values = event.get_message();
    values.next(1);
    protozero::pbf_reader value = values.get_message();
    value.next(1);
    const std::string tag = value.get_string();
    if (!tag.starts_with("weights/") && !tag.starts_with("gradients/")) continue;
    while (value.next() && value.tag() != 8) value.skip();
    protozero::pbf_reader tensor = value.get_message();
    EXPECT_TRUE(tensor.next(6));
    const auto rows = tensor.get_packed_double();
    histograms[tag].emplace_back(rows.begin(), rows.end());
  }
  return histograms;
}

TEST(Summaries, HaveHistogramsOfWeightsAndGradients) {
  const auto histograms = histograms_of(1, {});
  std::vector<std::string> tags;
  for (const auto& [tag, steps] : histograms) {
    tags.push_back(tag);
    EXPECT_EQ(steps.size(), 2U) << tag << " of steps 2 and 4";
  }
  EXPECT_THAT(tags, ::testing::ElementsAre("gradients/dense/bias", "gradients/dense/kernel",
                                           "gradients/dense_1/bias", "gradients/dense_1/kernel",
                                           "weights/dense/bias", "weights/dense/kernel",
                                           "weights/dense_1/bias", "weights/dense_1/kernel"));
  double count = 0;
  const std::vector<double>& rows = histograms.at("weights/dense/kernel").front();
  for (std::size_t i = 2; i < rows.size(); i += 3) count += rows[i];
  EXPECT_EQ(count, 16 * 12) << "without padding";
}

TEST(Summaries, HaveTheSameGradientsOnAnyReplicasAndLossScale) {
  const auto range_of = [](int replicas, const TrainerOptions& options) {
    const auto histograms = histograms_of(replicas, options);
    const std::vector<double>& rows = histograms.at("gradients/dense/kernel").front();
    return std::pair(rows.front(), rows[rows.size() - 2]);
  };
  TrainerOptions options{.optimizer = model::Sgd{}};  // Adam would amplify rounding errors
  const auto [low, high] = range_of(1, options);
  EXPECT_LT(low, 0);
  EXPECT_GT(high, 0);
  for (const int replicas : {1, 2, 3}) {
    for (const bool scales : {false, true}) {
      if (scales)
        options.loss_scaling = LossScaling{.kind = LossScaling::Kind::fixed, .scale = 1024};
      else
        options.loss_scaling.reset();
      const auto [least, most] = range_of(replicas, options);
      EXPECT_NEAR(least, low, 1e-4 * (high - low)) << replicas << " replicas, " << scales;
      EXPECT_NEAR(most, high, 1e-4 * (high - low)) << replicas << " replicas, " << scales;
    }
  }
}

TEST(Summaries, HaveTheGraphOnceWhenATrainingResumes) {
  const checkpoint::ScratchDirectory directory;
  for (const int steps : {3, 6}) {
    FitOptions fit{.epochs = 0, .steps = steps};
    fit.checkpoint.directory = directory.path() / "checkpoints";
    fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 1, "")};
    train(1, plain_network(), small_data().batch(40), {}, fit);
  }
  std::size_t graphs = 0;
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory.path() / "run" / "train")) {
    ++files;
    const std::string events = checkpoint::read_small_file(entry.path());
    if (events.find("Placeholder") != std::string::npos) ++graphs;
    for (const char* tag :
         {"batch_samples_per_second", "batch_seconds", "batch_input_seconds",
          "batch_compute_seconds", "batch_communication_seconds", "batch_waiting_seconds",
          "batch_update_seconds", "batch_checkpoint_seconds", "batch_other_seconds",
          "checkpoint_seconds"})
      EXPECT_THAT(events, HasSubstr(tag));
  }
  EXPECT_EQ(files, 2U);
  EXPECT_EQ(graphs, 1U);
}

TEST(Summaries, HaveTheHyperparametersOfTheTraining) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 1, .steps = 1};
  fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, "")};
  const TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F, .nesterov = true}};
  train(2, plain_network(), small_data().batch(40), options, fit);
  std::string session;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.is_regular_file()) session += checkpoint::read_small_file(entry.path());
  for (const char* text : {"_hparams_/session_start_info", "_hparams_/session_end_info", "plain",
                           "optimizer", "sgd", "momentum", "nesterov", "weight_decay",
                           "learning_rate", "global_batch", "replicas", "seed"})
    EXPECT_THAT(session, HasSubstr(text));
}

/// Records the predictions of the last call.
class PredictionRecorder final : public Callback {
 public:
  void on_predictions(const ImagePredictions& predictions) override {
    steps.push_back(predictions.step);
    last.assign(predictions.predictions.begin(), predictions.predictions.end());
    images = predictions.images.size();
  }
  std::vector<std::int64_t> steps;
  std::vector<ImagePrediction> last;
  std::size_t images = 0;
};

model::Network image_network() {
  model::Network network({8, 8, 1}, "images");
  network.add(model::Flatten());
  network.add(model::Dense({.units = kClasses}));
  return network;
}

data::Dataset image_data(std::int64_t records) {
  return data::Dataset::synthetic({8, 8, 1}, kClasses, records);
}

TEST(Summaries, ShowImagesWithThePredictionsOfTheValidation) {
  for (const int replicas : {1, 2, 3}) {
    const checkpoint::ScratchDirectory directory;
    const auto recorder = std::make_shared<PredictionRecorder>();
    FitOptions fit{.epochs = 2, .validation = image_data(21).batch(40), .prediction_images = 100};
    fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, ""), recorder};
    const Outcome outcome = train(replicas, image_network(), image_data(120).batch(40), {}, fit);
    EXPECT_THAT(recorder->steps, ::testing::ElementsAre(3, 6));
    ASSERT_EQ(recorder->last.size(), 21U) << "as many as there are";
    EXPECT_EQ(recorder->images, 21U);
    std::int64_t right = 0;
    for (const ImagePrediction& one : recorder->last) {
      right += one.label == one.predicted ? 1 : 0;
      EXPECT_GE(one.probability, 1.0 / kClasses);
      EXPECT_LE(one.probability, 1);
    }
    EXPECT_EQ(right, outcome.history.epochs.back().validation->correct);
    EXPECT_THAT(events_below(directory.path() / "train"), HasSubstr("predictions"));
  }
}

TEST(Summaries, RequireImagesWithAClassForPredictions) {
  const auto error_of = [](model::Network network, const data::Dataset& data, FitOptions fit) {
    fit.epochs = 1;
    try {
      train(1, std::move(network), data.batch(40), {}, fit);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of(image_network(), image_data(80), {.prediction_images = 2}),
            "[prediction-images] expected a number of validation images with a class each, up to "
            "1000, or 0, got 2 and no validation data");
  EXPECT_THAT(error_of(plain_network(), small_data(),
                       {.validation = small_data(20).batch(40), .prediction_images = 2}),
              HasSubstr("got 2 and [16] with 4 classes, not images of 1 or 3 channels"));
  EXPECT_THAT(error_of(image_network(), image_data(80),
                       {.validation = image_data(20).batch(40), .prediction_images = -1}),
              HasSubstr("got -1"));
  EXPECT_THAT(error_of(image_network(), image_data(80),
                       {.validation = image_data(20).batch(40), .prediction_images = 1001}),
              HasSubstr("got 1001"));
}

TEST(Summaries, HaveNoValidationWithoutData) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 0, "")};
  train(1, plain_network(), small_data().batch(40), {}, fit);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "run" / "validation"));
}

/// Records the messages of `logger()`.
class LoggedLines {
 public:
  std::shared_ptr<Logger> logger() const { return logger_; }
  std::vector<std::string> lines() const { return sink_->last_formatted(); }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  std::shared_ptr<Logger> logger_ = std::make_shared<Logger>("test", sink_);
};

TEST(Summaries, WarnOnceOfAFullDiskAndTheTrainingContinues) {
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

TEST(Summaries, CountLostValidationPoints) {
  const checkpoint::ScratchDirectory directory;
  const LoggedLines log;
  FitOptions fit{.epochs = 2, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<Summaries>(directory.path(), 0, "", log.logger())};
  checkpoint::overwrite(directory.path() / "validation", "a file in its place");
  train(1, plain_network(), small_data().batch(40), {}, fit);
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], HasSubstr("Not a directory; the training continues"));
  EXPECT_THAT(log.lines()[1], HasSubstr("] 4 points of the summaries are lost"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
