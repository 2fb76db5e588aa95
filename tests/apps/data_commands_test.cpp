// The commands of lockstep data.
#include "apps/lockstep/commands.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// One gray pixel.
const std::string kPng = from_hex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c63600700"
    "000900082023c38c0000000049454e44ae426082");

class DataCommands : public ::testing::Test {
 protected:
  DataCommands() {
    std::filesystem::create_directory(directory_ / "idx");
    write_bytes(
        directory_ / "idx/train-images-idx3-ubyte",
        std::string{0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 2} + std::string(20, '\x7f'));
    write_bytes(directory_ / "idx/train-labels-idx1-ubyte",
                std::string{0, 0, 8, 1, 0, 0, 0, 5, 0, 1, 2, 1, 2});
  }

  /// Returns the standard output of `lockstep data ARGUMENTS`, even if it throws.
  std::string run(std::vector<std::string> arguments) {
    CLI::App program("lockstep");
    program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    apps::add_data_commands(program);
    arguments.insert(arguments.begin(), "data");
    std::reverse(arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    try {
      program.parse(arguments);
    } catch (...) {
      std::fflush(stdout);
      output_ = ::testing::internal::GetCapturedStdout();
      throw;
    }
    std::fflush(stdout);
    output_ = ::testing::internal::GetCapturedStdout();
    return output_;
  }
  std::string run_convert(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"convert",  "idx",       "--input",  path("idx"),
                                          "--output", path("out"), "--shards", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  const TemporaryDirectory directory_;
  std::string output_;
};

TEST_F(DataCommands, ConvertIdx) {
  EXPECT_EQ(run_convert(),
            "5 records of train in 2 files: " + path("out/train-00000-of-00002.tfrecord") +
                " to train-00001-of-00002.tfrecord, described in dataset.json\n");
  EXPECT_THAT(names_in(directory_ / "out"),
              ElementsAre("dataset.json", "train-00000-of-00002.tfrecord",
                          "train-00001-of-00002.tfrecord"));
  const PartDescription part = read_dataset_json(directory_ / "out")->at("train");
  EXPECT_EQ(part.input_feature, "image");
  EXPECT_EQ(part.label_feature, "label");
  EXPECT_EQ(part.records, 5);
  const Dataset dataset = Dataset::from_tfrecords(path("out/train-*"));
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({2, 2, 1}, 3));
  EXPECT_EQ(parse_example(read_records(directory_ / "out/train-00000-of-00002.tfrecord")[1]),
            (Example{{"image", BytesList{std::string(4, '\x7f')}}, {"label", Int64List{1}}}));
}

TEST_F(DataCommands, InspectPrintsTheTensorsOfAPart) {
  const SampleSpec spec = {.inputs = {{.name = "a", .shape = {2}},
                                      {.name = "b", .type = ElementType::int64, .shape = {-1}}}};
  const Dataset dataset = Dataset::from_memory(
      {std::vector<float>{1, 2, 3, 4}, {std::vector<std::int64_t>{5, 6, 7}, {3, 0}}}, {}, spec);
  write_shards(dataset.source(), {.directory = directory_ / "out"});
  EXPECT_THAT(run({"inspect", path("out")}), HasSubstr("samples of " + path("out/train") +
                                                       ": a [2] and b int64 [?] without labels\n"));
  EXPECT_THAT(run({"verify", path("out")}), HasSubstr(": 2 records, intact\n"));
  EXPECT_THAT(input_error_of([&] {
                run({"benchmark", "--data", path("out")});
              }),
              HasSubstr("[benchmark] expected tensors with known extents"));
}

TEST_F(DataCommands, ConvertPacks) {
  run_convert({"--compression", "gzip"});
  EXPECT_EQ(TFRecordReader(directory_ / "out/train-00000-of-00002.tfrecord").compression(),
            Compression::gzip);
  EXPECT_EQ(Dataset::from_tfrecords(path("out/train-*")).size(), 5);
}

TEST_F(DataCommands, ConvertDoesNotOverwriteByDefault) {
  run_convert();
  EXPECT_THAT(input_error_of([&] { run_convert(); }),
              HasSubstr("expected a directory without shards of train, or --overwrite"));
  EXPECT_NO_THROW(run_convert({"--overwrite"}));
}

TEST_F(DataCommands, ConvertCsv) {
  write_bytes(directory_ / "a.csv", "x,y,class\n1,2,0\n3,4.5,1\n");
  run({"convert", "csv", "--input", "csv:" + path("a.csv"), "--output", path("out"), "--part",
       "test"});
  const Dataset dataset = Dataset::from_tfrecords(path("out/test-00000-of-00001.tfrecord"));
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({2}, 2));
  EXPECT_EQ(parse_example(read_records(directory_ / "out/test-00000-of-00001.tfrecord")[1]),
            (Example{{"features", FloatList{3.0f, 4.5f}}, {"label", Int64List{1}}}));
}

TEST_F(DataCommands, ConvertCsvWithRegressionTarget) {
  write_bytes(directory_ / "a.csv", "x;price\n1;2.5\n3;-4\n");
  run({"convert", "csv", "--input", path("a.csv") + ":targets=price,sep=;", "--output",
       path("out")});
  EXPECT_EQ(open_data(path("out")).spec(), SampleSpec::regression({1}, 1));
  EXPECT_THAT(run({"inspect", path("out")}), HasSubstr("-4 to 2.5, target\n"));
  EXPECT_THAT(run({"verify", path("out")}), HasSubstr(": 2 records, intact\n"));
}

TEST_F(DataCommands, ConvertReportsErrors) {
  EXPECT_THAT(data_error_of([&] {
                run_convert({"--part", "test"});
              }),
              HasSubstr("expected t10k-images-idx3-ubyte"));
  EXPECT_THAT(input_error_of([&] {
                run_convert({"--shards", "0"});
              }),
              HasSubstr("expected --shards to be from 1 to 99999, got 0"));
  EXPECT_THAT(input_error_of([&] {
                run_convert({"--compression", "zip"});
              }),
              HasSubstr("expected none, gzip or zlib, got \"zip\""));
  EXPECT_THROW(run({"convert", "idx"}), CLI::ParseError);
  EXPECT_THROW(run({"convert"}), CLI::ParseError);
}

TEST_F(DataCommands, Index) {
  run_convert();
  const std::string first = path("out/train-00000-of-00002.tfrecord");
  EXPECT_THAT(run({"index", path("out/*")}),
              HasSubstr(first + ": 2 records, index written to " + first + ".index\n"));
  EXPECT_THAT(run({"index", path("out")}), HasSubstr(first + ": 2 records, index up to date\n"));
  run({"index", "--index-dir", path("indexes"), path("out")});
  EXPECT_EQ(names_in(directory_ / "indexes").size(), 2u);
  EXPECT_THAT(data_error_of([&] {
                run({"index", "--index-dir", path("idx/train-labels-idx1-ubyte"), path("out")});
              }),
              HasSubstr("expected to write the index (--index-dir sets another directory); it "
                        "cannot be written"));
}

/// The index has a valid checksum and belongs to this file, but its offsets exceed the file.
TEST_F(DataCommands, IndexIsRebuiltIfOffsetsExceedFile) {
  run_convert();
  const std::string file = path("out/train-00000-of-00002.tfrecord");
  run({"index", file});
  const std::string good = read_bytes(file + ".index");
  RecordIndex wrong;
  wrong.offsets.push_back(std::uint64_t{1} << 49);
  const auto write_wrong = [&] {
    ASSERT_TRUE(save_record_index(file + ".index", file_version(file), wrong));
  };
  write_wrong();
  EXPECT_THAT(run({"index", file}), HasSubstr(file + ": 2 records, index written to "));
  EXPECT_EQ(read_bytes(file + ".index"), good);
  write_wrong();
  EXPECT_EQ(Dataset::from_tfrecords(path("out/train-*")).size(), 5);
}

TEST_F(DataCommands, Inspect) {
  run_convert();
  const std::string output = run({"inspect", path("out")});
  EXPECT_THAT(output, HasSubstr(path("out/train-00000-of-00002.tfrecord") +
                                ": 2 records of 37 bytes, compression none\n"));
  EXPECT_THAT(output, HasSubstr("features of 5 records\n"));
  EXPECT_THAT(
      output,
      HasSubstr("  image                   bytes             5  1               4 bytes\n"));
  EXPECT_THAT(output,
              HasSubstr("  label                   int64             5  1               0 to 2\n"));
  EXPECT_THAT(
      output,
      HasSubstr(
          "records of each label\n  0              1\n  1              2\n  2              2\n"));
  EXPECT_THAT(run({"inspect", "--records", "1", path("out")}),
              HasSubstr("features of 2 records\n"));
}

TEST_F(DataCommands, InspectsTables) {
  write_bytes(directory_ / "a.csv", "color,size,kind\nred,5,plum\ngreen,-2.5,apple\nred,0,plum\n");
  EXPECT_EQ(
      run({"inspect", "csv:" + path("a.csv") + ":categorical=color"}),
      path("a.csv") +
          ": 3 records of [3], 2 classes\n\n"
          "3 rows below a header\n  numbers: size\n  words: color (2 values)\n"
          "  label kind: apple (1), plum (2)\n\n"
          "features of 3 records\n"
          "  name                    kind     range\n"
          "  color=green             float    0 to 1\n"
          "  color=red               float    0 to 1\n"
          "  size                    float    -2.5 to 5\n"
          "\nrecords of each label\n"
          "  0              1  apple\n"
          "  1              2  plum\n"
          "\ncolumns of 3 records below a header, 3 columns\n"
          "  name                    kind         values different   missing  range, or rows "
          "of each value\n"
          "  color                   words             3         2         0  red 2, green 1\n"
          "  size                    numbers           3         3         0  -2.5 to 5, mean "
          "0.833333\n"
          "  kind                    words             3         2         0  plum 2, apple 1; "
          "label\n");
  write_bytes(directory_ / "color.json", R"({"features": [
      {"column": "color", "kind": "categorical", "output": "index"}]})");
  EXPECT_THAT(run({"inspect", "csv:" + path("a.csv") + ":features=" + path("color.json")}),
              HasSubstr("  size                    float    -2.5 to 5\n"
                        "  color                   index    0 to 1\n"));
  write_bytes(directory_ / "b.csv", "size,price\n1,2\n3,4.5\n");
  EXPECT_THAT(run({"inspect", "--records", "1", "csv:" + path("b.csv") + ":targets=price"}),
              HasSubstr("2 records of [1]\n\n2 rows below a header\n  numbers: size\n  targets: "
                        "price\n\nfeatures of 1 record\n"
                        "  name                    kind     range\n"
                        "  size                    float    1\n"
                        "  price                   float    2, target\n"));
  EXPECT_EQ(input_error_of([&] {
              run({"convert", "csv", "--input", path("a.csv") + ":drop=color", "--output",
                   path("out"), "--part", "test"});
            }),
            "[--input " + path("a.csv") +
                ":drop=color] expected like=FILE, the training table that defines the numbers "
                "of categorical values; there is none");
  run({"convert", "csv", "--input", path("a.csv") + ":drop=color", "--output", path("out")});
  EXPECT_THAT(run({"inspect", path("out")}),
              HasSubstr("records of each label\n  0              1  apple\n"));
}

TEST_F(DataCommands, InspectsUnreadableTables) {
  std::string rows = "name,sex,age,since,class\n";
  for (int i = 0; i < 12; ++i)
    rows += fmt::format("person{},{},{},2026-11-{},{}\n", i, i % 3 == 0 ? "f" : "m",
                        i == 5 ? "NA" : std::to_string(20 + i % 4), 10 + i, i % 2);
  write_bytes(directory_ / "a.csv", rows);
  const std::string output = run({"inspect", "csv:" + path("a.csv") + ":drop=since"});
  EXPECT_THAT(
      output,
      HasSubstr(
          "\ncolumns of 12 records below a header, 5 columns\n"
          "  name                    kind         values different   missing  range, or rows of "
          "each value\n"
          "  name                    words            12        12         0  person0 1, person1 "
          "1, person2 1, person3 1, person4 1, ...\n"
          "  sex                     words            12         2         0  m 8, f 4\n"
          "  age                     numbers          11         4         1  20 to 23, mean "
          "21.5455\n"
          "  since                   dates            12        12         0  2026-11-10 1, "
          "2026-11-11 1, 2026-11-12 1, 2026-11-13 1, 2026-11-14 1, ...; left out\n"
          "  class                   numbers          12         2         0  0 6, 1 6; label\n"));
  EXPECT_THAT(run({"inspect", "csv:" + path("a.csv") + ":label=since"}),
              HasSubstr("since                   dates            12"));
  EXPECT_THAT(run({"inspect", "csv:" + path("a.csv") + ":missing=error"}),
              HasSubstr("\n\na training stops: [" + path("a.csv") +
                        ": line 7, column 3] expected a number"));
  EXPECT_THAT(
      run({"inspect", "csv:" + path("a.csv") +
                          ":drop=since+name,categorical=sex,"
                          "missing=mean"}),
      HasSubstr("12 rows below a header\n  numbers: age (1 missing: mean 21.55)\n  words: sex "
                "(2 values)\n  label class: 0 (6), 1 (6)\n  left out: name, since\n"));
  EXPECT_THAT(data_error_of([&] {
                run({"inspect", "csv:" + path("none.csv")});
              }),
              HasSubstr("none.csv"));
  EXPECT_THAT(input_error_of([&] {
                run({"inspect", "csv:" + path("a.csv") + ":label=b"});
              }),
              HasSubstr("expected label= with columns of the table"));
}

TEST_F(DataCommands, InspectPrintsBothInterpretationsOfHeader) {
  write_bytes(directory_ / "a.csv",
              "2018,2019,2020,class\n1.5,2.5,0.5,up\n0.7,0.2,0.1,down\n0.3,0.4,0.9,up\n");
  const std::string output = run({"inspect", "csv:" + path("a.csv")});
  EXPECT_THAT(output, HasSubstr("expected header=yes or header=no"));
  EXPECT_THAT(output, HasSubstr("its numbers have a constant step"));
  EXPECT_THAT(output, HasSubstr("\nwith header=yes: 3 records below a header, 4 columns\n"));
  EXPECT_THAT(output, HasSubstr("\n  2018                    numbers           3         3         "
                                "0  0.3 to 1.5, mean 0.833333\n"));
  EXPECT_THAT(output,
              HasSubstr("  class                   words             3         2         0  "
                        "up 2, down 1; label\n"));
  EXPECT_THAT(output, HasSubstr("\nwith header=no: 4 records without a header, 4 columns\n"));
  EXPECT_THAT(output, HasSubstr("up 2, class 1, down 1; label\n"));
  EXPECT_THAT(data_error_of([&] {
                run({"verify", "csv:" + path("a.csv")});
              }),
              HasSubstr("expected header=yes or header=no"));
}

TEST_F(DataCommands, InspectReportsDifferentImageSizes) {
  std::filesystem::create_directories(directory_ / "images/ant");
  write_bytes(directory_ / "images/ant/1.png", kPng);
  std::string wide = kPng;  // a width of 2 in its header, with a valid checksum
  wide.replace(16, 17,
               from_hex("0000000200000001"
                        "0800000000"
                        "d1492056"));
  write_bytes(directory_ / "images/ant/2.png", wide);
  EXPECT_THAT(run({"inspect", path("images")}),
              HasSubstr(": 2 records of different sizes, the first [1, 1, 1], 1 class\n"));
}

TEST_F(DataCommands, InspectCountsOnlyPlausibleClasses) {
  write_bytes(directory_ / "a.csv", "1,2\n3,2147483646\n");
  EXPECT_THAT(run({"inspect", "csv:" + path("a.csv")}),
              HasSubstr(", labels from 2 to 2147483646 (2147483647 classes, none of class 0): 2 "
                        "records of [1], 2147483647 classes\n"));
  EXPECT_THAT(output_, HasSubstr("records of each label\n  2              1\n  2147483646"));
}

TEST_F(DataCommands, FindsNonFiniteNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto record = [](float x, float y) {
    return serialize_example({{"features", FloatList{1, x}}, {"label", FloatList{y}}});
  };
  write_records(directory_ / "a.tfrecord",
                {record(1, 2), record(kNan, 2), record(3, -kInfinity), record(4, 2)});
  EXPECT_THAT(data_error_of([&] {
                run({"verify", path("a.tfrecord")});
              }),
              HasSubstr("2 faults in 1 of 1 files; the first: [" + path("a.tfrecord") +
                        ": record 1 at byte "));
  EXPECT_THAT(output_, HasSubstr("] expected finite numbers in features; number 2 of 2 is nan\n"));
  EXPECT_THAT(output_, HasSubstr(": record 2 at byte "));
  EXPECT_THAT(output_, HasSubstr("] expected finite numbers in label; number 1 of 1 is -inf\n"));
  EXPECT_THAT(run({"inspect", path("a.tfrecord")}), HasSubstr("1 to 4; 1 not finite\n"));
}

TEST_F(DataCommands, InspectsIdxFiles) {
  const std::string output = run({"inspect", "idx:" + path("idx")});
  EXPECT_THAT(output, HasSubstr(": 5 records of [2, 2, 1], 3 classes\n\nimages of 5 records\n"));
  EXPECT_THAT(output, HasSubstr("  input                   pixels   "));
  EXPECT_THAT(
      output,
      HasSubstr(
          "records of each label\n  0              1\n  1              2\n  2              2\n"));
}

TEST_F(DataCommands, ConvertsAndInspectsImagesInFolders) {
  for (const char* name : {"images/bee/2.png", "images/ant/1.png", "images/bee/3.png"}) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    write_bytes(directory_ / name, kPng);
  }
  EXPECT_EQ(run({"inspect", path("images")}), "3 images of 2 classes in " + path("images") +
                                                  ": 3 records of [1, 1, 1], 2 classes\n\n"
                                                  "images of 3 records\n"
                                                  "  JPEG 0, PNG 3; height 1, width 1, channels 1\n"
                                                  "\nrecords of each label\n"
                                                  "  0              1  ant\n"
                                                  "  1              2  bee\n");
  EXPECT_EQ(
      run({"convert", "images", "--input", "images:" + path("images"), "--output", path("out")}),
      "3 records of train in 1 file: " + path("out/train-00000-of-00001.tfrecord") +
          ", described in dataset.json\n");
  const Dataset dataset = open_data(path("out"));
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({1, 1, 1}, 2));
  const std::string output = run({"inspect", path("out")});
  EXPECT_THAT(output, HasSubstr("bytes, PNG 3\n"));
  EXPECT_THAT(
      output,
      HasSubstr(
          "records of each image/class/label\n  0              1  ant\n  1              2  bee\n"));
  std::filesystem::remove(directory_ / "out/dataset.json");
  EXPECT_THAT(
      run({"inspect", path("out/*.tfrecord")}),
      HasSubstr(
          "records of each image/class/label\n  0              1  ant\n  1              2  bee\n"));
}

TEST_F(DataCommands, ConvertRejectsFoldersOfParts) {
  for (const char* part : {"train", "val"}) {
    std::filesystem::create_directories(directory_ / "images" / part / "ant");
    write_bytes(directory_ / "images" / part / "ant/1.png", kPng);
  }
  EXPECT_EQ(input_error_of([&] {
              run({"convert", "images", "--input", path("images"), "--output", path("out")});
            }),
            "[--input " + path("images") + "] expected a folder for each class, as in " +
                path("images/train") + "; the folders look like parts of a data set");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

TEST_F(DataCommands, InspectShowsEveryKind) {
  write_records(
      directory_ / "a.tfrecord",
      {serialize_example(
           {{"f", FloatList{1.5f, -2.0f}}, {"j", BytesList{"\xff\xd8\xff", "longer"}}, {"n", {}}}),
       serialize_example({{"f", Int64List{7}}, {"j", BytesList{kPng, "\xff\xd8\xff"}}})});
  const std::string output = run({"inspect", "--label-feature", "f", path("a.tfrecord")});
  EXPECT_THAT(
      output,
      HasSubstr(
          "  f                       float             1  2               -2 to 1.5, target\n"));
  EXPECT_THAT(output,
              HasSubstr("  f                       int64             1  1               7\n"));
  EXPECT_THAT(output, HasSubstr("  j                       bytes             2  2               3 "
                                "to 67 bytes, JPEG 2, PNG 1\n"));
  EXPECT_THAT(output,
              HasSubstr("  n                       missing           1  0               -\n"));
  EXPECT_THAT(output, HasSubstr("records of each f\n  7              1\n"));
  write_records(directory_ / "a.tfrecord", {"\xff"});
  EXPECT_THAT(data_error_of([&] {
                run({"inspect", path("a.tfrecord")});
              }),
              HasSubstr("a.tfrecord: record 0 at byte 0] expected a tf.train.Example"));
}

TEST_F(DataCommands, VerifyAcceptsIntactFiles) {
  run_convert();
  EXPECT_EQ(run({"verify", path("out")}),
            path("out/train-00000-of-00002.tfrecord") + ": 2 records, intact\n" +
                path("out/train-00001-of-00002.tfrecord") + ": 3 records, intact\n");
}

TEST_F(DataCommands, VerifyReportsEveryFault) {
  const std::string record = image_record(1, 4, 0);
  write_records(directory_ / "a.tfrecord", {record, record, record, record});
  const std::size_t stride = record.size() + 16;
  std::string bytes = read_bytes(directory_ / "a.tfrecord");
  bytes[12] ^= 1;               // data of record 0
  bytes[2 * stride + 12] ^= 1;  // data of record 2
  bytes[3 * stride + 3] ^= 1;   // length of record 3
  write_bytes(directory_ / "a.tfrecord", bytes);
  write_records(directory_ / "b.tfrecord", {record});
  const std::string first = "[" + path("a.tfrecord") +
                            ": record 0 at byte 0] expected an intact record; data CRC: the data "
                            "does not match its checksum";
  EXPECT_EQ(data_error_of([&] {
              run({"verify", path("*.tfrecord")});
            }),
            "[verify] expected intact files; 3 faults in 1 of 2 files; the first: " + first);
  EXPECT_THAT(output_, HasSubstr(first + "\n"));
  EXPECT_THAT(output_, HasSubstr(fmt::format("[{}: record 2 at byte {}] expected an intact record; "
                                             "data CRC: the data does not match its checksum\n",
                                             path("a.tfrecord"), 2 * stride)));
  EXPECT_THAT(output_,
              HasSubstr(fmt::format("[{}: record 3 at byte {}] expected an intact record; length "
                                    "CRC: the length field does not match its checksum\n",
                                    path("a.tfrecord"), 3 * stride)));
  EXPECT_THAT(output_, HasSubstr(path("a.tfrecord") + ": 4 records, 3 faults\n"));
  EXPECT_THAT(output_, HasSubstr(path("b.tfrecord") + ": 1 records, intact\n"));
}

TEST_F(DataCommands, VerifyFindsUnusableRecords) {
  run_convert();
  const std::string shard = path("out/train-00001-of-00002.tfrecord");
  const std::string no_label = serialize_example({{"image", BytesList{"1234"}}});
  write_records(shard, {image_record(3, 4, 0), image_record(1, 5, 0), no_label});
  EXPECT_THAT(data_error_of([&] {
                run({"verify", path("out")});
              }),
              HasSubstr("[verify] expected intact files; 3 faults in 1 of 2 files; the first: [" +
                        shard + ": record 0 at byte 0] "));
  EXPECT_THAT(output_, HasSubstr("] expected a label from 0 to 2 in label; it is 3\n"));
  EXPECT_THAT(output_,
              HasSubstr("] expected 4 raw bytes in image for shape [2, 2, 1]; it has 5 bytes\n"));
  EXPECT_THAT(output_,
              HasSubstr("] expected the feature label; the record has the features image"));
  EXPECT_THAT(output_, HasSubstr(shard + ": 3 records, 3 faults\n"));

  std::filesystem::remove(directory_ / "out/dataset.json");
  std::vector<std::string> records(26, serialize_example({{"features", FloatList{1, 2}}}));
  records[0] = serialize_example({{"features", FloatList{1}}, {"label", Int64List{1}}});
  write_records(shard, records);
  EXPECT_THAT(data_error_of([&] {
                run({"verify", shard});
              }),
              HasSubstr("25 faults in 1 of 1 files"));
  EXPECT_THAT(output_, HasSubstr(": record 20 at byte "));
  EXPECT_THAT(output_, Not(HasSubstr(": record 21 at byte ")));
  EXPECT_THAT(output_, HasSubstr(shard + ": and 5 more\n" + shard + ": 26 records, 25 faults\n"));
}

TEST_F(DataCommands, VerifyChecksOnlyChecksumsWithoutShape) {
  write_records(directory_ / "a.tfrecord", {image_record(1, 784, 0), image_record(1, 2, 0)});
  const std::string output = run({"verify", path("a.tfrecord")});
  EXPECT_THAT(output, HasSubstr("only checksums are verified: [" + path("a.tfrecord") +
                                ": record 0 at byte 0] expected --input-shape"));
  EXPECT_THAT(output, HasSubstr("a.tfrecord: 2 records, intact\n"));
}

TEST_F(DataCommands, VerifyAcceptsFeaturesAndShape) {
  const auto record = [](std::int64_t y) {
    return serialize_example({{"x", FloatList{1, 2}}, {"y", Int64List{y}}});
  };
  write_records(directory_ / "a.tfrecord", {record(0), record(2), record(-1)});
  EXPECT_THAT(data_error_of([&] {
                run({"verify", "--input-feature", "x", "--label-feature", "y", path("a.tfrecord")});
              }),
              HasSubstr("1 fault in 1 of 1 files; the first: [" + path("a.tfrecord") +
                        ": record 2 at byte "));
  EXPECT_THAT(data_error_of([&] {
                run({"verify", "--input-feature", "x", "--label-feature", "y", "--classes", "2",
                     path("a.tfrecord")});
              }),
              HasSubstr("2 faults in 1 of 1 files"));
  write_records(directory_ / "b.tfrecord", {image_record(1, 784, 0), image_record(1, 2, 0)});
  EXPECT_THAT(data_error_of([&] {
                run({"verify", "--input-shape", "28x28x1", path("b.tfrecord")});
              }),
              HasSubstr("1 fault in 1 of 1 files; the first: [" + path("b.tfrecord") +
                        ": record 1 at byte "));
}

TEST_F(DataCommands, AcceptPartOfDirectory) {
  write_bytes(directory_ / "a.csv", "x,y,class\n1,2,0\n3,4.5,1\n");
  for (const char* part : {"train", "extra"})
    run({"convert", "csv", "--input", path("a.csv"), "--output", path("out"), "--part", part});
  EXPECT_EQ(run({"verify", path("out") + ":extra"}),
            path("out/extra-00000-of-00001.tfrecord") + ": 2 records, intact\n");
  EXPECT_THAT(run({"inspect", path("out") + ":train"}), HasSubstr("features of 2 records\n"));
  EXPECT_THAT(data_error_of([&] {
                run({"verify", path("out") + ":test"});
              }),
              HasSubstr("it lists those of extra, train; name a part as in "));
}

TEST_F(DataCommands, VerifyListsAllUnusableImagesOfFolders) {
  std::string damaged = kPng;
  damaged[damaged.size() - 20] ^= 1;
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>{"ant/1.png", "no image"},
                                    {"ant/2.png", kPng},
                                    {"bee/3.png", damaged},
                                    {"bee/4.bmp", "text"}}) {
    std::filesystem::create_directories((directory_ / "images" / name).parent_path());
    write_bytes(directory_ / "images" / name, bytes);
  }
  for (const std::string& argument : {path("images"), "images:" + path("images")}) {
    EXPECT_THAT(data_error_of([&] {
                  run({"verify", argument});
                }),
                HasSubstr("2 faults in 2 of 3 files; the first: [" + path("images/ant/1.png") +
                          "] expected a usable image; "));
    EXPECT_THAT(output_, HasSubstr("[" + path("images/bee/3.png") + "] expected a usable image; "));
    EXPECT_THAT(output_, HasSubstr("3 images of 2 classes in " + path("images") +
                                   ", 1 other file left out (1 .bmp): 3 records, 1 images, 2 "
                                   "faults\n"));
  }
  std::filesystem::remove_all(directory_ / "images/bee");
  write_bytes(directory_ / "images/ant/1.png", kPng);
  EXPECT_THAT(run({"verify", path("images")}), HasSubstr(": 2 records, 2 images, intact\n"));
}

TEST_F(DataCommands, VerifyReportsAllProblemsOfTable) {
  std::string text = "x,y,class\n1,2,0\n";
  for (int i = 0; i < 25; ++i) text += "1,two,-1\n";
  write_bytes(directory_ / "a.csv", text);
  EXPECT_THAT(data_error_of([&] {
                run({"verify", "csv:" + path("a.csv")});
              }),
              HasSubstr("25 faults in 1 of 1 files; the first: [" + path("a.csv") +
                        ": line 3, column 3] expected a class number (an integer from 0), got "
                        "\"-1\""));
  EXPECT_THAT(output_, HasSubstr(": line 22, column 3] "));
  EXPECT_THAT(output_, Not(HasSubstr(": line 23, column 3] ")));
  EXPECT_THAT(output_,
              HasSubstr("a.csv: and 5 more\n" + path("a.csv") + ": 26 records, 25 faults\n"));
  EXPECT_EQ(run({"verify", "csv:" + path("a.csv") + ":categorical=y,targets=x,drop=class",
                 "idx:" + path("idx")})
                .substr(0, path("a.csv").size() + 21),
            path("a.csv") + ": 26 records, intact\n");
  EXPECT_THAT(input_error_of([&] {
                run({"verify", "csv:" + path("a.csv") + ":label=z"});
              }),
              HasSubstr("expected label= with columns of the table"));
}

TEST_F(DataCommands, VerifyDecodesImages) {
  const std::string& png = kPng;
  std::string damaged = png;
  damaged[damaged.size() - 20] ^= 1;
  const auto record = [](const std::string& image, const std::string& picture) {
    return serialize_example({{"image/encoded", BytesList{image}},
                              {"picture", BytesList{picture}},
                              {"label", Int64List{1}}});
  };
  write_records(directory_ / "a.tfrecord", {record(png, png), record(png, "no image")});
  EXPECT_EQ(run({"verify", "--images", path("a.tfrecord")}),
            path("a.tfrecord") + ": 2 records, 3 images, intact\n");

  write_records(directory_ / "a.tfrecord", {record(png, damaged), record(damaged, png)});
  EXPECT_NO_THROW(run({"verify", path("a.tfrecord")}));
  write_records(directory_ / "a.tfrecord",
                {record(png, damaged), record(damaged, png), record("no image", png), "\xff"});
  const std::string error = data_error_of([&] { run({"verify", "--images", path("a.tfrecord")}); });
  EXPECT_THAT(error, HasSubstr("4 faults in 1 of 1 files; the first: [" + path("a.tfrecord") +
                               ": record 0 at byte 0] expected an intact image in picture; [PNG "
                               "image]"));
  EXPECT_THAT(output_, HasSubstr("expected an intact image in image/encoded; [PNG image]"));
  EXPECT_THAT(output_, HasSubstr("expected a usable image in image/encoded; [image] expected a "
                                 "JPEG or a PNG image"));
  EXPECT_THAT(output_, HasSubstr("expected a tf.train.Example; "));
  EXPECT_THAT(output_, HasSubstr("a.tfrecord: 4 records, 2 images, 4 faults\n"));
}

TEST_F(DataCommands, VerifyFindsDamagedPackedFiles) {
  run_convert({"--compression", "zlib"});
  const auto file = directory_ / "out/train-00001-of-00002.tfrecord";
  const std::string bytes = read_bytes(file);
  write_bytes(file, bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(data_error_of([&] {
                run({"verify", path("out")});
              }),
              HasSubstr("expected a complete zlib stream; truncated"));
}

TEST_F(DataCommands, VerifyComparesWithDescription) {
  run_convert();
  write_records(directory_ / "out/train-00001-of-00002.tfrecord",
                {image_record(1, 4, 0), image_record(1, 4, 0)});
  EXPECT_EQ(data_error_of([&] {
              run({"verify", path("out")});
            }),
            "[verify] expected intact files; 1 fault in 0 of 2 files; the first: [" +
                path("out/dataset.json") + "] expected 5 records of train, got 4");
  std::filesystem::remove(directory_ / "out/train-00000-of-00002.tfrecord");
  EXPECT_THAT(data_error_of([&] {
                run({"verify", path("out")});
              }),
              HasSubstr("No such file or directory"));
  EXPECT_NO_THROW(run({"verify", path("out/*")}));
}

TEST_F(DataCommands, RequireFiles) {
  EXPECT_THROW(run({"verify"}), CLI::ParseError);
  EXPECT_THROW(run({}), CLI::ParseError);
  EXPECT_EQ(data_error_of([&] {
              run({"verify", path("*.tfrecord")});
            }),
            "[" + path("*.tfrecord") + "] expected files that match this pattern; there are none");
}

}  // namespace
}  // namespace lockstep::inline v0::data
