// Captions of synthetic images: the example that draws them, a training, and generated captions.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/apps/program.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

class Captions : public ::testing::Test {
 protected:
  static constexpr int kImages = 6;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  /// Draws images, and trains a small network, which fits them after 400 steps.
  void train(int steps) const {
    const Result drawn =
        run({LOCKSTEP_EXAMPLES "/example_shapes", path("shapes"), std::to_string(kImages), "3"});
    ASSERT_EQ(drawn.status, 0) << drawn.errors;
    EXPECT_EQ(drawn.output, fmt::format("6 images with captions in {}\n", path("shapes")));
    const Result trained = run_lockstep(fmt::format(
        "train --model caption:32 --data text:{0}/captions.csv:image=image,target=caption,"
        "tokenizer={0}/vocab.txt,length=8 --global-batch {1} --steps {2} --learning-rate 1e-3 "
        "--quiet --checkpoint-dir {3}",
        path("shapes"), kImages, steps, path("run")));
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }
  std::string generate(const std::string& options) const {
    return fmt::format("generate --checkpoint {} --temperature 0 {}", path("run"), options);
  }
  std::string image(int number) const { return path(fmt::format("shapes/image-{}.png", number)); }

  const data::TemporaryDirectory directory_;
};

TEST_F(Captions, DescribeTrainingImages) {
  train(400);
  std::string images;
  std::string expected = "image,caption\n";
  for (int i = 0; i < kImages; ++i) images += " " + image(i);
  const Result result = run_lockstep(generate("--image" + images));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("lockstep: generated "));
  std::string rest = result.output;
  std::string last;
  for (int i = 0; i < kImages; ++i) {
    const std::size_t end = rest.find('\n');
    ASSERT_NE(end, std::string::npos);
    last = rest.substr(0, end);
    expected += fmt::format("image-{}.png,{}\n", i, last);
    rest.erase(0, end + 1);
  }
  EXPECT_EQ(rest, "");
  EXPECT_EQ(expected, data::read_bytes(path("shapes/captions.csv")));

  const Result json = run_lockstep(generate("--json --image" + images));
  EXPECT_EQ(json.events().size(), static_cast<std::size_t>(kImages));
  const nlohmann::json event = json.event("generate");
  EXPECT_EQ(event["image"], image(kImages - 1));
  EXPECT_EQ(event["text"], last);
  EXPECT_EQ(event["stop"], "end");
  EXPECT_EQ(event["step"], 400);

  const Result quiet = run_lockstep(
      generate(fmt::format("--quiet --tokens 1 --output {} --image{}", path("text"), images)));
  EXPECT_EQ(quiet.output + quiet.errors, "");
  EXPECT_THAT(data::read_bytes(path("text")), ::testing::MatchesRegex("((a|two)\n)+"));

  const Result evaluated = run_lockstep(fmt::format(
      "evaluate --checkpoint {} --data text:{}/captions.csv --json", path("run"), path("shapes")));
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_EQ(evaluated.event("evaluate")["accuracy"], 1.0);
}

TEST_F(Captions, RequireReadableImage) {
  train(1);
  data::write_bytes(path("text.png"), "no image");
  for (const auto& [options, message] :
       {std::pair{std::string("--prompt a"),
                  std::string("[image] expected --image FILE for a model of captions, got none")},
        {"--image " + path("missing.png"), path("missing.png")},
        {"--image " + image(0) + " " + path("missing.png"), path("missing.png")},
        {"--image " + path("shapes"), path("shapes")},
        {"--image " + path("text.png"), path("text.png")}}) {
    const Result result = run_lockstep(generate(options));
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.errors, HasSubstr(message));
    EXPECT_EQ(result.output, "");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
