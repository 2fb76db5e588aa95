// Samples in memory, or from a function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

const SampleSpec kPairs = SampleSpec::classification({2}, 3);

Batch first_batch(const Dataset& dataset, bool pixels = false) {
  std::vector<Batch> parts;
  EXPECT_TRUE(dataset.stream({.pixels = pixels})->next(parts));
  return parts.front();
}

TEST(SamplesInMemory, AreFloatsWithClasses) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<float>{1, 2, 3, 4}, std::vector<std::int32_t>{2, 0}, kPairs);
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.spec(), kPairs);
  EXPECT_EQ(dataset.description(), "2 samples of 2 in memory");
  const Batch batch = first_batch(dataset.batch(2));
  EXPECT_THAT(copy(batch.features()), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(copy(batch.labels()), ElementsAre(2, 0));
}

TEST(SamplesInMemory, HaveTargetsWithoutClasses) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<float>{1, 2, 3}, std::vector<float>{5, 6, 7, 8, 9, 10},
                           SampleSpec::regression({1}, 2));
  const Batch batch = first_batch(dataset.batch(3));
  EXPECT_THAT(copy(batch.features()), ElementsAre(1, 2, 3));
  EXPECT_THAT(copy(batch.values()), ElementsAre(5, 6, 7, 8, 9, 10));
}

TEST(SamplesInMemory, MayBeUint8Images) {
  const Dataset dataset = Dataset::from_memory(std::vector<std::uint8_t>{0, 255, 51, 102},
                                               std::vector<std::int32_t>{1, 0},
                                               SampleSpec::classification({1, 2, 1}, 2))
                              .batch(2);
  EXPECT_EQ(dataset.description(), "2 images of 1x2x1 in memory");
  EXPECT_THAT(copy(first_batch(dataset, true).pixels()), ElementsAre(0, 255, 51, 102));
  EXPECT_THAT(copy(first_batch(dataset).features()), ElementsAre(0.0f, 1.0f, 0.2f, 0.4f));
}

TEST(SamplesInMemory, MustMatchTheirSpec) {
  const auto message = [](MemoryFeatures features, MemoryLabels labels, const SampleSpec& spec) {
    return input_error_of(
        [&] { Dataset::from_memory(std::move(features), std::move(labels), spec); });
  };
  using Floats = std::vector<float>;
  using Classes = std::vector<std::int32_t>;
  EXPECT_EQ(message(Floats{1, 2, 3}, Classes{0}, kPairs),
            "[samples in memory] expected features in multiples of 2, for records of [2], got 3");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0, 1}, kPairs),
            "[samples in memory] expected 1 value of label for 1 record, got 2");
  EXPECT_EQ(message(Floats{1, 2}, Floats{0}, kPairs),
            "[samples in memory] expected label as int32, got float32");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, SampleSpec::regression({2}, 3)),
            "[samples in memory] expected target as float32, got int32");
  EXPECT_EQ(message(Floats{1, 2}, Floats{0}, SampleSpec::regression({2}, 3)),
            "[samples in memory] expected 3 values of target for 1 record, got 1");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, SampleSpec::classification({2}, 0)),
            "[samples in memory] expected at least 1 class of the int32 target label, got 0 "
            "classes");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, {.inputs = {{.name = "x", .shape = {2}}}}),
            "[samples in memory] expected 1 input and 0 targets, got 1 and 1");
  EXPECT_EQ(message(Floats{}, Classes{}, SampleSpec::classification({0}, 2)),
            "[samples in memory] expected a shape with positive extents and at most 2^28 elements, "
            "got [0]");
  EXPECT_EQ(data_error_of([] {
              Dataset::from_memory(Floats{1, 2, 3, 4}, Classes{0, 3}, kPairs);
            }),
            "[samples in memory: record 1] expected a label from 0 to 2; it is 3");
}

Dataset squares(std::int64_t count) {
  return Dataset::from_generator(kPairs, count, [](std::int64_t record_id, Sample& sample) {
    sample.features()[0] = static_cast<float>(record_id);
    sample.features()[1] = static_cast<float>(record_id * record_id);
    sample.label() = static_cast<std::int32_t>(record_id % 3);
  });
}

TEST(GeneratedSamples, DependOnlyOnTheRecordId) {
  const Dataset dataset = squares(5).batch(2);
  EXPECT_EQ(dataset.description(), "5 generated samples");
  const auto stream = dataset.stream({.first_step = 1});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(copy(parts[0].features()), ElementsAre(2, 4, 3, 9));
  EXPECT_THAT(copy(parts[0].labels()), ElementsAre(2, 0));
}

TEST(GeneratedSamples, ReportTheRecordOfAnError) {
  const auto message = [](SampleGenerator generate) {
    return data_error_of([&] { read(Dataset::from_generator(kPairs, 9, generate).source(), 7); });
  };
  EXPECT_EQ(message([](std::int64_t, Sample&) { throw std::runtime_error("out of ideas"); }),
            "[generator: record 7] expected a sample; its function threw: out of ideas");
  EXPECT_EQ(message([](std::int64_t, Sample&) { throw 1; }),
            "[generator: record 7] expected a sample; its function threw an exception that is not "
            "a std::exception");
  EXPECT_EQ(message([](std::int64_t, Sample& sample) { sample.label() = 3; }),
            "[generator: record 7] expected a label from 0 to 2; it is 3");
  const SampleSpec colors = {
      .inputs = {{.name = "color", .type = ElementType::int32, .classes = 4}}};
  EXPECT_EQ(data_error_of([&] {
              read(Dataset::from_generator(colors, 9,
                                           [](std::int64_t, Sample& sample) {
                                             sample.input("color").as<std::int32_t>()[0] = -1;
                                           })
                       .source(),
                   7);
            }),
            "[generator: record 7] expected a color from 0 to 3; it is -1");
}

TEST(GeneratedSamples, RequireAFunctionAndAValidCount) {
  EXPECT_EQ(input_error_of([] { squares(-1); }), "[generator] expected 0 or more records, got -1");
  EXPECT_EQ(input_error_of([] { Dataset::from_generator(kPairs, 1, {}); }),
            "[generator] expected a function that generates records; it is empty");
  EXPECT_EQ(input_error_of([] {
              Dataset::from_generator(SampleSpec::classification({}, 1), 1,
                                      [](std::int64_t, Sample&) {});
            }),
            "[generator] expected a shape with positive extents and at most 2^28 elements, got []");
  EXPECT_EQ(squares(0).size(), 0);
}

/// Two inputs and two targets.
const SampleSpec kHouses = {
    .inputs = {{.name = "areas", .shape = {2}},
               {.name = "words", .type = ElementType::int64, .shape = {1}}},
    .targets = {{.name = "kind", .type = ElementType::int32, .classes = 7}, {.name = "price"}},
    .weighted = true};

/// Record i has areas (i, 2i), words -i, kind i % 7, price i / 2 and the weight i.
Dataset houses_in_memory(std::int64_t count) {
  std::vector<float> areas, prices, weights;
  std::vector<std::int64_t> words;
  std::vector<std::int32_t> kinds;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<float>(i);
    areas.insert(areas.end(), {number, 2 * number});
    words.push_back(-i);
    kinds.push_back(static_cast<std::int32_t>(i % 7));
    prices.push_back(number / 2);
    weights.push_back(number);
  }
  return Dataset::from_memory({areas, words}, {kinds, prices}, kHouses, weights);
}

Dataset generated_houses(std::int64_t count) {
  return Dataset::from_generator(kHouses, count, [](std::int64_t id, Sample& sample) {
    const auto number = static_cast<float>(id);
    sample.features()[0] = number;
    sample.features()[1] = 2 * number;
    sample.input("words").as<std::int64_t>()[0] = -id;
    sample.label() = static_cast<std::int32_t>(id % 7);
    sample.target("price").as<float>()[0] = number / 2;
    sample.weight = number;
  });
}

TEST(NamedTensors, SurviveEveryOperation) {
  const TemporaryDirectory directory;
  const Dataset houses = houses_in_memory(30);
  const Dataset even = houses.filter([](const Sample& sample) { return sample.label() % 2 == 0; });
  for (const Dataset& dataset :
       {houses, generated_houses(30), houses.cache(), houses.cache(directory / "cache"),
        Dataset::interleave({houses.take(10), even.concatenate(generated_houses(9))}, 2, 3)}) {
    const Dataset batches = dataset.map([](Sample&, const SampleKey&) {}).shuffle().batch(8);
    const auto stream = batches.stream({.last_step = 2 * batches.steps_per_epoch(), .threads = 2});
    std::int64_t samples = 0;
    for (std::vector<Batch> parts; stream->next(parts); samples += parts[0].samples) {
      const Batch& part = parts[0];
      for (std::size_t i = 0; i < part.record_ids.size(); ++i) {
        const float number = part.features()[2 * i];
        const auto id = static_cast<std::int64_t>(number);
        EXPECT_EQ(part.input("areas").as<float>()[2 * i + 1], 2 * number);
        EXPECT_EQ(part.input("words").as<std::int64_t>()[i], -id);
        EXPECT_EQ(part.labels()[i], id % 7);
        EXPECT_EQ(part.target("price").as<float>()[i], number / 2);
        EXPECT_EQ(part.weights[i], number);
      }
    }
    EXPECT_EQ(samples, 2 * dataset.size()) << dataset.description();
  }
}

TEST(NamedTensors, RejectUnknownNamesAndTypes) {
  Batch batch(kHouses, 2);
  const Sample sample = batch.sample();
  EXPECT_EQ(input_error_of([&] { sample.input("arees"); }),
            "[inputs of the sample] expected areas or words, got \"arees\" (did you mean areas?)");
  EXPECT_EQ(input_error_of([&] { batch.target("areas"); }),
            "[targets of the batch] expected kind or price, got \"areas\"");
  EXPECT_EQ(input_error_of([&] { sample.input("words").as<float>(); }),
            "[words] expected a tensor of float32; it is int64");
  EXPECT_TRUE(batch.values().empty()) << "the first target is a class number";
  EXPECT_EQ(input_error_of([&] { Batch(SampleSpec::regression({1}, 1)).sample().label(); }),
            "[label of the sample] expected one class number as the first target; the data set has "
            "none");
  EXPECT_THAT(input_error_of([] { houses_in_memory(5).mixup(0.2); }),
              testing::HasSubstr("got areas [2] and words int64 [1] with kind (7 classes) and "
                                 "price [], weighted"));
}

TEST(NamedTensors, InMemoryHaveWeightsThatAreFinite) {
  const auto message = [](const std::vector<float>& weights) {
    return input_error_of([&] {
      Dataset::from_memory(
          {std::vector<float>{1, 2}}, {std::vector<float>{3, 4}},
          {.inputs = {{.name = "x", .shape = {1}}}, .targets = {{.name = "y"}}, .weighted = true},
          weights);
    });
  };
  EXPECT_EQ(message({1}), "[samples in memory] expected 2 weights, got 1");
  const std::string expected = "[samples in memory] expected finite weights of 0 or more; record ";
  EXPECT_EQ(message({1, -0.5F}), expected + "1 has -0.5");
  EXPECT_EQ(message({std::numeric_limits<float>::infinity(), 1}), expected + "0 has inf");
  EXPECT_EQ(message({1, std::numeric_limits<float>::quiet_NaN()}), expected + "1 has nan");
}

TEST(NamedTensors, SpecsAreChecked) {
  const auto message = [](SampleSpec spec) {
    return input_error_of(
        [&] { Dataset::from_generator(std::move(spec), 1, [](std::int64_t, Sample&) {}); });
  };
  const TensorSpec floats = {.name = "a", .shape = {1}};
  EXPECT_EQ(message({}), "[generator] expected at least one input; there are none");
  EXPECT_EQ(message({.inputs = {floats}, .targets = {floats}}),
            "[generator] expected inputs and targets with different names; two are called \"a\"");
  EXPECT_EQ(message({.inputs = {{.name = "a", .shape = {3, -1}}}}),
            "[generator] expected only the first extent of a to be unknown (-1), got [3, ?]");
  EXPECT_EQ(message({.inputs = {{.name = "a", .shape = {-1, 0}}}}),
            "[generator] expected a shape with positive extents and at most 2^28 elements, got [1, "
            "0]");
  constexpr std::int64_t kLarge = std::int64_t{1} << 32;
  EXPECT_EQ(message({.inputs = {{.name = "a", .shape = {kLarge, kLarge}}}}),
            "[generator] expected a shape with positive extents and at most 2^28 elements, got "
            "[4294967296, 4294967296]");
  EXPECT_EQ(element_count(std::vector{kLarge, kLarge}), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(message({.inputs = {floats}, .targets = {{.name = "b", .classes = 2}}}),
            "[generator] expected int32 class numbers in b; the type is float32");
  EXPECT_EQ(message({.inputs = {{.name = "a", .shape = {1}, .classes = 2}}}),
            "[generator] expected the categories of the input a as int32, got 2 of type float32");
  constexpr std::int64_t kTooMany = std::int64_t{1} << 31;
  EXPECT_EQ(message({.inputs = {{.name = "a", .type = ElementType::int32, .classes = kTooMany}}}),
            "[generator] expected at most 2^31 - 1 classes; a has 2147483648");
}

/// Record i has i % 4 tokens from 10 i on, the same number of boxes, words and tags, and the title
/// i.
const SampleSpec kTexts = {
    .inputs = {{.name = "tokens", .type = ElementType::int64, .shape = {-1}},
               {.name = "boxes", .shape = {-1, 2}},
               {.name = "words", .type = ElementType::bytes, .shape = {-1}},
               {.name = "title", .type = ElementType::bytes}},
    .targets = {{.name = "tags", .type = ElementType::int32, .shape = {-1}, .classes = 7}}};

Dataset texts_in_memory(std::int64_t count) {
  std::vector<std::int64_t> tokens;
  std::vector<float> boxes;
  std::vector<std::string> words, titles;
  std::vector<std::int32_t> tags, lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    lengths.push_back(static_cast<std::int32_t>(i % 4));
    titles.push_back(std::to_string(i));
    for (std::int64_t token = 10 * i; token < 10 * i + i % 4; ++token) {
      tokens.push_back(token);
      boxes.insert(boxes.end(), {static_cast<float>(token), -1});
      words.push_back("a longer word than a string holds " + std::to_string(token));
      tags.push_back(static_cast<std::int32_t>(token % 7));
    }
  }
  return Dataset::from_memory({{tokens, lengths}, {boxes, lengths}, {words, lengths}, titles},
                              {{tags, lengths}}, kTexts);
}

Dataset generated_texts(std::int64_t count) {
  return Dataset::from_generator(kTexts, count, [](std::int64_t id, Sample& sample) {
    sample.input("title").as<std::string>()[0] = std::to_string(id);
    const auto length = static_cast<std::size_t>(id % 4);
    if (length == 0) return;  // the default length is 0
    for (const char* name : {"tokens", "boxes", "words"}) sample.input(name).set_length(length);
    sample.target("tags").set_length(length);
    for (std::size_t i = 0; i < length; ++i) {
      const std::int64_t token = 10 * id + static_cast<std::int64_t>(i);
      sample.input("tokens").as<std::int64_t>()[i] = token;
      sample.input("boxes").as<float>()[2 * i] = static_cast<float>(token);
      sample.input("boxes").as<float>()[2 * i + 1] = -1;
      sample.input("words").as<std::string>()[i] =
          "a longer word than a string holds " + std::to_string(token);
      sample.target("tags").as<std::int32_t>()[i] = static_cast<std::int32_t>(token % 7);
    }
  });
}

/// Checks a part, and the padding of each sample.
void expect_padded(const Batch& part) {
  const auto tokens = part.input("tokens").as<std::int64_t>();
  const auto boxes = part.input("boxes").as<float>();
  const auto words = part.input("words").as<std::string>();
  const auto tags = part.target("tags").as<std::int32_t>();
  std::size_t longest = 0;
  for (const std::int64_t id : part.record_ids)
    longest = std::max(longest, static_cast<std::size_t>(id % 4));
  ASSERT_EQ(part.input("tokens").elements, longest);
  ASSERT_EQ(part.input("boxes").elements, 2 * longest);
  ASSERT_EQ(words.size(), part.record_ids.size() * longest);
  ASSERT_EQ(tags.size(), words.size());
  EXPECT_TRUE(part.input("title").lengths.empty());
  for (std::size_t sample = 0; sample < part.record_ids.size(); ++sample) {
    const std::int64_t id = part.record_ids[sample];
    EXPECT_EQ(part.input("title").as<std::string>()[sample], std::to_string(id));
    for (const char* name : {"tokens", "boxes", "words"})
      EXPECT_EQ(part.input(name).lengths[sample], id % 4) << name;
    EXPECT_EQ(part.target("tags").lengths[sample], id % 4);
    for (std::size_t i = 0; i < longest; ++i) {
      const bool is_value = static_cast<std::int64_t>(i) < id % 4;
      const std::int64_t token = is_value ? 10 * id + static_cast<std::int64_t>(i) : 0;
      const std::size_t at = sample * longest + i;
      EXPECT_EQ(tokens[at], token);
      EXPECT_EQ(boxes[2 * at], static_cast<float>(token));
      EXPECT_EQ(boxes[2 * at + 1], is_value ? -1 : 0);
      EXPECT_EQ(words[at],
                is_value ? "a longer word than a string holds " + std::to_string(token) : "");
      EXPECT_EQ(tags[at], is_value ? token % 7 : kMasked);
    }
  }
}

/// The record at every step and position in the batch, of two epochs.
std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> positions_of(
    const Dataset& dataset, int replicas, std::int64_t first_step) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> positions;
  for (int replica = 0; replica < replicas; ++replica) {
    const auto stream = dataset.stream({.first_step = first_step,
                                        .last_step = 2 * dataset.steps_per_epoch(),
                                        .replicas = replicas,
                                        .first_replica = replica,
                                        .threads = 2});
    for (std::vector<Batch> parts; stream->next(parts);) {
      expect_padded(parts[0]);
      for (std::size_t i = 0; i < parts[0].record_ids.size(); ++i)
        positions[{parts[0].step, parts[0].first_sample + static_cast<std::int64_t>(i)}] =
            parts[0].record_ids[i];
    }
  }
  return positions;
}

TEST(RaggedTensors, ArePaddedToTheLongestSampleOfAnySource) {
  const TemporaryDirectory directory;
  const Dataset texts = texts_in_memory(23);
  write_shards(texts.source(), {.directory = directory.path(), .shards = 2});
  const Dataset stored = open_data(directory.path().string());
  EXPECT_EQ(stored.spec(), kTexts);
  EXPECT_EQ(to_string(stored.spec()),
            "tokens int64 [?] and boxes [?, 2] and words bytes [?] and title bytes [] with tags "
            "[?] (7 classes)");
  const auto whole = [](const Sample& sample) {
    return sample.input("words").elements == sample.target("tags").elements;
  };
  for (const Dataset& dataset :
       {texts, generated_texts(23), stored,
        stored.filter(whole).take(10).concatenate(texts.skip(10)),
        generated_texts(23).map([](Sample&, const SampleKey&) {}).repeat(1)}) {
    const Dataset batches = dataset.shuffle().batch(5);
    const auto positions = positions_of(batches, 1, 0);
    EXPECT_EQ(positions.size(), 46U) << dataset.description();
    EXPECT_EQ(positions_of(batches, 2, 0), positions) << dataset.description();
    auto later = positions;
    std::erase_if(later, [](const auto& place) { return place.first.first < 7; });
    EXPECT_EQ(positions_of(batches, 1, 7), later) << dataset.description();
  }
}

TEST(AutoencodedSamples, HaveTheirPreparedInputAsTarget) {
  const Dataset dataset =
      Dataset::from_memory(
          {{std::vector<std::uint8_t>{0, 51, 102, 255}, {2, 1, 1}}},
          {{std::vector<std::int32_t>{1, 0}, {}}},
          {.inputs = {{.name = "image", .shape = {2, 1, 1}}},
           .targets = {{.name = "kind", .type = ElementType::int32, .classes = 2}}})
          .map([](Sample& sample, const SampleKey&) {
            for (float& value : sample.features()) value *= 10;
          })
          .autoencode();
  EXPECT_EQ(dataset.spec().targets.size(), 1U);
  EXPECT_EQ(to_string(dataset.spec().targets[0]), "reconstruction of image [2, 1, 1]");
  const ReadSample sample = read(dataset.source(), 1);
  EXPECT_THAT(sample.features(), ElementsAre(4, 10));
  EXPECT_THAT(copy(sample.memory.values()), ElementsAre(4, 10));
  EXPECT_EQ(input_error_of([&] { generated_texts(1).autoencode(); }),
            "[autoencoder] expected a first input of numbers, all of one size, got tokens int64 "
            "[?]");
}

TEST(RaggedTensors, GetAFixedLengthByPad) {
  const Dataset padded = generated_texts(4).pad("tokens", 2).pad("words", 2).pad("tags", 5);
  EXPECT_EQ(padded.spec().inputs[0].shape, std::vector<std::int64_t>{2});
  const ReadSample three = read(padded.source(), 3);
  EXPECT_THAT(copy(three.memory.input("tokens").as<std::int64_t>()), ElementsAre(30, 31));
  EXPECT_THAT(copy(three.memory.labels()), ElementsAre(2, 3, 4, kMasked, kMasked));
  EXPECT_THAT(copy(three.memory.input("boxes").as<float>()), ElementsAre(30, -1, 31, -1, 32, -1));
  const ReadSample one = read(padded.source(), 1);
  EXPECT_THAT(copy(one.memory.input("tokens").as<std::int64_t>()), ElementsAre(10, 0));
  EXPECT_THAT(copy(one.memory.input("words").as<std::string>()),
              ElementsAre("a longer word than a string holds 10", ""));
  const TemporaryDirectory directory;
  PartDescription part = write_shards(texts_in_memory(4).source(), {.directory = directory.path()});
  part.pads = {{"tokens", 2}, {"tags", 5}};
  write_dataset_part(directory.path(), "train", part);
  const Dataset stored = open_data(directory.path().string()).pad("words", 2);
  EXPECT_EQ(stored.spec(), padded.spec());
  EXPECT_EQ(read(stored.source(), 3).memory.inputs, three.memory.inputs);
  EXPECT_EQ(read(stored.source(), 1).memory.targets, one.memory.targets);
  DataSpecOptions unlabelled;
  unlabelled.may_lack_labels = true;
  EXPECT_EQ(open_data(directory.path().string(), unlabelled).spec().inputs[0].shape,
            padded.spec().inputs[0].shape);
  EXPECT_EQ(input_error_of([&] { padded.pad("tokens", 3); }),
            "[pad] expected a tensor whose first extent is unknown, got tokens int64 [2]");
  EXPECT_EQ(input_error_of([&] { padded.pad("token", 3); }),
            "[pad] expected tokens, boxes, words or title, got \"token\" (did you mean tokens?)");
  EXPECT_EQ(input_error_of([&] { padded.pad("boxes", 0); }),
            "[pad] expected a shape with positive extents and at most 2^28 elements, got [0, 2]");
  const Dataset numbers = Dataset::from_memory({{std::vector<float>{1, 2, 3}, {1, 2}}}, {},
                                               {.inputs = {{.name = "x", .shape = {-1}}}});
  EXPECT_EQ(numbers.description(), "2 samples of x [?] in memory");
  EXPECT_EQ(input_error_of([&] { numbers.cache(); }),
            "[cache] expected tensors with known extents (Dataset::pad(), or \"pad\" in "
            "dataset.json, cuts or pads all samples to one length), got x [?]");
  EXPECT_THAT(read(numbers.pad("x", 2).cache().source(), 0).features(), ElementsAre(1, 0));
  EXPECT_THAT(input_error_of([&] { padded.pad("boxes", 1).cache(); }),
              testing::HasSubstr("[cache] expected tensors of numbers (bytes are for loops of your "
                                 "own, which read them from batches), got words bytes [2]"));
}

TEST(RaggedTensors, MapsMaySetLengths) {
  const Dataset dataset = texts_in_memory(4).map([](Sample& sample, const SampleKey& key) {
    TensorView& tokens = sample.input("tokens");
    tokens.set_length(tokens.elements + 1);
    tokens.as<std::int64_t>().back() = key.record_id;
  });
  const Batch batch = first_batch(dataset.batch(3));
  EXPECT_THAT(batch.input("tokens").lengths, ElementsAre(1, 2, 3));
  EXPECT_THAT(copy(batch.input("tokens").as<std::int64_t>()),
              ElementsAre(0, 0, 0, 10, 1, 0, 20, 21, 2));
  Batch one(kTexts);
  EXPECT_EQ(input_error_of([&] { one.sample().input("title").set_length(2); }),
            "[title] expected a tensor whose first extent is unknown (-1); all samples have 1 "
            "element");
  EXPECT_EQ(data_error_of([&] { one.sample().input("boxes").set_length(std::size_t{1} << 28); }),
            "[boxes] expected at most 2^28 elements in a sample, got 268435456 times 2");
}

TEST(RaggedTensors, MayAccompanyImages) {
  const Dataset photos = Dataset::from_memory(
      {std::vector<std::uint8_t>{10, 20}, {std::vector<float>{1, 2, 3}, {1, 2}}}, {},
      {.inputs = {{.name = "photo", .shape = {1, 1, 1}}, {.name = "boxes", .shape = {-1}}}});
  const ImageRecipe same = ImageRecipe::parse("none", 1, 1, 1);
  for (const Dataset& dataset :
       {photos, photos.images(same), photos.images(same).take(2).images(same)}) {
    const Batch batch = first_batch(dataset.batch(2), true);
    EXPECT_THAT(copy(batch.pixels()), ElementsAre(10, 20)) << dataset.description();
    EXPECT_THAT(batch.input("boxes").lengths, ElementsAre(1, 2)) << dataset.description();
    EXPECT_THAT(copy(batch.input("boxes").as<float>()), ElementsAre(1, 0, 2, 3));
  }
}

TEST(RaggedTensors, InMemoryMustFitTheirLengths) {
  const auto message = [](MemoryTensor tensor, std::int64_t classes = 0) {
    const SampleSpec spec = {
        .inputs = {
            {.name = "n", .type = ElementType::int32, .classes = 9},
            {.name = "x", .type = ElementType::int32, .shape = {-1, 2}, .classes = classes}}};
    return [=] { Dataset::from_memory({std::vector<std::int32_t>{1, 2}, tensor}, {}, spec); };
  };
  const std::vector<std::int32_t> four = {1, 2, 3, 4};
  EXPECT_EQ(input_error_of(message(four)),
            "[samples in memory] expected 2 lengths of x int32 [?, 2] for 2 records, got 0");
  EXPECT_EQ(input_error_of(message({four, {3, -1}})),
            "[samples in memory] expected lengths of 0 or more of x; one is below 0");
  EXPECT_EQ(input_error_of(message({four, {2, 1}})),
            "[samples in memory] expected 6 values of x for 2 records, got 4");
  EXPECT_EQ(data_error_of(message({four, {1, 1}}, 3)),
            "[samples in memory: record 1] expected a x from 0 to 2; it is 3");
}

TEST(ClassNumbers, OfPositionsMayBeMasked) {
  const auto spec_of = [](std::vector<std::int64_t> shape) {
    return SampleSpec{
        .inputs = {{.name = "x", .shape = {1}}},
        .targets = {
            {.name = "next", .type = ElementType::int32, .shape = std::move(shape), .classes = 3}}};
  };
  const auto in_memory = [&](std::vector<std::int64_t> shape, std::vector<std::int32_t> labels) {
    return Dataset::from_memory(std::vector<MemoryTensor>{std::vector<float>{1, 2}},
                                std::vector<MemoryTensor>{std::move(labels)},
                                spec_of(std::move(shape)));
  };
  const Dataset four = in_memory({2}, {kMasked, 2, 0, kMasked});
  EXPECT_EQ(to_string(four.spec()), "[1] with next [2] (3 classes)");
  EXPECT_FALSE(four.spec().is_single());
  const TemporaryDirectory directory;
  write_shards(four.source(), {.directory = directory.path()});
  for (const Dataset& dataset : {four, open_data(directory.path().string())}) {
    EXPECT_THAT(copy(read(dataset.source(), 0).memory.labels()), ElementsAre(kMasked, 2));
    EXPECT_THAT(copy(read(dataset.source(), 1).memory.labels()), ElementsAre(0, kMasked));
  }
  EXPECT_EQ(data_error_of([&] {
              in_memory({2}, {0, 1, -2, 0});
            }),
            "[samples in memory: record 1] expected a next from -1 to 2; it is -2");
  EXPECT_EQ(data_error_of([&] {
              in_memory({}, {0, -1});
            }),
            "[samples in memory: record 1] expected a next from 0 to 2; it is -1")
      << "of a whole sample";
  const auto generated = [&](std::int32_t label) {
    return Dataset::from_generator(spec_of({2}), 1, [=](std::int64_t, Sample& sample) {
      sample.target("next").as<std::int32_t>()[1] = label;
    });
  };
  EXPECT_THAT(copy(read(generated(kMasked).source(), 0).memory.labels()), ElementsAre(0, kMasked));
  EXPECT_THAT(data_error_of([&] { read(generated(3).source(), 0); }),
              testing::HasSubstr("expected a next from -1 to 2"));
}

TEST(NamedTensors, MayHaveNoTargets) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<MemoryTensor>{std::vector<float>{1, 2, 3}}, {},
                           {.inputs = {{.name = "x", .shape = {1}}}});
  EXPECT_EQ(to_string(dataset.spec()), "[1] without labels");
  const Batch batch = first_batch(dataset.batch(3));
  EXPECT_THAT(copy(batch.features()), ElementsAre(1, 2, 3));
  EXPECT_TRUE(batch.targets.empty());
}

}  // namespace
}  // namespace lockstep::inline v0::data
