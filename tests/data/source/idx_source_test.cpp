#include "lockstep/data/source/idx_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/open_data.h"
#include "lockstep/data/record/compression.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string idx(std::vector<std::uint32_t> shape, const std::string& bytes, char type = 8) {
  std::string file = {0, 0, type, static_cast<char>(shape.size())};
  for (const std::uint32_t extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<char>(extent >> shift));
  }
  return file + bytes;
}

std::string gzipped(const std::string& bytes) {
  Deflater deflater(Compression::gzip);
  std::string packed;
  deflater.add(bytes, packed);
  deflater.finish(packed);
  return packed;
}

class IdxTest : public ::testing::Test {
 protected:
  void write(const std::string& images, const std::string& labels,
             const std::string& prefix = "train") const {
    write_bytes(directory_ / (prefix + "-images-idx3-ubyte"), images);
    write_bytes(directory_ / (prefix + "-labels-idx1-ubyte"), labels);
  }
  std::string error() const {
    return data_error_of([&] { IdxSource source(directory_.path(), "train"); });
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  const TemporaryDirectory directory_;
  const std::string images_ =
      idx({2, 2, 3}, std::string("\0\x01\x02\x03\x04\x05\xff\xfe\xfd\xfc\xfb\xfa", 12));
  const std::string labels_ = idx({2}, std::string("\x03\x01"));
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  write(images_, labels_);
  const IdxSource source(directory_.path(), "train");
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source.spec(), SampleSpec::classification({2, 3, 1}, 4));
  EXPECT_THAT(read(source, 0).features(),
              ElementsAre(0.0f, 1 / 255.0f, 2 / 255.0f, 3 / 255.0f, 4 / 255.0f, 5 / 255.0f));
  EXPECT_EQ(read(source, 0).label(), 3);
  EXPECT_EQ(read(source, 1).features()[0], 1.0f);
  EXPECT_EQ(read(source, 1).label(), 1);
}

TEST_F(IdxTest, ReadsGzipFiles) {
  write_bytes(directory_ / "t10k-images-idx3-ubyte.gz", gzipped(images_));
  write_bytes(directory_ / "t10k-labels-idx1-ubyte.gz", gzipped(labels_));
  const IdxSource source(directory_.path(), "test");
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(read(source, 1).label(), 1);
}

TEST_F(IdxTest, CountsTheClassesOfBothParts) {
  write(images_, labels_);
  write(images_, idx({2}, std::string("\x00\x06", 2)), "t10k");
  EXPECT_EQ(IdxSource(directory_.path(), "train").spec().classes(), 7);
  EXPECT_EQ(IdxSource(directory_.path(), "test").spec().classes(), 7);
}

TEST_F(IdxTest, ReadsColors) {
  write_bytes(directory_ / "train-images-idx4-ubyte", idx({2, 1, 2, 3}, std::string(12, 'x')));
  write_bytes(directory_ / "train-labels-idx1-ubyte", labels_);
  EXPECT_EQ(IdxSource(directory_.path(), "train").spec().shape(),
            (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(IdxTest, ReadsImagesWithoutLabels) {
  write_bytes(directory_ / "t10k-images-idx3-ubyte", images_);
  for (const std::string& name : {directory_.path().string(), path("t10k-images-idx3-ubyte")}) {
    const Dataset dataset = open_data("idx:" + name, {.part = "test", .may_lack_labels = true});
    EXPECT_TRUE(dataset.spec().targets.empty()) << name;
    ASSERT_EQ(dataset.size(), 2);
    EXPECT_EQ(read(dataset.source(), 1).features()[0], 1.0f);
  }
  EXPECT_EQ(
      data_error_of([&] { open_data("idx:" + path(""), {.may_lack_labels = true}); }),
      "[" + path("") + "] expected train-images-idx3-ubyte, with or without .gz; there is none");
}

TEST_F(IdxTest, NamesMissingFiles) {
  EXPECT_EQ(error(), "[" + directory_.path().string() +
                         "] expected train-images-idx3-ubyte and train-labels-idx1-ubyte, each "
                         "with or without .gz; there are none");
  EXPECT_EQ(input_error_of([&] { IdxSource source(directory_.path(), "validation"); }),
            "[IDX data] expected the part train or test, got validation");
}

TEST_F(IdxTest, NamesFilesThatAreNotIdx) {
  write("PK\x03\x04", labels_);
  EXPECT_EQ(error(), "[" + path("train-images-idx3-ubyte") +
                         "] expected an IDX file of unsigned bytes (magic number 0x000008..); its "
                         "magic number is 0x504b0304; the file is a zip archive: unpack it");
  write(idx({2, 2, 3}, std::string(48, 'x'), 0x0d), labels_);
  EXPECT_THAT(error(), HasSubstr("its magic number is 0x00000d03"));
  write("", labels_);
  EXPECT_THAT(
      error(),
      HasSubstr(
          "expected an IDX header of 4 bytes plus 4 bytes per dimension; the file has 0 bytes"));
}

TEST_F(IdxTest, FindsTruncationAtEveryLength) {
  for (std::size_t length = 0; length < images_.size(); ++length) {
    write(images_.substr(0, length), labels_);
    EXPECT_THAT(error(), HasSubstr(path("train-images-idx3-ubyte"))) << length;
  }
  write(images_.substr(0, 20), labels_);
  EXPECT_THAT(
      error(),
      HasSubstr("expected 12 bytes of data for [2, 2, 3]; truncated: 4 bytes follow the header"));
  write(images_ + "x", labels_);
  EXPECT_THAT(
      error(),
      HasSubstr("expected 12 bytes of data for [2, 2, 3]; at least 13 bytes follow the header"));
}

TEST_F(IdxTest, RejectsHugeShapes) {
  write(idx({~0u, ~0u, ~0u}, "x"), labels_);
  EXPECT_THAT(error(), HasSubstr("truncated: 1 bytes follow the header"));
  write(idx({0, ~0u, ~0u}, ""), idx({0}, ""));
  EXPECT_EQ(error(), "[" + path("train-images-idx3-ubyte") +
                         "] expected at least one image of at least one pixel; the shape is [0, "
                         "4294967295, 4294967295]");
  write(idx({2, 0, 3}, ""), labels_);
  EXPECT_THAT(error(), HasSubstr("at least one pixel; the shape is [2, 0, 3]"));
}

TEST_F(IdxTest, RejectsDifferentNumbersOfImagesAndLabels) {
  write(images_, idx({3}, "\x01\x02\x03"));
  EXPECT_EQ(error(), "[" + path("train-labels-idx1-ubyte") +
                         "] expected 2 labels, one for each image; the shape is [3]");
  write(labels_, labels_);
  EXPECT_EQ(error(), "[" + path("train-images-idx3-ubyte") +
                         "] expected images [N, H, W] or [N, H, W, C]; the shape is [2]");
}

}  // namespace
}  // namespace lockstep::inline v0::data
