#include "lockstep/data/record/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>

#include "lockstep/data/dataset.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The handlers of all signals.
std::vector<void (*)(int)> signal_handlers() {
  std::vector<void (*)(int)> handlers;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now = {};
    ::sigaction(signal, nullptr, &now);
    handlers.push_back(now.sa_handler);
  }
  return handlers;
}

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  std::optional<MappedFile> map_pages(std::size_t pages) const {
    enable_mapped_files();
    write_bytes(path_, std::string(pages * page_, 'x'));
    return MappedFile::map(InputFile(path_), pages * page_);
  }
  void write_images() const {
    TFRecordWriter writer(path_);
    for (int i = 0; i < 40; ++i) writer.write(image_record(i % 10, 784, 1));
    writer.close();
  }
  void shrink_to(std::size_t bytes) const { std::filesystem::resize_file(path_, bytes); }
  /// Reads an unguarded page that the file has lost.
  void touch_unguarded_page() const {
    write_bytes(path_, std::string(2 * page_, 'x'));
    const InputFile file(path_);
    auto* bytes = static_cast<volatile char*>(
        ::mmap(nullptr, 2 * page_, PROT_READ, MAP_SHARED, file.descriptor(), 0));
    shrink_to(0);
    static_cast<void>(bytes[page_]);
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "a.tfrecord";
  const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  enable_mapped_files();
  write_bytes(path_, "0123456789");
  const auto mapped = MappedFile::map(InputFile(path_), 10);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->bytes(), "0123456789");
  EXPECT_TRUE(mapped->is_intact());
}

TEST_F(MappedFileTest, ReloadsReleasedPages) {
  const auto mapped = map_pages(3);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->bytes(), std::string(3 * page_, 'x'));
  mapped->release();
  EXPECT_EQ(mapped->bytes(), std::string(3 * page_, 'x'));
  EXPECT_TRUE(mapped->is_intact());
}

TEST_F(MappedFileTest, DoesNotMapAnEmptyFile) {
  enable_mapped_files();
  write_bytes(path_, "");
  EXPECT_FALSE(MappedFile::map(InputFile(path_), 0));
}

TEST_F(MappedFileTest, ReportsALostPageAndReadsItAsZeros) {
  const auto mapped = map_pages(4);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->bytes()[0], 'x');
  shrink_to(page_);
  EXPECT_EQ(mapped->bytes()[page_ - 1], 'x');
  EXPECT_TRUE(mapped->is_intact());
  EXPECT_EQ(mapped->bytes()[3 * page_ + 5], '\0');
  EXPECT_FALSE(mapped->is_intact());
  EXPECT_EQ(mapped->bytes()[page_], '\0');
  EXPECT_EQ(mapped->bytes()[page_ - 1], 'x');
}

TEST_F(MappedFileTest, ReportsOnlyTheLossOfItsOwnPages) {
  const auto first = map_pages(2);
  const std::filesystem::path other_path = directory_ / "other";
  write_bytes(other_path, std::string(2 * page_, 'y'));
  auto other = MappedFile::map(InputFile(other_path), 2 * page_);
  ASSERT_TRUE(first && other);
  shrink_to(0);
  EXPECT_EQ(first->bytes()[0], '\0');
  EXPECT_FALSE(first->is_intact());
  EXPECT_TRUE(other->is_intact());
  const MappedFile moved = *std::move(other);
  EXPECT_EQ(moved.bytes(), std::string(2 * page_, 'y'));
}

TEST_F(MappedFileTest, DoesNotMapBeyondTheGuardLimit) {
  enable_mapped_files();
  std::vector<MappedFile> mapped;
  write_bytes(path_, "0123456789");
  const InputFile file(path_);
  for (std::size_t i = 0; i < MappingGuard::kMaxGuards; ++i) {
    auto one = MappedFile::map(file, 10);
    ASSERT_TRUE(one) << i;
    mapped.push_back(*std::move(one));
  }
  EXPECT_FALSE(MappedFile::map(file, 10));
  mapped.pop_back();
  EXPECT_TRUE(MappedFile::map(file, 10));
}

TEST_F(MappedFileTest, DoesNotMapIfTheHandlerWasReplaced) {
  ASSERT_TRUE(map_pages(1));
  struct sigaction theirs = {};
  theirs.sa_handler = [](int) {};
  struct sigaction before = {};
  ASSERT_EQ(::sigaction(SIGBUS, &theirs, &before), 0);
  EXPECT_FALSE(map_pages(1));
  ASSERT_EQ(::sigaction(SIGBUS, &before, nullptr), 0);
  EXPECT_TRUE(map_pages(1));
}

TEST_F(MappedFileTest, ForwardsOtherSignalsToThePreviousHandler) {
  EXPECT_EXIT(
      {
        struct sigaction theirs = {};
        theirs.sa_handler = [](int) { ::_exit(7); };
        ::sigaction(SIGBUS, &theirs, nullptr);
        const auto guarded = map_pages(1);
        touch_unguarded_page();
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_DEATH(
      {
        const auto guarded = map_pages(1);
        touch_unguarded_page();
      },
      "");
}

TEST_F(MappedFileTest, ForwardsSentSignals) {
  EXPECT_DEATH(
      {
        const auto mapped = map_pages(1);
        ::raise(SIGBUS);
        ::_exit(0);
      },
      "");
}

TEST_F(MappedFileTest, RecordsFailWithTheErrorOfPread) {
  enable_mapped_files();
  const std::vector<std::string> records(50, std::string(1000, 'x'));
  write_records(path_, records);
  RecordFile file(path_);
  file.map();
  ASSERT_TRUE(file.is_mapped());
  const RecordIndex index = build_record_index(file);
  ReadWindow window;
  const auto record = [&](std::int64_t i) {
    return file.record(i, index.offsets[static_cast<std::size_t>(i)], index.length(i), window);
  };
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(record(i), records[0]);
  shrink_to(20 * 1016 + 500);
  EXPECT_EQ(record(19), records[0]);
  EXPECT_TRUE(file.is_mapped());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(data_error_of([&] { record(20); }),
                HasSubstr("record 20 at byte 20320] expected an intact record; truncated data"));
    EXPECT_THAT(data_error_of([&] { record(40); }), HasSubstr("record 40 at byte 40640]"));
    EXPECT_FALSE(file.is_mapped());
    EXPECT_EQ(record(3), records[0]);
  }
}

/// A file of 40 images shrinks while a source is open: the same Error with and without mappings.
class ShrunkSource : public MappedFileTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ShrunkSource, EndsWithAnErrorThatNamesTheRecord) {
  if (GetParam()) enable_mapped_files();
  write_images();
  const TFRecordSource source({path_}, {.input_shape = {28, 28, 1}, .classes = 10}, "images");
  EXPECT_EQ(read(source, 33).label(), 3);
  shrink_to(10'000);
  EXPECT_EQ(read(source, 4).label(), 4);
  EXPECT_THAT(data_error_of([&] { read(source, 33); }),
              ::testing::AllOf(HasSubstr(path_.string() + ": record 33 at byte "),
                               HasSubstr("truncated length")));
}

INSTANTIATE_TEST_SUITE_P(MappedFileTest, ShrunkSource, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Mapped" : "ByPread"; });

TEST_F(MappedFileTest, RereadsAnImageLostWhileDecoding) {
  enable_mapped_files();
  write_images();
  const TFRecordSource source({path_}, {.input_shape = {28, 28, 1}, .classes = 10}, "images");
  Batch one(source.spec());
  Sample sample = one.sample();
  StoredImage image;
  std::vector<int> sums;
  const auto use = [&](const StoredImage& stored) {
    if (sums.empty()) shrink_to(10'000);
    sums.push_back(std::accumulate(stored.bytes.begin(), stored.bytes.end(), 0));
  };
  EXPECT_THAT(data_error_of([&] { read_with_image(source, 33, sample, image, use); }),
              HasSubstr(": record 33 at byte "));
  EXPECT_THAT(sums, ElementsAre(0)) << "the pages that the file has lost are zeros";
  read_with_image(source, 4, sample, image, use);
  EXPECT_THAT(sums, ElementsAre(0, 784));
  EXPECT_EQ(sample.label(), 4);
}

using MappedFileDeathTest = MappedFileTest;  // each statement runs in a separate process

TEST_F(MappedFileDeathTest, DoesNothingUnlessEnabled) {
  EXPECT_EXIT(
      {
        const auto before = signal_handlers();
        write_images();
        RecordFile file(path_);
        file.map();
        const auto stream =
            Dataset::from_tfrecords(path_.string(), {.input_shape = {28, 28, 1}, .classes = 10})
                .shuffle()
                .batch(16)
                .stream({.last_step = 6, .threads = 2});
        std::vector<Batch> parts(1);
        int steps = 0;
        while (stream->next(parts)) ++steps;
        ::_exit(steps == 6 && !file.is_mapped() && signal_handlers() == before ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(MappedFileDeathTest, MapsFilesIfEnabled) {
  EXPECT_EXIT(
      {
        const auto before = signal_handlers();
        enable_mapped_files();
        write_images();
        RecordFile file(path_);
        file.map();
        ::_exit(file.is_mapped() && signal_handlers() != before ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::inline v0::data
