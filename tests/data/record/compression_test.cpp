// Packed files that hold far more than they show.
#include "lockstep/data/record/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/record/record_file.h"
#include "lockstep/data/source/idx_source.h"
#include "tests/data/support.h"

namespace lockstep::data {
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

TEST_F(PackedBomb, IsRefusedAtTheLimitAndNamed) {
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed(std::string(10'000'000, '\0'), compression);
    write_bytes(path_, bytes);
    const InputFile file(path_);
    const std::string message = "[" + path_.string() +
                                "] expected at most 1000000 bytes after decompression, the limit "
                                "of the available memory, got more from " +
                                std::to_string(bytes.size()) + " bytes of " +
                                std::string(compression_name(compression)) +
                                " data; decompress the file on disk, split it, or free memory";
    EXPECT_EQ(data_error_of([&] { read_all(file, compression, 1'000'000); }), message);
    EXPECT_EQ(data_error_of([&] { read_what_is_whole(file, compression, 1'000'000); }), message)
        << "more than the limit is no damage: the part before it is not the whole file";
    EXPECT_EQ(read_all(file, compression, 10'000'000).size(), 10'000'000u);
    EXPECT_EQ(read_all(file, compression).size(), 10'000'000u);
  }
}

TEST_F(PackedBomb, OfThePlainKindIsLimitedToo) {
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

TEST_F(PackedBomb, AsIdxIsReadNoFurtherThanItsHeaderSays) {
  const std::string head = {0, 0, 8, 1, 0, 0, 0, 5};
  write_bytes(path_, packed(head + std::string(10'000'000, '\1')));
  EXPECT_EQ(data_error_of([&] { read_idx(path_); }),
            "[" + path_.string() +
                "] expected 5 bytes of data for [5]; at least 6 bytes follow the header");
  write_bytes(path_, packed(head + std::string(5, '\1')));
  EXPECT_EQ(read_idx(path_).elements().size(), 5u);
}

}  // namespace
}  // namespace lockstep::data
