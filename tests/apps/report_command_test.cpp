// lockstep report: from a training to the page, and the page in a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/apps/program.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSmallTraining =
    "train --json --model linear --data synthetic:4x4x1,3,96 --validation-data "
    "synthetic:4x4x1,3,32 --global-batch 8 --epochs 2 --log-every 2 --devices cpu:0,cpu:0 ";

class ReportCommand : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  /// Trains, and stores what the program prints.
  void train(const std::string& name, const std::string& more = "") {
    const Result result = run_lockstep(kSmallTraining + more);
    ASSERT_EQ(result.status, 0) << result.errors;
    data::write_bytes(at(name), result.output);
  }
  /// The page of `lockstep report ARGUMENTS`.
  std::string report(const std::string& arguments) {
    const Result result = run_lockstep("report " + arguments + " --output " + at("page.html"));
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_THAT(result.output, HasSubstr(" in " + at("page.html")));
    return data::read_bytes(at("page.html"));
  }

  data::TemporaryDirectory directory_;
};

TEST_F(ReportCommand, ShowsATrainingWithItsOptionsAndReplicas) {
  train("run.jsonl");
  const std::string page = report(at("run.jsonl"));
  EXPECT_THAT(page, AllOf(HasSubstr("<th>--optimizer</th><td>adam</td>"),
                          HasSubstr("Busy time of the replicas"),
                          HasSubstr("best validation accuracy"), HasSubstr("finished")));
  EXPECT_THAT(page, AllOf(HasSubstr("Where the time of a step goes"), HasSubstr("update"),
                          Not(HasSubstr("was written without a breakdown"))))
      << "the parts of steps are those that the training measured";
}

TEST_F(ReportCommand, ComparesTrainings) {
  train("sgd.jsonl", "--optimizer sgd");
  std::filesystem::create_directory(at("other"));
  train("other/adam.jsonl", "--optimizer adam");
  const std::string page = report(at("sgd.jsonl") + " " + at("other") + " --price 2");
  EXPECT_THAT(page, AllOf(HasSubstr("<h1>2 trainings</h1>"),
                          HasSubstr("<th>--optimizer</th><td>sgd</td><td>adam</td>"),
                          HasSubstr("cost to validation")));
}

TEST_F(ReportCommand, RejectsUnknownMetric) {
  train("run.jsonl");
  const Result result =
      run_lockstep("report " + at("run.jsonl") + " --target f1=0.9 --output " + at("page.html"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("[--target] expected "));
  EXPECT_FALSE(std::filesystem::exists(at("page.html")));
}

TEST_F(ReportCommand, ComparesTrainingsOfADirectory) {
  std::filesystem::create_directory(at("sweep"));
  train("sweep/sgd.jsonl", "--optimizer sgd");
  train("sweep/adam.jsonl", "--optimizer adam");
  EXPECT_THAT(report(at("sweep")), HasSubstr("<th>--optimizer</th><td>adam</td><td>sgd</td>"));
  const Result prices = run_lockstep("report " + at("sweep") + " --price 1,2,3");
  EXPECT_EQ(prices.status, 2);
  EXPECT_THAT(prices.errors,
              HasSubstr("--price] expected one price, or one of each of the 2 runs, got 3"));
}

TEST_F(ReportCommand, DoesNotOverwriteLog) {
  train("run.jsonl");
  const std::string log = data::read_bytes(at("run.jsonl"));
  std::filesystem::create_symlink(at("run.jsonl"), at("link"));
  for (const char* output : {"run.jsonl", "link"}) {
    const Result result = run_lockstep("report " + at("run.jsonl") + " --output " + at(output));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr("[--output] expected another file than the logs, got "));
  }
  EXPECT_EQ(data::read_bytes(at("run.jsonl")), log);
}

TEST_F(ReportCommand, RejectsOtherFiles) {
  data::write_bytes(at("text"), "epoch 1\n");
  const Result result = run_lockstep("report " + at("text"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("none of its lines is an event"));
}

TEST_F(ReportCommand, WritesWorkingPage) {
  const auto chromium = [&](const std::string& option) {
    return run({"sh", "-c",
                "command -v chromium >/dev/null || exit 77; exec chromium --headless --no-sandbox "
                "--disable-gpu --user-data-dir=" +
                    at("profile") + " --window-size=1280,2400 " + option + " file://" +
                    at("page.html")});
  };
  train("run.jsonl");
  std::string page = report(at("run.jsonl"));
  // A pointer over the first chart.
  page.insert(page.find("</body>"),
              "<script>const chart = document.querySelector('svg.chart');"
              "const box = chart.getBoundingClientRect();"
              "chart.dispatchEvent(new PointerEvent('pointermove',"
              "{clientX: box.left + box.width / 2, clientY: box.top + 20}));</script>");
  data::write_bytes(at("page.html"), page);
  const Result shown = chromium("--dump-dom");
  if (shown.status == 77) GTEST_SKIP() << "there is no chromium";
  ASSERT_EQ(shown.status, 0) << shown.errors;
  EXPECT_THAT(shown.output, HasSubstr("<div class=\"tip\""));
  EXPECT_THAT(shown.output, HasSubstr("<div>step "));
  EXPECT_EQ(chromium("--screenshot=" + at("page.png")).status, 0);
  EXPECT_GT(std::filesystem::file_size(at("page.png")), 20'000U);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
