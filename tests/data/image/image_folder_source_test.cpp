#include "lockstep/data/source/image_folder_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ImageFolderTest : public ::testing::Test {
 protected:
  std::filesystem::path add(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((directory_ / name).parent_path());
    write_bytes(directory_ / name, bytes);
    return directory_ / name;
  }
  /// Writes an image whose pixels are all `value`.
  std::filesystem::path add_png(const std::string& name, std::uint8_t value, int height = 2,
                                int width = 3) const {
    return add(name,
               text_of(encode_png(constant_image(height, width, {value, value, value}).view())));
  }
  std::string error() const {
    return data_error_of([&] { ImageFolderSource source(directory_.path()); });
  }
  std::string of(const std::filesystem::path& path) const { return "[" + path.string() + "] "; }

  const TemporaryDirectory directory_;
};

TEST_F(ImageFolderTest, WithoutLabelsImagesMayBeAnywhere) {
  add_png("b.png", 3);
  add_png("ant/below/deep.png", 2);
  add_png("ant/a.PNG", 1);
  add_png("cat/.hidden.png", 9);
  add("cat/notes.txt", "text");
  add_png("d/1.png", 4);
  const DataSpecOptions options{.may_lack_labels = true};
  const std::string name = directory_.path().string();
  const Dataset dataset = open_data(name, options);
  EXPECT_EQ(dataset.description(), "4 images in " + name + ", 1 other file left out (1 .txt)");
  EXPECT_TRUE(dataset.spec().targets.empty());
  const auto& source = dynamic_cast<const ImageFolderSource&>(dataset.source());
  EXPECT_THAT(source.info().class_names, ::testing::IsEmpty());
  const std::vector<std::string> names = {"ant/a.PNG", "ant/below/deep.png", "b.png", "d/1.png"};
  ASSERT_EQ(source.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(source.name_of(i), names[i]);
    EXPECT_THAT(read(source, i).features(), Each(static_cast<float>(i + 1) / 255)) << i;
  }
  const Dataset one = open_data(name + "/b.png", options);
  ASSERT_EQ(one.size(), 1);
  EXPECT_THAT(read(one.source(), 0).features(), Each(3 / 255.0F));
  EXPECT_EQ(data_error_of([&] { open_data("images:" + name + "/cat", options); }),
            of(directory_ / "cat") +
                "expected images, files that end in .jpg, .jpeg or .png, "
                "got only 1 other file (1 .txt)");
}

TEST_F(ImageFolderTest, FoldersAreClassesInTheOrderOfTheirNames) {
  add_png("zebra/2.png", 4);
  add_png("zebra/10.PNG", 3);
  add_png("ant/below/deep.png", 2);
  add_png("ant/a.png", 1);
  add("ant/notes.txt", "text");
  add("ant/.hidden.png", "text");
  add("ant/.thumbnails/a.png", "text");
  add(".git/a.png", "text");
  add("readme.png", "text");
  std::filesystem::create_directories(directory_ / "bee");
  const ImageFolderSource source(directory_.path());
  EXPECT_EQ(source.spec(), SampleSpec::classification({2, 3, 3}, 3));
  EXPECT_THAT(source.info().class_names, ElementsAre("ant", "bee", "zebra"));
  EXPECT_EQ(source.info().description, "4 images of 3 classes in " + directory_.path().string() +
                                           ", 2 other files left out (1 .png, 1 .txt)");
  EXPECT_EQ(source.path_of(1), directory_ / "ant/below/deep.png");
  EXPECT_TRUE(source.info().has_encoded_images);
  ASSERT_EQ(source.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(read(source, i).features(), Each(static_cast<float>(i + 1) / 255)) << i;
    EXPECT_EQ(read(source, i).label(), i < 2 ? 0 : 2);
  }
}

TEST_F(ImageFolderTest, IdentityDependsOnImageNames) {
  add_png("cat/1.png", 1);
  add_png("cat/2.png", 2);
  const std::uint64_t both = ImageFolderSource(directory_.path()).info().identity;
  EXPECT_EQ(ImageFolderSource(directory_.path()).info().identity, both);
  std::filesystem::rename(directory_ / "cat/2.png", directory_ / "cat/3.png");
  const Dataset other = Dataset::from_images(directory_.path());
  EXPECT_NE(other.source().info().identity, both);
  EXPECT_EQ(other.take(1).source().info().identity, other.source().info().identity);
  EXPECT_NE(other.concatenate(other).source().info().identity, 0);
}

TEST_F(ImageFolderTest, WarnsIfFoldersLookLikeParts) {
  add_png("val/cat/1.png", 1);
  EXPECT_EQ(ImageFolderSource(directory_.path()).info().description,
            "1 image of 1 class in " + directory_.path().string() +
                ", whose folders look like parts of a data set: use " +
                (directory_ / "val").string());
  add_png("Train/cat/1.png", 1);
  EXPECT_EQ(ImageFolderSource(directory_.path()).info().description,
            "2 images of 2 classes in " + directory_.path().string() +
                ", whose folders look like parts of a data set: use " +
                (directory_ / "Train").string());
  add_png("bus/1.png", 1);
  EXPECT_EQ(ImageFolderSource(directory_.path()).info().description,
            "3 images of 3 classes in " + directory_.path().string());
}

TEST_F(ImageFolderTest, RejectsImagesWithoutAClass) {
  const auto image = add_png("1.png", 1);
  add_png("2.jpg", 1);
  const std::string expected =
      of(directory_.path()) +
      "expected the images of each class in a folder of that name: DIRECTORY/CLASS/IMAGE; there "
      "are 2 images in the directory itself, and none in folders";
  const std::string directory = directory_.path().string();
  for (const std::string& spec : {directory, "images:" + directory})
    EXPECT_EQ(data_error_of([&] { open_data(spec); }), expected);
  std::filesystem::create_directory(directory_ / "empty");
  for (const std::string& spec : {directory, "images:" + directory})
    EXPECT_EQ(data_error_of([&] { open_data(spec); }), expected);
  EXPECT_EQ(
      data_error_of([&] { open_data("images:" + image.string()); }),
      of(image) + "expected a directory with a folder of images for each class; it is a file");
  EXPECT_THAT(
      input_error_of([&] { open_data(image.string()); }),
      HasSubstr("expected images:DIRECTORY with one folder of JPEG and PNG files per class"));
  const auto named_as_records = directory_ / "1.tfrecord";
  std::filesystem::copy_file(image, named_as_records);
  EXPECT_THAT(data_error_of([&] { open_data(named_as_records.string()); }),
              HasSubstr("1.tfrecord] expected a TFRecord file, got a PNG image; images are read "
                        "from a directory with a folder for each class"));
}

TEST_F(ImageFolderTest, DetectsFormatsByContent) {
  add("a/1.jpg", text_of(encode_png(constant_image(8, 8, {7, 7, 7}).view())));
  add("a/2.png", text_of(encode_jpeg(constant_image(8, 8, {9, 9, 9}).view())));
  const ImageFolderSource source(directory_.path());
  EXPECT_THAT(read(source, 0).features(), Each(7.0f / 255));
  EXPECT_THAT(read(source, 1).features(), Each(9.0f / 255));
}

TEST_F(ImageFolderTest, RecipesUnifyImageSizes) {
  add_png("a/1.png", 1, 300, 400);
  add_png("b/1.png", 2, 260, 256);
  const Dataset images =
      Dataset::from_images(directory_.path()).images(ImageRecipe::parse("imagenet-test")).batch(2);
  EXPECT_EQ(images.spec().shape(), (std::vector<std::int64_t>{224, 224, 3}));
  const auto stream = images.stream({.last_step = 1, .pixels = true});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(copy(parts[0].labels()), ElementsAre(0, 1));
  EXPECT_EQ(parts[0].pixels().front(), 1);
  EXPECT_EQ(parts[0].pixels().back(), 2);
}

TEST_F(ImageFolderTest, WithoutARecipeAllHaveTheSizeOfTheFirst) {
  add_png("a/1.png", 1);
  const auto other = add_png("a/2.png", 2, 3, 3);
  const ImageFolderSource source(directory_.path());
  EXPECT_EQ(
      data_error_of([&] { read(source, 1); }),
      of(other) +
          "expected a usable image; [image recipe none] expected --image-size N, with which a "
          "training resizes all images to N x N, or images of 2 x 3; one is 3 x 3");
  const ImageFolderSource resized(directory_.path(), {3, 3, 3});
  EXPECT_THAT(read(resized, 1).features(), Each(2.0f / 255));
  EXPECT_EQ(input_error_of([&] { ImageFolderSource(directory_.path(), {27}); }),
            of(directory_.path()) + "expected a shape HxWxC for images, got [27]");
}

TEST_F(ImageFolderTest, NamesTheInvalidFile) {
  add_png("a/1.png", 1);
  const auto empty = add("a/2.png", "");
  const auto text = add("a/3.jpeg", "no image");
  const auto cut = add("a/4.jpg", text_of(encode_jpeg(noisy_image(2, 3).view())).substr(0, 200));
  const ImageFolderSource source(directory_.path());
  EXPECT_THAT(data_error_of([&] { read(source, 1); }),
              HasSubstr(of(empty) + "expected a usable image; "));
  EXPECT_EQ(
      data_error_of([&] { read(source, 2); }),
      of(text) + "expected a usable image; [image] expected a JPEG or a PNG image; it is text");
  EXPECT_THAT(data_error_of([&] { read(source, 3); }),
              StartsWith(of(cut) + "expected a usable image; "));
  std::filesystem::remove(directory_ / "a/1.png");
  EXPECT_EQ(
      data_error_of([&] { read(source, 0); }),
      of(directory_ / "a/1.png") + "expected a file that can be read; No such file or directory");
}

TEST_F(ImageFolderTest, RejectsFoldersWithoutImages) {
  EXPECT_EQ(error(),
            of(directory_.path()) +
                "expected a folder for each class, with images in it; there are no folders");
  std::filesystem::create_directories(directory_ / "a");
  std::filesystem::create_directories(directory_ / "b");
  EXPECT_EQ(error(), of(directory_.path()) +
                         "expected files that end in .jpg, .jpeg or .png in the class folders; "
                         "there are none in a, b");
  EXPECT_EQ(data_error_of([] { ImageFolderSource source("nowhere"); }),
            "[nowhere] expected a readable directory; No such file or directory");
  EXPECT_FALSE(is_image_folder(directory_.path()));
}

TEST_F(ImageFolderTest, CountsSkippedFiles) {
  add_png("a/1.png", 1);
  add_png("b/1.png", 1);
  for (const char* name : {"a/1.webp", "a/2.webp", "a/below/1.BMP", "b/1.bmp", "b/2.bmp",
                           "b/README", "b/.hidden.bmp", "b/.cache/1.bmp"})
    add(name, "text");
  EXPECT_EQ(ImageFolderSource(directory_.path()).info().description,
            "2 images of 2 classes in " + directory_.path().string() +
                ", 6 other files left out (3 .bmp, 2 .webp, 1 without extension)");
}

TEST_F(ImageFolderTest, FollowsLinksToFolders) {
  namespace fs = std::filesystem;
  const TemporaryDirectory elsewhere;
  add_png("cat/own.png", 1);
  add_png("dog/below/own.png", 1);
  fs::create_directories(elsewhere / "x/deep");
  for (const char* name : {"x/1.png", "x/deep/2.png"})
    fs::copy_file(directory_ / "cat/own.png", elsewhere / name);
  fs::create_directory_symlink(elsewhere / "x", directory_ / "cat/a_link");
  fs::create_directory_symlink(elsewhere / "x/deep", directory_ / "cat/again");
  fs::create_directory_symlink(elsewhere / "x", directory_ / "dog/x");
  // What is below the class has its own name; the folder that contains the class has no other.
  fs::create_directory_symlink(directory_ / "dog/below", directory_ / "dog/an_alias");
  fs::create_directory_symlink(directory_.path(), directory_ / "dog/below/up");
  const ImageFolderSource source(directory_.path());
  std::vector<std::string> names;
  for (std::int64_t record = 0; record < source.size(); ++record)
    names.push_back(source.name_of(record));
  EXPECT_THAT(names, ElementsAre("cat/a_link/1.png", "cat/a_link/deep/2.png", "cat/own.png",
                                 "dog/below/own.png", "dog/x/1.png", "dog/x/deep/2.png"));
  EXPECT_EQ(source.info().description, "6 images of 2 classes in " + directory_.path().string() +
                                           ", 3 other files left out (3 linked folders)");
}

TEST_F(ImageFolderTest, AcceptsClassesOfLinksOnly) {
  const TemporaryDirectory elsewhere;
  std::filesystem::create_directories(directory_ / "cat");
  const auto image = add_png("1.png", 1);
  std::filesystem::rename(image, elsewhere / "1.png");
  std::filesystem::create_directory_symlink(elsewhere.path(), directory_ / "cat/link");
  EXPECT_TRUE(is_image_folder(directory_.path()));
  EXPECT_TRUE(has_images(directory_.path()));
  EXPECT_EQ(open_data(directory_.path().string()).size(), 1);
}

TEST_F(ImageFolderTest, RejectsClassesWithoutSupportedImages) {
  add_png("a/1.png", 1);
  add("b/1.bmp", "text");
  add("b/2.bmp", "text");
  add("b/notes.txt", "text");
  EXPECT_EQ(error(), of(directory_ / "b") +
                         "expected JPEG or PNG images, with names that end in .jpg, .jpeg or .png, "
                         "or an empty folder; there are only 3 other files (2 .bmp, 1 .txt)");
  std::filesystem::remove(directory_ / "a/1.png");
  EXPECT_FALSE(is_image_folder(directory_.path()));
  for (const auto& open : {std::function<void()>([&] { open_data(directory_.path().string()); }),
                           std::function<void()>([&] { data_files(directory_.path().string()); })})
    EXPECT_THAT(data_error_of(open),
                HasSubstr("folders of images (JPEG or PNG: .jpg, .jpeg, .png); "
                          "the directory has folders with 3 other files (2 "
                          ".bmp, 1 .txt)"));
}

TEST_F(ImageFolderTest, NamesTheFormatOfAnImageThatIsNotSupported) {
  add_png("a/1.png", 1);
  const auto gif = add("a/2.png", "GIF89a and more");
  EXPECT_EQ(data_error_of([&] { read(ImageFolderSource(directory_.path()), 1); }),
            of(gif) +
                "expected a usable image; [image] expected a JPEG or a PNG image; it is a GIF "
                "image, which is not supported: convert it");
}

TEST_F(ImageFolderTest, RejectsTestSetsWithOtherClasses) {
  add_png("a/1.png", 1);
  std::filesystem::create_directories(directory_ / "b");
  DataSpecOptions options;
  options.tfrecord.classes = 2;
  EXPECT_EQ(open_data(directory_.path().string(), options).spec().classes(), 2);
  options.tfrecord.classes = 3;
  EXPECT_EQ(data_error_of([&] { open_data("images:" + directory_.path().string(), options); }),
            of(directory_.path()) +
                "expected folders of 3 classes, including empty ones, because their order defines "
                "the class numbers; there are 2");
}

TEST_F(ImageFolderTest, IsOpenedByItsName) {
  add_png("a/1.png", 1);
  EXPECT_TRUE(is_image_folder(directory_.path()));
  EXPECT_EQ(open_data(directory_.path().string()).spec(), SampleSpec::classification({2, 3, 3}, 1));
  EXPECT_EQ(open_data("images:" + directory_.path().string()).size(), 1);
  DataSpecOptions options;
  options.tfrecord.input_shape = {4, 4, 3};
  EXPECT_EQ(open_data(directory_.path().string(), options).spec().shape(),
            options.tfrecord.input_shape);
}

TEST_F(ImageFolderTest, BecomesShardsOfTheSameFiles) {
  for (int i = 0; i < 20; ++i)
    add_png(fmt::format("{}/{:02}.png", i < 10 ? "ant" : "bee", i), static_cast<std::uint8_t>(i),
            2 + i, 3);
  const auto jpeg = text_of(encode_jpeg(noisy_image(5, 7).view()));
  add("bee/20.jpg", jpeg);
  const ImageFolderSource source(directory_.path());
  const TemporaryDirectory output;
  ShardOptions options{.directory = output.path(),
                       .shards = 2,
                       .encoding = FeatureEncoding::encoded,
                       .input_feature = "image/encoded",
                       .label_feature = "image/class/label",
                       .shuffle = 1};
  EXPECT_THAT(write_shards(source, options).class_names, ElementsAre("ant", "bee"));
  std::set<std::string> files;
  std::vector<std::int64_t> labels;
  for (const char* shard : {"train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"})
    for (const std::string& record : read_records(output / shard)) {
      const Example example = parse_example(record);
      const std::string file = std::get<BytesList>(example.at("image/encoded")).at(0);
      files.insert(file);
      labels.push_back(std::get<Int64List>(example.at("image/class/label")).at(0));
      EXPECT_EQ(example.at("image/class/text"),
                Feature(BytesList{labels.back() == 0 ? "ant" : "bee"}));
      if (file != jpeg) continue;
      EXPECT_EQ(example.at("image/format"), Feature(BytesList{"jpeg"}));
      EXPECT_EQ(example.at("image/height"), Feature(Int64List{5}));
      EXPECT_EQ(example.at("image/width"), Feature(Int64List{7}));
      EXPECT_EQ(example.at("image/channels"), Feature(Int64List{3}));
    }
  EXPECT_EQ(files.size(), 21u);
  for (std::int64_t i = 0; i < source.size(); ++i)
    EXPECT_TRUE(files.contains(read_bytes(source.path_of(i)))) << i;
  EXPECT_EQ(std::ranges::count(labels, 0), 10);
  EXPECT_FALSE(std::ranges::is_sorted(labels));  // both classes in each shard
  const auto first_shard = std::span(labels).first(labels.size() / 2);
  EXPECT_GT(std::ranges::count(first_shard, 0), 0);
  EXPECT_GT(std::ranges::count(first_shard, 1), 0);

  const Dataset shards =
      open_data(output.path().string()).images(ImageRecipe::parse("imagenet-test"));
  EXPECT_EQ(shards.spec(), SampleSpec::classification({224, 224, 3}, 2));
  EXPECT_TRUE(shards.source().info().has_encoded_images);
}

TEST_F(ImageFolderTest, ADamagedFileStopsTheWritingOfShards) {
  add_png("a/1.png", 1);
  const auto damaged = add("a/2.png", "no image");
  const TemporaryDirectory output;
  const ShardOptions options{.directory = output / "shards", .encoding = FeatureEncoding::encoded};
  EXPECT_THAT(data_error_of([&] { write_shards(ImageFolderSource(directory_.path()), options); }),
              HasSubstr(of(damaged) + "expected a usable image; "));
  EXPECT_THAT(names_in(output / "shards"), ElementsAre());
}

TEST(OpenImageFolder, ReadsGrayImagesInColorIfTheTrainingHadColors) {
  const TemporaryDirectory directory;
  const auto write = [&](const char* name, const Bytes& png) {
    std::filesystem::create_directories(directory / "a");
    write_bytes(directory / "a" / name, {reinterpret_cast<const char*>(png.data()), png.size()});
  };
  write("0.png", encode_png(Bytes{9, 9}, 1, 2, {.color_type = 0}));
  write("1.png", encode_png(Bytes{1, 2, 3, 4, 5, 6}, 1, 2, {.color_type = 2}));
  const auto shape = [&](const TFRecordOptions& options) {
    return open_data(directory.path().string(), {.tfrecord = options}).spec().shape();
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape({}), (Shape{1, 2, 1}));
  EXPECT_EQ(shape({.trained_shape = {1, 2, 3}}), (Shape{1, 2, 3}));
  EXPECT_EQ(shape({.trained_shape = {2, 2, 3}}), (Shape{1, 2, 1})) << "the shape does not match";
  EXPECT_EQ(shape({.input_shape = {1, 2, 1}, .trained_shape = {1, 2, 3}}), (Shape{1, 2, 1}));
}

}  // namespace
}  // namespace lockstep::inline v0::data
