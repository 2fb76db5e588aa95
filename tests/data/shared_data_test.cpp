// Files of other writers, not part of the project: the tests are skipped if they are missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::HasSubstr;

/// `name` in the directory LOCKSTEP_SHARED_DATA, or next to the source tree.
std::optional<std::filesystem::path> shared_data(const std::string& name) {
  const char* variable = std::getenv("LOCKSTEP_SHARED_DATA");
  const auto path = std::filesystem::path(
                        variable != nullptr ? variable : LOCKSTEP_SOURCE_DIR "/../shared/data") /
                    name;
  return std::filesystem::exists(path) ? std::optional(path) : std::nullopt;
}

TEST(SharedData, RoundTripsCifar10OfAnotherWriter) {
  const auto directory = shared_data("cifar10");
  if (!directory) GTEST_SKIP() << "needs cifar10/*.tfrecord in LOCKSTEP_SHARED_DATA";
  std::int64_t records = 0;
  std::vector<int> labels(10);
  for (const auto& path : matching_files({(*directory / "test-*.tfrecord").string()})) {
    TFRecordReader reader(path);
    for (std::string_view record; reader.next(record); ++records) {
      const Example example = parse_example(record);
      ASSERT_EQ(serialize_example(example), record) << "record " << records;
      ++labels.at(
          static_cast<std::size_t>(std::get<Int64List>(example.at("image/class/label")).at(0)));
    }
    EXPECT_EQ(build_record_index(RecordFile(path)).records(), records);
  }
  EXPECT_EQ(records, 10'000);
  EXPECT_EQ(labels, std::vector<int>(10, 1000));
}

TEST(SharedData, Cifar10IsDecoded) {
  const auto directory = shared_data("cifar10");
  if (!directory) GTEST_SKIP() << "needs cifar10/*.tfrecord in LOCKSTEP_SHARED_DATA";
  const TemporaryDirectory indexes;
  DataSpecOptions options;
  options.tfrecord.index_dir = indexes.path();
  const Dataset test = open_data((*directory / "test-*.tfrecord").string(), options);
  EXPECT_EQ(test.spec(), SampleSpec::classification({32, 32, 3}, 10));
  EXPECT_EQ(test.size(), 10000);
  // The known mean and deviation of the data set's channels.
  const Dataset normalized = test.images(ImageRecipe::parse("cifar10-test")).batch(1000);
  const auto stream = normalized.stream({.last_step = normalized.steps_per_epoch()});
  double sum = 0;
  double squares = 0;
  double values = 0;
  for (std::vector<Batch> parts; stream->next(parts);)
    for (const float feature : parts.front().features()) {
      sum += feature;
      squares += feature * feature;
      ++values;
    }
  EXPECT_NEAR(sum / values, 0, 0.03);
  EXPECT_NEAR(squares / values, 1, 0.05);
}

}  // namespace
}  // namespace lockstep::inline v0::data
