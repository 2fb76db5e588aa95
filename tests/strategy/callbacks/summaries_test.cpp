#include "strategy/callbacks/summaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategy/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::strategy {
namespace {

using ::testing::HasSubstr;

/// The bytes of the one event file in `directory`; tags and texts stand in it as they are.
std::string events_in(const std::filesystem::path& directory) {
  const std::filesystem::directory_iterator files(directory);
  return read_small_file(files->path());
}

TEST(Summaries, AreWrittenForTrainingAndValidation) {
  const ScratchDirectory directory;
  FitOptions fit{.epochs = 2, .validation = small_data(20).batch(40)};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 3, "model = plain")};
  train(2, plain_network(), small_data().batch(40), {}, fit);
  const std::string training = events_in(directory.path() / "run" / "train");
  for (const char* text : {"configuration", "model = plain", "epoch_loss", "epoch_accuracy", "epoch_learning_rate",
                           "batch_loss", "batch_accuracy"})
    EXPECT_THAT(training, HasSubstr(text));
  EXPECT_THAT(events_in(directory.path() / "run" / "validation"), HasSubstr("epoch_accuracy"));
}

TEST(Summaries, HaveNoValidationWhereThereIsNone) {
  const ScratchDirectory directory;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<Summaries>(directory.path() / "run", 0, "")};
  train(1, plain_network(), small_data().batch(40), {}, fit);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "run" / "validation"));
}

}  // namespace
}  // namespace lockstep::strategy
