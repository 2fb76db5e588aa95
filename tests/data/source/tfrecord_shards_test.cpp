#include "lockstep/data/source/tfrecord/tfrecord_shards.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DatasetJson, KeepsOtherParts) {
  const TemporaryDirectory directory;
  EXPECT_EQ(read_dataset_json(directory.path()), std::nullopt);
  const PartDescription train = {{"train-0", "train-1"}, 60'000, "image", "label", {28, 28, 1}, 10};
  const PartDescription test = {{"test-0"},  10'000, "image",         "label",
                                {28, 28, 1}, 2,      {"boot", "shoe"}};
  write_dataset_part(directory.path(), "train", test);
  write_dataset_part(directory.path(), "test", test);
  write_dataset_part(directory.path(), "train", train);
  EXPECT_EQ(read_dataset_json(directory.path()),
            (DatasetDescription{{"test", test}, {"train", train}}));
}

TEST(DatasetJson, KeepsNamesThatAreNotUtf8) {
  const TemporaryDirectory directory;
  const PartDescription part = {{"train-0"}, 1, "image",           "label",
                                {28, 28, 1}, 2, {"a\xe9", "a\xe8"}};
  write_dataset_part(directory.path(), "train", part);
  EXPECT_EQ(read_dataset_json(directory.path()), (DatasetDescription{{"train", part}}));
}

TEST(DatasetJson, RejectsMoreNamesThanItReads) {
  const TemporaryDirectory directory;
  PartDescription part = {{"train-0"}, 1, "image", "label", {28, 28, 1}, 10};
  write_dataset_part(directory.path(), "train", part);
  PartDescription wide = part;
  wide.feature_names.resize(1'000'000, "a");
  for (const auto refuses : {check_dataset_part, write_dataset_part})
    EXPECT_THAT(data_error_of([&] { refuses(directory.path(), "train", wide); }),
                HasSubstr("dataset.json] expected JSON, got more than 1000000 values"));
  EXPECT_EQ(read_dataset_json(directory.path()), (DatasetDescription{{"train", part}}));
}

TEST(DatasetJson, RejectsFilesOutsideItsDirectory) {
  const TemporaryDirectory directory;
  for (const char* name : {"/etc/passwd", "../train-0", "sub/train-0", "..", ""}) {
    write_bytes(directory / "dataset.json",
                fmt::format(R"({{"lockstep_dataset": 1, "parts": {{"train": {{"files": ["{}"],
                                "incomplete": true}}}}}})",
                            name));
    EXPECT_EQ(data_error_of([&] { read_dataset_json(directory.path()); }),
              "[" + (directory / "dataset.json").string() +
                  "] expected \"files\" to be names of files in the same directory, got \"" + name +
                  "\"");
  }
}

TEST(DatasetJson, ReportsInvalidMembers) {
  const TemporaryDirectory directory;
  const auto message = [&](const std::string& text) {
    write_bytes(directory / "dataset.json", text);
    return data_error_of([&] { read_dataset_json(directory.path()); });
  };
  const std::string where = "[" + (directory / "dataset.json").string() + "] ";
  EXPECT_THAT(message("{"), HasSubstr(where + "expected JSON, got a syntax error at byte 2"));
  const std::string refused = where + "expected a description written by `lockstep data convert`; ";
  EXPECT_EQ(message("{}"), refused + "it has no \"lockstep_dataset\"");
  EXPECT_EQ(message("[1]"), refused + "it is an array of 1");
  EXPECT_EQ(message(R"({"lockstep_dataset": 2})"),
            where + "expected \"lockstep_dataset\": 1; it is 2");
  EXPECT_EQ(message(R"({"lockstep_dataset": 1, "parts": 3})"),
            refused + "its \"parts\" is 3, not an object");
  for (const auto& [members, reason] :
       {std::pair{R"("records": 1)", R"(it has no "files")"},
        {R"("files": "a")", R"(its "files" is "a", not a list of strings)"},
        {R"("files": [1])", R"(its "files" is an array of 1, not a list of strings)"},
        {R"("files": [], "incomplete": 1)", R"(its "incomplete" is 1, not true or false)"},
        {R"("files": [], "records": "many")", R"(its "records" is "many", not an integer)"},
        {R"("files": [], "records": 1.5)", R"(its "records" is 1.5, not an integer)"},
        {R"("files": [], "records": 1e30)", R"(its "records" is 1e+30, not an integer)"},
        {R"("files": [], "records": 1, "inputs": [7])", "it is 7"},
        {R"("files": [], "records": 1, "inputs": [{"name": 1}])",
         R"(its "name" is 1, not a string)"},
        {R"("files": [], "records": 1, "input_feature": "a", "label_feature": "b",
               "shape": [true], "classes": 2)",
         R"(its "shape" is an array of 1, not a list of integers)"}})
    EXPECT_EQ(
        message(fmt::format(R"({{"lockstep_dataset": 1, "parts": {{"train": {{{}}}}}}})", members)),
        refused + "part \"train\": " + reason);
  EXPECT_THAT(message(R"({"lockstep_dataset": 1, "parts": {"train": {"files": [], "records": 1,
                        "inputs": [{"name": "a", "type": "float", "shape": [1]}],
                        "targets": []}}})"),
              HasSubstr(where + "expected uint8, int32, int64, float32 or bytes, got \"float\""));
  EXPECT_EQ(message(R"({"lockstep_dataset": 1, "parts": {"train": {"files": [], "records": 1,
                        "inputs": [{"name": "a", "type": "int32", "shape": [3], "pad": 4}],
                        "targets": []}}})"),
            where +
                "expected \"pad\" to be 1 or more, of a tensor whose first extent is -1, got 4 "
                "of a int32 [3]");
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(message("{\"lockstep_dataset\": " + nested + "}"),
            where + "expected JSON, got more than 64 levels of arrays and objects");
}

class ShardsTest : public ::testing::Test {
 protected:
  ShardsTest() { options_.directory = directory_ / "made/here"; }

  const TemporaryDirectory directory_;
  const SyntheticSource source_{{{2, 2, 1}, 3, 11, 1, "train"}};
  ShardOptions options_;
};

TEST_F(ShardsTest, KeepClassNames) {
  write_bytes(directory_ / "a.csv", "width,kind\n1,plum\n2,apple\n");
  options_.encoding = FeatureEncoding::floats;
  EXPECT_THAT(write_shards(CsvSource(directory_ / "a.csv"), options_).class_names,
              ElementsAre("apple", "plum"));
  EXPECT_THAT(read_dataset_json(options_.directory)->at("train").class_names,
              ElementsAre("apple", "plum"));
  options_.part = "test";
  write_bytes(directory_ / "b.csv", "width,kind\n1,plum\n2,cherry\n");
  EXPECT_EQ(data_error_of([&] { write_shards(CsvSource(directory_ / "b.csv"), options_); }),
            "[" + (options_.directory / "dataset.json").string() +
                "] expected the classes of its part train: apple, plum, got cherry, plum");
  EXPECT_NO_THROW(write_shards(CsvSource(directory_ / "a.csv"), options_));
}

TEST_F(ShardsTest, OfARegressionHaveItsTargetsAsFloats) {
  write_bytes(directory_ / "a.csv", "width,price,height,rate\n1,2.5,3,4\n5,-6,7,8\n");
  options_.encoding = FeatureEncoding::floats;
  options_.input_feature = "features";
  const PartDescription part = write_shards(
      CsvSource(directory_ / "a.csv", {.targets = {"rate", "price"}, .scale = ColumnScale::none}),
      options_);
  EXPECT_EQ(part.classes, 0);
  EXPECT_EQ(parse_example(read_records(options_.directory / part.files.at(0)).at(1)),
            (Example{{"features", FloatList{5, 7}}, {"label", FloatList{8, -6}}}));
  const Dataset dataset = open_data(options_.directory.string());
  EXPECT_EQ(dataset.spec(), SampleSpec::regression({2}, 2));
  EXPECT_THAT(dataset.source().info().feature_names, ElementsAre("width", "height"));
  EXPECT_THAT(dataset.source().info().target_names, ElementsAre("rate", "price"));
  EXPECT_THAT(read(dataset.source(), 0).features(), ElementsAre(1, 3));
  EXPECT_THAT(read(dataset.source(), 0).values(), ElementsAre(4, 2.5));
}

/// An image of two pixels, a table of two columns, numbers, a class and a price; weighted.
const SampleSpec kOffers = {.inputs = {{.name = "photo", .shape = {2, 1, 1}},
                                       {.name = "table", .shape = {2}},
                                       {.name = "words", .type = ElementType::int64, .shape = {2}}},
                            .targets = {{.name = "kind", .type = ElementType::int32, .classes = 3},
                                        {.name = "price", .shape = {1}}},
                            .weighted = true};

Dataset offers() {
  std::vector<std::uint8_t> photos;
  std::vector<float> tables, prices, weights;
  std::vector<std::int64_t> words;
  std::vector<std::int32_t> kinds;
  for (std::int64_t i = 0; i < 7; ++i) {
    const auto number = static_cast<float>(i);
    photos.insert(photos.end(), 2, static_cast<std::uint8_t>(10 * i));
    tables.insert(tables.end(), {number / 4, -number});
    words.insert(words.end(), {i, -i});
    kinds.push_back(static_cast<std::int32_t>(i % 3));
    prices.push_back(2 * number);
    weights.push_back(number);
  }
  return Dataset::from_memory({photos, tables, words}, {kinds, prices}, kOffers, weights);
}

TEST_F(ShardsTest, OfSeveralTensorsHaveAFeatureForEach) {
  const PartDescription part = write_shards(offers().source(), options_);
  EXPECT_EQ(part.tensors, kOffers);
  EXPECT_EQ(read_dataset_json(options_.directory)->at("train"), part);
  EXPECT_EQ(parse_example(read_records(options_.directory / part.files.at(0)).at(2)),
            (Example{{"photo", BytesList{std::string(2, '\x14')}},
                     {"table", FloatList{0.5, -2}},
                     {"words", Int64List{2, -2}},
                     {"kind", Int64List{2}},
                     {"price", FloatList{4}},
                     {"sample_weight", FloatList{2}}}));
  const Dataset stored = open_data(options_.directory.string());
  EXPECT_EQ(stored.spec(), kOffers);
  const auto first_batch_of = [](const Dataset& dataset, bool pixels) {
    std::vector<Batch> parts;
    EXPECT_TRUE(dataset.batch(7).stream({.pixels = pixels})->next(parts));
    return parts.front();
  };
  for (const bool pixels : {false, true}) {
    const Batch expected = first_batch_of(offers(), pixels);
    const ImageRecipe same = ImageRecipe::parse("none", 2, 1, 1);
    for (const Dataset& dataset : {stored, stored.images(same), stored.cache(),
                                   stored.take(3).concatenate(offers().skip(3)).images(same)}) {
      const Batch batch = first_batch_of(dataset, pixels);
      EXPECT_EQ(batch.inputs, expected.inputs) << dataset.description();
      EXPECT_EQ(batch.targets, expected.targets) << dataset.description();
      EXPECT_EQ(batch.weights, expected.weights) << dataset.description();
      EXPECT_EQ(batch.pixels().empty(), !pixels);
    }
  }
}

TEST(ExampleWeights, AreFinite) {
  const SampleSpec spec = {.inputs = {{.name = "x", .shape = {1}}}, .weighted = true};
  const ExampleDecoder decoder(spec, InputKind::floats, {"x", kWeightFeature});
  Batch batch(spec, 1);
  const auto problem = [&](float weight) {
    Sample sample = batch.sample();
    return decoder.decode(
        serialize_example({{"x", FloatList{1}}, {kWeightFeature, FloatList{weight}}}), sample);
  };
  EXPECT_FALSE(problem(0));
  for (const auto& [weight, text] :
       {std::pair(-1.0F, "it is -1"),
        std::pair(std::numeric_limits<float>::infinity(), "it is inf"),
        std::pair(std::numeric_limits<float>::quiet_NaN(), "it is nan")}) {
    const auto wrong = problem(weight);
    ASSERT_TRUE(wrong) << text;
    EXPECT_EQ(wrong->expected, "expected a finite weight of 0 or more in sample_weight");
    EXPECT_EQ(wrong->actual, text);
  }
}

TEST_F(ShardsTest, ReadTheTensorsOfTheOptions) {
  write_shards(offers().source(), options_);
  const auto open = [&](const SampleSpec& tensors) {
    return Dataset::from_tfrecords((options_.directory / "train-*").string(), {.tensors = tensors});
  };
  const TensorSpec words = {.name = "words", .type = ElementType::int32, .shape = {2}};
  const SampleSpec unlabelled = {.inputs = {{.name = "table", .shape = {2}}, words}};
  const ReadSample sample = read(open(unlabelled).source(), 4);
  EXPECT_THAT(sample.features(), ElementsAre(1, -4));
  EXPECT_THAT(copy(sample.memory.input("words").as<std::int32_t>()), ElementsAre(4, -4));
  EXPECT_THAT(data_error_of([&] { open({.inputs = {{.name = "table", .shape = {3}}}}); }),
              HasSubstr("expected 3 floats in table for shape [3]; it has 2 values of kind float"));
  EXPECT_THAT(data_error_of([&] {
                open({.inputs = {words, {.name = "kind", .shape = {1}}}});
              }),
              HasSubstr("expected 1 floats in kind; it has 1 value of kind int64"));
  EXPECT_THAT(data_error_of([&] {
                open({.inputs = {words, {.name = "size", .shape = {1}}}});
              }),
              HasSubstr("expected the feature size; the record has the features kind (int64), "));
  const auto ragged = [](const char* name, ElementType type, std::vector<std::int64_t> shape) {
    return TensorSpec{.name = name, .type = type, .shape = std::move(shape)};
  };
  const ReadSample any = read(open({.inputs = {ragged("words", ElementType::int64, {-1}),
                                               ragged("table", ElementType::float32, {-1, 2}),
                                               ragged("photo", ElementType::bytes, {})}})
                                  .source(),
                              4);
  EXPECT_THAT(copy(any.memory.input("words").as<std::int64_t>()), ElementsAre(4, -4));
  EXPECT_THAT(any.memory.input("table").lengths, ElementsAre(1));
  EXPECT_THAT(any.memory.input("photo").as<std::string>()[0], std::string(2, '\x28'));
  const ReadSample pixels =
      read(open({.inputs = {ragged("photo", ElementType::uint8, {-1})}}).source(), 4);
  EXPECT_THAT(copy(pixels.memory.pixels()), ElementsAre(40, 40));
  const struct {
    TensorSpec tensor;
    const char* message;
  } refused[] = {
      {ragged("words", ElementType::int64, {-1, 3}),
       "expected up to 2^28 integers, a multiple of 3, in words; it has 2 values of kind int64"},
      {ragged("words", ElementType::float32, {-1}),
       "expected up to 2^28 floats in words; it has 2 values of kind int64"},
      {ragged("words", ElementType::bytes, {-1}),
       "expected up to 2^28 values of bytes in words; it has 2 values of kind int64"},
      {ragged("photo", ElementType::bytes, {2}),
       "expected 2 values of bytes in photo; it has 1 value of kind bytes"},
      {ragged("photo", ElementType::uint8, {-1, 4}),
       "expected up to 2^28 raw bytes, a multiple of 4, in photo; it has 2 bytes"},
  };
  for (const auto& row : refused)
    EXPECT_THAT(data_error_of([&] { open({.inputs = {row.tensor}}); }), HasSubstr(row.message));
}

TEST_F(ShardsTest, AreNamedAndCutEvenly) {
  options_.shards = 4;
  std::vector<std::int64_t> progress;
  const PartDescription part =
      write_shards(source_, options_, [&](std::int64_t records) { progress.push_back(records); });
  EXPECT_THAT(part.files,
              ElementsAre("train-00000-of-00004.tfrecord", "train-00001-of-00004.tfrecord",
                          "train-00002-of-00004.tfrecord", "train-00003-of-00004.tfrecord"));
  std::vector<std::size_t> records;
  for (const std::string& file : part.files)
    records.push_back(read_records(options_.directory / file).size());
  EXPECT_THAT(records, ElementsAre(2, 3, 3, 3));
  EXPECT_EQ(part.records, 11);
  EXPECT_EQ(read_dataset_json(options_.directory)->at("train"), part);
}

TEST_F(ShardsTest, RoundTripFloats) {
  options_.encoding = FeatureEncoding::floats;
  options_.compression = Compression::gzip;
  write_shards(source_, options_);
  const Dataset dataset = Dataset::from_tfrecords((options_.directory / "train-*").string());
  EXPECT_EQ(dataset.spec(), source_.spec());
  for (std::int64_t id = 0; id < 11; ++id)
    EXPECT_EQ(read(dataset.source(), id).features(), read(source_, id).features());
}

TEST_F(ShardsTest, ReplaceExistingShardsOnlyIfAllowed) {
  options_.shards = 2;
  write_shards(source_, options_);
  options_.shards = 3;
  EXPECT_EQ(input_error_of([&] { write_shards(source_, options_); }),
            "[" + options_.directory.string() +
                "] expected a directory without shards of train, or --overwrite; it has "
                "train-00000-of-00002.tfrecord");
  options_.part = "test";
  EXPECT_NO_THROW(write_shards(source_, options_));
  options_.part = "train";
  options_.overwrite = true;
  write_shards(source_, options_);
  EXPECT_EQ(matching_files({(options_.directory / "train-*").string()}).size(), 3u);
  EXPECT_EQ(matching_files({(options_.directory / "*").string()}).size(), 6u);
}

/// A source whose last record cannot be read.
class BrokenAtTheEnd final : public RecordSource {
 public:
  BrokenAtTheEnd() {
    info_ = good_.info();
    info_.description = "broken at the end";
  }
  void read(std::int64_t record_id, Sample& sample) const override {
    if (record_id == size() - 1)
      throw Error(ErrorCategory::data, "source", "expected the last record", "it is lost");
    good_.read(record_id, sample);
  }

 private:
  SyntheticSource good_{{{2, 2, 1}, 3, 11, 1, "train"}};
};

TEST_F(ShardsTest, AreAllWrittenOrNone) {
  options_.shards = 2;
  EXPECT_THAT(data_error_of([&] { write_shards(BrokenAtTheEnd(), options_); }),
              HasSubstr("expected the last record"));
  EXPECT_TRUE(names_in(options_.directory).empty());
  write_shards(source_, options_);
  const std::string before = read_bytes(options_.directory / "train-00000-of-00002.tfrecord");
  options_.overwrite = true;
  options_.encoding = FeatureEncoding::floats;
  EXPECT_THROW(write_shards(BrokenAtTheEnd(), options_), Error);
  EXPECT_EQ(read_bytes(options_.directory / "train-00000-of-00002.tfrecord"), before);
  EXPECT_THAT(names_in(options_.directory),
              ElementsAre("dataset.json", "train-00000-of-00002.tfrecord",
                          "train-00001-of-00002.tfrecord"));
}

TEST_F(ShardsTest, RejectInvalidDirectoriesAndOptions) {
  write_bytes(directory_ / "made", "a file");
  EXPECT_THAT(data_error_of([&] { write_shards(source_, options_); }),
              HasSubstr("expected a directory to write shards to; "));
  options_.shards = 0;
  EXPECT_EQ(input_error_of([&] { write_shards(source_, options_); }),
            "[shards] expected 1 to 99999 shards, got 0");
  options_.shards = 1;
  options_.part = "a/b";
  EXPECT_EQ(input_error_of([&] { write_shards(source_, options_); }),
            "[shards] expected a part name that can begin a file name, got \"a/b\"");
}

/// As after a crash or a power failure between two renames: the first shard is new and the second
/// old.
TEST_F(ShardsTest, AnInterruptedReplacementIsNotReadAsOneDataSet) {
  const SyntheticSource larger{{{2, 2, 1}, 3, 2000, 1, "train"}};
  options_.shards = 2;
  write_shards(source_, options_);
  options_.overwrite = true;
  const auto second = options_.directory / "train-00001-of-00002.tfrecord";
  const std::string first_before = read_bytes(options_.directory / "train-00000-of-00002.tfrecord");
  // A directory of the same name prevents the renaming of the second shard.
  const auto block = [&](std::int64_t records) {
    if (records < 2000) return;
    std::filesystem::rename(second, directory_ / "old");
    std::filesystem::create_directories(second / "not_empty");
  };
  EXPECT_THAT(data_error_of([&] { write_shards(larger, options_, block); }),
              HasSubstr("expected to write the file"));
  std::filesystem::remove_all(second);
  std::filesystem::rename(directory_ / "old", second);
  ASSERT_NE(read_bytes(options_.directory / "train-00000-of-00002.tfrecord"), first_before);

  const std::string refusal =
      ", got one that was interrupted while it replaced files; run lockstep data convert "
      "--overwrite again";
  const std::string where =
      "[" + (options_.directory / "dataset.json").string() + "] expected a complete conversion of ";
  EXPECT_EQ(
      data_error_of([&] { Dataset::from_tfrecords((options_.directory / "train-*").string()); }),
      where + "train-00000-of-00002.tfrecord" + refusal);
  EXPECT_EQ(data_error_of([&] { open_data(options_.directory.string()); }),
            where + "the part train" + refusal);

  write_shards(larger, options_);
  EXPECT_EQ(open_data(options_.directory.string()).size(), 2000);
}

TEST_F(ShardsTest, RemoveFilesOfAKilledConversion) {
  std::filesystem::create_directories(options_.directory);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    write_shards(SyntheticSource{{{2, 2, 1}, 3, 2000, 1, "train"}}, options_,
                 [](std::int64_t) { ::raise(SIGKILL); });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(names_in(options_.directory).size(), 1u);
  write_shards(source_, options_);
  EXPECT_THAT(names_in(options_.directory),
              ElementsAre("dataset.json", "train-00000-of-00001.tfrecord"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
