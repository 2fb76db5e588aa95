#include "lockstep/data/source/caption_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/text/text_schema.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Numbers = std::vector<std::int32_t>;

class CaptionTest : public ::testing::Test {
 protected:
  std::string add(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((directory_ / name).parent_path());
    write_bytes(directory_ / name, bytes);
    return (directory_ / name).string();
  }
  /// Writes an image whose pixels are all `value`.
  void add_gray_png(const std::string& name, std::uint8_t value, int height = 2,
                    int width = 3) const {
    add(name, text_of(encode_png(constant_image(height, width, {value, value, value}).view())));
  }
  /// [PAD] and the words from 4 on; [CLS] is 2, [SEP] 3.
  std::string words() const {
    return add("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nred\ndot\n");
  }
  /// Two images; the first has two captions.
  std::string table() const {
    add_gray_png("images/one.png", 51);
    add_gray_png("images/two.png", 255);
    return add("captions.csv",
               "id,file,caption\n"
               "1,images/one.png,\"a red, red dot\"\n"
               "2,images/two.png,A dot\n"
               "3,images/one.png,a dot a dot a dot a dot\n");
  }
  CaptionSource source(TextOptions options) const {
    options.image = "file";
    options.target = "caption";
    return CaptionSource({table()}, std::move(options));
  }
  static Numbers tokens(const RecordSource& source, std::int64_t record) {
    return copy(read(source, record).memory.input("tokens").as<std::int32_t>());
  }
  static Numbers targets(const RecordSource& source, std::int64_t record) {
    return copy(read(source, record).memory.target("next").as<std::int32_t>());
  }

  const TemporaryDirectory directory_;
};

TEST_F(CaptionTest, MakesASampleOfEachRow) {
  const CaptionSource captions = source({.tokenizer = words(), .length = 7});
  EXPECT_EQ(to_string(captions.spec()),
            "image [2, 3, 3] and tokens [7] (7 classes) with next [7] (7 classes)");
  ASSERT_EQ(captions.size(), 3);
  EXPECT_THAT(read(captions, 0).features(), Each(51 / 255.0F));
  EXPECT_THAT(read(captions, 1).features(), Each(1.0F));
  EXPECT_THAT(read(captions, 2).features(), Each(51 / 255.0F));
  EXPECT_EQ(tokens(captions, 0), (Numbers{2, 4, 5, 1, 5, 6, 0}));
  EXPECT_EQ(targets(captions, 0), (Numbers{4, 5, 1, 5, 6, 3, -1}));
  EXPECT_EQ(tokens(captions, 1), (Numbers{2, 4, 6, 0, 0, 0, 0}));
  EXPECT_EQ(targets(captions, 1), (Numbers{4, 6, 3, -1, -1, -1, -1}));
  EXPECT_THAT(captions.info().description,
              MatchesRegex("3 captions of images in .*captions.csv, tokenizer vocab.txt \\(7 "
                           "tokens, [0-9a-f]+\\), 7 positions, 1 longer text cut"));
}

TEST_F(CaptionTest, CutsLongCaptionsBeforeTheEnd) {
  const CaptionSource captions = source({.tokenizer = words(), .length = 3});
  EXPECT_EQ(tokens(captions, 2), (Numbers{2, 4, 6}));
  EXPECT_EQ(targets(captions, 2), (Numbers{4, 6, 4}));
  EXPECT_EQ(targets(captions, 1), (Numbers{4, 6, 3})) << "just fits";
  EXPECT_THAT(captions.info().preparation, testing::EndsWith(", 3 positions, 2 longer texts cut"));
}

TEST_F(CaptionTest, AddsTokensAroundThoseOfTokenizersWithoutThem) {
  const CaptionSource bytes = source({.tokenizer = "bytes", .length = 8});
  EXPECT_EQ(bytes.spec().targets.front().classes, 258);
  EXPECT_EQ(tokens(bytes, 1), (Numbers{256, 'A', ' ', 'd', 'o', 't', 0, 0}));
  EXPECT_EQ(targets(bytes, 1), (Numbers{'A', ' ', 'd', 'o', 't', 257, -1, -1}));
  const CaptionSource chars = source({.length = 8});
  EXPECT_EQ(chars.spec().inputs[1].classes, 9 + 2) << "of \" ,Aadeort\"";
  EXPECT_EQ(tokens(chars, 1), (Numbers{9, 2, 0, 4, 6, 8, 0, 0}));
}

TEST_F(CaptionTest, ReadsOtherTablesAsThatOfTheTraining) {
  const CaptionSource training = source({.tokenizer = words(), .length = 5});
  const auto schema = training.info().text;
  EXPECT_EQ(TextSchema::from_checkpoint(schema->to_json(), "state.json"), *schema);
  add_gray_png("c.png", 102);
  const std::string other = "text:" + add("b.csv", "caption\tfile\na dot\tc.png\n");
  const Dataset evaluated = open_data(other, {.text = schema});
  EXPECT_EQ(evaluated.spec(), training.spec());
  EXPECT_THAT(read(evaluated.source(), 0).features(), Each(102 / 255.0F));
  EXPECT_EQ(targets(evaluated.source(), 0), (Numbers{4, 6, 3, -1, -1}));
  EXPECT_THAT(
      input_error_of([&] { open_data(other + ":tokenizer=bytes", {.text = schema}); }),
      HasSubstr("expected the tokenizer of the training, vocab.txt with the hash " + schema->hash));
}

TEST_F(CaptionTest, PreparesImagesOfAnySizeByARecipe) {
  table();
  add_gray_png("images/two.png", 255, 5, 4);
  const std::string spec =
      "text:" + (directory_ / "captions.csv").string() + ":image=file,target=caption,length=4";
  const Dataset dataset = open_data(spec).images(ImageRecipe::parse("resize=8")).batch(3);
  EXPECT_EQ(dataset.spec().shape(), (std::vector<std::int64_t>{8, 8, 3}));
  const auto stream = dataset.stream({.pixels = true});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  const auto pixels = parts[0].input("image").as<std::uint8_t>();
  ASSERT_EQ(pixels.size(), 3U * 8 * 8 * 3);
  EXPECT_THAT(pixels.first(8 * 8 * 3), Each(51));
  EXPECT_THAT(pixels.subspan(8 * 8 * 3, 8 * 8 * 3), Each(255));
  EXPECT_EQ(parts[0].input("tokens").as<std::int32_t>().size(), 3U * 4);
}

TEST_F(CaptionTest, NamesFileLineAndColumnOfATableItCannotRead) {
  struct Case {
    std::string table;
    std::string reason;
  };
  add_gray_png("a.png", 1);
  const TextOptions options{
      .tokenizer = words(), .length = 4, .image = "file", .target = "caption"};
  for (const Case& one :
       {Case{"file,caption\n,a dot\n",
             ": line 2, column 1] expected the name of an image file; the field is empty"},
        Case{std::string("file,caption\na\0.png,a dot\n", 26),
             ": line 2, column 1] expected the name of an image file; it has a zero byte"},
        Case{"file,caption\na.png\n",
             ": line 2, column 1] expected 2 columns, as in the first row; there are 1"},
        Case{"file,caption\na.png,a\na.png,\xff\n",
             ": line 3] expected text in UTF-8, got the byte 0xff at offset 0"},
        Case{"file,caption\na.png,\n",
             ": line 2] expected a text of at least one token; the text is empty"},
        Case{"file,caption\n", "expected at least one row after the first line; there is none"}}) {
    const std::string error =
        data_error_of([&] { CaptionSource({add("c.csv", one.table)}, options); });
    EXPECT_THAT(error, HasSubstr("c.csv"));
    EXPECT_THAT(error, HasSubstr(one.reason));
  }
  for (const char* header : {"files,caption\n", "file,captions\n"})
    EXPECT_THAT(
        input_error_of([&] { CaptionSource({add("c.csv", header)}, options); }),
        MatchesRegex(".*c.csv. expected a column \"(file|caption)\" in the first line, which names "
                     "the columns; the columns are (files, caption|file, captions)"));
}

TEST_F(CaptionTest, NamesFileAndLineOfAnImageItCannotRead) {
  add_gray_png("good.png", 7);
  add_gray_png("large.png", 7, 4, 4);
  add("text.png", "no image");
  const std::string file =
      add("c.csv", "file,caption\ngood.png,a\nmissing.png,a\ntext.png,a\n\nlarge.png,a\n");
  const CaptionSource captions({file}, {.length = 2, .image = "file", .target = "caption"});
  for (const auto& [record, line, name] :
       {std::tuple{1, 3, "missing.png"}, {2, 4, "text.png"}, {3, 6, "large.png"}}) {
    const std::string error = data_error_of([&, number = record] { read(captions, number); });
    EXPECT_THAT(error,
                HasSubstr("c.csv: line " + std::to_string(line) + "] expected a usable image"));
    EXPECT_THAT(error, HasSubstr(name));
  }
  const std::string undecoded = data_error_of([&] {
    Batch memory(captions.spec());
    Sample sample = memory.sample();
    StoredImage image;
    read_with_image(captions, 2, sample, image,
                    [](const StoredImage& stored) { ImageDecoder().open(stored.bytes); });
  });
  EXPECT_THAT(undecoded, HasSubstr("c.csv: line 4] expected a usable image"));
  EXPECT_THAT(data_error_of([&] {
                CaptionSource({add("d.csv", "file,caption\nmissing.png,a\n")},
                              {.length = 2, .image = "file", .target = "caption"});
              }),
              HasSubstr("d.csv: line 2] expected a usable image"));
}

TEST_F(CaptionTest, RefusesOptionsOfOtherTexts) {
  const std::string spec = "text:" + table();
  for (const auto& [options, reason] :
       {std::pair{":image=file",
                  "captions.csv] expected image= and target=, the columns of the images' names and "
                  "of the captions, got no target="},
        {":target=caption",
         "expected source= and target=, the columns of both texts; there is no source="},
        {":image=file,target=caption,stride=2",
         "expected only tokenizer=, length= and target= with image=, got stride="},
        {":image=file,target=caption,documents=lines", "with image=, got documents="},
        {":image=file,target=caption,column=id", "with image=, got column="},
        {":image=file,target=caption,label=id", "with image=, got label="},
        {":image=file,target=caption,source=id", "with image=, got source="},
        {":image=file,target=caption,target-length=3", "with image=, got target-length="}})
    EXPECT_THAT(input_error_of([&] { open_data(spec + options); }), HasSubstr(reason));
  EXPECT_THAT(input_error_of([&] {
                const TextSource text({table()}, {.image = "file", .target = "caption"});
              }),
              HasSubstr("captions.csv] expected a text, not captions of images, got image="));
}

}  // namespace
}  // namespace lockstep::inline v0::data
