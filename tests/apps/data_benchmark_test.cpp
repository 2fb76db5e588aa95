#include "apps/lockstep/data/data_benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "apps/lockstep/commands.h"
#include "lockstep/data/image/encode_png.h"
#include "lockstep/data/sample/record_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DataRate rate_of(const char* stage, double records_per_second) {
  return {.stage = stage, .threads = 1, .records = 1'000'000, .seconds = 1e6 / records_per_second};
}

TEST(FindLimit, FindsLargestPartOfRecordTime) {
  const std::vector<DataRate> reading = {rate_of("synthetic", 1000), rate_of("decoded", 500),
                                         rate_of("stored", 250), rate_of("warm", 100)};
  EXPECT_EQ(find_limit(reading).stage, "reading");
  EXPECT_NEAR(find_limit(reading).share, 0.6, 1e-9);
  const std::vector<DataRate> decoding = {rate_of("synthetic", 1000), rate_of("decoded", 500),
                                          rate_of("stored", 100), rate_of("warm", 90)};
  EXPECT_EQ(find_limit(decoding).stage, "decoding");
  const std::vector<DataRate> copying = {rate_of("synthetic", 1000), rate_of("decoded", 100),
                                         rate_of("stored", 100), rate_of("warm", 90)};
  EXPECT_EQ(find_limit(copying).stage, "copying");
  const std::vector<DataRate> batching = {rate_of("synthetic", 100), rate_of("decoded", 90),
                                          rate_of("stored", 80), rate_of("warm", 80)};
  EXPECT_EQ(find_limit(batching).stage, "batching");
  EXPECT_NEAR(find_limit(batching).share, 0.8, 1e-9);
}

TEST(FindLimit, CombinesReadingAndDecodingWithoutStoredRate) {
  const std::vector<DataRate> rates = {rate_of("synthetic", 1000), rate_of("decoded", 500),
                                       rate_of("warm", 100)};
  EXPECT_EQ(find_limit(rates).stage, "reading and decoding");
  EXPECT_NEAR(find_limit(rates).share, 0.8, 1e-9);
}

TEST(DropFromPageCache, RequiresFile) {
  const data::TemporaryDirectory directory;
  data::write_bytes(directory / "empty", "");
  EXPECT_EQ(drop_from_page_cache(directory / "empty"), 0);
  EXPECT_EQ(data::data_error_of([&] { drop_from_page_cache(directory / "none"); }),
            "[" + (directory / "none").string() +
                "] expected a file that can be read; No such file or directory");
}

TEST(DropFromPageCache, KeepsContents) {
  const data::TemporaryDirectory directory;
  const std::string bytes(100'000, 'x');
  data::write_bytes(directory / "file", bytes);
  const double share = drop_from_page_cache(directory / "file");
  EXPECT_GE(share, 0);
  EXPECT_LE(share, 1);
  EXPECT_EQ(data::read_bytes(directory / "file"), bytes);
}

class DataBenchmarkTest : public ::testing::Test {
 protected:
  void write(data::Compression compression = data::Compression::none) const {
    std::vector<std::string> records;
    for (unsigned char i = 0; i < 30; ++i) records.push_back(data::image_record(i % 3, 12, i));
    data::write_records(directory_ / "a.tfrecord", {records.begin(), records.begin() + 20},
                        compression);
    data::write_records(directory_ / "b.tfrecord", {records.begin() + 20, records.end()},
                        compression);
  }
  std::string pattern() const { return (directory_ / "*.tfrecord").string(); }
  static data::TFRecordOptions shape() { return {.input_shape = {2, 2, 3}}; }

  std::string run(std::vector<std::string> more) const {
    CLI::App program("lockstep");
    program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_data_commands(program);
    std::vector<std::string> arguments = {"data", "benchmark",      "--seconds",
                                          "0.01", "--global-batch", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::reverse(arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    try {
      program.parse(arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    std::fflush(stdout);
    return ::testing::internal::GetCapturedStdout();
  }
  static std::vector<nlohmann::json> events_in(const std::string& output) {
    std::vector<nlohmann::json> events;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);)
      events.push_back(nlohmann::json::parse(line));
    return events;
  }

  const data::TemporaryDirectory directory_;
};

TEST_F(DataBenchmarkTest, PartialSourcesReturnSameSamples) {
  write();
  const data::Dataset dataset = data::Dataset::from_tfrecords(pattern(), shape());
  const FirstRecords first(dataset.source(), 25);
  const DecodedSamples decoded(
      data::Dataset::from_source(std::make_shared<FirstRecords>(first)).shuffle().batch(7));
  const StoredRecords stored(dynamic_cast<const data::TFRecordSource&>(dataset.source()), 25);
  for (const data::RecordSource* source :
       std::initializer_list<const data::RecordSource*>{&first, &decoded, &stored}) {
    EXPECT_EQ(source->spec(), dataset.spec()) << source->info().description;
    ASSERT_EQ(source->size(), 25) << source->info().description;
    for (std::int64_t record = 0; record < 25; ++record) {
      const data::ReadSample expected = data::read(dataset.source(), record);
      const data::ReadSample got = data::read(*source, record);
      EXPECT_EQ(got.features(), expected.features())
          << source->info().description << ", record " << record;
      EXPECT_EQ(got.label(), expected.label())
          << source->info().description << ", record " << record;
    }
  }
}

TEST_F(DataBenchmarkTest, FirstRecordsMatchDataSet) {
  write();
  const data::Dataset dataset = data::Dataset::from_tfrecords(pattern(), shape());
  const auto files = dataset.source().info().files;
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(FirstRecords(dataset.source(), 20).info().files.size(), 1U);
  const auto first = FirstRecords(dataset.source(), 25).info().files;
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].bytes, files[0].bytes);
  EXPECT_EQ(first[1].name, files[1].name);
  EXPECT_EQ(first[1].records, 5);
  EXPECT_EQ(first[1].bytes, files[1].bytes / 2);
}

// A training resizes and converts encoded images of any size and color.
TEST_F(DataBenchmarkTest, AcceptsImagesOfAnySize) {
  for (const char* kind : {"a", "b"}) {
    std::filesystem::create_directory(directory_ / kind);
    data::Image gray;
    gray.reshape(8, 6, 1);
    std::ranges::fill_n(gray.span().pixels, 48, 7);
    data::write_bytes(directory_ / kind / "1.png", data::to_png(gray.view()));
  }
  EXPECT_THAT(run({"--data", "images:" + directory_.path().string(), "--images", "resize=4"}),
              HasSubstr("warm"));
  EXPECT_THAT(run({"--data", "images:" + directory_.path().string(), "--images", "imagenet"}),
              HasSubstr("warm"));
}

TEST_F(DataBenchmarkTest, DecodedSamplesKeepTargets) {
  const data::SampleSpec spec = data::SampleSpec::regression({2}, 3);
  class Regression final : public data::RecordSource {
   public:
    explicit Regression(data::SampleSpec spec)
        : RecordSource({.spec = std::move(spec), .size = 5}) {}
    void read(std::int64_t id, data::Sample& sample) const override {
      std::ranges::fill(sample.features(), static_cast<float>(id));
      std::ranges::fill(sample.values(), static_cast<float>(id) + 0.5f);
    }
  };
  const DecodedSamples decoded(
      data::Dataset::from_source(std::make_shared<Regression>(spec)).batch(2));
  ASSERT_EQ(decoded.size(), 5);
  const data::ReadSample sample = data::read(decoded, 4);
  EXPECT_EQ(sample.features(), std::vector<float>(2, 4.0f));
  EXPECT_EQ(sample.values(), std::vector<float>(3, 4.5f));
}

TEST_F(DataBenchmarkTest, PrintsRatesAndLimit) {
  write();
  const std::string output = run({"--data", pattern(), "--input-shape", "2x2x3"});
  EXPECT_THAT(output, HasSubstr(": 30 records; shuffled, batches of 8\n"));
  EXPECT_THAT(output, AllOf(HasSubstr("synthetic: nothing read or decoded"),
                            HasSubstr("decoded: samples in memory"),
                            HasSubstr("stored: records in memory, decoded"),
                            HasSubstr("warm: read from the page cache"),
                            HasSubstr("bottleneck with warm files and 1 thread: ")));
  EXPECT_TRUE(output.find("cold: read from the disk") != std::string::npos ||
              output.find("after a request to drop it") != std::string::npos)
      << output;
}

TEST_F(DataBenchmarkTest, PrintsJson) {
  write();
  std::set<std::string> stages;
  std::set<std::string> kinds;
  for (const auto& event :
       events_in(run({"--data", pattern(), "--input-shape", "2x2x3", "--log-format", "json"}))) {
    const std::string kind = event.at("event");
    kinds.insert(kind);
    if (kind != "data_rate") continue;
    stages.insert(event.at("stage"));
    const double rate = event.at("records_per_second");
    EXPECT_GT(rate, 0);
    EXPECT_NEAR(rate, event.at("records").get<double>() / event.at("seconds").get<double>(),
                rate * 1e-6);
    // 12 pixels are 48 bytes of features.
    if (event.at("stage") == "decoded") {
      EXPECT_NEAR(event.at("megabytes_per_second"), rate * 48 / 1e6, rate * 1e-9);
    }
  }
  EXPECT_TRUE(stages.contains("synthetic") && stages.contains("decoded") &&
              stages.contains("stored") && stages.contains("warm"));
  EXPECT_TRUE(kinds.contains("data_limit"));
}

TEST_F(DataBenchmarkTest, PreparesImagesAsTrainingDoes) {
  data::write_records(directory_ / "a.tfrecord",
                      std::vector(10, data::image_record(1, 32 * 32 * 3, 7)));
  int rates = 0;
  for (const auto& event : events_in(run({"--data", pattern(), "--input-shape", "32x32x3",
                                          "--images", "imagenet", "--log-format", "json"}))) {
    if (event.at("event") != "data_rate" ||
        (event.at("stage") != "synthetic" && event.at("stage") != "decoded"))
      continue;
    const double rate = event.at("records_per_second");
    EXPECT_NEAR(event.at("megabytes_per_second").get<double>(), rate * 224 * 224 * 3 * 4 / 1e6,
                rate * 1e-6);
    ++rates;
  }
  EXPECT_EQ(rates, 2);
}

TEST_F(DataBenchmarkTest, SkipsColdReadOfCompressedFiles) {
  write(data::Compression::gzip);
  EXPECT_THAT(run({"--data", pattern(), "--input-shape", "2x2x3"}),
              HasSubstr("compressed files are decompressed before their first record is read; cold "
                        "reading was not measured\n"));
}

TEST_F(DataBenchmarkTest, AcceptsSyntheticData) {
  const std::string output = run({"--data", "synthetic:2x2x1,3,20", "--data-threads", "2"});
  EXPECT_THAT(output, HasSubstr("bottleneck with warm files and 2 threads: "));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("stored")));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("cold")));
}

TEST_F(DataBenchmarkTest, RequiresDataSetAndPositiveNumbers) {
  EXPECT_EQ(data::input_error_of([&] { run({}); }),
            "[command line] expected --data; it was not given");
  EXPECT_EQ(data::input_error_of([&] {
              run({"--data", "synthetic:2x2x1,3,20", "--data-threads", "-1"});
            }),
            "[command line] expected --data-threads to be at least 0, got -1");
  EXPECT_EQ(data::input_error_of([&] {
              run({"--data", "synthetic:2x2x1,3,20", "--seconds", "0"});
            }),
            "[command line] expected --seconds to be at least 0.001, got 0");
}

}  // namespace
}  // namespace lockstep::inline v0::apps
