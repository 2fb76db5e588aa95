#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <string>

#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/record/tfrecord.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kEmptyRecord = from_hex("000000000000000029039807d8ea82a2");
const std::string kHelloRecord = from_hex("0500000000000000eab2043e68656c6c6fbb1f1c19");

TEST(TFRecord, WritesTheKnownBytes) {
  const TemporaryDirectory directory;
  write_records(directory / "a.tfrecord", {"", "hello"});
  EXPECT_EQ(read_bytes(directory / "a.tfrecord"), kEmptyRecord + kHelloRecord);
}

TEST(TFRecord, ReadsTheKnownBytes) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.tfrecord", kHelloRecord + kEmptyRecord + kHelloRecord);
  EXPECT_THAT(read_records(directory / "a.tfrecord"), ElementsAre("hello", "", "hello"));
}

TEST(TFRecord, ChecksEveryHeader) {
  HeaderCheck check;
  std::string zeros(kRecordHeaderBytes, '\0');
  EXPECT_FALSE(check.is_intact(zeros));  // not a header, even as the first one
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(check.is_intact(kHelloRecord));
    EXPECT_TRUE(check.is_intact(kHelloRecord));
    for (std::size_t at = 0; at < kRecordHeaderBytes; ++at) {
      std::string damaged = kHelloRecord;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      EXPECT_FALSE(check.is_intact(damaged)) << at;
    }
    EXPECT_TRUE(check.is_intact(kEmptyRecord));
  }
}

TEST(TFRecord, AnEmptyFileHasNoRecords) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.tfrecord", "");
  EXPECT_THAT(read_records(directory / "a.tfrecord"), IsEmpty());
}

TEST(TFRecord, AMissingFileIsNamed) {
  EXPECT_EQ(data_error_of([] { TFRecordReader reader("nowhere/a.tfrecord"); }),
            "[nowhere/a.tfrecord] expected a file that can be read; No such file or directory");
}

TEST(TFRecord, ADirectoryIsNotAFile) {
  const TemporaryDirectory directory;
  EXPECT_THAT(data_error_of([&] { TFRecordReader reader(directory.path()); }),
              HasSubstr("expected a file that can be read; Is a directory"));
}

class Packed : public ::testing::TestWithParam<Compression> {
 protected:
  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "a.tfrecord";
};

TEST_P(Packed, RoundTripsRecordsOfManySizes) {
  std::vector<std::string> records;
  for (const std::size_t size : {0, 1, 11, 12, 13, 255, 4096, 100'000, 300'000, 3}) {
    std::string record(size, '\0');
    for (std::size_t i = 0; i < size; ++i) record[i] = static_cast<char>((i * i + size) >> 3);
    records.push_back(std::move(record));
  }
  write_records(path_, records, GetParam());
  EXPECT_EQ(read_records(path_), records);
  EXPECT_EQ(TFRecordReader(path_).compression(), GetParam());
}

TEST_P(Packed, RoundTripsNoRecords) {
  write_records(path_, {}, GetParam());
  EXPECT_THAT(read_records(path_), IsEmpty());
  if (GetParam() != Compression::none) {
    EXPECT_EQ(RecordFile(path_).size(), 0);
  }
}

TEST_P(Packed, AFileCutAtAnyLengthIsAnErrorOrEndsBetweenRecords) {
  write_records(path_, {"first", "", "the third"}, GetParam());
  const std::string whole = read_bytes(path_);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    write_bytes(path_, std::string_view(whole).substr(0, length));
    const bool between = GetParam() == Compression::none && (length == 21 || length == 37);
    if (between) {
      EXPECT_NO_THROW(read_records(path_));
    } else {
      EXPECT_THROW(read_records(path_), Error) << "cut at " << length;
    }
  }
}

TEST_P(Packed, AFlippedBitNeverChangesARecord) {
  const std::vector<std::string> records = {"first", "", "the third"};
  write_records(path_, records, GetParam());
  const std::string whole = read_bytes(path_);
  int found = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(path_, damaged);
    try {
      EXPECT_EQ(read_records(path_), records) << "bit " << bit;
    } catch (const Error&) {
      ++found;
    }
  }
  // The time, the system and two flags in gzip's header, and in both formats the padding bits of
  // the last byte, do not affect the data.
  const int meaningless = GetParam() == Compression::none   ? 0
                          : GetParam() == Compression::gzip ? 7 * 8 + 7
                                                            : 7;
  EXPECT_GE(found, static_cast<int>(whole.size() * 8) - meaningless);
}

INSTANTIATE_TEST_SUITE_P(TFRecord, Packed,
                         ::testing::Values(Compression::none, Compression::gzip, Compression::zlib),
                         [](const auto& test) {
                           return std::string(kNamesOf<Compression>.name(test.param));
                         });

TEST(TFRecord, ConcatenatedGzipFilesAreOneFile) {
  const TemporaryDirectory directory;
  write_records(directory / "a", {"one", "two"}, Compression::gzip);
  write_records(directory / "b", {"three"}, Compression::gzip);
  write_bytes(directory / "c", read_bytes(directory / "a") + read_bytes(directory / "b"));
  EXPECT_THAT(read_records(directory / "c"), ElementsAre("one", "two", "three"));
}

TEST(TFRecord, ZerosAfterAGzipStreamAreSkipped) {
  const TemporaryDirectory directory;
  write_records(directory / "a", {"one", "two"}, Compression::gzip);
  const std::string packed = read_bytes(directory / "a");
  for (const std::size_t zeros : {1U, 512U, 300'000U}) {
    write_bytes(directory / "b", packed + std::string(zeros, '\0'));
    EXPECT_THAT(read_records(directory / "b"), ElementsAre("one", "two"));
    write_bytes(directory / "b", packed + std::string(zeros, '\0') + packed);
    EXPECT_THAT(read_records(directory / "b"), ElementsAre("one", "two", "one", "two"));
    write_bytes(directory / "b", packed + std::string(zeros, '\0') + "x");
    EXPECT_THAT(data_error_of([&] { read_records(directory / "b"); }),
                ::testing::HasSubstr("expected a complete gzip stream"));
  }
}

TEST(TFRecord, ZlibAgreesThatThePackedFileIsGzip) {
  const TemporaryDirectory directory;
  write_records(directory / "a", {"hello"}, Compression::gzip);
  const std::string packed = read_bytes(directory / "a");
  char inflated[100];
  z_stream stream = {};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(inflated);
  stream.avail_out = sizeof(inflated);
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  EXPECT_EQ(std::string(inflated, sizeof(inflated) - stream.avail_out), kHelloRecord);
  inflateEnd(&stream);
}

/// The position of a byte in a plain file determines the kind of its damage.
TEST(TFRecordDamage, HasTheRightKindAtEveryByte) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  const std::vector<std::string> records = {"zero", std::string(300, 'x'), "", "three"};
  write_records(path, records);
  const std::string whole = read_bytes(path);
  std::size_t begin = 0;
  for (std::size_t record = 0; record < records.size(); ++record) {
    const std::size_t end =
        begin + kRecordHeaderBytes + records[record].size() + kRecordFooterBytes;
    for (std::size_t at = begin; at < end; ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      write_bytes(path, damaged);
      try {
        read_records(path);
        ADD_FAILURE() << "byte " << at << " may be anything";
      } catch (const RecordError& error) {
        EXPECT_EQ(error.fault(),
                  at < begin + kRecordHeaderBytes ? RecordFault::length_crc : RecordFault::data_crc)
            << "byte " << at;
        EXPECT_EQ(error.location().record, static_cast<std::int64_t>(record));
        EXPECT_EQ(error.location().offset, static_cast<std::int64_t>(begin));
      }
    }
    begin = end;
  }
}

TEST(TFRecordDamage, HeaderDamageStopsTheIndexAtEveryBit) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_bytes(path, kEmptyRecord + kHelloRecord);
  for (std::size_t bit = 0; bit < kRecordHeaderBytes * 8; ++bit) {
    std::string damaged = kEmptyRecord + kHelloRecord;
    damaged[16 + bit / 8] = static_cast<char>(damaged[16 + bit / 8] ^ (1 << bit % 8));
    write_bytes(path, damaged);
    std::optional<DamagedFile> damage;
    EXPECT_EQ(build_record_index(RecordFile(path), damage).records(), 1);
    ASSERT_TRUE(damage) << "bit " << bit;
    EXPECT_EQ(damage->kind, "length CRC");
    EXPECT_EQ(damage->location.offset, 16);
    EXPECT_EQ(damage->bytes_left_out, 21);
  }
}

TEST(TFRecordDamage, TruncationHasTheRightKindAtEveryLength) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_bytes(path, kEmptyRecord + kHelloRecord);
  for (std::size_t length = 17; length < 37; ++length) {
    write_bytes(path, (kEmptyRecord + kHelloRecord).substr(0, length));
    try {
      read_records(path);
      ADD_FAILURE() << "length " << length;
    } catch (const RecordError& error) {
      EXPECT_EQ(error.fault(),
                length < 28 ? RecordFault::truncated_length : RecordFault::truncated_data)
          << "length " << length;
      EXPECT_EQ(error.location().record, 1);
      EXPECT_EQ(error.location().offset, 16);
    }
  }
}

TEST(TFRecordDamage, IsReportedInOneLine) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  const std::string hello = kHelloRecord;
  const std::string place =
      "[" + path.string() + ": record 1 at byte 16] expected an intact record; ";
  const auto message = [&](const std::string& second) {
    write_bytes(path, kEmptyRecord + second);
    return data_error_of([&] { read_records(path); });
  };
  EXPECT_EQ(message(hello.substr(0, 3)),
            place + "truncated length: the file ends after 3 of the 12 header bytes");
  EXPECT_EQ(message(hello.substr(0, 14)),
            place +
                "truncated data: the header announces 5 data bytes and 4 CRC bytes, but only 2 "
                "bytes are left in the file");
  EXPECT_EQ(message("x" + hello.substr(1)),
            place + "length CRC: the length field does not match its checksum");
  EXPECT_EQ(message(hello.substr(0, 20) + "x"),
            place + "data CRC: the data does not match its checksum");
}

TEST(TFRecordDamage, ALengthBeyondTheFileIsTruncation) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  for (const std::uint64_t length :
       {std::uint64_t{100}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
    const std::uint32_t crc = [&] {
      std::string framed;
      append_record(
          framed,
          frame);  // the CRC after eight data bytes is the one of a length with these bytes
      std::uint32_t value = 0;
      std::memcpy(&value, framed.data() + kRecordHeaderBytes + sizeof(length), sizeof(value));
      return value;
    }();
    frame.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    write_bytes(path, frame + "little");
    EXPECT_THAT(data_error_of([&] { read_records(path); }), HasSubstr("truncated data")) << length;
  }
}

TEST(TFRecordDamage, ReadingContinuesAfterDamagedData) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_bytes(path, kHelloRecord + kHelloRecord.substr(0, 12) + "jello" + kHelloRecord.substr(17) +
                        kEmptyRecord);
  TFRecordReader reader(path);
  std::string_view record;
  EXPECT_TRUE(reader.next(record));
  EXPECT_THROW(reader.next(record), RecordError);
  EXPECT_TRUE(reader.next(record));
  EXPECT_EQ(record, "");
  EXPECT_EQ(reader.location().record, 2);
  EXPECT_EQ(reader.location().offset, 42);
  EXPECT_FALSE(reader.next(record));
}

TEST(TFRecordDamage, ReadingStopsAtADamagedLength) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_bytes(path, "x" + kHelloRecord.substr(1) + kEmptyRecord);
  TFRecordReader reader(path);
  std::string_view record;
  EXPECT_THROW(reader.next(record), RecordError);
  EXPECT_FALSE(reader.next(record));
}

TEST(TFRecordDamage, OfAPackedStreamNamesFileAndFormat) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord.gz";
  write_records(path, {"hello"}, Compression::gzip);
  const std::string whole = read_bytes(path);
  write_bytes(path, whole.substr(0, whole.size() - 5));
  EXPECT_EQ(data_error_of([&] { read_records(path); }),
            "[" + path.string() +
                "] expected a complete gzip stream; truncated: the file ends at byte " +
                std::to_string(whole.size() - 5));
  write_bytes(path, whole + "more than a header");
  EXPECT_THAT(data_error_of([&] { read_records(path); }),
              HasSubstr("expected a complete gzip stream; damaged gzip data"));
}

TEST(Compression, DoesNotMistakeAPlainFileForACompressedOne) {
  for (std::size_t length = 0; length < 40'000; ++length) {
    std::string frame;
    append_record(frame, std::string(length, 'x'));
    const std::string head = frame.substr(0, kRecordHeaderBytes);
    ASSERT_EQ(detect_compression(head), Compression::none) << length;
    for (const std::size_t byte : {0, 1, 8}) {
      std::string damaged = head;
      damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
      ASSERT_EQ(detect_compression(damaged), Compression::none) << length << ", byte " << byte;
    }
  }
}

TEST(Compression, AnUnknownNameIsRefused) {
  EXPECT_EQ(input_error_of([] { kNamesOf<Compression>.parse("compression", "zip"); }),
            "[compression] expected none, gzip or zlib, got \"zip\" (did you mean gzip?)");
  EXPECT_EQ(kNamesOf<Compression>.parse("compression", "zlib"), Compression::zlib);
}

TEST(TFRecordWriter, LeavesNothingWithoutClose) {
  const TemporaryDirectory directory;
  {
    TFRecordWriter writer(directory / "a.tfrecord");
    writer.write("hello");
  }
  EXPECT_THAT(names_in(directory.path()), IsEmpty());
}

TEST(TFRecordWriter, KeepsTheOldFileUntilTheNewOneIsComplete) {
  const TemporaryDirectory directory;
  write_records(directory / "a.tfrecord", {"old"});
  {
    TFRecordWriter writer(directory / "a.tfrecord");
    writer.write("new");
    EXPECT_THAT(read_records(directory / "a.tfrecord"), ElementsAre("old"));
    writer.close();
  }
  EXPECT_THAT(read_records(directory / "a.tfrecord"), ElementsAre("new"));
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.tfrecord"));
}

TEST(TFRecordWriter, AMissingDirectoryIsAnError) {
  const TemporaryDirectory directory;
  const auto path = directory / "nowhere/a.tfrecord";
  EXPECT_EQ(data_error_of([&] { TFRecordWriter writer(path); }),
            "[" + path.string() + "] expected to write the file; No such file or directory");
}

/// Limits the size of files of this process to `bytes` while it exists; writing more fails as on a
/// full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit = {bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_limit_ = {};
};

TEST(TFRecordWriter, AFailedWriteIsAnErrorAndLosesNothing) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tfrecord";
  write_records(path, {"old"});
  for (const std::size_t size :
       {std::size_t{5'000}, std::size_t{1'000'000}}) {  // fails in close(), in write()
    const FileSizeLimit limit(1000);
    EXPECT_EQ(data_error_of([&] { write_records(path, {std::string(size, 'x')}); }),
              "[" + path.string() + "] expected to write the file; File too large");
  }
  EXPECT_THAT(read_records(path), ElementsAre("old"));
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.tfrecord"));
}

TEST(Crc32c, MatchesThePublishedCheckValue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
}

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(crc32c(""), 0u); }

/// Bit by bit, from the polynomial: slow, and independent of any library.
std::uint32_t by_definition(std::string_view bytes) {
  std::uint32_t state = ~0u;
  for (const char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? 0x82f63b78u : 0u);
  }
  return ~state;
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLength) {
  std::string bytes;
  for (int length = 0; length < 1100; ++length) {
    ASSERT_EQ(crc32c(bytes), by_definition(bytes)) << length << " bytes";
    bytes.push_back(static_cast<char>(length * 131 + 7));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
