// The forms of --data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kFashionMnist = "/usr/share/datasets/fashion-mnist";

std::string idx_labels(std::size_t count) {
  std::string bytes = {0, 0, 8, 1, 0, 0, 0, static_cast<char>(count)};
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

std::string idx_images(std::size_t count) {
  return std::string{0, 0, 8, 3, 0, 0, 0, static_cast<char>(count), 0, 0, 0, 2, 0, 0, 0, 2} +
         std::string(4 * count, 'x');
}

void write_idx(const std::filesystem::path& directory, const std::string& prefix,
               std::size_t count) {
  std::filesystem::create_directories(directory);
  write_bytes(directory / (prefix + "-images-idx3-ubyte"), idx_images(count));
  write_bytes(directory / (prefix + "-labels-idx1-ubyte"), idx_labels(count));
}

TEST(OpenData, Synthetic) {
  const Dataset dataset = open_data("synthetic:4x5x3,7,100");
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({4, 5, 3}, 7));
  EXPECT_EQ(dataset.size(), 100);
  EXPECT_EQ(dataset.description(), "100 synthetic samples of 4x5x3");
  EXPECT_EQ(open_data("synthetic:12,2,3,test").spec().shape(), (std::vector<std::int64_t>{12}));
}

TEST(OpenData, SyntheticImages) {
  const Dataset images = open_data("synthetic-images:4x5x3,7,100,test");
  EXPECT_EQ(images.spec(), SampleSpec::classification({4, 5, 3}, 7));
  EXPECT_EQ(images.description(), "100 synthetic images of 4x5x3");
  EXPECT_TRUE(images.source().info().has_images);
  EXPECT_FALSE(open_data("synthetic:4x5x3,7,100").source().info().has_images);
  EXPECT_EQ(input_error_of([] { open_data("synthetic-images:4x5x3,7"); }),
            "[synthetic-images:4x5x3,7] expected positive numbers in "
            "synthetic-images:HxWxC,CLASSES,COUNT, got \"synthetic-images:4x5x3,7\"");
}

TEST(OpenData, RejectsInvalidSynthetic) {
  EXPECT_THAT(input_error_of([] { open_data("synthetic:"); }),
              HasSubstr("[synthetic:] expected a value before and after each colon and comma"));
  EXPECT_THAT(input_error_of([] { open_data("synthetic:4x4x1:10:5"); }),
              HasSubstr("expected commas between values, and quotes around one with : or ="));
  for (const char* text : {"4x4x1", "4x4x1,10", "4x4xC,10,5", "4x0x1,10,5", "4,10,-5", "4,0,5"})
    EXPECT_EQ(input_error_of([&] { open_data(fmt::format("synthetic:{}", text)); }),
              fmt::format("[synthetic:{0}] expected positive numbers in "
                          "synthetic:HxWxC,CLASSES,COUNT, got \"synthetic:{0}\"",
                          text));
  EXPECT_THAT(input_error_of([] { open_data("synthetic:4,10,5,6"); }), HasSubstr("got \"6\""));
  EXPECT_THAT(input_error_of([] { open_data("fashion-mnist:tests"); }),
              HasSubstr("got \"tests\" (did you mean test?)"));
}

TEST(OpenData, Csv) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.csv", "1,2,0\n3,4,1\n");
  EXPECT_EQ(open_data("csv:" + (directory / "a.csv").string()).size(), 2);
  EXPECT_THAT(data_error_of([] { open_data("csv:nowhere.csv"); }),
              HasSubstr("[nowhere.csv] expected a file that can be read"));
  EXPECT_EQ(open_data("csv:" + (directory / "a.csv").string() + ":label=1,drop=3").spec(),
            SampleSpec::classification({1}, 4));
  EXPECT_THAT(input_error_of([] { open_data("csv:a.csv:color=red"); }),
              HasSubstr("[csv:a.csv:color=red] expected label=, targets=, "));
  EXPECT_THAT(input_error_of([] { open_data("csv:a.csv?label=a&drop=b,c"); }),
              HasSubstr("with commas between them: a.csv:label=a,drop=b+c, got"));
}

TEST(OpenData, TestTableWithWordsRequiresTheTrainingTable) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.csv", "1,plum\n3,apple\n");
  write_bytes(directory / "b.csv", "red,1\nblue,0\n");
  const auto spec = [&](const std::string& file) { return "csv:" + (directory / file).string(); };
  DataSpecOptions test;
  test.part = "test";
  const std::string needed =
      "] expected like=FILE, the training table that defines the numbers of categorical values; "
      "there is none";
  const std::string categories = spec("b.csv") + ":categorical=1,header=no";
  EXPECT_EQ(input_error_of([&] { open_data(spec("a.csv"), test); }), "[" + spec("a.csv") + needed);
  EXPECT_EQ(input_error_of([&] { open_data(categories, test); }), "[" + categories + needed);
  EXPECT_EQ(open_data(spec("a.csv")).size(), 2);
  EXPECT_EQ(
      open_data(spec("a.csv") + ":like=" + (directory / "a.csv").string(), test).spec().classes(),
      2);
}

TEST(OpenData, Idx) {
  const TemporaryDirectory directory;
  write_idx(directory.path(), "train", 5);
  write_idx(directory.path(), "t10k", 3);
  EXPECT_EQ(open_data("idx:" + directory.path().string()).size(), 5);
  EXPECT_EQ(open_data("idx:" + directory.path().string() + ":test").size(), 3);
}

TEST(OpenData, SearchesFashionMnistInTheDataDirectoryFirst) {
  const TemporaryDirectory directory;
  DataSpecOptions options;
  options.data_dir = directory.path();
  write_idx(directory / "fashion-mnist", "train", 5);
  write_idx(directory / "fashion-mnist", "t10k", 3);
  EXPECT_EQ(open_data("fashion-mnist", options).size(), 5);
  EXPECT_EQ(open_data("fashion-mnist", options).description(), "fashion-mnist train");
  EXPECT_EQ(open_data("fashion-mnist:test", options).size(), 3);
  options.part = "test";
  EXPECT_EQ(open_data("fashion-mnist", options).size(), 3);
  EXPECT_EQ(open_data("fashion-mnist:train", options).size(), 5);
  write_idx(directory.path(), "t10k", 4);
  EXPECT_EQ(open_data("fashion-mnist", options).size(), 4);
  EXPECT_EQ(input_error_of([&] { open_data("fashion-mnist:validation", options); }),
            "[fashion-mnist:validation] expected train or test as settings of fashion-mnist, got "
            "\"validation\"");
}

TEST(OpenData, ReportsHowToInstallFashionMnist) {
  DataSpecOptions options;
  options.system_dir = "system";
  EXPECT_EQ(data_error_of([&] { open_data("fashion-mnist:test", options); }),
            "[fashion-mnist:test] expected the Fashion-MNIST files in one of "
            "system/fashion-mnist: install the Debian package dataset-fashion-mnist, or set their "
            "directory with --data-dir; none of them has the files");
  options.data_dir = "here";
  EXPECT_THAT(data_error_of([&] { open_data("fashion-mnist", options); }),
              HasSubstr("in one of here, here/fashion-mnist, system/fashion-mnist: "));
}

TEST(OpenData, FashionMnistOfDebian) {
  if (!std::filesystem::exists(kFashionMnist))
    GTEST_SKIP() << "needs Debian's package dataset-fashion-mnist";
  const Dataset train = open_data("fashion-mnist");
  const Dataset test = open_data("fashion-mnist:test");
  EXPECT_EQ(train.size(), 60'000);
  EXPECT_EQ(test.size(), 10'000);
  for (const Dataset& part : {train, test}) {
    EXPECT_EQ(part.spec(), SampleSpec::classification({28, 28, 1}, 10));
    std::vector<std::int64_t> labels(10);
    double sum = 0;
    Batch one(part.spec());
    Sample sample = one.sample();
    for (std::int64_t id = 0; id < part.size(); ++id) {
      part.source().read(id, sample);
      ++labels.at(static_cast<std::size_t>(sample.label()));
      if (id < 1000) {
        for (const float value : sample.features()) sum += value;
      }
    }
    EXPECT_EQ(labels, std::vector<std::int64_t>(10, part.size() / 10));
    EXPECT_NEAR(sum / 784'000, 0.286, 0.01);  // the published mean of the pixels
  }
}

TEST(OpenData, FashionMnistInShardsIsBitIdentical) {
  if (!std::filesystem::exists(kFashionMnist))
    GTEST_SKIP() << "needs Debian's package dataset-fashion-mnist";
  const TemporaryDirectory directory;
  const Dataset original = open_data("fashion-mnist:test");
  ShardOptions options;
  options.directory = directory.path();
  options.part = "test";
  options.shards = 3;
  write_shards(original.source(), options);
  const Dataset shards = open_data((directory / "test-*").string());
  ASSERT_EQ(shards.size(), original.size());
  EXPECT_EQ(shards.spec(), original.spec());
  for (std::int64_t id = 0; id < shards.size(); ++id) {
    const ReadSample expected = read(original.source(), id);
    const ReadSample sample = read(shards.source(), id);
    ASSERT_EQ(sample.features(), expected.features()) << "record " << id;
    ASSERT_EQ(sample.label(), expected.label()) << "record " << id;
  }
}

class OpenShards : public ::testing::Test {
 protected:
  OpenShards() {
    for (const char* part : {"train", "test"}) {
      ShardOptions options;
      options.directory = directory_.path();
      options.part = part;
      options.shards = 2;
      write_shards(SyntheticSource({{4, 4, 1}, 3, part == std::string("train") ? 30 : 10, 1, part}),
                   options);
    }
  }
  const TemporaryDirectory directory_;
};

TEST_F(OpenShards, ByGlob) {
  const Dataset dataset = open_data((directory_ / "train-*.tfrecord").string());
  EXPECT_EQ(dataset.size(), 30);
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({4, 4, 1}, 3));
  EXPECT_EQ(dataset.description(), "2 TFRecord files in " + directory_.path().string());
  EXPECT_EQ(open_data((directory_ / "{train,test}-*-of-00002.tfrecord").string()).size(), 40);
  EXPECT_EQ(open_data((directory_ / "test-00001-of-00002.tfrecord").string()).size(), 5);
}

TEST_F(OpenShards, ByDirectory) {
  DataSpecOptions options;
  EXPECT_EQ(open_data(directory_.path().string(), options).size(), 30);
  options.part = "test";
  EXPECT_EQ(open_data(directory_.path().string(), options).size(), 10);
  options.part = "validation";
  EXPECT_EQ(data_error_of([&] { open_data(directory_.path().string(), options); }),
            "[" + (directory_ / "dataset.json").string() +
                "] expected files for the part validation; it lists those of test, train; name a "
                "part as in " +
                directory_.path().string() + ":train");
  std::filesystem::remove(directory_ / "test-00000-of-00002.tfrecord");
  options.part = "test";
  EXPECT_EQ(data_error_of([&] { open_data(directory_.path().string(), options); }),
            "[" + (directory_ / "test-00000-of-00002.tfrecord").string() +
                "] expected a file that can be read; No such file or directory");
  std::filesystem::remove(directory_ / "dataset.json");
  EXPECT_THAT(data_error_of([&] { open_data(directory_.path().string(), options); }),
              HasSubstr("the directory has none of these"));
}

TEST_F(OpenShards, ByPartOfADirectory) {
  const std::string where = directory_.path().string();
  DataSpecOptions options;
  EXPECT_EQ(open_data(where + ":test", options).size(), 10);
  EXPECT_EQ(open_data(where + ":test", options).description(), "test dataset.json in " + where);
  options.part = "test";
  EXPECT_EQ(open_data(where + ":train", options).size(), 30);
  EXPECT_THAT(data_files(where + ":test"),
              ::testing::ElementsAre(directory_ / "test-00000-of-00002.tfrecord",
                                     directory_ / "test-00001-of-00002.tfrecord"));
  EXPECT_THAT(data_error_of([&] { open_data(where + ":tests"); }),
              HasSubstr("expected files for the part tests; it lists those of test, train; "));
}

TEST(OpenData, SuggestsThePrefixOfOtherFormats) {
  struct Case {
    const char* spec;
    const char* message;
  };
  for (const Case& other :
       {Case{"churn.csv",
             "[churn.csv] expected csv: before the name of the file: csv:churn.csv, got the "
             "name of a .csv file"},
        Case{"cvs:a/b.CSV:label=x", "the name of the file: csv:a/b.CSV:label=x, got"},
        Case{"a.tsv", "the name of the file: csv:a.tsv:sep=tab, got"},
        Case{"photos/*.jpg",
             "expected images:DIRECTORY with one folder of JPEG and PNG files per class, got"},
        Case{"a.txt", "expected text:FILES[:OPTIONS] (such as tokenizer=bytes,length=64), got"},
        Case{"a.parquet", "expected TFRecord files, a table (csv:FILE) or folders of images"},
        Case{"idx/train-images-idx3-ubyte.gz", "expected the directory of IDX files: idx:idx, got"},
        Case{"shards/dataset.json", "expected the directory of dataset.json: shards, got the file"},
        Case{"fashion-mnits", ", got \"fashion-mnits\" (did you mean fashion-mnist?)"},
        Case{"synthetc:8x8x1,4,10", ", got \"synthetc\" (did you mean synthetic?)"}}) {
    EXPECT_THAT(input_error_of([&] { open_data(other.spec); }), HasSubstr(other.message));
    EXPECT_THAT(input_error_of([&] { data_files(other.spec); }), HasSubstr(other.message));
  }
}

TEST(OpenData, NamesMissingFiles) {
  EXPECT_EQ(data_error_of([] { open_data("nowhere/train-*.tfrecord"); }),
            "[nowhere/train-*.tfrecord] expected files that match this pattern; there are none");
  const std::string error = input_error_of([] { open_data("nothing"); });
  EXPECT_EQ(error, "[nothing] expected " + data_usage() + ", got \"nothing\"");
  for (const char* form :
       {"a glob of TFRecord files; DIRECTORY[:PART] with a dataset.json, or DIRECTORY with folders "
        "of images; ",
        "; fashion-mnist[:train|:test]; ", "; csv:FILES[:OPTIONS] (such as label=species,",
        "; synthetic-images:HxWxC,CLASSES,COUNT (generated bytes, like pixels)"})
    EXPECT_THAT(error, HasSubstr(form));
}

TEST(OpenData, DetectsFormatsByPrefix) {
  for (const char* spec : {"images:a", "fashion-mnist", "fashion-mnist:", "fashion-mnist:test",
                           "idx:a", "csv:", "text:a", "synthetic:1,2,3", "synthetic-images:1,2,3"})
    EXPECT_TRUE(names_format(spec)) << spec;
  for (const char* spec :
       {"", "images", "csv", "fashion-mnist/train-*", "fashion-mnist-2", "a:test"})
    EXPECT_FALSE(names_format(spec)) << spec;
}

TEST(DataFiles, MatchTheFilesThatAreRead) {
  using Paths = std::vector<std::filesystem::path>;
  const TemporaryDirectory directory;
  const std::string where = directory.path().string();
  write_idx(directory.path(), "train", 5);
  const Paths idx = {directory / "train-images-idx3-ubyte", directory / "train-labels-idx1-ubyte"};
  EXPECT_EQ(data_files("idx:" + where), idx);
  EXPECT_EQ(data_files("csv:" + where + "/a.csv:label=1"), Paths{directory / "a.csv"});
  EXPECT_EQ(data_files("synthetic:4x4x1,2,8"), Paths{});
  for (const char* name : {"b.tfrecord", "a.tfrecord"}) write_bytes(directory / name, "");
  EXPECT_EQ(data_files(where + "/*.tfrecord"),
            (Paths{directory / "a.tfrecord", directory / "b.tfrecord"}));
  PartDescription part;
  part.files = {"b.tfrecord", "c.tfrecord"};
  write_dataset_part(directory.path(), "train", part);
  EXPECT_EQ(data_files(where), (Paths{directory / "b.tfrecord", directory / "c.tfrecord"}))
      << "there or not";
}

TEST(DataFiles, OfImagesAreTheFoldersOfTheirClasses) {
  const TemporaryDirectory directory;
  for (const char* name : {"dog", "cat"}) {
    std::filesystem::create_directories(directory / name);
    write_bytes(directory / name / "1.png", "");
  }
  const std::vector<std::filesystem::path> classes = {directory / "cat", directory / "dog"};
  EXPECT_EQ(data_files("images:" + directory.path().string()), classes);
  EXPECT_EQ(data_files(directory.path().string()), classes);
}

TEST(DataFiles, MissingFilesAreAnError) {
  const TemporaryDirectory directory;
  const std::string where = directory.path().string();
  EXPECT_THAT(data_error_of([&] { data_files(where + "/*.tfrecord"); }),
              HasSubstr("there are none"));
  EXPECT_THAT(data_error_of([&] { data_files(where); }),
              HasSubstr("the directory has none of these"));
  EXPECT_EQ(data_error_of([&] { data_files("idx:" + where + ":test"); }),
            "[" + where + "] expected the IDX files of the part test; they are missing");
  EXPECT_THAT(input_error_of([] { data_files("nothing"); }), HasSubstr("got \"nothing\""));
  EXPECT_THAT(input_error_of([] { data_files("synthetic:4x4x1,2"); }),
              HasSubstr("synthetic:HxWxC,CLASSES,COUNT"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
