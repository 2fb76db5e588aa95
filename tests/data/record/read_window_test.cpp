#include "lockstep/data/record/record_file.h"

#include <gtest/gtest.h>

#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_index.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

class ReadWindowTest : public ::testing::Test {
 protected:
  /// Byte i of file `name` depends on i and `salt`.
  static std::string bytes_with(int salt, std::size_t count) {
    std::string bytes(count, '\0');
    for (std::size_t i = 0; i < count; ++i)
      bytes[i] = static_cast<char>(i * 7 + i / 256 + static_cast<std::size_t>(salt));
    return bytes;
  }
  static FileIdentity identity() { return std::make_shared<char>(); }
  /// Overwrites the file in place, so that an open file changes.
  void overwrite(const std::string& bytes) const {
    std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out)
        .write(bytes.data(), std::ssize(bytes));
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "file";
  ReadWindow window_;
};

TEST_F(ReadWindowTest, ReadsInAnyOrder) {
  const std::string bytes = bytes_with(0, 600'000);
  write_bytes(path_, bytes);
  const InputFile file(path_);
  const FileIdentity id = identity();
  const auto expect_at = [&](std::size_t offset, std::size_t count) {
    ASSERT_EQ(window_.read(file, id, offset, count), std::string_view(bytes).substr(offset, count))
        << count << " bytes from " << offset;
  };
  for (std::size_t at = 0; at < bytes.size(); at += 800) expect_at(at, 800);
  for (std::size_t at = 0; at < bytes.size(); at += 30'000) expect_at(at, 30'000);
  for (std::size_t i = 0; i < 2000; ++i) expect_at(i * 104'729 % 590'000, i * 31 % 5000);
  for (std::size_t at = 500'000; at >= 1000; at -= 1000) expect_at(at, 1500);
  expect_at(0, bytes.size());
}

TEST_F(ReadWindowTest, EndsWhereTheFileEnds) {
  write_bytes(path_, "0123456789");
  const InputFile file(path_);
  const FileIdentity id = identity();
  EXPECT_EQ(window_.read(file, id, 0, 4), "0123");
  EXPECT_EQ(window_.read(file, id, 4, 4), "4567");
  EXPECT_EQ(window_.read(file, id, 8, 4), "89");
  EXPECT_EQ(window_.read(file, id, 12, 4), "");
  EXPECT_EQ(window_.read(file, id, 2, 3), "234");
}

TEST_F(ReadWindowTest, ReadsAheadTheSizeOfTheCurrentRun) {
  const std::string before(1000, 'a');
  write_bytes(path_, before);
  const InputFile file(path_);
  const FileIdentity id = identity();
  for (const std::uint64_t at : {100, 200, 300})
    window_.read(file, id, at, 100);  // the third reads up to 500
  overwrite(std::string(1000, 'b'));
  EXPECT_EQ(window_.read(file, id, 400, 100), std::string(100, 'a'));
  EXPECT_EQ(window_.read(file, id, 500, 100), std::string(100, 'b'));
}

TEST_F(ReadWindowTest, DoesNotReadAheadInShuffledOrder) {
  write_bytes(path_, std::string(1000, 'a'));
  const InputFile file(path_);
  const FileIdentity id = identity();
  for (const std::uint64_t at : {800, 100, 400}) window_.read(file, id, at, 100);
  overwrite(std::string(1000, 'b'));
  EXPECT_EQ(window_.read(file, id, 500, 100), std::string(100, 'b'));
}

TEST_F(ReadWindowTest, DistinguishesFiles) {
  write_bytes(path_, "first file");
  write_bytes(directory_ / "other", "other file");
  const InputFile file(path_);
  const InputFile other(directory_ / "other");
  const FileIdentity id = identity();
  const FileIdentity other_id = identity();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(window_.read(file, id, 0, 5), "first");
    EXPECT_EQ(window_.read(other, other_id, 0, 5), "other");
  }
}

TEST_F(ReadWindowTest, ATruncatedFileIsAnErrorOfTheRecord) {
  write_records(path_, std::vector<std::string>(50, std::string(100, 'x')));
  const RecordFile file(path_);
  const RecordIndex index = build_record_index(file);
  const auto record = [&](std::int64_t i) {
    return file.record(i, index.offsets[static_cast<std::size_t>(i)], index.length(i), window_);
  };
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(record(i), std::string(100, 'x'));
  std::filesystem::resize_file(path_, 20 * 116 + 50);
  for (std::int64_t i = 4; i < 20; ++i) EXPECT_EQ(record(i), std::string(100, 'x')) << i;
  EXPECT_EQ(data_error_of([&] { record(20); }).substr(0, 1), "[");
  try {
    record(20);
    ADD_FAILURE() << "no error";
  } catch (const RecordError& error) {
    EXPECT_EQ(error.fault(), RecordFault::truncated_data);
    EXPECT_NE(std::string(error.what()).find("record 20 at byte 2320"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
