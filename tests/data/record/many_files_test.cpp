// Data sets of more files than a process may have open.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
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

/// The members of an exchange are threads. Each has its own copy of the data set, in which only
/// the files that it must read are intact.
class SharedFiles : public ::testing::Test {
 protected:
  static constexpr int kMembers = 3;
  static constexpr int kFiles = 7;

  std::filesystem::path path(int member, int file) const {
    return directory_ / fmt::format("{}", member) / fmt::format("{}.tfrecord", file);
  }

  /// File i has i + 1 records of label i + 1.
  void write_files() {
    for (int member = 0; member < kMembers; ++member) {
      std::filesystem::create_directory(directory_ / fmt::format("{}", member));
      for (int i = 0; i < kFiles; ++i) {
        std::string bytes;
        for (int record = 0; record <= i; ++record)
          append_record(bytes, image_record(i + 1, 4, static_cast<unsigned char>(i)));
        if (i % 2 == 1) {
          Deflater deflater(Compression::gzip);
          std::string packed;
          deflater.add(bytes, packed);
          deflater.finish(packed);
          bytes = packed;
        }
        write_bytes(path(member, i),
                    i % kMembers == member ? bytes : std::string(bytes.size(), '?'));
      }
    }
  }

  IndexExchange exchange_of(int member) {
    return {kMembers, member, [this, member](const std::string& mine) {
              parts_[static_cast<std::size_t>(member)] = mine;
              barrier_.arrive_and_wait();
              const std::vector<std::string> all = parts_;
              barrier_.arrive_and_wait();
              return all;
            }};
  }

  /// What each member gets: a source, or the text of an Error.
  void open(bool skip_damage = false) {
    sources_.assign(kMembers, nullptr);
    errors_.assign(kMembers, "");
    std::vector<std::jthread> threads;
    for (int member = 0; member < kMembers; ++member) {
      threads.emplace_back([this, member, skip_damage] {
        const auto at = static_cast<std::size_t>(member);
        std::vector<std::filesystem::path> paths;
        for (int i = 0; i < kFiles; ++i) paths.push_back(path(member, i));
        try {
          sources_[at] =
              std::make_shared<TFRecordSource>(paths,
                                               TFRecordOptions{.input_shape = {2, 2, 1},
                                                               .skip_damage = skip_damage,
                                                               .exchange = exchange_of(member)},
                                               "shared");
        } catch (const Error& error) {
          errors_[at] = error.what();
        }
      });
    }
  }

  const TemporaryDirectory directory_;
  std::vector<std::string> parts_ = std::vector<std::string>(kMembers);
  std::barrier<> barrier_{kMembers};
  std::vector<std::shared_ptr<TFRecordSource>> sources_;
  std::vector<std::string> errors_;
};

TEST_F(SharedFiles, AreReadByOneMemberEach) {
  write_files();
  for (const char* from : {"the records", "the indexes"}) {
    open();
    for (int member = 0; member < kMembers; ++member) {
      const auto at = static_cast<std::size_t>(member);
      ASSERT_EQ(errors_[at], "") << from;
      const TFRecordSource& source = *sources_[at];
      EXPECT_EQ(source.size(), 28);
      EXPECT_EQ(source.description(), "shared, labels from 1 to 7 (8 classes, none of class 0)");
      int first = 0;
      for (int i = 0; i < kFiles; first += ++i) {
        if (i % kMembers == member)
          EXPECT_EQ(read(source, first + i).label(), i + 1) << from;
        else
          EXPECT_NE(data_error_of([&] { read(source, first + i); }), "");
        EXPECT_EQ(std::filesystem::exists(path(member, i).string() + ".index"),
                  i % kMembers == member);
      }
    }
  }
}

TEST_F(SharedFiles, ThatOneMemberCannotReadAreAnErrorOfAll) {
  write_files();
  const std::string whole = read_bytes(path(1, 1));
  for (int member = 0; member < kMembers; ++member)
    write_bytes(path(member, 1), member == 1 ? whole.substr(0, whole.size() - 9)
                                             : std::string(whole.size() - 9, '?'));
  open();
  EXPECT_THAT(errors_, ::testing::Each(::testing::AllOf(
                           ::testing::HasSubstr(path(1, 1).string()),
                           ::testing::HasSubstr("expected a complete gzip stream"))));
  open(true);
  for (const auto& source : sources_) {
    ASSERT_NE(source, nullptr);
    ASSERT_EQ(source->damage().size(), 1u);
    EXPECT_EQ(source->damage().front().location.file, path(1, 1).string());
    EXPECT_EQ(source->size(), sources_[0]->size());
  }
  // Only member 0 would know the number of classes without reading all labels.
  const std::filesystem::path description = path(0, 0).parent_path() / kDatasetJson;
  write_bytes(description, "{}");
  open(true);
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr(
                           "dataset.json] expected a file of the same name and size on all ranks; "
                           "rank 1 has another one than rank 0")));
  std::filesystem::remove(description);
  std::filesystem::remove(path(0, 1));  // which member 0 does not read
  open();
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr("expected a file that can be read")));
  write_bytes(path(0, 1), "another");
  open(true);
  EXPECT_THAT(errors_, ::testing::Each(::testing::HasSubstr(
                           "1.tfrecord] expected a file of the same name and size on all ranks; "
                           "rank 1 has another one than rank 0")));
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
