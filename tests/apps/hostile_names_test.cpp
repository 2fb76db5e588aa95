// Control characters and line breaks in names from data, models and the environment: escaped on a
// terminal and in logs, exact in files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/support/terminal.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::contents_of;
using checkpoint::overwrite;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Clears a terminal and renames its window, with C0 and C1 characters, and forges a line.
const std::string kHostile =
    "x\x1b[2J\x1b]0;owned\a\xc2\x9b"
    "2J\nlockstep: error: forged";
const std::string kShown = R"(x\x1b[2J\x1b]0;owned\x07\xc2\x9b2J\nlockstep: error: forged)";

/// Has no control characters but line breaks, and no forged line.
MATCHER(IsPlain, "") {
  const bool has_control = std::ranges::any_of(arg, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n') || byte == 0x7f;
  });
  return !has_control && arg.find("\xc2\x9b") == std::string::npos &&
         arg.find("\nlockstep: error: forged") == std::string::npos;
}

class HostileNames : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  /// A checkpoint of a table with a hostile class, in "run".
  void train_on_classes() {
    overwrite(path("t.csv"),
              fmt::format("a,label\n1,\"{}\"\n2,no\n3,zebra\n1,\"{}\"\n2,no\n3,zebra\n", kHostile,
                          kHostile));
    const Result trained = run_lockstep(fmt::format(
        "train --model mlp:4 --data csv:{}:label=label,header=yes --epochs 2 --global-batch 3 "
        "--metrics confusion --checkpoint-dir {}",
        path("t.csv"), path("run")));
    ASSERT_EQ(trained.status, 0) << trained.errors;
    EXPECT_THAT(trained.output, AllOf(IsPlain(), HasSubstr("rows: labels")));
    EXPECT_THAT(trained.errors, IsPlain());
  }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(HostileNames, AreEscapedInErrors) {
  overwrite(path("c.csv"),
            fmt::format("a,\"{}\",label\n1,01/02/2024,0\n2,02/02/2024,1\n", kHostile));
  overwrite(path(kHostile), "junk");
  const std::string header =
      fmt::format(R"({{"x\u001b[2J\nlockstep: error: forged":{{"dtype":"F32","shape":[1],)"
                  R"("data_offsets":[0,4]}}}})");
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  overwrite(path("w.safetensors"), size + header + std::string(4, '\0'));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--data", "csv:" + path("c.csv") + ":label=label,header=yes"},
        {"--data", "csv:" + path("c.csv") + ":label=zzz,header=yes"},
        {"--data", "csv:" + path(kHostile)},
        {"--data", kHostile},
        {"--data", "synthetic:4x4x1,4,16", "--init-from", path("w.safetensors")},
        {"--data", "synthetic:4x4x1,4,16", "--optimizer", kHostile},
        {"--config", path(kHostile)},
        {kHostile}}) {
    std::vector<std::string> command = {LOCKSTEP_PROGRAM, "train",   "--model",
                                        "mlp:4",          "--steps", "1",
                                        "--global-batch", "2",       "--quiet"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Result refused = run(command);
    EXPECT_NE(refused.status, 0) << arguments.back();
    EXPECT_THAT(refused.errors,
                AllOf(IsPlain(), HasSubstr("lockstep: error: "), HasSubstr("\\x1b[2J")));
    EXPECT_EQ(std::ranges::count(refused.errors, '\n'), 1) << refused.errors;
  }
}

TEST_F(HostileNames, AreEscapedInTables) {
  train_on_classes();
  const std::string data = " csv:" + path("t.csv") + ":label=label,header=yes";
  for (const std::string& arguments :
       {"checkpoint inspect " + path("run"),
        "evaluate --metrics confusion --checkpoint " + path("run") + " --data" + data,
        "data inspect" + data}) {
    const Result shown = run_lockstep(arguments);
    EXPECT_EQ(shown.status, 0) << shown.errors;
    EXPECT_THAT(shown.output, IsPlain()) << arguments;
    EXPECT_THAT(shown.errors, IsPlain()) << arguments;
  }
}

TEST_F(HostileNames, AreExactInFilesAndEscapedOnTerminal) {
  train_on_classes();
  const std::string predict =
      fmt::format("{} predict --quiet --checkpoint {} --data 'csv:{}:label=label,header=yes'",
                  LOCKSTEP_PROGRAM, path("run"), path("t.csv"));
  const std::string exact = "\"" + kHostile + "\"\n";
  ASSERT_EQ(run({"sh", "-c", predict + " --output " + path("p.csv")}).status, 0);
  EXPECT_THAT(contents_of(path("p.csv")), HasSubstr(exact));
  EXPECT_THAT(run({"sh", "-c", predict + " --output - | cat"}).output, HasSubstr(exact));

  Terminal terminal(80);
  ASSERT_TRUE(terminal.opened);
  ASSERT_EQ(run({"sh", "-c", predict + " --output - > " + ::ttyname(terminal.inner)}).status, 0);
  EXPECT_THAT(terminal.text(), AllOf(HasSubstr(R"(x\x1b[2J\x1b]0;owned\x07\xc2\x9b2J)"),
                                     Not(HasSubstr("\x1b")), Not(HasSubstr("\xc2\x9b"))));
}

// Another program would read the rest of the name as another option.
TEST_F(HostileNames, DoNotAddLinesToConfiguration) {
  const Result printed = run({LOCKSTEP_PROGRAM, "train", "--data", "a\nseed=7", "--print-config"});
  EXPECT_THAT(printed.output, AllOf(HasSubstr("\ndata=\"a\\nseed=7\"\n"), HasSubstr("\nseed=1\n")));
  std::ofstream(path("run.ini")) << printed.output;
  EXPECT_EQ(run({LOCKSTEP_PROGRAM, "train", "--config", path("run.ini"), "--print-config"}).output,
            printed.output);
}

TEST_F(HostileNames, AreRejectedAsTritonLabels) {
  train_on_classes();
  const std::string folder = path("repository/model");
  const Result refused = run_lockstep(
      fmt::format("checkpoint export {} --layout triton --output {}", path("run"), folder));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors,
              AllOf(IsPlain(), HasSubstr("expected names of classes without line breaks"),
                    HasSubstr(" for class 1")));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(
      run_lockstep(fmt::format("checkpoint export {} --output {}", path("run"), path("model.onnx")))
          .status,
      0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
