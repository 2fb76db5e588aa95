// Damaged TFRecord files, opened up to the damage.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DamagedFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, int records, Compression compression = Compression::none) {
    std::vector<std::string> images;
    for (int i = 0; i < records; ++i)
      images.push_back(image_record(i % 10, 4, static_cast<unsigned char>(i)));
    write_records(directory_ / name, images, compression);
  }
  void flip(const std::string& name, std::size_t at) {
    std::string bytes = read_bytes(directory_ / name);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_bytes(directory_ / name, bytes);
  }
  void cut(const std::string& name, std::size_t bytes) {
    write_bytes(directory_ / name, read_bytes(directory_ / name).substr(0, bytes));
  }
  std::unique_ptr<TFRecordSource> open(bool skip_damage = true) const {
    return std::make_unique<TFRecordSource>(
        matching_files({(directory_ / "*.tfrecord").string()}),
        TFRecordOptions{.input_shape = {2, 2, 1}, .skip_damage = skip_damage}, "damaged");
  }
  std::vector<std::int32_t> labels(const TFRecordSource& source) const {
    std::vector<std::int32_t> labels;
    for (std::int64_t id = 0; id < source.size(); ++id) labels.push_back(read(source, id).label());
    return labels;
  }

  const TemporaryDirectory directory_;
  const std::size_t record_ = image_record(1, 4, 1).size() + 16;  // label 0 has the same size
};

TEST_F(DamagedFiles, KeepRecordsBeforeADamagedLength) {
  write("a.tfrecord", 5);
  write("b.tfrecord", 5);
  write("c.tfrecord", 2);
  flip("b.tfrecord", 3 * record_ + 2);
  EXPECT_THAT(data_error_of([&] { open(false); }), HasSubstr("b.tfrecord: record 3 at byte"));
  const auto source = open();
  EXPECT_THAT(labels(*source), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 0, 1));
  ASSERT_EQ(source->info().damage.size(), 1u);
  const DamagedFile damage = source->info().damage.front();
  EXPECT_EQ(damage.location.file, (directory_ / "b.tfrecord").string());
  EXPECT_EQ(damage.location.record, 3);
  EXPECT_EQ(damage.location.offset, static_cast<std::int64_t>(3 * record_));
  EXPECT_EQ(damage.kind, "length CRC");
  EXPECT_EQ(damage.bytes_left_out, static_cast<std::int64_t>(2 * record_));
  EXPECT_EQ(damage.text(),
            fmt::format("{}: record 3 at byte {}: length CRC; the last {} bytes are skipped",
                        damage.location.file, 3 * record_, 2 * record_));
}

TEST_F(DamagedFiles, KeepRecordsBeforeATruncation) {
  for (std::size_t left = 1; left < record_; left += 3) {
    write("a.tfrecord", 4);
    cut("a.tfrecord", 2 * record_ + left);
    const auto source = open();
    EXPECT_THAT(labels(*source), ElementsAre(0, 1));
    ASSERT_EQ(source->info().damage.size(), 1u);
    EXPECT_EQ(source->info().damage.front().kind,
              left < 12 ? "truncated length" : "truncated data");
    EXPECT_EQ(source->info().damage.front().location.record, 2);
    EXPECT_EQ(source->info().damage.front().bytes_left_out, static_cast<std::int64_t>(left));
  }
}

TEST_F(DamagedFiles, KeepRecordsBeforeACompressedStreamEnds) {
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    write("a.tfrecord", 500, compression);
    cut("a.tfrecord", std::filesystem::file_size(directory_ / "a.tfrecord") / 2);
    EXPECT_THAT(data_error_of([&] { open(false); }), HasSubstr("truncated: the file ends at byte"));
    const auto source = open();
    EXPECT_GT(source->size(), 10);
    EXPECT_LT(source->size(), 500);
    for (std::int64_t id = 0; id < source->size(); ++id)
      EXPECT_EQ(read(*source, id).label(), id % 10);
    ASSERT_EQ(source->info().damage.size(), 1u);
    EXPECT_EQ(source->info().damage.front().kind,
              std::string(kNamesOf<Compression>.name(compression)) + " stream");
    EXPECT_EQ(source->info().damage.front().location.record, source->size());
    EXPECT_LT(source->info().damage.front().bytes_left_out, static_cast<std::int64_t>(record_));
  }
}

TEST_F(DamagedFiles, EndSequentialReadsAtTheSameRecord) {
  write("a.tfrecord", 500, Compression::gzip);
  cut("a.tfrecord", std::filesystem::file_size(directory_ / "a.tfrecord") / 2);
  TFRecordReader reader(directory_ / "a.tfrecord");
  std::int64_t records = 0;
  EXPECT_THAT(data_error_of([&] {
                for (std::string_view record; reader.next(record); ++records)
                  EXPECT_EQ(record.size() + 16, record_);
              }),
              HasSubstr("expected a complete gzip stream; truncated"));
  EXPECT_EQ(records, open()->size());
}

TEST_F(DamagedFiles, HaveNoIndexOnTheDisk) {
  write("a.tfrecord", 5);
  write("b.tfrecord", 5);
  flip("b.tfrecord", 3 * record_);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(open()->info().damage.size(), 1u);
    EXPECT_THAT(names_in(directory_.path()),
                ElementsAre("a.tfrecord", "a.tfrecord.index", "b.tfrecord"));
  }
}

TEST_F(DamagedFiles, DamagedDataIsAnErrorOfOneRecord) {
  write("a.tfrecord", 3);
  flip("a.tfrecord", 20);
  flip("a.tfrecord", 2 * record_ + 20);
  EXPECT_THAT(data_error_of([&] { open(false); }), HasSubstr("data CRC"));
  const auto source = open();
  EXPECT_THAT(source->info().damage, IsEmpty());
  EXPECT_EQ(source->spec().classes(), 2);  // in the readable records
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("a.tfrecord"));
  EXPECT_EQ(read(*source, 1).label(), 1);
  EXPECT_EQ(data_error_of([&] { read(*source, 2); }),
            fmt::format("[{}: record 2 at byte {}] expected an intact record; data CRC: the data "
                        "does not match its checksum",
                        (directory_ / "a.tfrecord").string(), 2 * record_));
}

TEST_F(DamagedFiles, AMalformedExampleIsAnErrorOfOneRecord) {
  write_records(directory_ / "a.tfrecord",
                {"\xff\xff", image_record(0, 4, 1), image_record(1, 5, 1)});
  const auto source = open();
  EXPECT_THAT(data_error_of([&] { read(*source, 0); }),
              HasSubstr("a.tfrecord: record 0 at byte 0] expected a tf.train.Example; "));
  EXPECT_EQ(read(*source, 1).label(), 0);
  EXPECT_THAT(data_error_of([&] { read(*source, 2); }),
              HasSubstr("] expected 4 raw bytes in image for shape [2, 2, 1]; it has 5 bytes"));
}

TEST_F(DamagedFiles, WithoutIntactRecordsReportTheDamage) {
  write("a.tfrecord", 3);
  flip("a.tfrecord", 0);
  EXPECT_EQ(data_error_of([&] { open(); }),
            fmt::format("[{0}] expected at least one record; {0}: record 0 at byte 0: length CRC; "
                        "the last {1} bytes are skipped",
                        (directory_ / "a.tfrecord").string(), 3 * record_));
}

/// Files that are read by an existing index, with and without a mapping.
class IndexedDamage : public ::testing::TestWithParam<bool> {};

TEST_P(IndexedDamage, HasTheRightKindAtEveryBit) {
  if (GetParam()) enable_mapped_files();
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  const std::vector<std::string> records = {"zero", std::string(100, 'x'), "", "three"};
  write_records(path, records);
  const std::string whole = read_bytes(path);
  const RecordIndex index = build_record_index(RecordFile(path));
  ReadWindow window;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    write_bytes(path, damaged);
    RecordFile file(path);
    if (GetParam()) file.map();
    ASSERT_EQ(file.is_mapped(), GetParam());
    for (std::size_t i = 0; i < records.size(); ++i) {
      const std::uint64_t begin = index.offsets[i];
      const auto number = static_cast<std::int64_t>(i);
      const auto read = [&] { return file.record(number, begin, index.length(number), window); };
      if (bit / 8 < begin || bit / 8 >= index.offsets[i + 1]) {
        ASSERT_EQ(read(), records[i]) << "bit " << bit;
        continue;
      }
      try {
        read();
        ADD_FAILURE() << "bit " << bit << " may be anything";
      } catch (const RecordError& error) {
        ASSERT_EQ(error.fault(), bit / 8 < begin + kRecordHeaderBytes ? RecordFault::length_crc
                                                                      : RecordFault::data_crc)
            << "bit " << bit;
        ASSERT_EQ(error.location().record, number);
        ASSERT_EQ(error.location().offset, static_cast<std::int64_t>(begin));
        ASSERT_EQ(error.location().file, path.string());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TFRecordDamage, IndexedDamage, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Mapped" : "ByPread"; });

}  // namespace
}  // namespace lockstep::inline v0::data
