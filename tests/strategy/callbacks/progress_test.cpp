#include "lockstep/strategy/callbacks/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"

namespace lockstep::strategy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string shown(const Progress::Options& options, int replicas = 1) {
  CapturedFile file;
  FitOptions fit{.epochs = 1, .validation = small_data(20).batch(3)};
  fit.callbacks = {std::make_shared<Progress>(file.get(), options)};
  train(replicas, plain_network(), small_data(15).batch(3), {}, fit);
  return file.text();
}

TEST(Progress, IsPlainLinesWhereThereIsNoTerminal) {
  const std::string text = shown({.log_every = 2});
  EXPECT_THAT(text,
              HasSubstr("model plain, 256 parameters; 15 synthetic samples of 16, 15 records\n"));
  EXPECT_THAT(text, HasSubstr("epoch 1  step 2/5  loss "));
  EXPECT_THAT(text, HasSubstr("epoch 1  step 4/5  loss "));
  EXPECT_THAT(text, Not(HasSubstr("step 3/5")));
  EXPECT_THAT(text, HasSubstr("epoch 1: loss "));
  EXPECT_THAT(text, HasSubstr("validation accuracy "));
  EXPECT_THAT(text, HasSubstr("5 steps, "));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(Progress, SaysThatReplicasIdle) {
  EXPECT_THAT(shown({}, 4), HasSubstr("1 of 4 replicas have no sample in a step: the global batch "
                                      "is smaller than the number of replicas\n"));
  EXPECT_THAT(shown({}, 3), Not(HasSubstr("have no sample")));
}

TEST(Progress, LeavesNothingOfARewrittenLine) {
  CapturedFile file;
  Progress progress(file.get(), {.log_every = 0, .terminal = true});
  TrainBegin begin;
  begin.steps_per_epoch = begin.last_step = 1'000'000'000;
  progress.on_train_begin(begin);
  progress.on_epoch_begin(0);
  // The line is rewritten after a tenth of a second; how many steps that takes does not matter.
  StepLogs logs;
  while (file.text().find("step ") == std::string::npos ||
         file.text().find('\r') == std::string::npos) {
    ++logs.step;
    progress.on_batch_end(logs);
  }
  progress.on_epoch_end({});
  const std::string text = file.text();
  const std::string line = text.substr(text.find('\r') + 1);
  EXPECT_THAT(text, HasSubstr("\r" + std::string(line.find('\r'), ' ') + "\repoch 1: loss"));
}

std::string epoch_line(const EpochLogs& logs, int replicas = 1) {
  CapturedFile file;
  Progress progress(file.get(), {});
  TrainBegin begin;
  begin.world_size = replicas;
  progress.on_train_begin(begin);
  progress.on_epoch_begin(0);
  progress.on_epoch_end(logs);
  return file.text();
}

TEST(Progress, TellsWhereAnEpochsTimeWent) {
  EpochLogs logs;
  logs.seconds = 10;
  logs.input_wait_seconds = 0.2;
  logs.communication = {.exposed = 1.5, .waited = 0.5};
  EXPECT_THAT(epoch_line(logs), HasSubstr("; 2.0 % of it waiting for input\n"));
  EXPECT_THAT(epoch_line(logs, 2), HasSubstr("; 2.0 % of it waiting for input, 10.0 % "
                                             "communication, 5.0 % waiting for other replicas\n"));
  EXPECT_THAT(epoch_line(logs), Not(HasSubstr("the training waits for its input")));
  logs.input_wait_seconds = 0.6;
  EXPECT_THAT(epoch_line(logs),
              HasSubstr("\nthe training waits for its input: increase --data-threads"));
}

TEST(Progress, ThatIsLostDoesNotEndTheTraining) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  FitOptions fit{.epochs = 2};
  fit.callbacks = {std::make_shared<Progress>(full, Progress::Options{.log_every = 1})};
  EXPECT_EQ(train(1, plain_network(), small_data(15).batch(3), {}, fit).history.end.steps, 10);
  EXPECT_NE(std::ferror(full), 0);
  std::fclose(full);
}

TEST(BytesText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(12'345), "12.3 kB");
  EXPECT_EQ(bytes_text(999'499), "999 kB");
  EXPECT_EQ(bytes_text(999'999), "1.00 MB");
  EXPECT_EQ(bytes_text(140'000'000'000), "140 GB");
}

TEST(ShardTable, IsOneLineForOneRank) {
  EXPECT_EQ(shard_table("auto", 1, 1003, 800'000, {{1, 1003, 800'000}}),
            "shard policy auto: 1003 records of 1 file, 800 kB\n");
  EXPECT_EQ(shard_table("auto", 0, 1003, 0, {{0, 1003, 0}}), "shard policy auto: 1003 records\n");
}

TEST(ShardTable, HasALineForEachRank) {
  EXPECT_EQ(shard_table("file", 7, 30, 3000, {{4, 10, 1000}, {3, 20, 2000}}),
            "shard policy file: 30 records of 7 files, 3.00 kB\n"
            "   rank   files       records      bytes\n"
            "      0       4            10    1.00 kB\n"
            "      1       3            20    2.00 kB\n");
}

TEST(ShardTable, HasTheExtremesOfManyRanks) {
  std::vector<data::WorkerShare> shares(17, {2, 10, 1000});
  shares[3] = {1, 11, 900};
  EXPECT_EQ(shard_table("auto", 2, 171, 16'900, shares),
            "shard policy auto: 171 records of 2 files, 16.9 kB\n"
            "   rank   files       records      bytes\n"
            "  least       1            10      900 B\n"
            "   most       2            11    1.00 kB\n");
}

}  // namespace
}  // namespace lockstep::strategy
