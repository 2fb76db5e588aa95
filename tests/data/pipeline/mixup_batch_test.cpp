// Batches of samples that are mixed in pairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/pipeline/mixup.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 5;
constexpr double kAlpha = 0.5;

struct Read {
  std::vector<float> features;
  std::int32_t label = 0;
  std::int32_t partner_label = 0;
  float weight = 0;

  bool operator==(const Read&) const = default;
};

/// The samples of one epoch by record, from the parts of all replicas.
std::map<std::int64_t, Read> epoch_of(const Dataset& dataset, std::int64_t epoch,
                                      StreamOptions options = {}) {
  options.seed = kSeed;
  options.first_step = epoch * dataset.steps_per_epoch();
  options.last_step = options.first_step + dataset.steps_per_epoch();
  options.local_replicas = options.replicas;
  const auto width = static_cast<std::size_t>(dataset.spec().feature_count());
  const auto stream = dataset.stream(options);
  std::map<std::int64_t, Read> samples;
  for (std::vector<Batch> parts; stream->next(parts);)
    for (const Batch& part : parts)
      for (std::size_t i = 0; i < part.record_ids.size(); ++i) {
        std::vector<float> features(part.pixels().begin(), part.pixels().end());
        if (part.pixels().empty()) features = copy(part.features());
        const auto begin = features.begin() + static_cast<std::ptrdiff_t>(i * width);
        samples[part.record_ids[i]] = {
            .features = {begin, begin + static_cast<std::ptrdiff_t>(width)},
            .label = part.labels()[i],
            .partner_label = part.partner_labels.empty() ? -1 : part.partner_labels[i],
            .weight = part.label_weights.empty() ? -1 : part.label_weights[i]};
      }
  return samples;
}

Dataset tables() { return Dataset::synthetic({6}, 4, 53).shuffle().batch(10); }
Dataset stored_images() { return open_data("synthetic-images:8x8x3,4,53").shuffle().batch(10); }
ImageRecipe crops() {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
  recipe.height = recipe.width = 6;
  recipe.geometry = PaddedCrop{2};
  return recipe;
}

TEST(MixupBatches, MixEachSampleWithItsPartnerOfTheEpoch) {
  int mixed = 0;
  for (const std::int64_t epoch : {0, 1}) {
    const auto plain = epoch_of(tables(), epoch);
    for (const auto& [record, sample] : epoch_of(tables().mixup(kAlpha), epoch)) {
      const Mixup mixup = choose_mixup({kSeed, epoch, record}, 53, kAlpha);
      const Read& partner = plain.at(mixup.partner);
      std::vector<float> expected = plain.at(record).features;
      mix(std::span(expected), partner.features, mixup.weight);
      const bool alone = mixup.partner == record || mixup.weight == 1;
      EXPECT_EQ(sample.features, alone ? plain.at(record).features : expected) << record;
      EXPECT_EQ(sample.label, plain.at(record).label);
      EXPECT_EQ(sample.partner_label, alone ? sample.label : partner.label);
      EXPECT_EQ(sample.weight, alone ? 1 : mixup.weight);
      mixed += alone ? 0 : 1;
    }
  }
  EXPECT_GT(mixed, 80);
  EXPECT_NE(epoch_of(tables().mixup(kAlpha), 0), epoch_of(tables().mixup(kAlpha), 1));
}

TEST(MixupBatches, PartnersHaveSeparateRandomChoices) {
  const Dataset dataset = stored_images().images(crops());
  const auto plain = epoch_of(dataset, 1, {.pixels = true});
  for (const auto& [record, sample] : epoch_of(dataset.mixup(kAlpha), 1, {.pixels = true})) {
    const Mixup mixup = choose_mixup({kSeed, 1, record}, 53, kAlpha);
    std::vector<std::uint8_t> expected(plain.at(record).features.begin(),
                                       plain.at(record).features.end());
    const auto& partner = plain.at(mixup.partner).features;
    mix(std::span(expected), std::vector<std::uint8_t>(partner.begin(), partner.end()),
        mixup.weight);
    EXPECT_EQ(sample.features, std::vector<float>(expected.begin(), expected.end())) << record;
  }
}

TEST(MixupBatches, AreTheSameAsBytesAndAsFeatures) {
  for (const Dataset& dataset :
       {stored_images().mixup(kAlpha), stored_images().images(crops()).mixup(kAlpha)}) {
    const auto options = [&](bool pixels) {
      return StreamOptions{.seed = kSeed, .last_step = dataset.steps_per_epoch(), .pixels = pixels};
    };
    const auto features = dataset.stream(options(false));
    const auto pixels = dataset.stream(options(true));
    std::vector<Batch> as_features;
    std::vector<Batch> as_pixels;
    while (features->next(as_features)) {
      ASSERT_TRUE(pixels->next(as_pixels));
      const Batch& batch = as_pixels.front();
      std::vector<float> converted(batch.pixels().size());
      pixels_to_features(batch.pixels(), batch.normalization, converted);
      EXPECT_EQ(converted, copy(as_features.front().features()));
      EXPECT_EQ(batch.partner_labels, as_features.front().partner_labels);
      EXPECT_EQ(batch.label_weights, as_features.front().label_weights);
    }
  }
}

TEST(MixupBatches, MixAfterMapsAndNormalization) {
  const Dataset dataset =
      stored_images()
          .map([](Sample& sample, const SampleKey& key) {
            sample.features()[0] = static_cast<float>(key.record_id);
          })
          .normalize({.channels = 3, .mean = {1, 0, 0}, .deviation = {2, 1, 1}});
  for (const auto& [record, sample] : epoch_of(dataset.mixup(kAlpha), 0)) {
    const Mixup mixup = choose_mixup({kSeed, 0, record}, 53, kAlpha);
    const auto value = [](std::int64_t id) { return (static_cast<double>(id) - 1) / 2; };
    const auto weight = static_cast<double>(mixup.weight);
    EXPECT_NEAR(static_cast<double>(sample.features[0]),
                weight * value(record) + (1 - weight) * value(mixup.partner), 1e-5);
  }
}

TEST(MixupBatches, AreTheSameForAnyNumberOfReplicasAndThreads) {
  const Dataset dataset = stored_images().images(crops()).mixup(kAlpha);
  const auto expected = epoch_of(dataset, 1);
  EXPECT_EQ(expected.size(), 53u);
  for (const int replicas : {2, 3})
    for (const int threads : {1, 3})
      EXPECT_EQ(epoch_of(dataset, 1, {.replicas = replicas, .threads = threads}), expected)
          << replicas;
}

TEST(MixupBatches, HaveNoPartnersWithoutIt) {
  for (const Dataset& dataset : {tables(), tables().mixup(kAlpha).mixup(0)}) {
    const auto stream = dataset.stream({.last_step = 1});
    std::vector<Batch> parts;
    ASSERT_TRUE(stream->next(parts));
    EXPECT_THAT(parts[0].partner_labels, IsEmpty());
    EXPECT_THAT(parts[0].label_weights, IsEmpty());
    EXPECT_EQ(dataset.preparation(), "");
  }
}

TEST(MixupBatches, AreDescribed) {
  EXPECT_EQ(tables().mixup(0.2).preparation(), ", mixup 0.2");
  EXPECT_EQ(tables().mixup(0.2).mixup_alpha(), 0.2);
  EXPECT_EQ(input_error_of([] { Dataset::synthetic({6}, 4, 53).mixup(0.2).take(3); }),
            "[take] expected a call before shuffle(), mixup() and batch(), because it selects "
            "records by id; it was called after mixup()");
}

TEST(MixupBatches, RequireClassesAndAValidAlpha) {
  EXPECT_EQ(input_error_of([] { tables().mixup(-1); }),
            "[mixup] expected an alpha above 0 and up to 4, got -1");
  EXPECT_EQ(input_error_of([] { tables().mixup(5); }),
            "[mixup] expected an alpha above 0 and up to 4, got 5");
  const TemporaryDirectory directory;
  write_bytes(directory / "a.csv", "a,b\n1,2\n");
  const Dataset targets =
      Dataset::from_csv(directory / "a.csv", {.targets = {"b"}, .scale = ColumnScale::none});
  EXPECT_EQ(input_error_of([&] { targets.mixup(0.2); }),
            "[mixup] expected a data set with classes; " + (directory / "a.csv").string() +
                " has no classes");
}

}  // namespace
}  // namespace lockstep::inline v0::data
