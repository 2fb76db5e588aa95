// Classes and features are matched by their names in the training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/data/open_data.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/train/input/check_data.h"
#include "lockstep/train/input/class_weights.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/data_warnings.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Names = std::vector<std::string>;
const Names kFruit = {"apple", "pear", "plum"};
const Names kColumns = {"width", "height"};

/// 60 records of the classes in turn. The features depend on the name of the class, not on its
/// number.
class Fruit final : public data::RecordSource {
 public:
  explicit Fruit(const Names& classes, const Names& features = kColumns)
      : RecordSource({.spec = data::SampleSpec::classification({2}, std::ssize(classes)),
                      .size = 60,
                      .description = "fruit",
                      .class_names = classes,
                      .feature_names = features}) {}

  void read(std::int64_t record_id, data::Sample& sample) const override {
    sample.label() = static_cast<std::int32_t>(record_id % spec().classes());
    const std::string& name = info_.class_names[static_cast<std::size_t>(sample.label())];
    sample.features()[0] = name == "apple" ? 1.0F : -1.0F;
    sample.features()[1] = name == "pear" ? 1.0F : -1.0F;
  }
};

data::Dataset fruit(const Names& classes = kFruit, const Names& features = kColumns) {
  return data::Dataset::from_source(std::make_shared<Fruit>(classes, features)).batch(20);
}

model::Network fruit_network() {
  model::Network network({2}, "fruit");
  network.add(model::Dense({.units = 3}));
  return network;
}

const TrainerOptions kFast{.schedule = {.peak = 0.1F}};

class TrainedOnFruit : public ::testing::Test {
 protected:
  TrainedOnFruit() : strategy_(local_strategy(session_, 1)) {
    trainer_ = std::make_unique<Trainer>(*strategy_, fruit_network(), kFast);
    FitOptions fit{.epochs = 40, .validation = fruit({"plum", "apple", "pear"})};
    fit.checkpoint.directory = directory_.path();
    fit.checkpoint.save_every = 1000;
    history_ = trainer_->fit(fruit(), fit);
  }
  void expect_names_to_count(Trainer& trainer) const {
    EXPECT_EQ(trainer.evaluate(fruit()).accuracy(), 1);
    EXPECT_EQ(trainer.evaluate(fruit({"plum", "apple", "pear"})).accuracy(), 1);
    EXPECT_EQ(trainer.evaluate(fruit({"pear"})).accuracy(), 1);
    EXPECT_EQ(error_of([&] {
                trainer.evaluate(fruit({"pear", "quince"}));
              }),
              "[fruit] expected only the classes apple, pear, plum; it has the class quince");
    EXPECT_THAT(error_of([&] {
                  trainer.evaluate(fruit(kFruit, {"width", "depth"}));
                }),
                AllOf(HasSubstr("number 2 of which is height; select the columns"),
                      HasSubstr("got depth")));
    EXPECT_EQ(trainer.evaluate(fruit(kFruit, {})).accuracy(), 1) << "no names to compare";
  }

  const checkpoint::ScratchDirectory directory_;
  job::Session session_{0, nullptr, {.quiet = true}};
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Trainer> trainer_;
  History history_;
};

TEST_F(TrainedOnFruit, ItsNamesApplyToValidationAndEvaluation) {
  EXPECT_EQ(history_.epochs.back().validation->accuracy(), 1);
  expect_names_to_count(*trainer_);
}

TEST_F(TrainedOnFruit, ItsCheckpointHasTheNames) {
  Trainer trainer(*strategy_, fruit_network());
  EXPECT_EQ(trainer.evaluate(fruit({"pear", "quince"})).samples, 60) << "nothing to compare with";
  trainer.restore(directory_.path());
  expect_names_to_count(trainer);
}

TEST_F(TrainedOnFruit, PredictionRequiresOnlyTheFeatures) {
  std::int64_t records = 0;
  const auto count = [&](const Predictions& predictions) {
    records += static_cast<std::int64_t>(predictions.record_ids.size());
  };
  trainer_->predict(fruit({"not sorted yet"}), count);
  EXPECT_EQ(records, 60);
  EXPECT_THAT(error_of([&] {
                trainer_->predict(fruit(kFruit, {"height", "width"}), count);
              }),
              HasSubstr("number 1 of which is width"));
}

TEST_F(TrainedOnFruit, ResumingRequiresTheSameNames) {
  const auto error = [&](const data::Dataset& dataset) {
    FitOptions fit{.epochs = 41};
    fit.checkpoint.directory = directory_.path();
    const auto strategy = local_strategy(session_, 1);  // an error ends its group
    return error_of([&] { train(*strategy, fruit_network(), dataset, kFast, fit); });
  };
  const std::string path = (directory_.path() / "step-00000120").string();
  EXPECT_EQ(error(fruit({"plum", "apple", "pear"})),
            fmt::format("[resume] expected the classes of {}, apple, pear, plum, got plum, apple, "
                        "pear; use another --checkpoint-dir to start over",
                        path));
  EXPECT_EQ(error(fruit(kFruit, {"height", "width"})),
            fmt::format("[resume] expected the features of {}, number 1 of which is width, got "
                        "height; use another --checkpoint-dir to start over",
                        path));
}

TEST(DataNames, TargetsMustMatchTheTraining) {
  const checkpoint::ScratchDirectory directory;
  const auto table = [&](const std::string& header) {
    const auto file = directory.path() / (header + ".csv");
    std::ofstream(file) << header << "\n1,2,3\n4,5,6\n";
    return data::Dataset::from_csv(file, {.targets = {"2", "3"}, .scale = data::ColumnScale::none});
  };
  const DataNames trained = DataNames::of(table("x,price,rate"));
  EXPECT_EQ(trained.targets, (Names{"price", "rate"}));
  checkpoint::Configuration stored;
  trained.add_to(stored);
  EXPECT_EQ(DataNames::of(stored).targets, trained.targets);
  EXPECT_NO_THROW(matched(table("1,2,3"), trained)) << "no names to compare";
  EXPECT_THAT(error_of([&] { matched(table("x,rate,price"), trained); }),
              AllOf(HasSubstr("expected the targets of the training data, number 1 of which is "
                              "price; select the columns of a table with targets="),
                    HasSubstr("got rate")));
}

TEST(DataNames, IncludeTheSchemaOfATable) {
  const checkpoint::ScratchDirectory directory;
  const auto table = [&](const std::string& row, const data::CsvOptions& options = {}) {
    const auto file = directory.path() / "table.csv";
    std::ofstream(file) << "x,kind\n1,0\n" << row << "\n";
    return data::Dataset::from_csv(file, options);
  };
  const DataNames trained = DataNames::of(table("3,1"));
  checkpoint::Configuration stored;
  trained.add_to(stored);
  const DataNames restored = DataNames::of(stored);
  ASSERT_NE(restored.table, nullptr);
  EXPECT_EQ(*restored.table, *trained.table);
  EXPECT_NO_THROW(matched(table("5,1", {.schema = restored.table}), trained));
  EXPECT_THAT(error_of([&] { matched(table("5,1"), trained); }),
              HasSubstr("expected a table that is read with the schema of the training data"));
  DataNames shards;  // shards of a table
  shards.features = {"x"};
  EXPECT_THAT(error_of([&] { matched(table("3,1"), shards); }),
              HasSubstr("expected numbers as stored, as in the training (scale=none)"));
  (*stored)["table_schema"]["features"][0]["divisor"] = -1;
  EXPECT_THAT(error_of([&] { DataNames::of(stored); }),
              HasSubstr("[table_schema] expected the description of a table; feature 1: expected "
                        "\"divisor\" to be at least 0"));
}

TEST(DataNames, IncludeTheTokenizerOfAText) {
  const checkpoint::ScratchDirectory directory;
  const auto text = [&](const std::string& content, const data::DataSpecOptions& options = {}) {
    const auto file = directory.path() / "a.txt";
    std::ofstream(file) << content;
    return data::open_data("text:" + file.string(), options);
  };
  const DataNames trained = DataNames::of(text("abc"));
  checkpoint::Configuration stored;
  trained.add_to(stored);
  const DataNames restored = DataNames::of(stored);
  ASSERT_NE(restored.text, nullptr);
  EXPECT_EQ(*restored.text, *trained.text);
  EXPECT_NO_THROW(matched(text("cb", {.text = restored.text}), restored));
  EXPECT_THAT(error_of([&] { matched(text("abcd"), restored); }),
              HasSubstr("expected the tokenizer of the training data, chars with the hash " +
                        restored.text->hash + ", got chars with the hash "));
  (*stored)["text_schema"]["vocabulary"] = "abd";
  EXPECT_THAT(error_of([&] { DataNames::of(stored); }),
              HasSubstr("[text_schema] expected the description of a tokenizer; its vocabulary has "
                        "another hash"));
}

TEST(DataFit, TrainingRequiresTwoClasses) {
  model::Network network({2}, "one");
  network.add(model::Dense({.units = 1}));
  const auto loss = model::SparseCategoricalCrossentropy();
  EXPECT_EQ(error_of([&] { check_data_fits(fruit({"apple"}), network, loss); }),
            "[fruit] expected at least 2 classes to train on (of images, a folder for each); there "
            "is only apple");
  EXPECT_NO_THROW(check_data_fits(fruit({"apple"}), network, loss, DataUse::evaluation));
}

TEST(NotFinite, IsFoundWithItsFileAndColumn) {
  const checkpoint::ScratchDirectory directory;
  const auto file = directory.path() / "table.csv";
  std::ofstream(file) << "width,height,price\n1,2,3\n4,5,6\n7,8,9\n";
  const data::Dataset table = data::Dataset::from_csv(file, {.targets = {"price"}});
  data::Batch batch(table.spec(), 2);
  batch.record_ids = {2, 0};
  std::ranges::copy(std::vector<float>{7, 8, 1, 2}, batch.features().begin());
  std::ranges::copy(std::vector<float>{9, 3}, batch.values().begin());
  EXPECT_EQ(not_finite_text(table.source(), {batch, {}}), "");
  batch.values()[1] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(not_finite_text(table.source(), {{}, batch}), "record 0 has -inf in the target price");
  batch.features()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(not_finite_text(table.source(), {batch}), "record 2 has nan in the feature height");
}

/// Photographs of one size, in files.
class Photos final : public data::RecordSource {
 public:
  explicit Photos(std::int64_t height, bool encoded = true)
      : RecordSource({.spec = data::SampleSpec::classification({height, 8, 3}, 2),
                      .size = 4,
                      .description = "photos",
                      .has_images = true,
                      .has_encoded_images = encoded}) {}

  void read(std::int64_t /*record_id*/, data::Sample& /*sample*/) const override {}
};

TEST(ImagesOfAnotherSize, AreRejectedWithAdviceOnResizing) {
  const auto error = [](const data::Dataset& photos, std::int64_t height) {
    model::Network network({height, height, 3}, "net");
    network.add(model::Flatten());
    network.add(model::Dense({.units = 2}));
    return error_of([&] {
      check_data_fits(photos.batch(2), network, model::SparseCategoricalCrossentropy{},
                      DataUse::evaluation);
    });
  };
  const auto photos = data::Dataset::from_source(std::make_shared<Photos>(9));
  EXPECT_EQ(
      error(photos, 8),
      "[photos] expected samples of shape [8, 8, 3], the input of model net: train with "
      "--image-size N, which resizes all images to N x N, or resize them to 8 x 8, got [9, 8, 3]");
  EXPECT_EQ(error(photos, 224),
            "[photos] expected samples of shape [224, 224, 3], the input of model net, or --images "
            "imagenet, which resizes images to 224 x 224, got [9, 8, 3]");
  const auto resized = photos.images(data::ImageRecipe::parse("imagenet-test"));
  EXPECT_THAT(error(resized, 8), AllOf(HasSubstr("got [224, 224, 3]"), Not(HasSubstr("resize"))));
  const auto pixels = data::Dataset::from_source(std::make_shared<Photos>(9, false));
  EXPECT_THAT(error(pixels, 8), AllOf(HasSubstr("got [9, 8, 3]"), Not(HasSubstr("resize"))));
}

class ScaleWarning : public ::testing::Test {
 protected:
  /// 8 rows; in turn `low` and `high` as width.
  data::Dataset table(int low, int high, data::CsvOptions options = {}) const {
    if (!options.scale) options.scale = data::ColumnScale::none;
    const auto file = directory_.path() / "table.csv";
    std::ofstream out(file);
    out << "width,flag,age,price,kind\n";
    for (int i = 0; i < 8; ++i)
      out << (i % 2 == 0 ? low : high) << "," << i % 2 << ",33,-2000," << i % 2 << "\n";
    out.close();
    return data::Dataset::from_csv(file, options).batch(4);
  }
  const data::CsvOptions kSmall{.leave_out = {"age", "price"}};
  const checkpoint::ScratchDirectory directory_;
};

TEST_F(ScaleWarning, NamesColumnsThatAreFarFromUnitScale) {
  EXPECT_THAT(scale_warning(table(500, 600)),
              AllOf(HasSubstr(": width (mean 550, deviation 50), age (mean 33, deviation 0), price "
                              "(mean -2000, deviation 0); standardize them: (x - mean)"),
                    Not(HasSubstr("flag"))));
  EXPECT_THAT(scale_warning(table(-100, 100, kSmall)), HasSubstr("width (mean 0, deviation 100);"));
  EXPECT_THAT(scale_warning(table(5, 6, {.targets = {"price"}, .leave_out = {"age", "kind"}})),
              AllOf(HasSubstr(": price (mean -2000, deviation 0);"), Not(HasSubstr("width"))));
  EXPECT_THAT(scale_warning(table(500, 600, {.targets = {"kind", "price"}})),
              HasSubstr("deviation 0), price (mean -2000, deviation 0);"));
}

TEST_F(ScaleWarning, IsEmptyForUsualScalesAndPreparedData) {
  EXPECT_EQ(scale_warning(table(5, 8, kSmall)), "");
  EXPECT_EQ(scale_warning(table(500, 600, {.scale = data::ColumnScale::standard})), "");
  EXPECT_EQ(scale_warning(small_data().batch(40)), "") << "no table";
  const auto standardize = [](data::Sample& sample, const data::SampleKey&) {
    sample.features()[0] = (sample.features()[0] - 550) / 50;
  };
  EXPECT_EQ(scale_warning(table(500, 600, kSmall).map(standardize)), "");
}

TEST(LengthWarning, DetectsAFewVeryLongSamples) {
  const checkpoint::ScratchDirectory scratch;
  const std::string file = (scratch.path() / "a.txt").string();
  checkpoint::overwrite(file, std::string(15 * 4096 + 1, 'a'));
  const auto warning = [&](int length) {
    return length_warning(data::open_data(fmt::format("text:{}:length={}", file, length)));
  };
  EXPECT_THAT(warning(4096),
              HasSubstr("there are only 15 samples of 4096 tokens each; length= is"));
  EXPECT_THAT(warning(100'000), HasSubstr("there is only 1 sample of 100000 tokens each"));
  EXPECT_EQ(warning(4095), "");
  EXPECT_EQ(warning(64), "");
  EXPECT_EQ(length_warning(small_data()), "");
}

TEST(DataFit, NamesTheLossOfTargets) {
  const checkpoint::ScratchDirectory directory;
  const auto file = directory.path() / "table.csv";
  std::ofstream(file) << "width,price\n1,2\n4,5\n";
  const auto table = data::Dataset::from_csv(file, {.targets = {"price"}}).batch(2);
  model::Network one({1}, "one");
  one.add(model::Dense({.units = 1}));
  EXPECT_THAT(
      error_of([&] { check_data_fits(table, one, model::SparseCategoricalCrossentropy()); }),
      HasSubstr("the data set has targets, which are for losses such as mean-squared-error"));
  model::Network two({2}, "two");
  two.add(model::Dense({.units = 1}));
  EXPECT_THAT(error_of([&] { check_data_fits(fruit(), two, model::MeanSquaredError()); }),
              HasSubstr("targets= selects columns of a table"));
  EXPECT_EQ(error_of([&] { check_data_fits(fruit(), two, model::BinaryCrossentropy()); }),
            "[fruit] expected 2 classes and a network with 1 output for bce, or "
            "targets, got 3 classes, and model two has 1 output");
  EXPECT_NO_THROW(check_data_fits(fruit({"apple", "pear"}), two, model::BinaryCrossentropy()));
}

TEST(DataFit, AdvisesToFlattenOutputsPerPosition) {
  const auto images = data::Dataset::synthetic({4, 4, 1}, 3, 20).batch(5);
  model::Network network({4, 4, 1}, "pixels");
  network.add(model::Dense({.units = 3}));
  EXPECT_THAT(
      error_of([&] { check_data_fits(images, network, model::SparseCategoricalCrossentropy()); }),
      HasSubstr("expected class numbers [4, 4], one at each position of the output [4, 4, 3] of "
                "model pixels, got label []; the output is [4, 4, 3], a row for each position: add "
                "a flatten layer before the dense layers"));
  model::Network other({4, 4, 1}, "pixels");
  other.add(model::Dense({.units = 7}));
  EXPECT_THAT(
      error_of([&] { check_data_fits(images, other, model::SparseCategoricalCrossentropy()); }),
      Not(HasSubstr("flatten")));
}

TEST(DataFit, ListsNamesThatDoNotMatch) {
  const model::Network network = house_network();
  const auto error = [&](const std::function<void(data::SampleSpec&)>& change,
                         DataUse use = DataUse::training) {
    data::SampleSpec spec = house_data(1).spec();
    change(spec);
    const auto none = [](std::int64_t, data::Sample&) {};
    const auto dataset = data::Dataset::from_generator(spec, 4, none).batch(2);
    const std::string text = error_of(
        [&] { check_data_fits(dataset, network, loss_plan(house_options(), network).loss, use); });
    return text.substr(std::min(text.size(), text.find("expected")));
  };
  const std::string inputs =
      "expected inputs table [3], image [2, 2, 1], word int32 [1] of model house, got ";
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.inputs[2].name = "tabel"; }),
            inputs + "image [2, 2, 1], word int32 [1], tabel [3]");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.inputs[2].shape = {4}; }, DataUse::prediction),
            inputs + "image [2, 2, 1], word int32 [1], table [4]");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.inputs[1].type = ElementType::float32; }),
            inputs + "image [2, 2, 1], word [1], table [3]");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.inputs[1].shape = {-1}; }),
            "expected tensors with known extents (Dataset::pad(), or \"pad\" in dataset.json, cuts "
            "or pads all samples to one length), got word int32 [?]");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.targets[0].type = ElementType::bytes; }),
            "expected tensors of numbers (bytes are for loops of your own, which read them from "
            "batches), got price bytes [1]");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.targets[0].name = "prize"; }),
            "expected a target price for the output cost of model house, got prize [1], kind (3 "
            "classes)");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.targets[1].classes = 4; }),
            "expected 3 classes, the output kind of model house, got 4 classes");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.targets.clear(); }),
            "expected class labels for cross-entropy; the data set has none");
  EXPECT_EQ(error([](data::SampleSpec& spec) { spec.targets.clear(); }, DataUse::prediction), "");
}

TEST(DataFit, NamesLossesWithoutOutputs) {
  const auto error = [](const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = house_options();
    change(options);
    return error_of([&] { train(1, house_network(), house_data(8).batch(4), options); });
  };
  EXPECT_EQ(error([](TrainerOptions& options) { options.losses[0].output = "price"; }),
            "[losses] expected an output of model house: kind, hidden, cost, got \"price\"");
  EXPECT_EQ(error([](TrainerOptions& options) { options.losses[0].output = "cost"; }),
            "[losses] expected one loss for each output, got two for cost");
  EXPECT_EQ(error([](TrainerOptions& options) { options.losses[1].weight = 0; }),
            "[losses] expected a weight above 0 for cost, got 0");
  EXPECT_THAT(error([](TrainerOptions& options) {
                options.class_weights = {1, 2, 3};
              }),
              HasSubstr("expected a single loss with class weights, got 2 losses"));
}

TEST(DataFit, PredictsAllOutputs) {
  for (const int replicas : {1, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, house_network(), house_options());
    std::int64_t next = 0;
    trainer.predict(house_data(11).batch(4), [&](const Predictions& predictions) {
      const std::size_t samples = predictions.record_ids.size();
      for (const std::int64_t id : predictions.record_ids) EXPECT_EQ(id, next++);
      ASSERT_EQ(predictions.all.size(), 3U);
      EXPECT_EQ(predictions.all[0].values.data(), predictions.outputs.data());
      const std::pair<std::string_view, std::size_t> expected[] = {
          {"kind", 3}, {"hidden", 8}, {"cost", 1}};
      for (std::size_t k = 0; k < 3; ++k) {
        EXPECT_EQ(predictions.all[k].name, expected[k].first);
        EXPECT_EQ(predictions.all[k].values.size(), samples * expected[k].second);
      }
    });
    EXPECT_EQ(next, 11);
  }
}

TEST(DataFit, BalancesTheWeightsOfClasses) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  const auto data = [](data::MemoryLabels labels, const data::SampleSpec& spec) {
    return data::Dataset::from_memory(std::vector<float>(8), std::move(labels), spec);
  };
  EXPECT_EQ(
      balanced_class_weights(*strategy, data(std::vector<std::int32_t>{0, 0, 3, 0, 0, 0, 1, 1},
                                             data::SampleSpec::classification({1}, 4))),
      std::vector<float>({8.0F / (4 * 5), 1, 0, 2}));
  EXPECT_THAT(error_of([&] {
                balanced_class_weights(
                    *strategy, data(std::vector<float>(8), data::SampleSpec::regression({1}, 1)));
              }),
              HasSubstr("[class-weights] expected class labels to balance; "));
}

TEST_F(ScaleWarning, IsLoggedOnceByATraining) {
  model::Network network({2}, "linear");
  network.add(model::Dense({.units = 2}));
  ::testing::internal::CaptureStderr();
  train(2, std::move(network), table(500, 600, kSmall), {}, {.epochs = 2});
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string warning = "far from unit scale";
  EXPECT_THAT(log, HasSubstr(warning));
  EXPECT_EQ(log.find(warning), log.rfind(warning));
}

}  // namespace
}  // namespace lockstep::inline v0::train
