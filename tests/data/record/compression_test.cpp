// Compressed files that expand to far more than their size.
#include "lockstep/data/record/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/base/system/host.h"
#include "lockstep/data/record/inflated_store.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/idx_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::HasSubstr;

std::string packed(std::string_view bytes, Compression compression = Compression::gzip) {
  Deflater deflater(compression);
  std::string out;
  deflater.add(bytes, out);
  deflater.finish(out);
  return out;
}

class PackedBomb : public ::testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "bomb";
};

TEST_F(PackedBomb, IsRejectedAtTheLimit) {
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed(std::string(10'000'000, '\0'), compression);
    write_bytes(path_, bytes);
    const InputFile file(path_);
    const std::string message = "[" + path_.string() +
                                "] expected at most 1000000 bytes after decompression, the limit "
                                "of the available memory, got more from " +
                                std::to_string(bytes.size()) + " bytes of " +
                                std::string(kNamesOf<Compression>.name(compression)) +
                                " data; decompress the file on disk, split it, or free memory";
    EXPECT_EQ(data_error_of([&] { read_all(file, compression, 1'000'000); }), message);
    EXPECT_EQ(data_error_of([&] { read_intact_part(file, compression, 1'000'000); }), message)
        << "exceeding the limit is not damage: the part before it is not the whole file";
    EXPECT_EQ(read_all(file, compression, 10'000'000).size(), 10'000'000u);
    EXPECT_EQ(read_all(file, compression).size(), 10'000'000u);
  }
}

TEST_F(PackedBomb, LimitsPlainFiles) {
  write_bytes(path_, std::string(100, 'x'));
  const InputFile file(path_);
  EXPECT_EQ(data_error_of([&] { read_all(file, Compression::none, 99); }),
            "[" + path_.string() +
                "] expected at most 99 bytes in the file, the limit of the available memory, got "
                "more; split the file, or free memory");
  EXPECT_EQ(read_all(file, Compression::none, 100).size(), 100u);
}

TEST_F(PackedBomb, BeginningsAreReadWithoutTheRest) {
  write_bytes(path_, packed(std::string(10'000'000, 'x')));
  const InputFile file(path_);
  EXPECT_EQ(read_up_to(file, Compression::gzip, 7), "xxxxxxx");
  EXPECT_EQ(read_up_to(file, Compression::gzip, 20'000'000).size(), 10'000'000u);
  EXPECT_EQ(read_up_to(file, Compression::gzip, 0), "");
}

TEST_F(PackedBomb, IdxReadsOnlyTheSizeInItsHeader) {
  const std::string head = {0, 0, 8, 1, 0, 0, 0, 5};
  write_bytes(path_, packed(head + std::string(10'000'000, '\1')));
  EXPECT_EQ(data_error_of([&] { read_idx(path_); }),
            "[" + path_.string() +
                "] expected 5 bytes of data for [5]; at least 6 bytes follow the header");
  write_bytes(path_, packed(head + std::string(5, '\1')));
  EXPECT_EQ(read_idx(path_).elements().size(), 5u);
}

/// Record files that are too large to be decompressed into memory.
class InflatedFiles : public ::testing::Test {
 protected:
  static std::string large_record(char name) { return std::string(std::size_t{1} << 20, name); }

  /// A compressed file of records of 1 MiB each.
  std::filesystem::path write(char name, int records) const {
    const std::filesystem::path path = directory_ / std::string(1, name);
    write_records(path, std::vector(static_cast<std::size_t>(records), large_record(name)),
                  Compression::gzip);
    return path;
  }

  const TemporaryDirectory directory_;
};

TEST_F(InflatedFiles, UseLittleMemory) {
  std::filesystem::path path = directory_ / "a";
  {
    TFRecordWriter writer(path, Compression::gzip);
    for (int i = 0; i < 128; ++i) writer.write(large_record('a'));
    writer.close();
  }
  const std::size_t before = resident_bytes();
  const RecordFile file(path);
  const RecordIndex index = build_record_index(file);
  ASSERT_EQ(index.records(), 128);
  ReadWindow window;
  for (std::int64_t i = 0; i < index.records(); ++i) {
    const auto record =
        file.record(i, index.offsets[static_cast<std::size_t>(i)], index.length(i), window);
    ASSERT_EQ(record.front(), 'a');
    ASSERT_EQ(record.size(), std::size_t{1} << 20);
  }
  EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20));
}

TEST_F(InflatedFiles, ShareOneFileWithoutAName) {
  const auto store = std::make_shared<InflatedStore>(directory_.path());
  std::vector<RecordFile> files;
  for (const char name : {'a', 'b', 'c'})
    files.emplace_back(write(name, name == 'c' ? 1 : 9), RecordFile::PackedDamage::fail, store);
  ASSERT_TRUE(files[1].accepts_size(9 * ((1 << 20) + 16)));  // as stated by an index
  ReadWindow window;
  for (std::uint64_t i = 0; i < 9; ++i) {
    const std::uint64_t at = i * ((1 << 20) + 16);
    EXPECT_EQ(files[0].record(0, at, 1 << 20, window), large_record('a'));
    EXPECT_EQ(files[1].record(0, at, 1 << 20, window), large_record('b'));
  }
  EXPECT_EQ(files[2].record(0, 0, 1 << 20, window), large_record('c'));
  EXPECT_THAT(names_in(directory_.path()), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(data_error_of([&] { files[0].record(9, files[0].size(), 1, window); }),
              HasSubstr("truncated"));
}

TEST_F(InflatedFiles, OfAnotherSizeThanTheirIndexStatesAreRefused) {
  for (const int records : {1, 9}) {
    const auto path = write('a', records);
    for (const std::uint64_t size : {std::uint64_t{1000}, std::uint64_t{1} << 30}) {
      RecordFile file(path);
      EXPECT_TRUE(file.accepts_size(size));
      for (int again = 0; again < 2; ++again)
        EXPECT_THAT(data_error_of([&] { file.size(); }),
                    HasSubstr("bytes after decompression, as its index states"));
    }
  }
}

TEST_F(InflatedFiles, AreNotOpenedBeforeTheyAreRead) {
  const auto path = write('a', 1);
  const KnownFile known{file_stamp(path), Compression::gzip, (1 << 20) + 16};
  const RecordFile file(path, known, RecordFile::PackedDamage::fail, nullptr);
  const RecordFile changed(path, {{1, 1}, Compression::gzip, 1}, RecordFile::PackedDamage::fail,
                           nullptr);
  const RecordFile missing(directory_ / "b", known, RecordFile::PackedDamage::fail, nullptr);
  EXPECT_EQ(file.size(), known.size);
  EXPECT_THAT(data_error_of([&] { changed.size(); }), HasSubstr("the file has changed"));
  EXPECT_THAT(data_error_of([&] { missing.size(); }), HasSubstr("No such file"));
}

TEST_F(InflatedFiles, AreUsedUpToTheDamage) {
  const auto path = write('a', 12);
  write_bytes(path, read_bytes(path).substr(0, std::filesystem::file_size(path) * 5 / 6));
  EXPECT_THAT(data_error_of([&] { RecordFile(path).size(); }),
              HasSubstr("truncated: the file ends at byte"));
  const RecordFile file(path, RecordFile::PackedDamage::cut);
  EXPECT_TRUE(file.is_cut());
  std::optional<DamagedFile> damage;
  const RecordIndex index = build_record_index(file, damage);
  EXPECT_GE(index.records(), 8);
  EXPECT_LT(index.records(), 12);
  ASSERT_TRUE(damage);
  EXPECT_EQ(damage->kind, "gzip stream");
}

TEST_F(InflatedFiles, ReportAFullDisk) {
  const auto path = write('a', 12);
  const ResourceLimit limit(RLIMIT_FSIZE, std::size_t{9} << 20);
  const RecordFile file(path, RecordFile::PackedDamage::cut,
                        std::make_shared<InflatedStore>(directory_.path()));
  EXPECT_EQ(data_error_of([&] { file.size(); }),
            "[" + path.string() + "] expected space for the decompressed file in " +
                directory_.path().string() +
                " (--index-dir or TMPDIR sets another directory); File too large");
}

TEST_F(InflatedFiles, OfAnySizeAreOnDiskOnceEnoughAreInMemory) {
  write_records(directory_ / "small", {"a"}, Compression::gzip);
  const InputFile small(directory_ / "small");
  const InputFile large(write('a', 7));
  InflatedStore store(directory_.path());
  EXPECT_EQ(store.inflate(small, Compression::gzip, {}, false).disk, nullptr);
  for (std::size_t held = 0; held < InflatedStore::kMaxHeld;) {
    const InflatedFile inflated = store.inflate(large, Compression::gzip, {}, false);
    ASSERT_EQ(inflated.disk, nullptr);
    held += inflated.size;
  }
  const InflatedFile inflated = store.inflate(small, Compression::gzip, {}, false);
  ASSERT_NE(inflated.disk, nullptr);
  std::string bytes(inflated.size, '\0');
  inflated.disk->read_at(inflated.begin, bytes.data(), bytes.size());
  EXPECT_EQ(bytes, read_all(small, Compression::gzip));
}

TEST_F(InflatedFiles, AreInMemoryIfNoDiskCanBeUsed) {
  const InputFile file(write('a', 9));
  InflatedStore store;
  const ResourceLimit limit(RLIMIT_NOFILE, 0);
  const InflatedFile inflated = store.inflate(file, Compression::gzip, {}, false);
  EXPECT_EQ(inflated.disk, nullptr);
  EXPECT_EQ(inflated.size, 9u * ((1 << 20) + 16));
  EXPECT_EQ(inflated.bytes.size(), inflated.size);
}

}  // namespace
}  // namespace lockstep::inline v0::data
