// Records cached in memory or in a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>

#include "lockstep/data/dataset.h"
#include "lockstep/data/source/cached_source.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The features of batches of several epochs; pixels are normalized.
std::vector<Batch> batches_of(const Dataset& dataset, int epoch_count, bool pixels = false,
                              std::uint64_t seed = 1) {
  StreamOptions options = epochs(dataset, epoch_count);
  options.seed = seed;
  options.threads = 4;
  options.prefetch = 3;
  options.pixels = pixels;
  const auto stream = dataset.stream(options);
  std::vector<Batch> batches;
  for (std::vector<Batch> parts; stream->next(parts);) {
    EXPECT_EQ(parts[0].features().empty(), pixels);
    if (pixels) {
      std::vector<float> features(parts[0].pixels().size());
      pixels_to_features(parts[0].pixels(), parts[0].normalization, features);
      const auto bytes = std::as_bytes(std::span(features));
      parts[0].inputs[0].type = ElementType::float32;
      parts[0].inputs[0].bytes.assign(bytes.begin(), bytes.end());
    }
    batches.push_back(parts[0]);
  }
  return batches;
}

void expect_same(const std::vector<Batch>& batches, const std::vector<Batch>& expected) {
  ASSERT_EQ(batches.size(), expected.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i].record_ids, expected[i].record_ids);
    EXPECT_EQ(batches[i].inputs, expected[i].inputs);
    EXPECT_EQ(batches[i].targets, expected[i].targets);
    EXPECT_EQ(batches[i].weights, expected[i].weights);
  }
}

/// Caches in memory, or in a file.
class Cache : public ::testing::TestWithParam<bool> {
 protected:
  bool in_file() const { return GetParam(); }
  std::filesystem::path file() const { return directory_ / "cache"; }
  Dataset cached(const Dataset& dataset) const {
    return in_file() ? dataset.cache(file()) : dataset.cache();
  }

  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Kept, Cache, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "in_a_file" : "in_memory"; });

TEST_P(Cache, ReadsEachRecordOnce) {
  const auto source = std::make_shared<CountingSource>(50);
  const Dataset dataset = cached(Dataset::from_source(source)).shuffle().batch(50);
  const Dataset plain = counting(50, 50).shuffle();
  expect_same(batches_of(dataset, 1), batches_of(plain, 1));
  EXPECT_EQ(source->reads(), 50);
  expect_same(batches_of(dataset, 4), batches_of(plain, 4));
  EXPECT_EQ(source->reads(), 50);
  EXPECT_EQ(dataset.preparation(), in_file() ? ", cached in a file" : ", cached in memory");
}

TEST_P(Cache, CachesTargets) {
  const Dataset regression = Dataset::from_source(std::make_shared<CountingSource>(7, 3));
  expect_same(batches_of(cached(regression).batch(3), 3), batches_of(regression.batch(3), 3));
}

TEST_P(Cache, FreezesRandomChoicesBeforeItOnly) {
  const auto choice = [](Sample& sample, const SampleKey& key) {
    sample.features()[0] =
        static_cast<float>(key.seed * 100 + static_cast<std::uint64_t>(key.epoch));
  };
  const auto passes_of = [&](const Dataset& dataset, std::uint64_t seed) {
    std::vector<float> passes;
    for (const Batch& batch : batches_of(dataset.batch(9), 3, false, seed))
      passes.push_back(batch.features()[0]);
    return passes;
  };
  const Dataset numbers = Dataset::from_source(std::make_shared<CountingSource>(9));
  const Dataset frozen = cached(numbers.map(choice));
  EXPECT_THAT(passes_of(frozen, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(passes_of(frozen, 2), ElementsAre(0, 0, 0)) << "for any first reader";
  EXPECT_THAT(passes_of(frozen.map(choice), 2), ElementsAre(200, 201, 202));
}

TEST_P(Cache, DoesNotCacheErrors) {
  std::atomic<bool> broken = true;
  const Dataset dataset = cached(
      Dataset::from_generator(SampleSpec::classification({1}, 2), 3, [&](std::int64_t, Sample& s) {
        if (broken) throw std::runtime_error("not yet");
        s.features()[0] = 5;
      }));
  EXPECT_THAT(data_error_of([&] { batches_of(dataset.batch(3), 1); }), HasSubstr("not yet"));
  broken = false;
  EXPECT_THAT(copy(batches_of(dataset.batch(3), 1).front().features()), ElementsAre(5, 5, 5));
}

TEST_P(Cache, IsSharedByStreamsAndThreads) {
  const auto source = std::make_shared<CountingSource>(64);
  const Dataset dataset = cached(Dataset::from_source(source)).repeat(3).shuffle().batch(16);
  const auto expected = batches_of(
      Dataset::from_source(std::make_shared<CountingSource>(64)).repeat(3).shuffle().batch(16), 2);
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] { expect_same(batches_of(dataset, 2), expected); });
}

constexpr ChannelNormalization kCachedChannel{.channels = 1, .mean = {0.25f}, .deviation = {0.5f}};

Dataset images() {
  std::vector<std::uint8_t> pixels(5 * 5 * 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
  return Dataset::from_memory(std::move(pixels), std::vector<std::int32_t>{0, 1, 0, 1, 1},
                              SampleSpec::classification({5, 5, 1}, 2));
}

ImageRecipe cached_crop() {
  ImageRecipe recipe = ImageRecipe::parse("none", 3, 3, 1);
  recipe.geometry = PaddedCrop{.padding = 1};
  recipe.normalization = kCachedChannel;
  return recipe;
}

TEST_P(Cache, CachesImagesAsBytes) {
  const Dataset dataset = cached(images().normalize(kCachedChannel)).batch(2);
  expect_same(batches_of(dataset, 2, true),
              batches_of(images().normalize(kCachedChannel).batch(2), 2, false));
  expect_same(batches_of(dataset, 2, false),
              batches_of(images().normalize(kCachedChannel).batch(2), 2, false));
  if (!in_file()) return;
  EXPECT_LT(std::filesystem::file_size(file()), 5 * (28 + 4 + 4) + 250) << "a byte for each pixel";
}

TEST_P(Cache, PassesBytesToALaterRecipe) {
  expect_same(batches_of(cached(images()).images(cached_crop()).batch(2), 3, true),
              batches_of(images().images(cached_crop()).batch(2), 3, false));
}

TEST_P(Cache, FreezesACropBeforeIt) {
  const Dataset dataset = cached(images().images(cached_crop())).batch(5);
  const auto batches = batches_of(dataset, 2, true);
  EXPECT_EQ(batches[0].inputs, batches[1].inputs);
  expect_same(batches_of(dataset, 2, false), batches);
}

TEST_P(Cache, MayFollowAMapOfImages) {
  const auto brighter = [](Sample& sample, const SampleKey&) {
    for (float& feature : sample.features()) feature += 1;
  };
  const Dataset dataset = images().images(cached_crop()).map(brighter);
  const auto first = batches_of(dataset.batch(5), 1, false, 0);  // like the cache
  expect_same(batches_of(cached(dataset).batch(5), 1), first);
}

TEST_P(Cache, MustPrecedeShuffleAndBatch) {
  EXPECT_EQ(input_error_of([&] { cached(images().batch(2)); }),
            "[cache] expected a call before shuffle(), mixup() and batch(), because it selects "
            "records by id; it was called after batch()");
}

TEST(CacheInMemory, MustFit) {
  const auto source = std::make_shared<CountingSource>(1 << 20);
  EXPECT_EQ(input_error_of([&] { CachedSource(source, std::int64_t{5} << 20); }),
            "[cache] expected 12.0 MiB of memory for 1048576 records of 12 bytes; 5.0 MiB are "
            "available: use cache(file)");
  EXPECT_THAT(
      input_error_of([] {
        Dataset::from_source(std::make_shared<CountingSource>(std::int64_t{1} << 60)).cache();
      }),
      HasSubstr("use cache(file)"));
}

/// A file "cache" of 4 records.
class CacheFile : public ::testing::Test {
 protected:
  Dataset cached(std::int64_t records = 4) {
    source_ = std::make_shared<CountingSource>(records);
    return Dataset::from_source(source_).cache(file());
  }
  std::filesystem::path file() const { return directory_ / "cache"; }
  void fill() { batches_of(cached().batch(4), 1); }

  TemporaryDirectory directory_;
  std::shared_ptr<CountingSource> source_;
};

TEST_F(CacheFile, IsRenamedOnceItHasAllRecords) {
  {
    const Dataset dataset = cached();
    const auto stream = dataset.batch(3).stream({.last_step = 1});
    std::vector<Batch> parts;
    ASSERT_TRUE(stream->next(parts));
    EXPECT_FALSE(std::filesystem::exists(file()));
    EXPECT_EQ(names_in(directory_.path()).size(), 1u) << "the temporary file is next to it";
    // Epoch by epoch: concurrent epochs may both make a missing record.
    for (int pass = 0; pass < 2; ++pass) batches_of(dataset.batch(4), 1);
    EXPECT_EQ(source_->reads(), 4);
    EXPECT_THAT(names_in(directory_.path()), ElementsAre("cache"));
  }
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("cache"));
}

TEST_F(CacheFile, LeavesNoFileIfIncomplete) {
  EXPECT_EQ(read(cached().source(), 2).features()[0], 2);
  EXPECT_TRUE(names_in(directory_.path()).empty());
}

TEST_F(CacheFile, IsReadByTheNextRun) {
  fill();
  const Dataset again = cached();
  EXPECT_EQ(source_->reads(), 2) << "the first and the last, to compare";
  expect_same(batches_of(again.batch(3), 2), batches_of(counting(4, 3), 2));
  EXPECT_EQ(source_->reads(), 2);
}

TEST_F(CacheFile, EachProcessFillsItsOwnAndTheFirstOneStays) {
  const Dataset first = cached();
  const Dataset second = cached();
  EXPECT_EQ(names_in(directory_.path()).size(), 2u);
  batches_of(second.batch(4), 1);
  const auto stamp = file_stamp(file());
  expect_same(batches_of(first.batch(4), 2), batches_of(counting(4, 4), 2));
  EXPECT_EQ(file_stamp(file()), stamp);
  expect_same(batches_of(second.batch(4), 2), batches_of(counting(4, 4), 2));
  EXPECT_EQ(source_->reads(), 4);
}

TEST_F(CacheFile, RejectsOtherRecords) {
  fill();
  EXPECT_EQ(data_error_of([&] { cached(5); }),
            "[" + file().string() +
                "] expected a cache of 5 records of counting, as floats [2] with 5 classes; it "
                "is a cache of 4 records of counting, as floats [2] with 5 classes: remove "
                "it, or choose another file");
  EXPECT_THAT(
      data_error_of([&] {
        Dataset::from_source(source_).map([](Sample&, const SampleKey&) {}).take(4).cache(file());
      }),
      HasSubstr(
          "expected a cache of 4 records of counting, 1 map, the first 4 records, as floats"));
  write_bytes(file(), "my thesis, the only copy, with all of its figures and tables");
  EXPECT_EQ(data_error_of([&] { cached(); }), "[" + file().string() +
                                                  "] expected a cache file; the file is not a "
                                                  "cache file: remove it, or choose another file");
  EXPECT_THAT(read_bytes(file()), HasSubstr("my thesis"));
}

TEST_F(CacheFile, RejectsRecordsOfAChangedMap) {
  const auto with_map = [&](float value) {
    return Dataset::from_source(std::make_shared<CountingSource>(4))
        .map([value](Sample& sample, const SampleKey&) { sample.features()[1] = value; })
        .cache(file());
  };
  batches_of(with_map(1).batch(4), 1);
  EXPECT_EQ(with_map(1).size(), 4);
  EXPECT_EQ(data_error_of([&] { with_map(2); }),
            "[" + file().string() +
                "] expected a cache of the current records; record 0 differs: remove the file, "
                "which is then rebuilt");
}

TEST_F(CacheFile, ReportsTheDamagedRecord) {
  fill();
  const std::string whole = read_bytes(file());
  std::string damaged = whole;
  damaged[whole.size() - 20] ^= 1;  // records have 16 bytes: in the last but one
  write_bytes(file(), damaged);
  const Dataset dataset = cached();
  EXPECT_EQ(data_error_of([&] { batches_of(dataset.batch(4), 1); }),
            "[" + file().string() +
                ": record 2] expected an intact record; it does not match its checksum: remove the "
                "file, which is then rebuilt");
  write_bytes(file(), whole.substr(0, whole.size() - 1));
  EXPECT_EQ(data_error_of([&] { cached(); }),
            "[" + file().string() + "] expected " + std::to_string(whole.size()) +
                " bytes for 4 records; it has " + std::to_string(whole.size() - 1) +
                ": remove it, or choose another file");
}

TEST_F(CacheFile, RejectsADamagedHeader) {
  fill();
  const std::string whole = read_bytes(file());
  for (std::size_t i = 0; i < whole.size() - 4 * 16; ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_bytes(file(), damaged);
    EXPECT_THAT(data_error_of([&] { cached(); }), HasSubstr(": remove it, or choose another file"))
        << "byte " << i;
  }
  std::string other_version = whole;
  other_version[8] = 2;
  write_bytes(file(), other_version);
  EXPECT_THAT(data_error_of([&] { cached(); }),
              HasSubstr("expected a cache file of version 1; its version is 2"));
  std::string damaged = whole;
  damaged[40] ^= 1;
  write_bytes(file(), damaged);
  EXPECT_THAT(data_error_of([&] { cached(); }),
              HasSubstr("expected an intact cache file; its header does not match its checksum"));
}

TEST_F(CacheFile, HasTheDocumentedFormat) {
  const std::filesystem::path made_elsewhere =
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/fuzz/corpus/cache/numbers";
  const FileStore store(made_elsewhere, "numbers", 3, 12);
  ASSERT_TRUE(store.is_complete());
  std::vector<std::byte> scratch;
  FileStore again(file(), "numbers", 3, 12);
  for (std::int64_t record = 0; record < 3; ++record) again.put(record, store.get(record, scratch));
  EXPECT_EQ(read_bytes(file()), read_bytes(made_elsewhere));
}

TEST_F(CacheFile, IsNotWrittenThroughALink) {
  std::filesystem::create_symlink(directory_ / "victim", file());
  EXPECT_NE(error_of(ErrorCategory::output, [&] { fill(); }), "");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "victim"));
}

TEST_F(CacheFile, RequiresADirectoryAndSpace) {
  EXPECT_THAT(error_of(ErrorCategory::output,
                       [&] {
                         Dataset::from_source(std::make_shared<CountingSource>(1))
                             .cache(directory_ / "none/cache");
                       }),
              HasSubstr("none/cache] expected to write the file; No such file or directory"));
  EXPECT_THAT(error_of(ErrorCategory::output, [&] { cached(std::int64_t{1} << 50); }),
              HasSubstr("/cache] expected 17179869184.0 MiB on the disk for 1125899906842624 "
                        "records of 12 bytes; "));
  EXPECT_TRUE(names_in(directory_.path()).empty());
}

// The category is output, so that no record counts as bad.
TEST_F(CacheFile, AFullDiskIsAnErrorAndLeavesNoFile) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  {
    const Dataset dataset = cached(1000).batch(10);
    const rlimit limit{4096, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_THAT(error_of(ErrorCategory::output, [&] { batches_of(dataset, 1); }),
                HasSubstr("cache] expected to write the file; File too large"));
    ::setrlimit(RLIMIT_FSIZE, &before);
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(names_in(directory_.path()).empty());
}

}  // namespace
}  // namespace lockstep::inline v0::data
