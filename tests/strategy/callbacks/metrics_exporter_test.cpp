// Metrics of a training, over HTTP and in a file.
#include "lockstep/train/callbacks/metrics_exporter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/net/http_server.h"
#include "lockstep/net/interfaces.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// The value of the line that begins with `sample`; fails the test if there is none.
double value_in(const std::string& text, const std::string& sample) {
  const std::size_t at = text.find("\n" + sample + " ");
  if (at == std::string::npos) {
    ADD_FAILURE() << "no " << sample << " in\n" << text;
    return 0;
  }
  return std::stod(text.substr(at + sample.size() + 2));
}

/// The sum over all samples of a metric.
double sum_in(const std::string& text, const std::string& metric) {
  double sum = 0;
  for (std::size_t at = 0; (at = text.find("\n" + metric + "{", at)) != std::string::npos; ++at)
    sum += std::stod(text.substr(text.find("} ", at) + 2));
  return sum;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string http_get(std::uint16_t port, const std::string& path) {
  const net::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = net::parse_address("127.0.0.1", port);
  const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
  if (connect(socket.get(), address->get(), address->size) != 0 ||
      send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    throw std::runtime_error("no connection");
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = recv(socket.get(), piece.data(), piece.size(), 0)) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(got));
  return text;
}

TEST(MetricsExporterTest, DescribesATraining) {
  MetricsExporterOptions options;
  options.run = "wide";
  const auto exporter = std::make_shared<MetricsExporter>(options, make_silent_logger());
  EXPECT_THAT(exporter->text(Exposition::prometheus),
              AllOf(HasSubstr("lockstep_training_state{state=\"starting\"} 1\n"),
                    Not(HasSubstr("lockstep_training_step"))));
  FitOptions fit{.epochs = 2, .validation = small_data(20).batch(40)};
  fit.callbacks = {exporter};
  const Outcome outcome = train(2, plain_network(), small_data().batch(40), {}, fit);
  const std::string text = exporter->text(Exposition::prometheus);
  const auto value = [&](const std::string& sample) { return value_in(text, sample); };
  EXPECT_EQ(value("lockstep_training_state{state=\"finished\"}"), 1);
  EXPECT_EQ(value("lockstep_training_state{state=\"training\"}"), 0);
  EXPECT_THAT(text, HasSubstr("lockstep_training_info{run=\"wide\",model=\"plain\","));
  EXPECT_EQ(value("lockstep_training_replicas"), 2);
  EXPECT_EQ(value("lockstep_training_step"), 12);
  EXPECT_EQ(value("lockstep_training_step_limit"), 12);
  EXPECT_EQ(value("lockstep_training_epoch"), 1);
  EXPECT_EQ(value("lockstep_training_samples_total"), 406);
  EXPECT_EQ(value("lockstep_training_learning_rate"), 0.001);
  EXPECT_EQ(value("lockstep_training_step_duration_seconds_count"), 11) << "not of the first step";
  EXPECT_GT(value("lockstep_replica_busy_time_seconds_total{replica=\"1\",rank=\"0\",host=\"" +
                  host_name() + "\",device=\"cpu:0\",phase=\"compute\"}"),
            0);
  const EpochLogs& last = outcome.history.epochs.back();
  EXPECT_DOUBLE_EQ(value("lockstep_training_metric{scope=\"step\",metric=\"loss\"}"),
                   outcome.losses.back());
  EXPECT_DOUBLE_EQ(value("lockstep_training_metric{scope=\"epoch\",metric=\"accuracy\"}"),
                   last.metrics.accuracy());
  EXPECT_DOUBLE_EQ(value("lockstep_training_metric{scope=\"validation\",metric=\"loss\"}"),
                   last.validation->loss());
}

TEST(MetricsExporterTest, DividesTheTimeOfStepsIntoPhases) {
  const auto exporter =
      std::make_shared<MetricsExporter>(MetricsExporterOptions{}, make_silent_logger());
  FitOptions fit{.epochs = 1};
  fit.callbacks = {exporter};
  train(2, plain_network(), small_data().batch(40), {}, fit);
  const std::string text = exporter->text(Exposition::prometheus);
  EXPECT_NEAR(sum_in(text, "lockstep_training_time_seconds_total"),
              value_in(text, "lockstep_training_step_duration_seconds_sum"), 1e-9);
  for (const char* phase : {"compute", "update", "other"})
    EXPECT_GT(
        value_in(text, fmt::format("lockstep_training_time_seconds_total{{phase=\"{}\"}}", phase)),
        0);
}

TEST(MetricsExporterTest, AddsTheBreakdownsOfSteps) {
  MetricsExporter exporter({}, make_silent_logger());
  exporter.on_train_begin({});
  StepLogs logs;
  logs.breakdown = {.input = 1,
                    .compute = 2,
                    .communication = 3,
                    .waiting = 4,
                    .update = 5,
                    .checkpoint = 6,
                    .other = 7};
  exporter.on_batch_end(logs);
  exporter.on_batch_end(logs);
  EpochLogs epoch;
  epoch.validation_seconds = 0.5;
  exporter.on_validation(epoch);
  const std::string text = exporter.text(Exposition::prometheus);
  const auto seconds = [&](const std::string& phase) {
    return value_in(text, "lockstep_training_time_seconds_total{phase=\"" + phase + "\"}");
  };
  for (const StepPart& part : kStepParts)
    EXPECT_EQ(seconds(part.name), 2 * logs.breakdown.*part.member) << part.name;
  EXPECT_EQ(seconds("validation"), 0.5);
  EXPECT_EQ(value_in(text, "lockstep_training_step_duration_seconds_sum"), 56);
}

TEST(MetricsExporterTest, HasNoTimesOfTheFirstStepOfARun) {
  MetricsExporter exporter({}, make_silent_logger());
  TrainBegin begin;
  begin.first_step = 40;
  begin.placements.resize(1);
  exporter.on_train_begin(begin);
  const std::array<allreduce::BusySeconds, 1> busy{{{.input = 8, .compute = 16}}};
  StepLogs logs{.step = 41, .samples = 4, .busy = busy, .breakdown = {.compute = 2}};
  exporter.on_batch_end(logs);
  ++logs.step;
  exporter.on_batch_end(logs);
  const std::string text = exporter.text(Exposition::prometheus);
  EXPECT_EQ(value_in(text, "lockstep_training_samples_total"), 8);
  EXPECT_EQ(value_in(text, "lockstep_training_step_duration_seconds_count"), 1);
  EXPECT_EQ(sum_in(text, "lockstep_training_time_seconds_total"), 2);
  EXPECT_EQ(sum_in(text, "lockstep_replica_busy_time_seconds_total"), 24);
}

TEST(MetricsExporterTest, IncludesTheTimeOfTheLastCheckpoint) {
  MetricsExporter exporter({}, make_silent_logger());
  exporter.on_train_begin({});
  const auto seconds = [&] {
    return value_in(exporter.text(Exposition::prometheus),
                    "lockstep_training_time_seconds_total{phase=\"checkpoint\"}");
  };
  exporter.on_checkpoint({.step = 7, .path = "run", .seconds = 0.5});
  EXPECT_EQ(seconds(), 0.5);
  exporter.on_batch_end({.step = 8, .breakdown = {.checkpoint = 0.5}});
  EXPECT_EQ(seconds(), 0.5) << "counted once";
  exporter.on_checkpoint({.step = 8, .path = "run", .seconds = 0.25});
  exporter.on_train_end({.steps = 8});
  EXPECT_EQ(seconds(), 0.75);
}

TEST(MetricsExporterTest, FailsBeforeATrainingBegins) {
  MetricsExporter exporter({}, make_silent_logger());
  exporter.on_exception(std::runtime_error("lost"));
  EXPECT_EQ(
      value_in(exporter.text(Exposition::prometheus), "lockstep_training_state{state=\"failed\"}"),
      1);
}

TEST(MetricsExporterTest, CountsSkippedStepsByReason) {
  MetricsExporter exporter({}, make_silent_logger());
  exporter.on_train_begin({});
  for (const auto& [skipped, overflow] : {std::pair(false, false), std::pair(true, false),
                                          std::pair(true, true), std::pair(true, true)}) {
    StepLogs logs;
    logs.skipped = skipped;
    logs.overflow = overflow;
    exporter.on_batch_end(logs);
  }
  const std::string text = exporter.text(Exposition::prometheus);
  EXPECT_EQ(value_in(text, "lockstep_training_skipped_steps_total{reason=\"not_finite\"}"), 1);
  EXPECT_EQ(value_in(text, "lockstep_training_skipped_steps_total{reason=\"loss_scale\"}"), 2);
}

TEST(MetricsExporterTest, HasCheckpointsScalarsAndTheEnd) {
  MetricsExporter exporter({}, make_silent_logger());
  exporter.on_train_begin({});
  EXPECT_THAT(exporter.text(Exposition::prometheus), Not(HasSubstr("lockstep_checkpoint_step")));
  exporter.on_checkpoint({.step = 7, .path = "run", .seconds = 0.5});
  exporter.on_checkpoint({.step = 9, .path = "run", .seconds = 0.25});
  exporter.on_scalar({.step = 9, .name = "a \"b\"", .value = 3});
  const auto state = [&](const std::string& name) {
    return value_in(exporter.text(Exposition::prometheus),
                    "lockstep_training_state{state=\"" + name + "\"}");
  };
  exporter.on_test_begin();
  EXPECT_EQ(state("validating"), 1);
  exporter.on_test_end({});
  EXPECT_EQ(state("training"), 1);
  exporter.on_train_end({.steps = 9, .signal = 15});
  EXPECT_EQ(state("stopped"), 1);
  exporter.on_exception(std::runtime_error("lost"));
  EXPECT_EQ(state("failed"), 1);
  const std::string text = exporter.text(Exposition::prometheus);
  EXPECT_EQ(value_in(text, "lockstep_checkpoint_saves_total"), 2);
  EXPECT_EQ(value_in(text, "lockstep_checkpoint_step"), 9);
  EXPECT_EQ(value_in(text, "lockstep_training_scalar{name=\"a \\\"b\\\"\"}"), 3);
}

TEST(MetricsExporterTest, ServesPrometheusText) {
  MetricsExporterOptions options;
  options.address = MetricsAddress{};
  const auto exporter = std::make_shared<MetricsExporter>(options, make_silent_logger());
  ASSERT_NE(exporter->port(), 0);
  FitOptions fit{.epochs = 1};
  fit.callbacks = {exporter};
  train(1, plain_network(), small_data().batch(40), {}, fit);
  EXPECT_THAT(http_get(exporter->port(), "/metrics"),
              AllOf(HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                    HasSubstr("\nlockstep_training_step 6\n")));
  EXPECT_THAT(http_get(exporter->port(), "/"), HasSubstr(" 404 "));
}

TEST(MetricsExporterTest, IsReadWhileATrainingRuns) {
  const auto exporter =
      std::make_shared<MetricsExporter>(MetricsExporterOptions{}, make_silent_logger());
  double last = 0;
  {
    const std::jthread reader([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::string text = exporter->text(Exposition::prometheus);
        if (text.find("\nlockstep_training_step ") == std::string::npos) continue;
        const double step = value_in(text, "lockstep_training_step");
        EXPECT_GE(step, last);
        last = step;
      }
    });
    FitOptions fit{.epochs = 2};
    fit.callbacks = {exporter};
    train(2, plain_network(), small_data().batch(40), {}, fit);
  }
  EXPECT_EQ(value_in(exporter->text(Exposition::prometheus), "lockstep_training_step"), 12);
}

TEST(MetricsExporterTest, WritesAFileThatIsCompleteAtAnyTime) {
  const checkpoint::ScratchDirectory scratch;
  MetricsExporterOptions options;
  options.file = scratch.path() / "lockstep.prom";
  options.file_interval = std::chrono::milliseconds(0);
  MetricsExporter exporter(options, make_silent_logger());
  EXPECT_FALSE(std::filesystem::exists(options.file));
  exporter.on_train_begin({});
  EXPECT_EQ(value_in(text_of(options.file), "lockstep_training_step"), 0);
  for (int step = 1; step <= 3; ++step) {
    exporter.on_batch_end({.step = step});
    EXPECT_EQ(value_in(text_of(options.file), "lockstep_training_step"), step);
    EXPECT_THAT(text_of(options.file), EndsWith("\n# EOF\n"));
  }
  exporter.on_exception(std::runtime_error("lost"));
  EXPECT_EQ(value_in(text_of(options.file), "lockstep_training_state{state=\"failed\"}"), 1);
}

TEST(MetricsExporterTest, WritesTheFileOnceAnInterval) {
  const checkpoint::ScratchDirectory scratch;
  MetricsExporterOptions options;
  options.file = scratch.path() / "lockstep.prom";
  options.file_interval = std::chrono::hours(1);
  MetricsExporter exporter(options, make_silent_logger());
  exporter.on_train_begin({});
  exporter.on_batch_end({.step = 1});
  EXPECT_EQ(value_in(text_of(options.file), "lockstep_training_step"), 0);
  exporter.on_epoch_end({});
  EXPECT_EQ(value_in(text_of(options.file), "lockstep_training_step"), 1);
}

TEST(MetricsExporterTest, ReportsAFileThatCannotBeWrittenOnceAndAtTheEnd) {
  const checkpoint::ScratchDirectory scratch;
  std::filesystem::create_directory(scratch.path() / "folder");
  MetricsExporterOptions options;
  options.file = scratch.path() / "folder" / "lockstep.prom";
  ::testing::internal::CaptureStderr();
  {
    MetricsExporter exporter(options);
    exporter.on_train_begin({});
    std::filesystem::remove_all(scratch.path() / "folder");
    exporter.on_epoch_end({});
    exporter.on_epoch_end({});
    EXPECT_EQ(
        value_in(exporter.text(Exposition::prometheus), "lockstep_metrics_failed_writes_total"), 2);
    exporter.on_train_end({});
  }
  const std::string errors = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors,
              AllOf(HasSubstr("the training continues"), HasSubstr("lockstep.prom 3 times")));
  EXPECT_EQ(errors.find("the training continues"), errors.rfind("the training continues"));
  EXPECT_THROW(MetricsExporter(options, make_silent_logger()), Error);
}

TEST(MetricsExporterTest, RejectsAFileThatBlocksWithoutAReader) {
  const checkpoint::ScratchDirectory scratch;
  MetricsExporterOptions options;
  options.file = scratch.path() / "pipe";
  ASSERT_EQ(mkfifo(options.file.c_str(), 0600), 0);
  EXPECT_THROW(MetricsExporter(options, make_silent_logger()), Error);
}

TEST(MetricsExporterTest, ParsesAddresses) {
  for (const auto& [text, host, port] :
       {std::tuple("9400", "127.0.0.1", 9400), std::tuple("0", "127.0.0.1", 0),
        std::tuple("0.0.0.0:9400", "0.0.0.0", 9400), std::tuple("[::1]:80", "::1", 80),
        std::tuple("localhost:9400", "127.0.0.1", 9400)}) {
    EXPECT_EQ(parse_metrics_address(text).host, host);
    EXPECT_EQ(parse_metrics_address(text).port, port);
  }
  EXPECT_EQ(parse_metrics_address("[::1]:80").text(), "[::1]:80");
  for (const char* text : {"", "65536", "-1", "here", "127.0.0.1", "[::1]", "a:b", "127.0.0.1:"}) {
    try {
      parse_metrics_address(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      EXPECT_THAT(error.what(), HasSubstr("[metrics-port] expected "));
    }
  }
}

TEST(MetricsExporterTest, ReportsAnUnusableAddress) {
  const net::HttpServer other("127.0.0.1", 0, [](std::string_view) { return std::nullopt; });
  for (const MetricsAddress& address :
       {MetricsAddress{.port = other.port()}, MetricsAddress{.host = "192.0.2.1", .port = 9400},
        MetricsAddress{.host = "nowhere", .port = 9400}}) {
    MetricsExporterOptions options;
    options.address = address;
    try {
      const MetricsExporter exporter(options, make_silent_logger());
      ADD_FAILURE() << address.text();
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("[metrics-port] expected an address of this host"),
                                      HasSubstr("got " + address.text() + ": ")));
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
