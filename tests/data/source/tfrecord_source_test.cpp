#include "lockstep/data/source/tfrecord/tfrecord_source.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TFRecordSourceTest : public ::testing::Test {
 protected:
  TFRecordSource open(const TFRecordOptions& options = {},
                      const std::string& pattern = "*.tfrecord") const {
    return {matching_files({(directory_ / pattern).string()}), options, "test data"};
  }
  std::string data_error(const TFRecordOptions& options = {}) const {
    return data_error_of([&] { open(options); });
  }
  std::string input_error(const TFRecordOptions& options = {}) const {
    return input_error_of([&] { open(options); });
  }
  std::string at(std::int64_t record, std::int64_t offset,
                 const std::string& name = "a.tfrecord") const {
    return "[" + RecordLocation{(directory_ / name).string(), record, offset}.text() + "] ";
  }
  static std::vector<float> features_of(const RecordSource& source, std::int64_t id,
                                        std::int32_t* label = nullptr) {
    const ReadSample sample = read(source, id);
    std::vector<float> features = sample.features();
    const std::vector<float> targets = sample.values();
    if (label != nullptr) *label = sample.label();
    features.insert(features.end(), targets.begin(), targets.end());
    return features;
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path file_ = directory_ / "a.tfrecord";
  const TFRecordOptions shaped_{.input_feature = "",
                                .label_feature = "",
                                .input_shape = {2, 3, 1},
                                .classes = 0,
                                .index_dir = {}};
};

TEST_F(TFRecordSourceTest, NumbersRecordsThroughTheFilesInTheOrderOfTheirNames) {
  write_records(directory_ / "b.tfrecord", {image_record(3, 6, 3)}, Compression::gzip);
  write_records(directory_ / "a.tfrecord",
                {image_record(0, 6, 0), image_record(1, 6, 1), image_record(2, 6, 2)});
  write_records(directory_ / "c.tfrecord", {});
  write_records(directory_ / "d.tfrecord", {image_record(4, 6, 4)}, Compression::zlib);
  write_records(directory_ / "e.tfrecord", {});
  const TFRecordSource source = open(shaped_);
  ASSERT_EQ(source.size(), 5);
  EXPECT_EQ(source.spec(), SampleSpec::classification({2, 3, 1}, 5));
  for (std::int32_t id = 0; id < 5; ++id) {
    std::int32_t label = -1;
    EXPECT_EQ(features_of(source, id, &label),
              std::vector<float>(6, static_cast<float>(id) / 255.0f));
    EXPECT_EQ(label, id);
  }
  EXPECT_THROW(features_of(source, 5), CheckFailure);
}

TEST_F(TFRecordSourceTest, ReadsMoreFilesThanTheDescriptorLimit) {
  for (int i = 0; i < 520; ++i) {
    std::string bytes;
    append_record(bytes, image_record(i % 10, 6, static_cast<unsigned char>(i % 251)));
    write_bytes(directory_ / fmt::format("{:04}.tfrecord", i), bytes);
  }
  const TFRecordSource source = open(shaped_);
  for (const std::int64_t id : {0, 511, 512, 519}) {
    std::int32_t label = -1;
    EXPECT_EQ(features_of(source, id, &label)[0], static_cast<float>(id % 251) / 255.0f);
    EXPECT_EQ(label, id % 10);
  }
}

TEST_F(TFRecordSourceTest, SkipsIndexFiles) {
  write_records(file_, {image_record(1, 6, 0)});
  EXPECT_EQ(open(shaped_, "*").size(), 1);
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("a.tfrecord", "a.tfrecord.index"));
  EXPECT_EQ(open(shaped_, "*").size(), 1);
}

TEST_F(TFRecordSourceTest, CountsClassesOnceAndStoresTheResult) {
  write_records(file_, {image_record(1, 6, 0), image_record(6, 6, 0)});
  EXPECT_EQ(open(shaped_).spec().classes(), 7);
  EXPECT_EQ(load_record_index(file_.string() + ".index", file_version(file_))->labels,
            (LabelRange{"label", 1, 6}));
  // A different result in the index shows that it is used, not the records.
  RecordIndex index = *load_record_index(file_.string() + ".index", file_version(file_));
  index.labels->highest = 9;
  ASSERT_TRUE(save_record_index(file_.string() + ".index", file_version(file_), index));
  EXPECT_EQ(open(shaped_).spec().classes(), 10);
  index.labels->feature = "another";
  ASSERT_TRUE(save_record_index(file_.string() + ".index", file_version(file_), index));
  EXPECT_EQ(open(shaped_).spec().classes(), 7);
}

TEST_F(TFRecordSourceTest, ReportsAMissingClassZero) {
  write_records(directory_ / "a.tfrecord", {image_record(2, 6, 0)});
  write_records(directory_ / "b.tfrecord", {image_record(1, 6, 0), image_record(3, 6, 0)});
  for (const char* from : {"the records", "the indexes"})
    EXPECT_EQ(open(shaped_).info().description,
              "test data, labels from 1 to 3 (4 classes, none of class 0)")
        << from;
  write_records(directory_ / "c.tfrecord", {image_record(0, 6, 0)});
  EXPECT_EQ(open(shaped_).info().description, "test data");
}

/// The new file has the size, time, inode and ends of the indexed file.
TEST_F(TFRecordSourceTest, NamesTheIndexOfAFileThatWasReplacedInTheMiddle) {
  const std::string end = image_record(1, 5000, 0);
  const auto write = [&](const std::vector<std::string>& middle) {
    std::string bytes;
    append_record(bytes, end);
    for (const std::string& record : middle) append_record(bytes, record);
    append_record(bytes, end);
    std::fstream(file_, std::ios::binary | std::ios::in | std::ios::out)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  for (const std::filesystem::path& index_dir : {std::filesystem::path(), directory_ / "indexes"}) {
    write_bytes(file_, "");
    const std::string a = image_record(0, 100, 0);
    const std::string b = image_record(2, 120, 0);
    write({a, b});
    const auto time = std::filesystem::last_write_time(file_);
    TFRecordOptions options{.input_shape = {50, 100, 1}, .index_dir = index_dir};
    const std::string index = record_index_path(file_, index_dir).string();
    EXPECT_EQ(open(options).spec().classes(), 3);
    const auto error = [&](std::int64_t record) {
      std::filesystem::last_write_time(file_, time);
      const TFRecordSource source = open(options);
      return data_error_of([&] { features_of(source, record); });
    };
    write({b, a});
    EXPECT_THAT(error(1), HasSubstr("expected a record of "));
    EXPECT_THAT(error(1),
                HasSubstr("; if another file has replaced this one, remove its index " + index));
    EXPECT_THAT(error(2), HasSubstr("length CRC"));
    EXPECT_THAT(error(2), HasSubstr("remove its index " + index));
    write({image_record(7, 100, 0), b});
    EXPECT_THAT(error(1), HasSubstr("expected 5000 raw bytes"));
    EXPECT_THAT(error(1),
                HasSubstr("; its index " + index + " was made from another file: remove it"));
    write({a, b});
    EXPECT_THAT(error(1), HasSubstr("it has 100 bytes"));
    EXPECT_THAT(error(1), ::testing::Not(HasSubstr("index")));
  }
}

TEST_F(TFRecordSourceTest, RefusesAnEmptyListOfFeatures) {
  write_records(file_, {serialize_example({{"features", FloatList{}}, {"label", Int64List{1}}})});
  EXPECT_EQ(data_error(), at(0, 0) +
                              "expected one value of bytes, or floats, in features; it has 0 of "
                              "kind float");
}

TEST_F(TFRecordSourceTest, RejectsInvalidNumbersOfClasses) {
  write_records(file_, {image_record(1, 6, 0)});
  for (const char* classes : {"-1", "2147483648", "9223372036854775807"}) {
    write_bytes(directory_ / "dataset.json",
                fmt::format(R"({{"lockstep_dataset": 1, "parts": {{"train": {{"records": 1,
                                "input_feature": "image", "label_feature": "label",
                                "shape": [2, 3, 1], "classes": {},
                                "files": ["a.tfrecord"]}}}}}})",
                            classes));
    EXPECT_EQ(data_error(), "[" + (directory_ / "dataset.json").string() +
                                "] expected a number of classes from 0 to 2^31 - 1, got " +
                                classes);
  }
  write_bytes(directory_ / "dataset.json",
              R"({"lockstep_dataset": 1, "parts": {"train": {"records": 1, "input_feature": "image",
                  "label_feature": "label", "shape": [2, 1e30, 1], "classes": 2,
                  "files": ["a.tfrecord"]}}})");
  EXPECT_THAT(data_error(), HasSubstr("expected a description written by `lockstep data convert`"));
}

TEST_F(TFRecordSourceTest, FindsTheUsualFeatures) {
  write_records(file_, {serialize_example({{"image/encoded", BytesList{std::string(12, 'x')}},
                                           {"image/class/label", Int64List{2}},
                                           {"image/height", Int64List{2}},
                                           {"image/width", Int64List{2}},
                                           {"image/channels", Int64List{3}},
                                           {"label", BytesList{"two"}}})});
  const TFRecordSource source = open();
  EXPECT_EQ(source.spec(), SampleSpec::classification({2, 2, 3}, 3));
  EXPECT_EQ(source.decoder().input_feature(), "image/encoded");
  EXPECT_EQ(source.decoder().label_feature(), "image/class/label");
}

TEST_F(TFRecordSourceTest, PredictionsNeedOnlyTheInput) {
  const auto record = [](const Feature& label) {
    return serialize_example({{"x", FloatList{1, 2}}, {"label", label}});
  };
  write_records(file_, {record({}), record(BytesList{"cat"}), record(Int64List{-7})});
  for (const TFRecordOptions& options :
       {TFRecordOptions{.input_feature = "x", .without_labels = true},
        TFRecordOptions{.without_labels = true, .trained_input = "x"},
        TFRecordOptions{.tensors = {.inputs = {{.name = "x", .shape = {2}}},
                                   .targets = {{.name = "y", .shape = {1}}},
                                   .weighted = true},
        .without_labels = true}}) {
    const TFRecordSource source = open(options);
    EXPECT_TRUE(source.spec().targets.empty());
    EXPECT_FALSE(source.spec().weighted);
    ASSERT_EQ(source.size(), 3);
    for (int id = 0; id < 3; ++id) EXPECT_THAT(features_of(source, id), ElementsAre(1, 2));
  }
  EXPECT_THAT(input_error({.input_feature = "x"}), HasSubstr("expected --label-feature"));
}

TEST_F(TFRecordSourceTest, ReadsFloatsUnchanged) {
  write_records(file_,
                {serialize_example({{"x", FloatList{1.5f, -2.0f, 3e10f}}, {"y", Int64List{1}}})});
  const TFRecordSource source = open({.input_feature = "x",
                                      .label_feature = "y",
                                      .input_shape = {},
                                      .classes = 4,
                                      .index_dir = {}});
  EXPECT_EQ(source.spec(), SampleSpec::classification({3}, 4));
  EXPECT_THAT(features_of(source, 0), ElementsAre(1.5f, -2.0f, 3e10f));
}

TEST_F(TFRecordSourceTest, ReadsFloatLabelsAsTargets) {
  write_records(file_, {serialize_example({{"x", FloatList{1}}, {"y", FloatList{7, 8}}}),
                        serialize_example({{"x", FloatList{2}}, {"y", FloatList{9}}})});
  const TFRecordSource source = open({.input_feature = "x",
                                      .label_feature = "y",
                                      .input_shape = {},
                                      .classes = 0,
                                      .index_dir = {}});
  EXPECT_EQ(source.spec(), SampleSpec::regression({1}, 2));
  EXPECT_THAT(features_of(source, 0), ElementsAre(1, 7, 8));
  EXPECT_EQ(data_error_of([&] { features_of(source, 1); }),
            at(1, 52) + "expected 2 floats in y; it has 1 value of kind float");
}

TEST_F(TFRecordSourceTest, FollowsTheDescription) {
  std::filesystem::create_directory(directory_ / "shards");
  const SyntheticSource synthetic({{4, 5, 2}, 6, 50, 1, "train"});
  ShardOptions options;
  options.directory = directory_ / "shards";
  options.shards = 3;
  options.input_feature = "pixels";
  options.label_feature = "kind";
  write_shards(synthetic, options);
  const TFRecordSource source = open({}, "shards/train-*");
  EXPECT_EQ(source.size(), 50);
  EXPECT_EQ(source.spec(), SampleSpec::classification({4, 5, 2}, 6));
  EXPECT_EQ(load_record_index((directory_ / "shards/train-00000-of-00003.tfrecord.index").string(),
                              file_version(directory_ / "shards/train-00000-of-00003.tfrecord"))
                ->labels,
            std::nullopt);
  for (const std::int64_t id : {0, 16, 17, 49}) {
    std::int32_t label = -1;
    std::int32_t expected_label = -1;
    const auto features = features_of(source, id, &label);
    const auto expected = features_of(synthetic, id, &expected_label);
    EXPECT_EQ(label, expected_label);
    for (std::size_t i = 0; i < features.size(); ++i)
      EXPECT_NEAR(features[i], expected[i], 0.5 / 255 + 1e-6);
  }
  // Options have priority over the description.
  EXPECT_EQ(open({.input_feature = "",
                  .label_feature = "",
                  .input_shape = {40},
                  .classes = 8,
                  .index_dir = {}},
                 "shards/train-*")
                .spec(),
            SampleSpec::classification({40}, 8));
}

TEST_F(TFRecordSourceTest, RejectsFilesOfPartsThatDoNotMatch) {
  write_records(directory_ / "a.tfrecord", {image_record(1, 6, 0)});
  write_records(directory_ / "b.tfrecord", {image_record(1, 8, 0)});
  write_dataset_part(directory_.path(), "a", {{"a.tfrecord"}, 1, "image", "label", {6}, 2});
  write_dataset_part(directory_.path(), "b", {{"b.tfrecord"}, 1, "image", "label", {8}, 2});
  EXPECT_EQ(data_error(), "[" + (directory_ / "b.tfrecord").string() +
                              "] expected the features, shape and classes of " +
                              (directory_ / "a.tfrecord").string() + "; " +
                              (directory_ / "dataset.json").string() + " describes it differently");
}

TEST_F(TFRecordSourceTest, NamesMissingFiles) {
  const std::string pattern = (directory_ / "*.tfrecord").string();
  EXPECT_EQ(data_error(),
            "[" + pattern + "] expected files that match this pattern; there are none");
  const std::string directory = (directory_ / "trian").string();
  EXPECT_EQ(data_error_of([&] { matching_files({directory}); }),
            "[" + directory + "] expected a file, or a pattern of files; it does not exist");
}

TEST_F(TFRecordSourceTest, PrefersAnExistingFileToAPattern) {
  for (const char* name : {"a[1].tfrecord", "b?.tfrecord", "c*.tfrecord", "d{x}.tfrecord"}) {
    write_bytes(directory_ / name, "");
    write_bytes(directory_ / "b1.tfrecord", "");
    EXPECT_THAT(matching_files({(directory_ / name).string()}),
                ::testing::ElementsAre(directory_ / name));
  }
  EXPECT_THAT(matching_files({(directory_ / "a[[]1].tfrecord").string()}),
              ::testing::ElementsAre(directory_ / "a[1].tfrecord"));
}

TEST_F(TFRecordSourceTest, NamesEmptyFiles) {
  write_bytes(file_, "");
  EXPECT_EQ(data_error(),
            "[" + file_.string() + "] expected at least one record; the file is empty");
  write_bytes(directory_ / "b.tfrecord", "");
  EXPECT_EQ(data_error(),
            "[" + file_.string() + "] expected at least one record; it and 1 more files are empty");
}

TEST_F(TFRecordSourceTest, NamesDamage) {
  write_records(file_, {image_record(1, 6, 0), image_record(1, 6, 0)});
  std::string bytes = read_bytes(file_);
  const std::string whole = bytes;
  const std::int64_t second = static_cast<std::int64_t>(whole.size()) / 2;
  bytes[static_cast<std::size_t>(second) + 14] ^= 1;
  write_bytes(file_, bytes);
  EXPECT_EQ(
      data_error(shaped_),
      at(1, second) + "expected an intact record; data CRC: the data does not match its checksum");
  write_bytes(file_, whole.substr(0, whole.size() - 3));
  EXPECT_THAT(data_error(shaped_),
              HasSubstr(at(1, second) + "expected an intact record; truncated data"));
}

TEST_F(TFRecordSourceTest, NamesAMalformedExample) {
  write_records(file_, {"\xff\xff\xff"});
  EXPECT_THAT(data_error(), HasSubstr(at(0, 0) + "expected a tf.train.Example; "));
  write_records(file_, {image_record(1, 6, 0), "\xff\xff\xff"});
  EXPECT_THAT(data_error(shaped_), HasSubstr(at(1, 55) + "expected a tf.train.Example; "));
}

TEST_F(TFRecordSourceTest, NamesMissingFeatures) {
  write_records(file_, {serialize_example({{"x", FloatList{1}}, {"y", Int64List{1}}})});
  EXPECT_EQ(input_error(),
            at(0, 0) +
                "expected --input-feature, or one of the default features image/encoded, image, "
                "features; the record has the features x (float), y (int64)");
  EXPECT_THAT(
      input_error({.input_feature = "x",
                   .label_feature = "",
                   .input_shape = {},
                   .classes = 0,
                   .index_dir = {}}),
      HasSubstr(
          "expected --label-feature, or one of the default features image/class/label, label"));
  EXPECT_EQ(data_error({.input_feature = "z",
                        .label_feature = "y",
                        .input_shape = {1},
                        .classes = 0,
                        .index_dir = {}}),
            at(0, 0) + "expected the feature z; the record has the features x (float), y (int64)");
}

TEST_F(TFRecordSourceTest, RequiresAShapeForRawBytes) {
  write_records(file_, {image_record(1, 784, 0)});
  EXPECT_EQ(input_error(), at(0, 0) +
                               "expected --input-shape for the raw bytes in image, or a "
                               "dataset.json next to the file; there are 784 bytes and neither");
}

TEST_F(TFRecordSourceTest, NamesInputsOfTheWrongSizeOrKind) {
  write_records(file_, {image_record(1, 7, 0)});
  EXPECT_EQ(data_error(shaped_),
            at(0, 0) + "expected 6 raw bytes in image for shape [2, 3, 1]; it has 7 bytes");
  write_records(file_, {serialize_example({{"image", FloatList{1, 2}}, {"label", Int64List{1}}})});
  EXPECT_EQ(
      data_error(shaped_),
      at(0, 0) + "expected 6 floats in image for shape [2, 3, 1]; it has 2 values of kind float");
  write_records(file_,
                {serialize_example({{"image", BytesList{"a", "b"}}, {"label", Int64List{1}}})});
  EXPECT_EQ(data_error(shaped_),
            at(0, 0) +
                "expected 6 raw bytes in image for shape [2, 3, 1]; it has 2 values of kind bytes");
}

TEST_F(TFRecordSourceTest, ReportsImageErrors) {
  for (const auto& [magic, kind] :
       {std::pair{"\xff\xd8\xff\xe0 JFIF", "JPEG"}, {"\x89PNG\r\n\x1a\n", "PNG"}}) {
    write_records(
        file_, {serialize_example({{"image/encoded", BytesList{magic}}, {"label", Int64List{1}}})});
    const std::string expected = at(0, 0) + "expected a usable image in image/encoded; [" + kind +
                                 " image] expected an intact image; ";
    EXPECT_THAT(data_error(), HasSubstr(expected));
    EXPECT_THAT(data_error(shaped_), HasSubstr(expected));
  }
}

TEST_F(TFRecordSourceTest, NamesImageFormatsThatAreNotSupported) {
  using std::string_literals::operator""s;
  for (const auto& [bytes, format] : {std::pair{"GIF87a and more"s, "GIF"},
                                      {"GIF89a and more"s, "GIF"},
                                      {"BM\x0c\0\0\0 pixel"s, "BMP"},
                                      {"RIFF1234WEBPVP8 "s, "WebP"},
                                      {"II*\0 and more"s, "TIFF"},
                                      {"MM\0* and more"s, "TIFF"}}) {
    write_records(
        file_, {serialize_example({{"image/encoded", BytesList{bytes}}, {"label", Int64List{1}}})});
    const std::string got = fmt::format("it is a {} image, which is not supported", format);
    EXPECT_THAT(data_error(),
                HasSubstr(at(0, 0) + "expected a JPEG or PNG image in image/encoded; " + got));
    EXPECT_THAT(data_error(shaped_), HasSubstr("in image/encoded for shape [2, 3, 1]; " + got));
  }
  // Raw pixels may begin with the two letters of BMP.
  write_records(file_,
                {serialize_example({{"image", BytesList{"BM pixels"}}, {"label", Int64List{1}}})});
  EXPECT_THAT(input_error(), HasSubstr("expected --input-shape for the raw bytes in image"));
}

TEST_F(TFRecordSourceTest, NamesLabelsOutOfRange) {
  write_records(file_, {image_record(0, 6, 0), image_record(5, 6, 0), image_record(-1, 6, 0)});
  TFRecordOptions options = shaped_;
  EXPECT_EQ(data_error(options), at(2, 110) + "expected a class number from 0 in label; it is -1");
  options.classes = 5;
  const TFRecordSource source = open(options);
  EXPECT_EQ(data_error_of([&] { features_of(source, 1); }),
            at(1, 55) + "expected a label from 0 to 4 in label; it is 5");
  EXPECT_EQ(data_error_of([&] { features_of(source, 2); }),
            at(2, 110) + "expected a label from 0 to 4 in label; it is -1");
}

TEST_F(TFRecordSourceTest, NamesLabelsThatAreNotOneInteger) {
  write_records(file_,
                {serialize_example({{"image", BytesList{"123456"}}, {"label", Int64List{1, 2}}})});
  EXPECT_EQ(data_error(shaped_),
            at(0, 0) + "expected one integer in label; it has 2 values of kind int64");
  write_records(file_,
                {serialize_example({{"image", BytesList{"123456"}}, {"label", BytesList{"1"}}})});
  EXPECT_EQ(data_error(shaped_),
            at(0, 0) + "expected one integer in label; it has 1 value of kind bytes");
}

TEST_F(TFRecordSourceTest, RejectsInvalidOptions) {
  write_records(file_, {image_record(1, 6, 0)});
  EXPECT_EQ(input_error({.input_feature = "",
                         .label_feature = "",
                         .input_shape = {2, 0},
                         .classes = 0,
                         .index_dir = {}}),
            "[TFRecord options] expected a positive shape and class count, got [2, 0] and 0");
}

}  // namespace
}  // namespace lockstep::inline v0::data
