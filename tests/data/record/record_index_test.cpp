#include "lockstep/data/record/record_index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>

#include "lockstep/data/record/record_frame.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The stored index, or a new one, which is then stored.
RecordIndex open_record_index(const RecordFile& file, const std::filesystem::path& index_dir) {
  const auto path = record_index_path(file.path(), index_dir);
  if (auto kept = load_record_index(path, file.version())) return *kept;
  RecordIndex index = build_record_index(file);
  save_record_index(path, file.version(), index);
  return index;
}

class RecordIndexTest : public ::testing::Test {
 protected:
  RecordIndex open(const std::filesystem::path& index_dir = {}) const {
    return open_record_index(RecordFile(path_), index_dir);
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "a.tfrecord";
  const std::filesystem::path index_path_ = directory_ / "a.tfrecord.index";
};

TEST_F(RecordIndexTest, HasOffsetsAndLengths) {
  write_records(path_, {"zero", "", "two!!"});
  const RecordIndex index = open();
  EXPECT_EQ(index.records(), 3);
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < index.offsets.size(); ++i) offsets.push_back(index.offsets[i]);
  EXPECT_THAT(offsets, ElementsAre(0, 20, 36, 57));
  EXPECT_EQ(index.length(0), 4u);
  EXPECT_EQ(index.length(1), 0u);
  EXPECT_EQ(index.length(2), 5u);
}

TEST(RecordOffsets, HoldPositionsInFilesOfAnySize) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  const std::vector<std::uint64_t> positions = {
      0, 100, 4 * kGiB - 1, 4 * kGiB, 4 * kGiB + 1, 21 * kGiB + 5, 21 * kGiB + 6, 4096 * kGiB};
  RecordOffsets offsets;
  for (std::size_t i = 1; i < positions.size(); ++i) {
    offsets.push_back(positions[i]);
    EXPECT_EQ(offsets.back(), positions[i]);
  }
  ASSERT_EQ(offsets.size(), positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(offsets[i], positions[i]) << i;
}

TEST_F(RecordIndexTest, WritesManyRecordsInPieces) {
  write_bytes(path_, "");
  RecordIndex index;
  for (std::uint64_t i = 1; i <= 200'000; ++i) index.offsets.push_back(i * 100'003);  // 20 GB
  ASSERT_TRUE(save_record_index(index_path_, file_version(path_), index));
  EXPECT_EQ(load_record_index(index_path_, file_version(path_)), index);
  EXPECT_EQ(index.length(199'999), 100'003u - 16);
}

TEST_F(RecordIndexTest, FindsRecordsOfAllSizesAroundItsWindow) {
  std::vector<std::string> records;
  for (std::size_t size = 0; size < 300; ++size) records.emplace_back(size * 37 % 5000, 'x');
  for (const Compression compression : {Compression::none, Compression::gzip, Compression::zlib}) {
    write_records(path_, records, compression);
    std::filesystem::remove(index_path_);
    const RecordFile file(path_);
    const RecordIndex index = open_record_index(file, {});
    ASSERT_EQ(index.records(), 300);
    ReadWindow window;
    for (std::int64_t i = 0; i < index.records(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(file.record(i, index.offsets[at], index.length(i), window), records[at])
          << "record " << i;
    }
  }
}

TEST_F(RecordIndexTest, IsNotWrittenThroughALinkBesideTheFile) {
  write_records(path_, {"zero", "one"});
  write_bytes(directory_ / "victim", "old");
  std::filesystem::create_symlink(directory_ / "victim", index_path_);
  EXPECT_EQ(open().records(), 2);
  EXPECT_EQ(read_bytes(directory_ / "victim"), "old");
  EXPECT_TRUE(std::filesystem::is_symlink(index_path_));
}

TEST_F(RecordIndexTest, DoesNotWaitForAFifo) {
  write_records(path_, {"zero", "one"});
  ASSERT_EQ(::mkfifo(index_path_.c_str(), 0600), 0);
  EXPECT_EQ(open().records(), 2);
  EXPECT_FALSE(save_record_index(index_path_, file_version(path_), open()));
  EXPECT_TRUE(std::filesystem::is_fifo(index_path_));
}

TEST_F(RecordIndexTest, OfAnEmptyFileHasNoRecords) {
  write_bytes(path_, "");
  EXPECT_EQ(open().records(), 0);
  EXPECT_EQ(open().records(), 0);
}

TEST_F(RecordIndexTest, IsStoredNextToTheFileAndReused) {
  write_records(path_, {"zero", "one"});
  const RecordIndex built = open();
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("a.tfrecord", "a.tfrecord.index"));
  EXPECT_EQ(load_record_index(index_path_, file_version(path_)), built);
}

TEST_F(RecordIndexTest, StoresLabels) {
  write_records(path_, {"zero", "one"});
  RecordIndex index = open();
  index.labels = LabelRange{"label", 1, 7};
  ASSERT_TRUE(save_record_index(index_path_, file_version(path_), index));
  EXPECT_EQ(open().labels, (LabelRange{"label", 1, 7}));
}

TEST_F(RecordIndexTest, IsRebuiltIfTheSizeChanged) {
  write_records(path_, {"zero", "one"});
  open();
  const auto time = std::filesystem::last_write_time(path_);
  write_records(path_, {"zero", "one", "two"});
  std::filesystem::last_write_time(path_, time);
  EXPECT_EQ(open().records(), 3);
}

TEST_F(RecordIndexTest, IsRebuiltIfTheTimeChanged) {
  write_records(path_, {"a", "bcd"});
  open();
  write_records(path_, {"bcd", "a"});
  std::filesystem::last_write_time(
      path_, std::filesystem::file_time_type(std::chrono::seconds(1'000'000'000)));
  EXPECT_EQ(open().length(0), 3u);
}

TEST_F(RecordIndexTest, IsRebuiltForAnotherFileOfTheSameSizeAndTime) {
  write_records(path_, {"a", "bcd"});
  const auto time = std::filesystem::last_write_time(path_);
  open();
  // As by cp -p: the inode is unchanged, and the time is that of the other file.
  write_records(directory_ / "b.tfrecord", {"bcd", "a"});
  std::ofstream(path_, std::ios::binary) << read_bytes(directory_ / "b.tfrecord");
  std::filesystem::last_write_time(path_, time);
  EXPECT_EQ(open().length(0), 3u);
  EXPECT_EQ(load_record_index(index_path_, file_version(path_))->length(0), 3u);
  // As by mv, with equal ends.
  const std::string end(5000, 'x');
  write_records(path_, {end, "a", "bcd", end});
  std::filesystem::last_write_time(path_, time);
  open();
  write_records(directory_ / "b.tfrecord", {end, "bcd", "a", end});
  std::filesystem::last_write_time(directory_ / "b.tfrecord", time);
  std::filesystem::rename(directory_ / "b.tfrecord", path_);
  EXPECT_EQ(open().length(1), 3u);
}

TEST_F(RecordIndexTest, IsRebuiltIfAnyByteIsDamaged) {
  write_records(path_, {"zero", "one"});
  const RecordIndex built = open();
  const std::string whole = read_bytes(index_path_);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
    write_bytes(index_path_, damaged);
    EXPECT_EQ(load_record_index(index_path_, file_version(path_)), std::nullopt) << "byte " << at;
    EXPECT_EQ(open(), built) << "byte " << at;
    write_bytes(index_path_, whole.substr(0, at));
    EXPECT_EQ(open(), built) << "cut at " << at;
  }
  EXPECT_EQ(read_bytes(index_path_), whole);
}

TEST_F(RecordIndexTest, IsInMemoryIfItCannotBeWritten) {
  write_records(path_, {"zero", "one"});
  write_bytes(directory_ / "file", "");
  EXPECT_FALSE(save_record_index(directory_ / "file/a.index", file_version(path_),
                                 build_record_index(RecordFile(path_))));
  EXPECT_EQ(open(directory_ / "file").records(), 2);
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("a.tfrecord", "file"));
}

TEST_F(RecordIndexTest, DistinguishesFilesOfTheSameNameInOneDirectory) {
  std::filesystem::create_directories(directory_ / "other");
  write_records(path_, {"zero"});
  write_records(directory_ / "other/a.tfrecord", {"zero", "one"});
  const auto index_dir = directory_ / "indexes/new";
  EXPECT_EQ(open(index_dir).records(), 1);
  EXPECT_EQ(open_record_index(RecordFile(directory_ / "other/a.tfrecord"), index_dir).records(), 2);
  EXPECT_EQ(names_in(index_dir).size(), 2u);
  EXPECT_EQ(load_record_index(record_index_path(path_, index_dir), file_version(path_))->records(),
            1);
}

TEST_F(RecordIndexTest, NamesDamagedHeadersAndTruncation) {
  write_records(path_, {"zero", std::string(10'000, 'x'), "two"});
  const std::string whole = read_bytes(path_);
  const auto message = [&](std::string bytes) {
    write_bytes(path_, bytes);
    std::filesystem::remove(index_path_);
    return data_error_of([&] { open(); });
  };
  std::string damaged = whole;
  damaged[25] = 'x';
  EXPECT_EQ(message(damaged), "[" + path_.string() +
                                  ": record 1 at byte 20] expected an intact record; length CRC: "
                                  "the length field does not match its checksum");
  EXPECT_THAT(message(whole.substr(0, whole.size() - 1)),
              HasSubstr("record 2 at byte 10036] expected an intact record; truncated data"));
  EXPECT_THAT(message(whole.substr(0, 10'040)),
              HasSubstr("record 2 at byte 10036] expected an intact record; truncated length"));
  EXPECT_THAT(message(whole.substr(0, 33)),
              HasSubstr("record 1 at byte 20] expected an intact record; truncated data"));
}

/// Most of the file is a hole.
TEST_F(RecordIndexTest, RejectsARecordThatIsTooLong) {
  const std::uint64_t length = std::uint64_t{3} << 30;
  std::string header(reinterpret_cast<const char*>(&length), sizeof(length));
  const std::uint32_t crc = masked_crc32c(header);
  header.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  write_bytes(path_, header);
  std::filesystem::resize_file(path_, length + 16);
  EXPECT_EQ(data_error_of([&] { build_record_index(RecordFile(path_)); }),
            "[" + path_.string() +
                ": record 0 at byte 0] expected a record of at most 2147483647 bytes, the limit of "
                "a tf.train.Example; the header announces 3221225472");
}

TEST_F(RecordIndexTest, ReadsOnlyHeaders) {
  write_records(path_, {"zero", std::string(10'000, 'x'), "two"});
  std::string damaged = read_bytes(path_);
  damaged[5000] = 'y';
  write_bytes(path_, damaged);
  const RecordFile file(path_);
  const RecordIndex index = open_record_index(file, {});
  ReadWindow window;
  EXPECT_EQ(file.record(2, index.offsets[2], index.length(2), window), "two");
  EXPECT_THAT(data_error_of([&] { file.record(1, index.offsets[1], index.length(1), window); }),
              HasSubstr("record 1 at byte 20] expected an intact record; data CRC"));
}

TEST_F(RecordIndexTest, DetectsAFileThatChangesWhileOpen) {
  write_records(path_, {"zero", "one", "two"});
  const RecordFile file(path_);
  const RecordIndex index = open_record_index(file, {});
  ReadWindow window;
  std::string other;
  append_record(other, "longer than zero");
  const auto change = [&](std::string_view bytes) {  // in place, so that the open file sees it
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  change(other + other);
  EXPECT_EQ(data_error_of([&] { file.record(0, 0, index.length(0), window); }),
            "[" + path_.string() +
                ": record 0 at byte 0] expected a record of 4 bytes, as in the index; it has 16; "
                "the file has changed: restart the run");
  change("");
  EXPECT_THAT(data_error_of([&] { file.record(1, index.offsets[1], index.length(1), window); }),
              HasSubstr("truncated length"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
