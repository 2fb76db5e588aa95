// The help of all commands: its width, and the order of its parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/apps/program.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The help of `command` with `columns` in the environment, such as "COLUMNS=90".
std::string help(const std::string& command, const std::vector<std::string>& columns) {
  std::vector<std::string> words{"env"};
  words.insert(words.end(), columns.begin(), columns.end());
  const auto program = lockstep(command + " --help");
  words.insert(words.end(), program.begin(), program.end());
  const Result result = run(words);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("Usage: lockstep " + command)) << command;
  return result.output;
}

/// Length of the longest line in characters (UTF-8).
std::ptrdiff_t width_of(const std::string& text) {
  std::istringstream lines(text);
  std::ptrdiff_t width = 0;
  for (std::string line; std::getline(lines, line);)
    width = std::max(width, std::ranges::count_if(line, [](char byte) {
                       return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
                     }));
  return width;
}

class CommandHelp : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Commands, CommandHelp,
                         ::testing::Values("train", "evaluate", "predict", "quantize", "generate",
                                           "data", "data convert", "data convert idx",
                                           "data convert csv", "data convert images",
                                           "data convert text", "data index", "data inspect",
                                           "data verify", "data benchmark", "checkpoint",
                                           "checkpoint inspect", "checkpoint verify",
                                           "checkpoint export", "inspect", "allreduce-bench",
                                           "doctor", "launch", "plan", "report", "version"));

TEST_P(CommandHelp, FitsEightyColumns) {
  const std::string text = help(GetParam(), {"-u", "COLUMNS"});
  EXPECT_LE(width_of(text), 80);
  EXPECT_THAT(text, Not(HasSubstr("\n\n\n")));
  for (const char* validator : {" in [", "POSITIVE", "NONNEGATIVE", "kb(=1024b)"})
    EXPECT_THAT(text, Not(HasSubstr(validator)));
}

TEST_P(CommandHelp, HasDescriptiveValueNames) {
  std::istringstream words(help(GetParam(), {"-u", "COLUMNS"}));
  for (std::string word; words >> word;)
    for (const char* type : {"TEXT", "INT", "UINT", "FLOAT"})
      EXPECT_NE(word.substr(0, word.find_first_of(":=")), type) << word;
}

TEST(Help, OfProgramFitsEightyColumns) {
  const Result result = run_lockstep("--help");
  EXPECT_LE(width_of(result.output), 80) << result.output;
  EXPECT_THAT(result.output, HasSubstr("  train                       Train a model, in one "));
  EXPECT_THAT(result.output, Not(HasSubstr("Example")));
}

TEST(Help, UsesUpToHundredColumns) {
  const auto width = width_of(help("train", {"COLUMNS=200"}));
  EXPECT_GT(width, 80);
  EXPECT_LE(width, 100);
}

TEST(Help, BeginsWithExampleAndCommonOptions) {
  const std::string text = help("train", {"COLUMNS=80"});
  const auto at = [&](const char* part) {
    const std::size_t found = text.find(part);
    EXPECT_NE(found, std::string::npos) << part;
    return found;
  };
  EXPECT_LT(at("  lockstep train --model cnn --data fashion-mnist"), at("Usage:"));
  EXPECT_LT(at("Usage:"), at("\nCommon options:\n"));
  for (const char* option :
       {"  --model ", "  --data ", "  --global-batch ", "  --epochs ", "  --validation-data ",
        "  --devices ", "  --learning-rate ", "  --checkpoint-dir "})
    EXPECT_LT(at(option), at("\nModel:\n")) << option;
  EXPECT_LT(at("\nModel:\n"), at("\nConfiguration:\n"));
  EXPECT_THAT(text, HasSubstr("--shuffle,--no-shuffle=true"));
  EXPECT_THAT(text, HasSubstr("  --config FILE  "));
  EXPECT_THAT(text, HasSubstr("  --seed N=1  "));
  EXPECT_THAT(text, HasSubstr("  --epochs N "));
  EXPECT_THAT(text, HasSubstr("  --resume auto|never|require=auto\n"));
  EXPECT_THAT(text, Not(HasSubstr("--lr,")));
  EXPECT_THAT(text, Not(HasSubstr("--batch-size")));
}

TEST(Help, ListsOptimizersOfHyperparameter) {
  std::istringstream words(help("train", {"COLUMNS=80"}));
  std::string text;
  for (std::string word; words >> word;) text += word + " ";
  for (const char* part : {"Optimizer: sgd, adam, adamw, lars",
                           "Momentum of sgd and rmsprop (default 0) and lars (default 0.9) ",
                           "Decay rate of the second moment, for adam, adamw and lamb",
                           "adam, adamw, rmsprop and adagrad (default 1e-07), lars (default 1e-09)",
                           "for lars (default 0.001) ", "adamw and lamb (default 0.01)"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Help, IsAlsoACommand) {
  for (const char* help : {"help", "help help", "help --help"})
    EXPECT_EQ(run_lockstep(help).output, run_lockstep("--help").output) << help;
  EXPECT_EQ(run_lockstep("help data convert").output, run_lockstep("data convert --help").output);
  EXPECT_THAT(run_lockstep("help launch").output, HasSubstr("Usage: lockstep launch"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
