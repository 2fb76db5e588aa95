// Data sets of more files than a process may have open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <thread>

#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/source/tfrecord_source.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

std::int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

class ManyFiles : public ::testing::Test {
 protected:
  /// File i has records of label i % 10, i % 3 of them, none synced: a disk takes its time for
  /// that.
  void write_files(int count) {
    for (int i = 0; i < count; ++i) {
      std::string bytes;
      for (int record = 0; record < i % 3; ++record)
        append_record(bytes, image_record(i % 10, 4, 1));
      paths_.push_back(directory_ / (std::to_string(100'000 + i) + ".tfrecord"));
      write_bytes(paths_.back(), bytes);
    }
  }
  std::vector<std::int32_t> labels() const {
    std::vector<std::int32_t> labels;
    for (std::size_t i = 0; i < paths_.size(); ++i)
      labels.insert(labels.end(), i % 3, static_cast<std::int32_t>(i % 10));
    return labels;
  }
  std::unique_ptr<TFRecordSource> open() const {
    return std::make_unique<TFRecordSource>(
        paths_, TFRecordOptions{.input_shape = {2, 2, 1}, .classes = 10}, "many");
  }

  const TemporaryDirectory directory_;
  std::vector<std::filesystem::path> paths_;
};

TEST_F(ManyFiles, AreReadInAnyOrderWithFewOpen) {
  write_files(600);
  const std::int64_t before = open_descriptors();
  const auto source = open();
  const auto expected = labels();
  ASSERT_EQ(source->size(), std::ssize(expected));
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const std::int64_t id = i * 7919 % source->size();
    ASSERT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]) << id;
  }
  for (std::int64_t id = 0; id < source->size(); ++id)
    ASSERT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]) << id;
  EXPECT_LE(open_descriptors() - before, static_cast<std::int64_t>(RecentFiles::kMaxOpen));
}

TEST_F(ManyFiles, AreReadBySeveralThreads) {
  write_files(300);
  const auto source = open();
  const auto expected = labels();
  std::vector<std::jthread> threads;
  for (std::int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::int64_t i = 0; i < source->size(); ++i) {
        const std::int64_t id = (i * 7919 + thread * 31) % source->size();
        EXPECT_EQ(read(*source, id).label(), expected[static_cast<std::size_t>(id)]);
      }
    });
  }
}

TEST_F(ManyFiles, OneThatChangedMeanwhileIsAnError) {
  write_files(300);
  const auto source = open();
  read(*source, 0);
  for (int i = 2; i < 300; ++i) std::filesystem::remove(paths_[static_cast<std::size_t>(i)]);
  EXPECT_THAT(data_error_of([&] { read(*source, source->size() - 1); }),
              ::testing::HasSubstr("expected a file that can be read; No such file or directory"));
  std::string longer;
  append_record(longer, image_record(1, 5, 1));
  write_bytes(paths_[299], longer);  // the last that has records
  EXPECT_EQ(data_error_of([&] { read(*source, source->size() - 1); }),
            "[" + paths_[299].string() +
                "] expected the file as it was when the data set was opened; the file has changed; "
                "restart the run");
}

TEST(RecentFiles, KeepsTheFilesUsedLastAndThoseInUse) {
  const TemporaryDirectory directory;
  write_records(directory / "a.tfrecord", {"zero"});
  int opened = 0;
  const RecentFiles files([&](std::size_t) {
    ++opened;
    return RecordFile(directory / "a.tfrecord");
  });
  constexpr std::size_t kGroups = 16;
  constexpr std::size_t kStep = kGroups * kGroups;  // files of one group
  constexpr std::size_t kMaxOfGroup = RecentFiles::kMaxOpen / kGroups;
  const auto held = files.get(0);
  for (std::size_t i = 0; i < kMaxOfGroup; ++i) files.get(i * kStep);
  EXPECT_EQ(opened, static_cast<int>(kMaxOfGroup));
  files.get(0);
  files.get(kMaxOfGroup * kStep);  // in the place of 1
  EXPECT_EQ(opened, static_cast<int>(kMaxOfGroup) + 1);
  EXPECT_EQ(files.get(0), held);
  EXPECT_EQ(opened, static_cast<int>(kMaxOfGroup) + 1);
  files.get(kStep);
  EXPECT_EQ(opened, static_cast<int>(kMaxOfGroup) + 2);
  for (std::size_t i = 2; i < 3 * kMaxOfGroup; ++i) files.get(i * kStep);
  ReadWindow window;
  EXPECT_EQ(held->record(0, 0, 4, window), "zero");
  EXPECT_NE(files.get(0), held);
}

}  // namespace
}  // namespace lockstep::data
