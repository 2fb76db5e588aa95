// Predictions and evaluations of data with unreadable records.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/data/image/encode_png.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "tests/apps/saved.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class UnreadableRecords : public Saved {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(directory(name)).parent_path());
    std::ofstream(directory(name), std::ios::binary) << bytes;
  }
  /// An image whose pixels all have this value.
  static std::string png(std::uint8_t value) {
    data::Image image;
    image.reshape(4, 4, 3);
    std::fill_n(image.span().pixels, 4 * 4 * 3, value);
    return data::to_png(image.view());
  }
  /// Writes two classes of images, and trains on them.
  void train_on_images() const {
    for (int i = 0; i < 3; ++i) {
      write(fmt::format("photos/dark/{}.png", i), png(static_cast<std::uint8_t>(i)));
      write(fmt::format("photos/light/{}.png", i), png(static_cast<std::uint8_t>(250 + i)));
    }
    ASSERT_EQ(run_lockstep("train --model linear --quiet --epochs 20 --learning-rate 0.1 --data " +
                           directory("photos") + " --checkpoint-dir " + directory())
                  .status,
              0);
  }
  std::string command(const std::string& name, const std::string& data) const {
    return name + " --checkpoint " + directory() + " --data " + data;
  }
};

TEST_F(UnreadableRecords, HaveErrorsInsteadOfPredictions) {
  train_on_images();
  const std::string photos = directory("photos");
  write("photos/dark/0.png", png(1).substr(0, 60));  // the first record
  write("photos/light/1.png", "<!DOCTYPE html>");
  const std::string predict = command("predict", photos);
  const Result refused = run_lockstep(predict + " --output " + directory("none.csv"));
  EXPECT_EQ(refused.status, 3);
  EXPECT_FALSE(fs::exists(directory("none.csv")));
  const Result csv = run_lockstep(predict + " --output - --bad-records skip:2");
  EXPECT_EQ(csv.status, 3);
  EXPECT_THAT(csv.output, MatchesRegex("record,predicted,probability_0,probability_1,file,class,"
                                       "error\n"
                                       "0,,,,dark/0.png,,\"?\\[[^\n]*dark/0.png\\] expected a "
                                       "usable image; [^\n]*\n"
                                       "1,0,[^,]*,[^,]*,dark/1.png,dark,\n"
                                       "2,0,[^,]*,[^,]*,dark/2.png,dark,\n"
                                       "3,1,[^,]*,[^,]*,light/0.png,light,\n"
                                       "4,,,,light/1.png,,[^\n]* it is an HTML page[^\n]*\n"
                                       "5,1,[^,]*,[^,]*,light/2.png,light,\n"));
  EXPECT_THAT(csv.errors, HasSubstr("predicted 4 of 6 records"));
  EXPECT_THAT(csv.errors, HasSubstr("2 of 6 records cannot be read and have their errors in the "
                                    "predictions, such as: ["));
  const Result json = run_lockstep(predict + " --json --output - --bad-records skip:2");
  EXPECT_EQ(json.status, 3);
  const auto rows = json.events();
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[4].size(), 3U);
  EXPECT_EQ(rows[4]["record"], 4);
  EXPECT_EQ(rows[4]["file"], "light/1.png");
  EXPECT_THAT(rows[4]["error"].get<std::string>(), HasSubstr("it is an HTML page"));
  EXPECT_FALSE(rows[3].contains("error"));
  const Result event =
      run_lockstep(predict + " --json --bad-records skip:2 --output " + directory("out.tfrecord"));
  EXPECT_EQ(event.status, 3);
  EXPECT_EQ(event.event("predict")["bad_records"], 2);
  data::TFRecordReader reader(directory("out.tfrecord"));
  std::string_view record;
  std::vector<std::size_t> errors;
  while (reader.next(record)) errors.push_back(data::parse_example(record).count("error"));
  EXPECT_THAT(errors, ElementsAre(1, 0, 0, 0, 1, 0));
  EXPECT_EQ(run_lockstep(predict + " --output - --bad-records skip:1").status, 3);
  EXPECT_THAT(run_lockstep(predict + " --output - --bad-records skip:1").errors,
              HasSubstr("expected at most 1 unreadable record"));
}

TEST_F(UnreadableRecords, DoNotCountInMetrics) {
  train_on_images();
  write("photos/dark/1.png", "no image");
  const std::string evaluate = command("evaluate", directory("photos"));
  const Result failed = run_lockstep(evaluate);
  EXPECT_EQ(failed.status, 3);
  EXPECT_THAT(failed.errors, HasSubstr("--bad-records skip:N (Dataset::skip_bad_records) tolerates "
                                       "up to N such records"));
  const Result json = run_lockstep(evaluate + " --json --bad-records skip:3");
  EXPECT_EQ(json.status, 3);
  EXPECT_EQ(json.event("evaluate")["samples"], 5);
  EXPECT_EQ(json.event("evaluate")["bad_records"], 1);
  EXPECT_EQ(json.event("evaluate")["accuracy"], 1.0);
  const Result text = run_lockstep(evaluate + " --bad-records skip:3");
  EXPECT_THAT(text.output, HasSubstr("evaluated 5 of 6"));
  EXPECT_THAT(text.errors, HasSubstr("1 of 6 records cannot be read and do not count, such as: ["));
  fs::remove(directory("photos/dark/1.png"));
  const Result whole = run_lockstep(evaluate + " --json --bad-records skip:3");
  EXPECT_EQ(whole.status, 0);
  EXPECT_EQ(whole.event("evaluate")["loss"], json.event("evaluate")["loss"]);
}

TEST_F(UnreadableRecords, MayBeTableRows) {
  write("a.csv", "a,b,kind\n1,2,apple\n3,4,pear\n2,2,apple\n");
  ASSERT_EQ(run_lockstep("train --model linear --quiet --epochs 2 --data csv:" +
                         directory("a.csv") + " --checkpoint-dir " + directory())
                .status,
            0);
  write("new.csv", "a,b\n1,2\n3\n3,x\n3,4\n");
  const Result result = run_lockstep(command("predict", "csv:" + directory("new.csv")) +
                                     " --output - --bad-records skip:2");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.output,
              MatchesRegex("record,predicted,probability_0,probability_1,class,error\n"
                           "0,[^\n]*,\n"
                           "1,,,,,[^\n]*line 3[^\n]*expected 2 columns[^\n]*\n"
                           "2,,,,,[^\n]*line 4, column 2\\] expected a number[^\n]*\n"
                           "3,[^\n]*,\n"));
  const Result refused =
      run_lockstep(command("predict", "csv:" + directory("new.csv")) + " --output -");
  EXPECT_EQ(refused.status, 3);
  EXPECT_EQ(refused.output, "");
}

TEST_F(UnreadableRecords, MayBeMissingOrOfAnotherFormat) {
  train_on_images();
  const std::string output = " --output " + directory("p.csv");
  const std::string missing = directory("nosuch.jpg");
  const Result none = run_lockstep(command("predict", missing) + output);
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.errors,
              HasSubstr("nosuch.jpg] expected a file, or a pattern of files; it does not exist"));
  write("x.webp", std::string("RIFF\x10\0\0\0WEBPVP8 ", 16));
  EXPECT_THAT(run_lockstep(command("predict", directory("x.webp")) + output).errors,
              HasSubstr("x.webp] expected a TFRecord file, got a WebP image, which is not "
                        "supported: convert it"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
