// Record operations: their output, preceding operations, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/image.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

Dataset numbers(std::int64_t records) {
  return Dataset::from_source(std::make_shared<CountingSource>(records));
}

/// The first feature of each record, in an epoch read by three threads.
std::vector<int> values_of(const Dataset& dataset, std::int64_t epoch = 0) {
  const Dataset batches = dataset.batch(4);
  const auto stream = batches.stream({.first_step = epoch * batches.steps_per_epoch(),
                                      .last_step = (epoch + 1) * batches.steps_per_epoch(),
                                      .threads = 3});
  std::vector<int> values;
  const auto features = static_cast<std::size_t>(dataset.spec().feature_count());
  for (std::vector<Batch> parts; stream->next(parts);)
    for (std::size_t i = 0; i < parts[0].features().size(); i += features)
      values.push_back(static_cast<int>(parts[0].features()[i]));
  return values;
}

TEST(RecordOperations, TakeAndSkipUseRecordIds) {
  EXPECT_THAT(values_of(numbers(9).take(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(values_of(numbers(9).skip(6)), ElementsAre(6, 7, 8));
  EXPECT_THAT(values_of(numbers(9).skip(2).take(5).skip(1)), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(numbers(9).take(3).spec(), numbers(9).spec());
}

TEST(RecordOperations, TakeAndSkipBeyondTheSize) {
  EXPECT_EQ(numbers(9).take(100).size(), 9);
  EXPECT_EQ(numbers(9).take(-1).size(), 9);
  EXPECT_EQ(numbers(9).take(0).size(), 0);
  EXPECT_EQ(numbers(9).skip(100).size(), 0);
  EXPECT_EQ(numbers(9).skip(-1).size(), 0);
  EXPECT_EQ(numbers(9).skip(0).size(), 9);
  EXPECT_EQ(input_error_of([] { numbers(9).take(-2); }),
            "[take] expected 0 or more records, or -1 for all, got -2");
  EXPECT_EQ(input_error_of([] { numbers(9).skip(-2); }),
            "[skip] expected 0 or more records, or -1 for all, got -2");
}

TEST(RecordOperations, AnEmptyDataSetIsRejectedByItsStream) {
  const Dataset none = numbers(9).skip(9).repeat(3).concatenate(numbers(9).take(0)).take(5);
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(
      data_error_of([&] { none.batch(2).stream({}); }),
      "[(counting, without the first 9 records, 3 times; counting, the first 0 records) one after "
      "the other, the first 0 records] expected at least one record; the data set is empty");
}

TEST(RecordOperations, RepeatIsOneEpoch) {
  const Dataset thrice = numbers(3).repeat(3);
  EXPECT_THAT(values_of(thrice), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2));
  EXPECT_THAT(ids_of(thrice.batch(9), {.last_step = 1})[0], ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(input_error_of([] { numbers(3).repeat(0); }),
            "[repeat] expected at least 1 repetition (a stream without a last step repeats its "
            "epochs indefinitely), got 0");
  EXPECT_EQ(
      input_error_of([] { numbers(3).repeat(std::int64_t{1} << 62); }),
      "[repeat] expected fewer than 2^63 records; 4611686018427387904 times 3 were requested");
}

/// The sample that a map was called for.
struct Seen {
  std::uint64_t seed;
  std::int64_t epoch;
  std::int64_t record_id;
  auto operator<=>(const Seen&) const = default;
};

/// Adds to `seen` the samples that a map at this position sees.
Dataset watched(const Dataset& dataset, std::set<Seen>& seen) {
  return dataset.map([&](Sample&, const SampleKey& key) {
    seen.insert({key.seed, key.epoch, key.record_id});
  });
}

/// Reads two epochs, by one thread.
void run(const Dataset& dataset) {
  const Dataset batches = dataset.batch(2);
  const auto stream = batches.stream(epochs(batches, 2));
  for (std::vector<Batch> parts; stream->next(parts);) continue;
}

TEST(RecordOperations, MapsSeeTheRecordIdsOfTheirInput) {
  std::set<Seen> before;
  std::set<Seen> after;
  run(watched(watched(numbers(4), before).skip(2), after));
  EXPECT_THAT(before, ElementsAre(Seen{1, 0, 2}, Seen{1, 0, 3}, Seen{1, 1, 2}, Seen{1, 1, 3}));
  EXPECT_THAT(after, ElementsAre(Seen{1, 0, 0}, Seen{1, 0, 1}, Seen{1, 1, 0}, Seen{1, 1, 1}));
}

TEST(RecordOperations, EachRepetitionIsAnEpochForPrecedingOperations) {
  std::set<Seen> before;
  std::set<Seen> after;
  run(watched(watched(numbers(1), before).repeat(3), after));
  EXPECT_THAT(before, ElementsAre(Seen{1, 0, 0}, Seen{1, 1, 0}, Seen{1, 2, 0}, Seen{1, 3, 0},
                                  Seen{1, 4, 0}, Seen{1, 5, 0}));
  EXPECT_THAT(after, ElementsAre(Seen{1, 0, 0}, Seen{1, 0, 1}, Seen{1, 0, 2}, Seen{1, 1, 0},
                                 Seen{1, 1, 1}, Seen{1, 1, 2}));
}

TEST(RecordOperations, TheSameInputTwiceHasDifferentRandomChoices) {
  for (const bool interleaved : {false, true}) {
    std::set<Seen> seen;
    const Dataset maps = watched(numbers(3), seen);
    run(interleaved ? Dataset::interleave({maps, maps}, 2) : maps.concatenate(maps));
    EXPECT_EQ(seen.size(), 12u) << "3 records, twice, in 2 epochs";
  }
}

TEST(RecordOperations, ConcatenateReadsInputsInOrder) {
  EXPECT_THAT(values_of(numbers(3).concatenate(numbers(5).skip(3)).concatenate(numbers(1))),
              ElementsAre(0, 1, 2, 3, 4, 0));
  EXPECT_THAT(values_of(numbers(3).take(0).concatenate(numbers(0)).concatenate(numbers(2))),
              ElementsAre(0, 1));
}

TEST(RecordOperations, InterleaveReadsBlocksInTurn) {
  const Dataset a = numbers(3);
  const Dataset b = numbers(20).skip(10).take(5);
  const Dataset c = numbers(30).skip(20).take(2);
  const std::vector<int> expected = {0, 1, 10, 11, 2, 12, 13, 20, 21, 14};
  EXPECT_THAT(values_of(Dataset::interleave({a, b, c}, 2, 2)), ElementsAreArray(expected));
  EXPECT_THAT(values_of(Dataset::interleave({a, b, c}, 2, 2), 5), ElementsAreArray(expected));
  EXPECT_EQ(Dataset::interleave({a, b}, 2).description(),
            "(counting; counting, without the first 10 records, the first 5 records) interleaved, "
            "2 at a time, in blocks of 1");
}

TEST(RecordOperations, InterleaveRejectsInvalidArguments) {
  EXPECT_EQ(input_error_of([] { Dataset::interleave({}, 1); }),
            "[interleave] expected at least 1 data set, got 0");
  EXPECT_EQ(input_error_of([] { Dataset::interleave({numbers(1)}, 0); }),
            "[interleave] expected a cycle of at least 1 data set, got 0");
  EXPECT_EQ(input_error_of([] { Dataset::interleave({numbers(1)}, 1, 0); }),
            "[interleave] expected blocks of at least 1 record, got 0");
}

TEST(RecordOperations, RejectJoiningDifferentDataSets) {
  const Dataset regression = Dataset::from_source(std::make_shared<CountingSource>(3, 2));
  EXPECT_EQ(input_error_of([&] { numbers(3).concatenate(regression); }),
            "[concatenate] expected data sets of samples [2] with 5 classes, as in counting; the "
            "samples of counting are [2] with 2 targets");
  const Dataset other = Dataset::synthetic({2, 2, 1}, 5, 4);
  EXPECT_EQ(input_error_of([&] {
              Dataset::interleave({numbers(3), other}, 2);
            }),
            "[interleave] expected data sets of samples [2] with 5 classes, as in counting; the "
            "samples of 4 synthetic samples of 2x2x1 are [2, 2, 1] with 5 classes");
}

TEST(RecordOperations, MustPrecedeShuffleAndBatch) {
  EXPECT_EQ(input_error_of([] { numbers(3).shuffle().take(1); }),
            "[take] expected a call before shuffle(), mixup() and batch(), because it selects "
            "records by id; it was called after shuffle()");
  EXPECT_EQ(input_error_of([] { numbers(3).batch(1).skip(1); }),
            "[skip] expected a call before shuffle(), mixup() and batch(), because it selects "
            "records by id; it was called after batch()");
  for (const char* word : {"repeat", "concatenate", "interleave"}) {
    const Dataset late = numbers(3).batch(1);
    EXPECT_THAT(input_error_of([&] {
                  if (word == std::string("repeat")) late.repeat(2);
                  if (word == std::string("concatenate")) numbers(3).concatenate(late);
                  if (word == std::string("interleave")) Dataset::interleave({numbers(3), late}, 1);
                }),
                testing::StartsWith("[" + std::string(word) +
                                    "] expected a call before shuffle(), mixup() and batch()"));
  }
}

TEST(RecordOperations, AreDescribed) {
  const Dataset dataset =
      numbers(9).map([](Sample&, const SampleKey&) {}).take(4).repeat(2).normalize({.channels = 2});
  EXPECT_EQ(dataset.preparation(),
            ", 1 map, the first 4 records, 2 times, normalized by (0, 0) and (1, 1)");
  EXPECT_EQ(dataset.description(), "counting" + dataset.preparation());
  EXPECT_EQ(
      dataset.concatenate(numbers(2)).preparation(),
      ", 2 data sets one after the other (8 records" + dataset.preparation() + "; 2 records)");
}

TEST(RecordOperations, ReportWhetherAnEvaluationCanRepeatThem) {
  const auto keep = [](const Sample&) { return true; };
  const auto change = [](Sample&, const SampleKey&) {};
  const Dataset plain = numbers(9);
  for (const Dataset& dataset :
       {plain, plain.take(4).repeat(2).cache(), plain.concatenate(plain), plain.shuffle().batch(3)})
    EXPECT_FALSE(dataset.changes().is_mapped) << dataset.preparation();
  for (const Dataset& dataset : {plain.map(change), plain.map(change).take(4), plain.filter(keep),
                                 plain.filter(keep).cache(), plain.normalize({.channels = 2}),
                                 plain.concatenate(plain.map(change)),
                                 Dataset::interleave({plain.map(change), plain}, 2).batch(3)})
    EXPECT_TRUE(dataset.changes().is_mapped) << dataset.preparation();
}

// Images.

constexpr ChannelNormalization kOneChannel{.channels = 1, .mean = {0.25f}, .deviation = {0.5f}};

Dataset images(std::int64_t records) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(records) * 6 * 6);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
  return Dataset::from_memory(std::move(pixels),
                              std::vector<std::int32_t>(static_cast<std::size_t>(records)),
                              SampleSpec::classification({6, 6, 1}, 2));
}

ImageRecipe random_crop() {
  ImageRecipe recipe = ImageRecipe::parse("none", 4, 4, 1);
  recipe.geometry = PaddedCrop{.padding = 1};
  recipe.flip = 0.5;
  recipe.normalization = kOneChannel;
  return recipe;
}

std::vector<Batch> batches_of(const Dataset& dataset, bool pixels) {
  const auto stream =
      dataset.stream({.last_step = 2 * dataset.steps_per_epoch(), .pixels = pixels});
  std::vector<Batch> batches;
  for (std::vector<Batch> parts; stream->next(parts);) batches.push_back(parts.front());
  return batches;
}

/// The features of all batches; pixels are normalized as on the device.
std::vector<float> features_of(const Dataset& dataset, bool pixels) {
  std::vector<float> all;
  for (const Batch& batch : batches_of(dataset.batch(3), pixels)) {
    EXPECT_EQ(batch.features().empty(), pixels);
    std::vector<float> features = copy(batch.features());
    if (pixels) {
      features.resize(batch.pixels().size());
      pixels_to_features(batch.pixels(), batch.normalization, features);
    }
    all.insert(all.end(), features.begin(), features.end());
  }
  return all;
}

TEST(ImageRecordOperations, KeepBytes) {
  const Dataset crops = images(5).images(random_crop());
  const auto expected = features_of(crops, false);
  for (const Dataset& same :
       {crops.take(-1), crops.skip(0), crops.repeat(1), images(5).take(9).images(random_crop()),
        Dataset::interleave({crops}, 1), crops.take(5).skip(0).take(5)}) {
    EXPECT_EQ(features_of(same, false), expected) << same.description();
    EXPECT_EQ(features_of(same, true), expected) << same.description();
  }
}

TEST(ImageRecordOperations, KeepTheNormalizationForTheDevice) {
  const Dataset normalized = images(5).normalize(kOneChannel).take(4);
  EXPECT_EQ(features_of(normalized, true), features_of(normalized, false));
  EXPECT_EQ(features_of(normalized, true), features_of(images(4).normalize(kOneChannel), true));
  for (const Batch& batch : batches_of(normalized.normalize(kOneChannel).batch(3), true))
    EXPECT_TRUE(batch.pixels().empty()) << "bytes are normalized once at most";
}

TEST(ImageRecordOperations, ALaterMapSeesNormalizedFeatures) {
  const Dataset mapped =
      images(5).images(random_crop()).take(4).map([](Sample& sample, const SampleKey&) {
        for (float& feature : sample.features()) feature += 1;
      });
  auto expected = features_of(images(5).images(random_crop()).take(4), false);
  for (float& feature : expected) feature += 1;
  EXPECT_EQ(features_of(mapped, false), expected);
  EXPECT_TRUE(batches_of(mapped.batch(3), true).front().pixels().empty());
}

TEST(ImageRecordOperations, ARecipeMayFollowARecipe) {
  const Dataset twice =
      images(5).images(ImageRecipe::parse("none", 6, 6, 1)).repeat(2).images(random_crop());
  EXPECT_EQ(twice.spec().shape(), (std::vector<std::int64_t>{4, 4, 1}));
  const Dataset once = images(5).repeat(2).images(random_crop());
  EXPECT_EQ(features_of(twice, false), features_of(once, false));
  EXPECT_EQ(features_of(twice, true), features_of(once, false));
}

TEST(ImageRecordOperations, RepetitionsHaveDifferentCrops) {
  for (const Dataset& twice :
       {images(3).images(random_crop()).repeat(2), images(3).repeat(2).images(random_crop())}) {
    const auto features = features_of(twice, false);
    const std::vector<float> first(features.begin(), features.begin() + 48);
    const std::vector<float> second(features.begin() + 48, features.begin() + 96);
    EXPECT_NE(first, second);
  }
}

TEST(ImageRecordOperations, OfDifferentNormalizationBecomeFeatures) {
  const Dataset joined = images(2).normalize(kOneChannel).concatenate(images(2));
  const auto batches = batches_of(joined.batch(4), true);
  EXPECT_TRUE(batches.front().pixels().empty());
  auto expected =
      copy(batches_of(images(2).normalize(kOneChannel).batch(2), false).front().features());
  const auto plain = copy(batches_of(images(2).batch(2), false).front().features());
  expected.insert(expected.end(), plain.begin(), plain.end());
  EXPECT_EQ(copy(batches.front().features()), expected);
}

// All operations together, as ranks read them.

Dataset everything(const TemporaryDirectory& directory) {
  const auto has_even_sum = [](const Sample& sample) {
    float sum = 0;
    for (const float feature : sample.features()) sum += feature * 255;
    return std::lround(sum) % 2 == 0;
  };
  const Dataset cached =
      images(9).images(ImageRecipe::parse("none", 6, 6, 1)).cache().concatenate(images(7));
  return Dataset::interleave(
             {cached.skip(2).filter(has_even_sum), images(8).cache(directory / "cache").take(5)}, 2,
             3)
      .images(random_crop())
      .repeat(2)
      .shuffle()
      .batch(7)
      .prefetch(3);
}

/// The pixels of steps [first, last), read by `world` replicas with separate streams.
std::vector<std::uint8_t> pixels_of(const Dataset& dataset, std::int64_t first, std::int64_t last,
                                    int world) {
  std::vector<std::unique_ptr<BatchStream>> streams;
  for (int rank = 0; rank < world; ++rank)
    streams.push_back(dataset.stream({.seed = 5,
                                      .first_step = first,
                                      .last_step = last,
                                      .replicas = world,
                                      .first_replica = rank,
                                      .threads = 2,
                                      .pixels = true}));
  std::vector<std::uint8_t> pixels;
  std::vector<Batch> parts;
  for (std::int64_t step = first; step < last; ++step) {
    for (const auto& stream : streams) {
      EXPECT_TRUE(stream->next(parts));
      pixels.insert(pixels.end(), parts[0].pixels().begin(), parts[0].pixels().end());
    }
  }
  return pixels;
}

TEST(RecordOperations, AreIdenticalForAnyNumberOfRanksAndAfterResume) {
  const TemporaryDirectory directory;
  const std::int64_t last = 2 * everything(directory).steps_per_epoch();
  const auto expected = pixels_of(everything(directory), 0, last, 1);
  for (const int world : {2, 3, 5})
    EXPECT_EQ(pixels_of(everything(directory), 0, last, world), expected);
  std::vector<std::uint8_t> resumed;
  for (std::int64_t step = 0; step < last; ++step) {
    const auto pixels =
        pixels_of(everything(directory), step, step + 1, 1 + static_cast<int>(step % 2));
    resumed.insert(resumed.end(), pixels.begin(), pixels.end());
  }
  EXPECT_EQ(resumed, expected);
}

}  // namespace
}  // namespace lockstep::inline v0::data
