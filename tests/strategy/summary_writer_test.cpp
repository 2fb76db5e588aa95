// Event files, read back by a parser written here and, where it is installed, by TensorBoard's own
// loader.
#include "lockstep/train/tensorboard/summaries.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/train/tensorboard/hyperparameters.h"
#include "lockstep/train/tensorboard/network_graph.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

/// The parts of an event that these tests read.
struct SeenEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  std::int32_t session = 0;  // the status of a SessionLog
  std::string tag;
  std::string plugin;
  std::string unknown_metadata;
  int dtype = 0;
  int dimensions = -1;
  std::string shape;
  float scalar = 0;
  std::string text;
  std::vector<std::string> texts;
  std::vector<double> doubles;
  std::string content;  // content of the plugin
  std::string graph;
};

void see_tensor(protozero::pbf_reader tensor, SeenEvent& seen) {
  while (tensor.next()) {
    switch (tensor.tag()) {
      case 1:
        seen.dtype = tensor.get_enum();
        break;
      case 2:
        seen.shape = tensor.get_bytes();
        seen.dimensions = static_cast<int>(seen.shape.size());
        break;
      case 5:
        seen.scalar = *tensor.get_packed_float().begin();
        break;
      case 6:
        for (const double value : tensor.get_packed_double()) seen.doubles.push_back(value);
        break;
      case 8:
        seen.text = tensor.get_bytes();
        seen.texts.push_back(seen.text);
        break;
      default:
        ADD_FAILURE() << "tensor field " << tensor.tag();
        tensor.skip();
    }
  }
}

void see_value(protozero::pbf_reader value, SeenEvent& seen) {
  while (value.next()) {
    switch (value.tag()) {
      case 1:
        seen.tag = value.get_string();
        break;
      case 8:
        see_tensor(value.get_message(), seen);
        break;
      case 9: {
        protozero::pbf_reader metadata = value.get_message();
        ASSERT_TRUE(metadata.next(1));
        protozero::pbf_reader plugin = metadata.get_message();
        ASSERT_TRUE(plugin.next(1));
        seen.plugin = plugin.get_string();
        if (plugin.next(2)) seen.content = plugin.get_bytes();
        EXPECT_FALSE(metadata.next()) << "data_class must stay unset";
        break;
      }
      default:
        ADD_FAILURE() << "value field " << value.tag();
        value.skip();
    }
  }
}

SeenEvent see_event(const std::string& bytes) {
  SeenEvent seen;
  protozero::pbf_reader event(bytes);
  while (event.next()) {
    switch (event.tag()) {
      case 1:
        seen.wall_time = event.get_double();
        break;
      case 2:
        seen.step = event.get_int64();
        break;
      case 3:
        seen.file_version = event.get_string();
        break;
      case 4:
        seen.graph = event.get_bytes();
        break;
      case 5: {
        protozero::pbf_reader summary = event.get_message();
        EXPECT_TRUE(summary.next(1));
        see_value(summary.get_message(), seen);
        break;
      }
      case 7: {
        protozero::pbf_reader session = event.get_message();
        EXPECT_TRUE(session.next(1));
        seen.session = session.get_enum();
        break;
      }
      default:
        ADD_FAILURE() << "event field " << event.tag();
        event.skip();
    }
  }
  return seen;
}

std::vector<SeenEvent> events_in(const fs::path& path) {
  const std::string bytes = checkpoint::contents_of(path);
  std::string_view rest = bytes;
  std::vector<SeenEvent> events;
  while (rest.size() >= data::kRecordHeaderBytes) {
    const auto header = rest.substr(0, data::kRecordHeaderBytes);
    EXPECT_TRUE(data::header_intact(header));
    const std::size_t length = data::record_length(header);
    const auto body = rest.substr(data::kRecordHeaderBytes, length);
    const auto footer = rest.substr(data::kRecordHeaderBytes + length, data::kRecordFooterBytes);
    EXPECT_TRUE(footer.size() == data::kRecordFooterBytes && data::data_intact(body, footer));
    events.push_back(see_event(std::string(body)));
    rest.remove_prefix(data::kRecordHeaderBytes + length + data::kRecordFooterBytes);
  }
  EXPECT_TRUE(rest.empty()) << rest.size() << " bytes behind the last record";
  return events;
}

TEST(SummaryWriter, BeginsWithTheVersionUnderItsName) {
  const checkpoint::ScratchDirectory scratch;
  const SummaryWriter writer(scratch.path() / "logs" / "train");

  EXPECT_EQ(writer.path().parent_path(), scratch.path() / "logs" / "train");
  EXPECT_THAT(writer.path().filename().string(),
              MatchesRegex(fmt::format("events\\.out\\.tfevents\\.[0-9]{{10}}\\.{}\\.{}\\.0\\.v2",
                                       host_name(), ::getpid())));
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 1u) << "visible before the first flush";
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.5e9);
}

TEST(SummaryWriter, WritesAScalarByteForByte) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  const std::size_t start = checkpoint::contents_of(writer.path()).size();
  writer.scalar("a", 3, 1.5, 2.0);
  writer.flush();

  const std::string event(
      "\x09\0\0\0\0\0\0\0\x40"           // wall_time 2.0
      "\x10\x03"                         // step 3
      "\x2a\x1e\x0a\x1c"                 // summary, value
      "\x0a\x01\x61"                     // tag "a"
      "\x4a\x0b\x0a\x09\x0a\x07scalars"  // metadata, plugin_data, plugin_name
      "\x42\x0a"                         // tensor
      "\x08\x01\x12\0"                   // DT_FLOAT, shape of no dimensions
      "\x2a\x04\0\0\xc0\x3f",
      43);  // float_val, packed
  std::string record;
  data::append_record(record, event);
  EXPECT_EQ(checkpoint::contents_of(writer.path()).substr(start), record);
}

TEST(SummaryWriter, WritesMetadataWithTheFirstValueOfATag) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  for (const int step : {0, 1, 2}) writer.scalar("epoch_loss", step, 1.0 / (step + 1));
  writer.scalar("epoch_accuracy", 0, 0.5);
  writer.text("configuration", 0, "**model** cnn");
  writer.flush();

  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].plugin, "scalars");
  EXPECT_EQ(events[2].plugin, "");
  EXPECT_EQ(events[4].plugin, "scalars");
  EXPECT_EQ(events[5].plugin, "text");
  EXPECT_EQ(events[3].tag, "epoch_loss");
  EXPECT_EQ(events[3].step, 2);
  EXPECT_EQ(events[3].dtype, 1);
  EXPECT_EQ(events[3].dimensions, 0);
  EXPECT_EQ(events[3].scalar, static_cast<float>(1.0 / 3));
  EXPECT_GE(events[3].wall_time, events[2].wall_time);
  EXPECT_EQ(events[5].dtype, 7);
  EXPECT_EQ(events[5].text, "**model** cnn");
}

/// Two pixels: 1, 2, 3 and 4, 5, 6.
data::Image small_image() {
  data::Image image;
  image.reshape(1, 2, 3);
  for (int i = 0; i < 6; ++i) image.span().pixels[i] = static_cast<std::uint8_t>(i + 1);
  return image;
}

TEST(SummaryWriter, WritesAnImageAsTensorFlowDoes) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  for (const int step : {4, 5}) writer.image("cells", step, small_image().view());
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].plugin, "images");
  EXPECT_EQ(events[2].plugin, "");
  EXPECT_EQ(events[2].tag, "cells");
  EXPECT_EQ(events[2].step, 5);
  EXPECT_EQ(events[2].dtype, 7) << "DT_STRING";
  EXPECT_EQ(events[2].shape, "\x12\x02\x08\x03") << "one dimension of 3";
  ASSERT_EQ(events[2].texts.size(), 3u);
  EXPECT_EQ(events[2].texts[0], "2") << "width";
  EXPECT_EQ(events[2].texts[1], "1") << "height";
  data::Image memory;
  const data::ImageView pixels = data::decode_png(data::bytes_of(events[2].texts[2]), 3, memory);
  ASSERT_EQ(pixels.height, 1);
  ASSERT_EQ(pixels.width, 2);
  EXPECT_THAT(std::vector<int>(pixels.pixels, pixels.pixels + 6), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Histogram, CountsFiniteValuesInBucketsOfEqualWidth) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0, 30, 30, 15, 0.5F, kInfinity, -kInfinity, std::nanf("")};
  const std::vector<HistogramBucket> buckets = histogram_of(values);
  ASSERT_EQ(buckets.size(), 30u);
  EXPECT_EQ(buckets[0], (HistogramBucket{0, 1, 2}));
  EXPECT_EQ(buckets[15], (HistogramBucket{15, 16, 1}));
  EXPECT_EQ(buckets[29], (HistogramBucket{29, 30, 2})) << "with its upper edge";
  double count = 0;
  for (const HistogramBucket& bucket : buckets) count += bucket.count;
  EXPECT_EQ(count, 5);
}

TEST(Histogram, HasOneBucketForEqualValuesAndNoneWithoutValues) {
  const std::vector<float> same = {2, 2, 2};
  EXPECT_THAT(histogram_of(same), ElementsAre(HistogramBucket{1.5, 2.5, 3}));
  EXPECT_TRUE(histogram_of({}).empty());
  const std::vector<float> none = {std::nanf("")};
  EXPECT_TRUE(histogram_of(none).empty());
}

TEST(SummaryWriter, WritesAHistogramAsTensorFlowDoes) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  writer.histogram("weights/fc", 3, std::vector<float>{2, 2});
  writer.histogram("weights/fc", 4, std::vector<float>{});
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 2u) << "nothing of no values";
  EXPECT_EQ(events[1].plugin, "histograms");
  EXPECT_EQ(events[1].step, 3);
  EXPECT_EQ(events[1].dtype, 2) << "DT_DOUBLE";
  EXPECT_EQ(events[1].shape, "\x12\x02\x08\x01\x12\x02\x08\x03") << "[1, 3]";
  EXPECT_THAT(events[1].doubles, ElementsAre(1.5, 2.5, 2));
}

TEST(SummaryWriter, WritesGraphsAndTheDataOfPlugins) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path(), "hparams.v2");
  EXPECT_TRUE(writer.path().native().ends_with(".0.hparams.v2"));
  writer.graph(5, "a graph");
  writer.plugin_data("_tag_", "some", "its data");
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].graph, "a graph");
  EXPECT_EQ(events[1].step, 5);
  EXPECT_EQ(events[2].tag, "_tag_");
  EXPECT_EQ(events[2].plugin, "some");
  EXPECT_EQ(events[2].content, "its data");
  EXPECT_EQ(events[2].step, 0);
}

TEST(SummaryWriter, MarksTheBeginningOfARun) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  writer.begin_run(7);
  writer.scalar("loss", 7, 1);
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].session, 1) << "SessionLog::START";
  EXPECT_EQ(events[1].step, 7);
  EXPECT_GE(events[1].wall_time, events[0].wall_time);
}

TEST(SummaryWriter, FlushesRegularlyAndAtTheEnd) {
  const checkpoint::ScratchDirectory scratch;
  fs::path path;
  {
    SummaryWriter writer(scratch.path());
    path = writer.path();
    for (int step = 0; step < 2000; ++step) writer.scalar("batch_loss", step, step);
    EXPECT_GT(checkpoint::contents_of(path).size(), 64u << 10)
        << "a reader sees events while training runs";
    SummaryWriter moved = std::move(writer);
  }
  EXPECT_EQ(events_in(path).size(), 2001u);
}

TEST(SummaryWriter, SeveralInOneDirectoryHaveDifferentNames) {
  const checkpoint::ScratchDirectory scratch;
  const SummaryWriter first(scratch.path());
  const SummaryWriter second(scratch.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(checkpoint::names_in(scratch.path()).size(), 2u);
}

std::string data_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::data);
    return error.what();
  }
  return "no error";
}

TEST(SummaryWriter, ReportsADirectoryThatCannotBeCreated) {
  const checkpoint::ScratchDirectory scratch;
  checkpoint::overwrite(scratch.path() / "file", "");
  EXPECT_EQ(data_error([&] { SummaryWriter writer(scratch.path() / "file" / "train"); }),
            fmt::format("[{}] expected to write the summary; Not a directory",
                        (scratch.path() / "file" / "train").string()));
  EXPECT_THAT(data_error([] { SummaryWriter writer("/proc/self"); }),
              HasSubstr("] expected to write the summary; "));
}

TEST(SummaryWriter, AFullDiskLeavesAReadableFileThatGrowsAgain) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  writer.scalar("loss", 1, 1);
  writer.flush();
  {
    const checkpoint::FileSizeLimit limit(checkpoint::contents_of(writer.path()).size() + 10);
    writer.scalar("loss", 2, 1);
    EXPECT_EQ(
        data_error([&] { writer.flush(); }),
        fmt::format("[{}] expected to write the summary; File too large", writer.path().string()));
  }
  EXPECT_EQ(events_in(writer.path()).size(), 2u);
  writer.scalar("loss", 3, 1);
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].step, 3);
}

TEST(SummaryWriter, CountsEventsLostOnAFullDiskAndRepeatsTheMetadata) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  {
    const checkpoint::FileSizeLimit limit(checkpoint::contents_of(writer.path()).size() + 10);
    for (const int step : {1, 2, 3}) writer.scalar("loss", step, 1);
    EXPECT_THAT(data_error([&] { writer.flush(); }), HasSubstr("File too large"));
    EXPECT_EQ(writer.lost_events(), 3);
    EXPECT_EQ(data_error([&] { writer.flush(); }), "no error") << "nothing new to write";
  }
  writer.scalar("loss", 4, 1);
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 4);
  EXPECT_EQ(events[1].plugin, "scalars") << "the event that had it is lost";
  EXPECT_EQ(writer.lost_events(), 3);
}

TEST(SummaryWriter, BeginsLaterIfTheDiskIsFullAtFirst) {
  const checkpoint::ScratchDirectory scratch;
  std::optional<SummaryWriter> writer;
  {
    const checkpoint::FileSizeLimit limit(0);
    writer.emplace(scratch.path());
    writer->scalar("loss", 1, 1);
    EXPECT_THAT(data_error([&] { writer->flush(); }), HasSubstr("File too large"));
  }
  writer->scalar("loss", 2, 1);
  writer->flush();
  const auto events = events_in(writer->path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 2);
}

TEST(SummaryWriter, MarksTheBeginningOfARunAfterAFullDisk) {
  const checkpoint::ScratchDirectory scratch;
  SummaryWriter writer(scratch.path());
  writer.begin_run(7);
  {
    const checkpoint::FileSizeLimit limit(checkpoint::contents_of(writer.path()).size());
    writer.scalar("loss", 7, 1);
    EXPECT_THAT(data_error([&] { writer.flush(); }), HasSubstr("File too large"));
    EXPECT_THAT(data_error([&] { writer.flush(); }), HasSubstr("File too large"));
  }
  writer.scalar("loss", 8, 1);
  writer.flush();
  writer.flush();
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u) << "version, beginning, point";
  EXPECT_EQ(events[1].session, 1) << "without it, TensorBoard would show steps of two runs";
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[2].step, 8);
  EXPECT_EQ(writer.lost_events(), 1);
}

model::Network graph_network() {
  model::Network network({4, 4, 1});
  network.add(model::Conv2D({.filters = 3, .kernel = 3}));
  network.add(model::ReLU());
  const model::NodeId flat = network.add(model::Flatten());
  network.add(model::Dense({.units = 2}), {flat}, "head/scores");
  return network;
}

TEST(SummaryWriter, TensorBoardReadsIt) {
  const char* python = std::getenv("LOCKSTEP_VENV_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "LOCKSTEP_VENV_PYTHON names no Python interpreter with tensorboard";
  if (std::system(fmt::format("{} -c 'import tensorboard' 2>/dev/null", python).c_str()) != 0)
    GTEST_SKIP() << python << " has no tensorboard";
  const checkpoint::ScratchDirectory scratch;
  {
    SummaryWriter train(scratch.path() / "train");  // a run that was killed
    train.begin_run(0);
    train.scalar("epoch_loss", 1, 5, 1000.0);
    train.histogram("weights/fc", 2, std::vector<float>{5});
    train.image("cells", 2, small_image().view());
  }
  {
    SummaryWriter train(scratch.path() / "train");
    SummaryWriter validation(scratch.path() / "validation");
    train.begin_run(0);
    train.text("configuration", 0, "| model | cnn |");
    train.image("cells", 2, small_image().view());
    train.histogram("weights/fc", 2, std::vector<float>{0, 30, 30});
    train.graph(0, network_graph(graph_network()));
    SummaryWriter session(scratch.path(), "hparams.v2");
    session.plugin_data(kSessionStartTag, kHyperparametersPlugin,
                        session_start(std::vector<Hyperparameter>{{"learning_rate", 0.5},
                                                                  {"optimizer", std::string("sgd")},
                                                                  {"nesterov", true}},
                                      1000));
    session.plugin_data(kSessionEndTag, kHyperparametersPlugin, session_end(1010));
    for (const int step : {1, 2, 3}) {
      train.scalar("epoch_loss", step, 1.0 / step, 1000.0 + step);
      validation.scalar("epoch_loss", step, 2.0 / step, 1000.0 + step);
    }
  }
  const std::string output = (scratch.path() / "seen.json").string();
  const std::string command = fmt::format("{} {}/tests/strategy/read_events.py {} > {}", python,
                                          LOCKSTEP_SOURCE_DIR, scratch.path().string(), output);
  ASSERT_EQ(std::system(command.c_str()), 0);

  const auto seen = nlohmann::json::parse(checkpoint::contents_of(output));
  EXPECT_EQ(seen["train"]["scalars"]["epoch_loss"],
            nlohmann::json::parse(
                "[[1001.0, 1, 1.0], [1002.0, 2, 0.5], [1003.0, 3, 0.3333333432674408]]"));
  EXPECT_EQ(seen["validation"]["scalars"]["epoch_loss"][0],
            nlohmann::json::parse("[1001.0, 1, 2.0]"));
  EXPECT_EQ(seen["train"]["texts"]["configuration"],
            nlohmann::json::parse(R"([[0, "| model | cnn |"]])"));
  EXPECT_EQ(seen["train"]["images"]["cells"],
            nlohmann::json::parse(R"([[2, "2", "1", "89504e47"]])"));
  const nlohmann::json& histogram = seen["train"]["histograms"]["weights/fc"];
  ASSERT_EQ(histogram.size(), 1u);
  EXPECT_EQ(histogram[0][0], 2) << "step";
  ASSERT_EQ(histogram[0][1].size(), 30u);
  EXPECT_EQ(histogram[0][1][0], nlohmann::json::parse("[0.0, 1.0, 1.0]"));
  EXPECT_EQ(histogram[0][1][29], nlohmann::json::parse("[29.0, 30.0, 2.0]"));
  EXPECT_EQ(seen["train"]["graph"], nlohmann::json::parse(R"({
    "features": ["Placeholder", [], [-1, 4, 4, 1]],
    "conv2d": ["conv2d", ["features"], [-1, 2, 2, 3]],
    "re_lu": ["relu", ["conv2d"], [-1, 2, 2, 3]],
    "flatten": ["flatten", ["re_lu"], [-1, 12]],
    "head/scores": ["dense", ["flatten"], [-1, 2]]})"));
  EXPECT_EQ(seen["."]["hyperparameters"],
            nlohmann::json::parse(
                R"({"learning_rate": 0.5, "optimizer": "sgd", "nesterov": true, "status": 1})"));
}

constexpr std::int64_t kStepsPerEpoch = 6;

model::MetricSums metrics_of(std::int64_t samples) {
  return {.loss_sum = 1, .samples = samples, .correct = 1, .correct_top5 = 1, .classes = 10};
}

/// Reports the steps after `first` up to `last`, with a validation of each epoch. The last epoch
/// may be incomplete, which a run that is killed does not report.
void report_run(const fs::path& directory, std::int64_t first, std::int64_t last,
                bool is_killed = false) {
  Summaries summaries(directory, 1, "rate = 1");
  TrainBegin begin;
  begin.first_step = first;
  summaries.on_train_begin(begin);
  for (std::int64_t step = first + 1; step <= last; ++step) {
    const std::int64_t epoch = (step - 1) / kStepsPerEpoch;
    summaries.on_batch_end({.step = step, .epoch = epoch, .metrics = metrics_of(2)});
    const bool complete = step % kStepsPerEpoch == 0;
    if (!complete && (step < last || is_killed)) continue;
    EpochLogs logs;
    logs.epoch = epoch;
    logs.complete = complete;
    logs.metrics = metrics_of(8);
    logs.validation = metrics_of(3);
    summaries.on_epoch_end(logs);
  }
  if (!is_killed) summaries.on_train_end({});
}

/// The steps of each tag in all files of `directory`, as TensorBoard's Python loader keeps them.
std::map<std::string, std::vector<std::int64_t>> points_in(const fs::path& directory) {
  std::map<std::string, std::vector<std::int64_t>> points;
  for (const std::string& name : checkpoint::names_in(directory)) {  // in the order of their times
    for (const SeenEvent& event : events_in(directory / name)) {
      if (event.session == 1)
        for (auto& [tag, steps] : points)
          std::erase_if(steps, [&](std::int64_t step) { return step >= event.step; });
      if (!event.tag.empty()) points[event.tag].push_back(event.step);
    }
  }
  return points;
}

TEST(Summaries, OfATrainingThatResumesHaveEachPointOnce) {
  const checkpoint::ScratchDirectory scratch;
  report_run(scratch.path(), 0, 8);
  EXPECT_THAT(points_in(scratch.path() / "train")["epoch_loss"], ElementsAre(0))
      << "not that of the incomplete epoch";
  report_run(scratch.path(), 8, 12);
  const auto train = points_in(scratch.path() / "train");
  EXPECT_THAT(train.at("batch_loss"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  for (const char* tag : {"epoch_loss", "epoch_accuracy", "epoch_learning_rate"})
    EXPECT_THAT(train.at(tag), ElementsAre(0, 1)) << tag;
  EXPECT_THAT(train.at("configuration"), ElementsAre(0, 9));
  EXPECT_THAT(points_in(scratch.path() / "validation")["epoch_loss"], ElementsAre(0, 1));
}

TEST(Summaries, OfAKilledTrainingAreReplacedAfterTheCheckpoint) {
  const checkpoint::ScratchDirectory scratch;
  report_run(scratch.path(), 0, 8, true);
  report_run(scratch.path(), 4, 7, true);
  report_run(scratch.path(), 4, 12);
  const auto train = points_in(scratch.path() / "train");
  EXPECT_THAT(train.at("batch_loss"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_THAT(train.at("configuration"), ElementsAre(0, 5));
  EXPECT_THAT(points_in(scratch.path() / "validation")["epoch_loss"], ElementsAre(0, 1));
}

TEST(Summaries, HaveTheConfusionsOfAValidationWithinAnEpoch) {
  const checkpoint::ScratchDirectory scratch;
  const model::MetricValue matrix{
      .name = "kind_confusion", .values = {1, 1, 0, 2}, .shape = {2, 2}};
  {
    Summaries summaries(scratch.path(), 1, "");
    summaries.on_train_begin({});
    EpochLogs logs;
    logs.step = 3;
    logs.validation = metrics_of(4);
    logs.validation_values = {matrix};
    summaries.on_validation(logs);
  }
  const std::string file = *checkpoint::names_in(scratch.path() / "train").begin();
  const auto events = events_in(scratch.path() / "train" / file);
  const auto found =
      std::ranges::find(events, "evaluation_kind_confusion_vs_iterations", &SeenEvent::tag);
  ASSERT_NE(found, events.end());
  EXPECT_EQ(found->step, 3);
  data::Image memory;
  const data::ImageView pixels = data::decode_png(data::bytes_of(found->texts.at(2)), 3, memory);
  ASSERT_EQ(pixels.width, 512);
  EXPECT_EQ(pixels.at(0, 0)[0], pixels.at(511, 0)[0]) << "each half of the first class";
  EXPECT_EQ(pixels.at(0, 256)[0], 255);
  EXPECT_EQ(pixels.at(256, 256)[0], 8);
}

/// The contents for HParams in the files of `directory` itself, by tag; all tags must differ.
std::map<std::string, std::string> session_in(const fs::path& directory) {
  std::map<std::string, std::string> contents;
  for (const std::string& name : checkpoint::names_in(directory)) {
    if (!name.ends_with(".hparams.v2")) continue;
    for (const SeenEvent& event : events_in(directory / name)) {
      if (event.tag.empty()) continue;
      EXPECT_TRUE(contents.emplace(event.tag, event.content).second) << event.tag;
    }
  }
  return contents;
}

TEST(Summaries, HaveOnlyTheHyperparametersOfTheLastRun) {
  const checkpoint::ScratchDirectory scratch;
  TrainBegin begin;
  for (const double rate : {0.25, 0.5}) {
    Summaries summaries(scratch.path(), 0, "");
    begin.hyperparameters = {{"learning_rate", rate}};
    summaries.on_train_begin(begin);
    TrainEnd end;
    end.signal = rate == 0.25 ? 0 : SIGTERM;
    summaries.on_train_end(end);
    const auto session = session_in(scratch.path());
    EXPECT_EQ(session.contains(std::string(kSessionEndTag)), end.signal == 0)
        << "a run that a signal ended is not complete";
    std::string value(sizeof(rate), '\0');
    std::memcpy(value.data(), &rate, sizeof(rate));
    EXPECT_THAT(session.at(std::string(kSessionStartTag)), HasSubstr(value));
  }
}

TEST(Summaries, HaveNoTimesOfTheFirstStepOfARun) {
  const checkpoint::ScratchDirectory scratch;
  {
    Summaries summaries(scratch.path(), 2, "");
    summaries.on_train_begin({});
    summaries.on_batch_end({.step = 1, .samples = 100, .breakdown = {.compute = 9}});
    summaries.on_batch_end(
        {.step = 2, .samples = 4, .breakdown = {.input = 0.25, .compute = 0.25}});
  }
  std::map<std::string, float> values;
  for (const std::string& name : checkpoint::names_in(scratch.path() / "train"))
    for (const SeenEvent& event : events_in(scratch.path() / "train" / name))
      values[event.tag] = event.scalar;
  EXPECT_EQ(values.at("batch_seconds"), 0.5F);
  EXPECT_EQ(values.at("batch_input_seconds"), 0.25F);
  EXPECT_EQ(values.at("batch_samples_per_second"), 8);
}

TEST(Summaries, OfAnEpochWithoutAGoodStepHaveNoLoss) {
  const checkpoint::ScratchDirectory scratch;
  {
    Summaries summaries(scratch.path(), 1, "");
    summaries.on_train_begin({});
    EpochLogs logs;
    logs.metrics = metrics_of(0);
    summaries.on_epoch_end(logs);
  }
  const auto points = points_in(scratch.path() / "train");
  EXPECT_FALSE(points.contains("epoch_loss"));
  EXPECT_FALSE(points.contains("epoch_accuracy"));
  EXPECT_THAT(points.at("epoch_learning_rate"), ElementsAre(0));
}

}  // namespace
}  // namespace lockstep::inline v0::train
