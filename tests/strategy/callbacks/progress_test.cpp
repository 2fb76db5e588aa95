#include "lockstep/train/callbacks/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/base/log.h"
#include "lockstep/train/callbacks/metric_text.h"
#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"
#include "tests/support/terminal.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string shown(const ProgressOptions& options, int replicas = 1) {
  CapturedFile file;
  FitOptions fit{.epochs = 1, .validation = small_data(20).batch(3)};
  fit.callbacks = {std::make_shared<ProgressBar>(file.get(), options)};
  train(replicas, plain_network(), small_data(15).batch(3), {}, fit);
  return file.text();
}

TEST(ProgressBar, PrintsRowsWithoutATerminal) {
  const std::string text = shown({.log_every = 2});
  EXPECT_THAT(
      text,
      ContainsRegex(
          "^model plain, 256 parameters; 15 synthetic samples of 16, 15 records\n"
          "one-device on 1 replica; batch 3, 5 steps, learning rate 0.001\n"
          "epoch  step      loss  accuracy  val loss  val accuracy  samples/s     time\n"
          "    1   1/5    [0-9]\\.[0-9]+    [01]\\.[0-9]+ +[0-9]+ +[0-9.]+ s\n"
          "    1   2/5 [^\n]+\n"
          "    1   4/5 [^\n]+\n"
          "    1   5/5    [0-9]\\.[0-9]+    [01]\\.[0-9]+    [0-9]\\.[0-9]+        [01]\\.[0-9]+ "
          "+[0-9]+ +[0-9.]+ s\n"));
  EXPECT_THAT(text, ContainsRegex("\n5 steps, [0-9.]+ s; parameter hash [0-9a-f]{16}\n$"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(ProgressBar, ShowsTheFirstAndLastStepOfAShortTraining) {
  const std::string text = shown({.log_every = 100});
  EXPECT_THAT(text, HasSubstr("\n    1   1/5 "));
  EXPECT_THAT(text, HasSubstr("\n    1   5/5 "));
  EXPECT_THAT(text, Not(HasSubstr(" 2/5 ")));
  EXPECT_THAT(shown({.log_every = 0}), Not(HasSubstr(" 1/5 ")));
}

TEST(ProgressBar, FitsEightyColumnsForUpToAMillionSteps) {
  for (const std::int64_t steps : {9'999, 10'000, 999'999}) {
    CapturedFile file;
    ProgressBar progress(file.get());
    TrainBegin begin;
    begin.last_step = begin.steps_per_epoch = steps;
    begin.has_validation = true;
    progress.on_train_begin(begin);
    EpochLogs logs;
    logs.step = steps;
    logs.metrics = {.samples = 1, .classes = 10};
    logs.validation = logs.metrics;
    logs.samples_per_second = 123'456'789;
    logs.seconds = 35'999;
    progress.on_epoch_end(logs);
    const std::string text = file.text();
    const std::size_t row = text.find("\nepoch  ") + 1;
    EXPECT_LE(text.find('\n', row) - row, 80U) << text;
    EXPECT_LE(text.size() - text.find('\n', row) - 2, 80U) << text;
  }
}

TEST(ProgressBar, HasDetailsWhenVerbose) {
  const std::string text = shown({.verbose = true}, 2);
  EXPECT_THAT(text, HasSubstr("\nreplica  rank  host"));
  EXPECT_THAT(text, HasSubstr("\nshard policy auto: 15 records\n"));
  EXPECT_THAT(text, ContainsRegex(
                        "\nall-reduce in-process; at most 2 samples per replica in "
                        "micro-batches of 2; 5 steps per epoch; seed 1; ready after [0-9.]+ s\n"));
  EXPECT_THAT(text, HasSubstr("\nevery record seen once\n"));
}

TEST(ProgressBar, ReportsIdleReplicas) {
  EXPECT_THAT(shown({}, 4), HasSubstr("1 of 4 replicas have no sample in a step: the global batch "
                                      "is smaller than the number of replicas\n"));
  EXPECT_THAT(shown({}, 3), Not(HasSubstr("have no sample")));
}

TEST(ProgressBar, IsAddedByFitByDefault) {
  const auto printed = [](bool quiet, FitOptions fit) {
    job::Session session(0, nullptr, {.quiet = quiet});
    OneDeviceStrategy strategy(session);
    Trainer trainer(strategy, plain_network());
    ::testing::internal::CaptureStdout();
    trainer.fit(small_data(15).batch(3), fit);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(printed(false, {}), HasSubstr("model plain, "));
  EXPECT_EQ(printed(true, {}), "");
  EXPECT_EQ(printed(false, {.progress = false}), "");
  CapturedFile file;
  EXPECT_EQ(printed(false, {.callbacks = {std::make_shared<ProgressBar>(file.get())}}), "");
  EXPECT_THAT(file.text(), HasSubstr("model plain, "));
}

TEST(ProgressBar, WrapsHeaderLinesOfATerminalBetweenWords) {
  Terminal terminal(40);
  std::FILE* const file = fdopen(dup(terminal.inner), "w");
  {
    ProgressBar progress(file);
    TrainBegin begin;
    begin.model = "cnn";
    begin.parameters = 225034;
    begin.data = "photos, images imagenet-train, 6 classes";
    begin.records = 700;
    begin.strategy = "mirrored";
    progress.on_train_begin(begin);
  }
  std::fclose(file);
  while (terminal.text().find("rate 0\r\n") == std::string::npos) continue;
  EXPECT_THAT(terminal.text(), HasSubstr("model cnn, 225034 parameters; photos,\r\n"
                                         "images imagenet-train, 6 classes, 700\r\n"
                                         "records\r\n"));
}

TEST(ProgressBar, HasMetricColumnsOrLines) {
  const auto printed = [](std::int64_t classes, bool has_validation) {
    CapturedFile file;
    ProgressBar progress(file.get());
    TrainBegin begin;
    begin.last_step = begin.steps_per_epoch = 5;
    begin.has_validation = has_validation;
    begin.metrics = {"mae", "r2"};
    begin.class_names = {"apple", "pear"};
    progress.on_train_begin(begin);
    EpochLogs logs;
    logs.step = 5;
    logs.metrics = {.samples = 1, .classes = classes};
    logs.values = {{.name = "mae", .values = {0.25}},
                   {.name = "confusion", .values = {3, 1, 0, 12}, .shape = {2, 2}},
                   {.name = "r2", .values = {-1234.5}}};
    if (has_validation) {
      logs.validation = logs.metrics;
      logs.validation_values = logs.values;
      logs.validation_values[0].values = {0.5};
    }
    progress.on_epoch_end(logs);
    progress.on_train_end({});
    return file.text();
  };
  const std::string columns = printed(0, false);
  EXPECT_THAT(columns, ContainsRegex("samples/s     time       mae        r2\n"
                                     "[^\n]+ s    0\\.2500   -1234\\.5\n"));
  const std::string lines = printed(2, true);
  EXPECT_THAT(lines, HasSubstr(" s\n  mae 0.2500, r2 -1234.5\n"
                               "  validation: mae 0.5000, r2 -1234.5\n"));
  EXPECT_THAT(lines, HasSubstr("\nvalidation confusion (rows: labels, columns: predictions)\n"
                               "         apple   pear\n"
                               "  apple      3      1\n"
                               "  pear       0     12\n"));
}

TEST(ProgressBar, HasTheMetricsOfAValidationWithinAnEpoch) {
  CapturedFile file;
  ProgressBar progress(file.get());
  TrainBegin begin;
  begin.last_step = begin.steps_per_epoch = 5;
  begin.has_validation = true;
  begin.metrics = {"mae"};
  progress.on_train_begin(begin);
  EpochLogs logs;
  logs.step = 3;
  logs.metrics = {.samples = 1};
  logs.validation = logs.metrics;
  logs.validation_values = {{.name = "mae", .values = {0.5}}};
  progress.on_validation(logs);
  EXPECT_THAT(file.text(), ContainsRegex("time       mae   val mae\n[^\n]+    0\\.5000\n"));
}

TEST(MetricText, UsesTheClassNamesOfTheOutput) {
  const std::vector<model::MetricValue> values = {{"kind_confusion", {1, 2, 3, 4}, {2, 2}},
                                                  {"color_confusion", {1, 2, 3, 4}, {2, 2}}};
  const std::string text = metric_tables(values, {"cat", "dog"}, "kind");
  EXPECT_EQ(text,
            "kind_confusion (rows: labels, columns: predictions)\n"
            "       cat  dog\n  cat    1    2\n  dog    3    4\n"
            "color_confusion (rows: labels, columns: predictions)\n"
            "     0  1\n  0  1  2\n  1  3  4\n");
}

TEST(MetricText, HasOneLineForEachClassOfAnyName) {
  const std::vector<model::MetricValue> values = {{"confusion", {1, 2, 3, 4}, {2, 2}}};
  EXPECT_EQ(metric_tables(values, {"a\nb", "\x1b[2J"}),
            "confusion (rows: labels, columns: predictions)\n"
            "              a\\nb  \\x1b[2J\n"
            "  a\\nb           1        2\n"
            "  \\x1b[2J        3        4\n");
}

TEST(MetricText, OmitsMatricesThatAreNotSquare) {
  const std::vector<model::MetricValue> values = {{"wide", {1, 2, 3, 4, 5, 6}, {2, 3}},
                                                  {"empty", {}, {0, 0}}};
  EXPECT_EQ(metric_tables(values, {}), "");
}

TEST(MetricText, ListsClassesAndTheMostFrequentConfusions) {
  EXPECT_EQ(metric_tables(std::vector<model::MetricValue>{{"f1_per_class", {0.5, 1}, {2}}}, {}),
            "f1_per_class\n  0    0.5000\n  1    1.0000\n");
  model::MetricValue per_class{.name = "f1_per_class", .values = {}, .shape = {30}};
  for (int i = 0; i < 30; ++i) per_class.values.push_back((i * 7 % 30) / 100.0);
  const std::string lowest = metric_tables(std::vector{per_class}, {});
  EXPECT_THAT(lowest, ::testing::StartsWith("f1_per_class, the lowest of 30 classes\n"
                                            "  0     0.0000\n  13    0.0100\n"));
  EXPECT_EQ(std::ranges::count(lowest, '\n'), 11);

  model::MetricValue confusion{.name = "confusion", .values = {}, .shape = {40, 40}};
  confusion.values.assign(1600, 0);
  confusion.values[40 * 2 + 2] = 6;
  confusion.values[40 * 2 + 7] = 2;
  confusion.values[40 * 9 + 1] = 5;
  EXPECT_EQ(metric_tables(std::vector{confusion}, {}),
            "confusion, the most frequent of 40 classes\n"
            "  5 of 9 predicted as 1 (100.0 %)\n  2 of 2 predicted as 7 (25.0 %)\n");
}

TEST(MetricText, FitsEightyColumnsWithNamesOfAnyLength) {
  for (const std::int64_t classes : {2, 5, 10, 15, 20}) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < classes; ++i)
      names.push_back(std::string(30, 'x') + std::to_string(i));
    model::MetricValue confusion{.name = "confusion", .values = {}, .shape = {classes, classes}};
    confusion.values.assign(static_cast<std::size_t>(classes * classes), 123456);
    std::istringstream text(metric_tables(std::vector{confusion}, names));
    for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

/// A terminal on which the progress of a training of very many steps is shown.
class OnTerminal {
 public:
  explicit OnTerminal(unsigned short columns)
      : terminal_(columns), file_(fdopen(dup(terminal_.inner), "w")), progress_(file_) {
    TrainBegin begin;
    begin.global_batch = 100;
    begin.steps_per_epoch = begin.last_step = 1'000'000'000;
    progress_.on_train_begin(begin);
    while (text().find("rate") == std::string::npos || !text().ends_with("0\r\n")) continue;
    progress_.on_epoch_begin(0);
  }
  ~OnTerminal() { std::fclose(file_); }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  ProgressBar& progress() { return progress_; }
  int inner() const { return terminal_.inner; }
  const std::string& text() { return terminal_.text(); }
  /// Returns the next rewritten line. It is rewritten after a tenth of a second, in any number of
  /// steps.
  std::string next_line() {
    const std::size_t before = text().size();
    StepLogs logs;
    logs.metrics = {.loss_sum = 50, .samples = 100, .correct = 80, .classes = 10};
    logs.samples = 100;
    while (text().size() == before) {
      ++logs.step;
      progress_.on_batch_end(logs);
    }
    const std::string line = text().substr(before);
    return line.substr(line.rfind('\r') + 1);
  }
  void resize(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(terminal_.inner, TIOCSWINSZ, &size);
  }

 private:
  Terminal terminal_;
  std::FILE* file_;
  ProgressBar progress_;
};

TEST(ProgressBar, FitsTheTerminalAndFollowsItsWidth) {
  OnTerminal terminal(200);
  EXPECT_THAT(terminal.next_line(),
              ContainsRegex("^epoch 1  step [0-9]+/1000000000  loss 0.5000  accuracy 0.8000  "
                            "[0-9]+ samples/s"));
  for (const unsigned short columns : std::to_array<unsigned short>({80, 60, 40, 20, 5})) {
    terminal.resize(columns);
    EXPECT_LT(terminal.next_line().size(), columns);
  }
  terminal.resize(40);
  EXPECT_THAT(terminal.next_line(), ContainsRegex("^step [0-9]+/1000000000  loss 0.5000 *$"));
}

TEST(ProgressBar, ErasesARewrittenLine) {
  OnTerminal terminal(80);
  const std::size_t size = terminal.next_line().size();
  terminal.progress().on_epoch_end({});
  while (terminal.text().find("time\r\n") == std::string::npos) continue;
  EXPECT_THAT(terminal.text(), HasSubstr("\r" + std::string(size, ' ') + "\repoch  "));
}

TEST(ProgressBar, IsReplacedByAMessageOnTheSameTerminal) {
  OnTerminal terminal(80);
  terminal.next_line();
  const int before = dup(STDERR_FILENO);
  dup2(terminal.inner(), STDERR_FILENO);
  make_logger({.rank = 1, .ranks = 2})->warn("step 3 skipped");
  dup2(before, STDERR_FILENO);
  close(before);
  while (terminal.text().find("skipped\r\n") == std::string::npos) continue;
  EXPECT_THAT(terminal.text(), HasSubstr("\r\x1b[Klockstep: warning: [rank 1] step 3 skipped\r\n"));
  EXPECT_THAT(terminal.next_line(), ContainsRegex("^epoch 1  step [0-9]+/1000000000  loss "));
}

TEST(ProgressBar, HasNoTimeLeftAtTheEndOfAnEpoch) {
  Terminal terminal(80);
  std::FILE* file = fdopen(dup(terminal.inner), "w");
  ProgressBar progress(file);
  TrainBegin begin;
  begin.steps_per_epoch = begin.last_step = 1;
  progress.on_train_begin(begin);
  progress.on_epoch_begin(0);
  StepLogs logs{.step = 1, .samples = 1};
  while (terminal.text().find("step 1/1") == std::string::npos) progress.on_batch_end(logs);
  EXPECT_THAT(terminal.text(), Not(HasSubstr(" left")));
  std::fclose(file);
}

TEST(ProgressBar, ReportsAFinishedTraining) {
  CapturedFile file;
  ProgressBar progress(file.get());
  TrainBegin begin;
  begin.restored_from = "run/step-00000078";
  begin.first_step = 78;
  begin.last_step = 26;
  progress.on_train_begin(begin);
  progress.on_train_end({.steps = 78});
  EXPECT_THAT(file.text(),
              EndsWith("\nnothing was trained: run/step-00000078 is at step 78, and "
                       "this training ends at step 26; more --epochs or --steps "
                       "continue it, and another --checkpoint-dir begins a new one\n"));
}

std::string epoch_lines(const EpochLogs& logs, int replicas = 1, bool verbose = false) {
  CapturedFile file;
  ProgressBar progress(file.get(), {.verbose = verbose});
  TrainBegin begin;
  begin.world_size = replicas;
  progress.on_train_begin(begin);
  progress.on_epoch_begin(0);
  progress.on_epoch_end(logs);
  return file.text();
}

TEST(ProgressBar, ShowsAnyLossInAColumn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [loss, text] : {std::pair{0.25, "  0.2500  "},
                                   {12345.678, " 12345.7  "},
                                   {123456789012.0, "1.23457e+11  "},
                                   {nan, "     nan  "},
                                   {std::copysign(nan, -1.0), "     nan  "}}) {
    EpochLogs logs;
    logs.metrics = {.loss_sum = loss, .samples = 1};
    EXPECT_THAT(epoch_lines(logs), HasSubstr(std::string(" 0/0  ") + text)) << loss;
  }
}

TEST(ProgressBar, ReportsLostTimeOfAnEpoch) {
  EpochLogs logs;
  logs.seconds = 10;
  logs.input_wait_seconds = 0.2;
  logs.communication = {.exposed = 1.5, .waited = 0.5};
  EXPECT_THAT(epoch_lines(logs, 2), Not(HasSubstr("waiting")));
  EXPECT_THAT(epoch_lines(logs, 1, true), HasSubstr("\nwaiting: 2.0 % for input\n"));
  logs.communication.exposed = 2.5;
  EXPECT_THAT(epoch_lines(logs), Not(HasSubstr("waiting"))) << "of one replica";
  EXPECT_THAT(epoch_lines(logs, 2),
              HasSubstr("\nwaiting: 2.0 % for input, 20.0 % for communication, "
                        "5.0 % for replicas\n"));
  EXPECT_THAT(epoch_lines(logs, 2), Not(HasSubstr("the training waits for its input")));
  logs.input_wait_seconds = 0.6;
  EXPECT_THAT(epoch_lines(logs),
              HasSubstr("\nthe training waits for its input: increase --data-threads"));
}

TEST(ProgressBar, PrintsBreakdownAndVerdict) {
  EpochLogs logs;
  logs.seconds = 10;
  logs.input_wait_seconds = 9;
  logs.breakdown = {.input = 0.003, .compute = 0.001};
  logs.verdict = Verdict{.bound_by = "input", .text = "bound by input: use more threads"};
  EXPECT_THAT(epoch_lines(logs),
              EndsWith("\nstep 4.0 ms = input 3.0 + compute 1.0\nbound by input: use more "
                       "threads\n"));
  EXPECT_THAT(epoch_lines(logs, 1, true), HasSubstr("\nwaiting: 90.0 % for input\n"));
}

TEST(ProgressBar, JudgesTheStepsSinceTheLastVerdict) {
  CapturedFile file;
  ProgressBar progress(file.get(), {.log_every = 10});
  TrainBegin begin;
  begin.last_step = begin.steps_per_epoch = 100;
  progress.on_train_begin(begin);
  for (int step = 1; step <= 40; ++step)
    progress.on_batch_end({.step = step,
                           .samples = 1,
                           .breakdown = {.input = step <= 20 ? 0.0 : 0.02, .compute = 0.015},
                           .data_workers = 1});
  // After 10 steps, 9 count, in less than 0.2 s.
  EXPECT_THAT(file.text(),
              ContainsRegex("  10/100 [^\n]+\n +1 +20/100 [^\n]+\nstep 15.0 ms = compute 15.0\n"
                            "bound by compute: [^\n]+\n +1 +30/100 [^\n]+\n"
                            "step 35.0 ms = input 20.0 \\+ compute 15.0\n"
                            "bound by input: [^\n]+\n +1 +40/100 "));
}

TEST(ProgressBar, LossDoesNotEndTheTraining) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  FitOptions fit{.epochs = 2};
  fit.callbacks = {std::make_shared<ProgressBar>(full, ProgressOptions{.log_every = 1})};
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
}  // namespace lockstep::inline v0::train
