#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/other_names.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0 {
namespace {

constexpr std::array<std::string_view, 3> kKnown = {"conv2d", "dense", "dropout"};

TEST(GotName, SuggestsTheNearestName) {
  EXPECT_EQ(got_name("conv2", kKnown), "got \"conv2\" (did you mean conv2d?)");
  EXPECT_EQ(got_name("dropuot", kKnown), "got \"dropuot\" (did you mean dropout?)");
}

TEST(GotName, IgnoresCase) {
  constexpr std::array<std::string_view, 5> kNames = {"sgd", "adam", "adamw", "Mean", "mEAN2"};
  EXPECT_EQ(got_name("AdamW", kNames), "got \"AdamW\" (did you mean adamw?)");
  EXPECT_EQ(got_name("ADAM", kNames), "got \"ADAM\" (did you mean adam?)");
  EXPECT_EQ(got_name("MEAN2", kNames), "got \"MEAN2\" (did you mean mEAN2?)");
}

TEST(GotName, CountsSwappedLettersOnce) {
  constexpr std::array<std::string_view, 3> kNames = {"mae", "fp32", "fp16"};
  EXPECT_EQ(got_name("mea", kNames), "got \"mea\" (did you mean mae?)");
  EXPECT_EQ(got_name("fp61", kNames), "got \"fp61\" (did you mean fp16?)");
  EXPECT_EQ(got_name("eam", kNames), "got \"eam\"");
}

TEST(GotName, SuggestsNamesWithThePrefix) {
  constexpr std::array<std::string_view, 4> kLong = {"data", "validation-data", "optimizer",
                                                     "optimizer-state"};
  EXPECT_EQ(got_name("val", kLong), "got \"val\" (did you mean validation-data?)");
  EXPECT_EQ(got_name("optim", kLong), "got \"optim\" (did you mean optimizer or optimizer-state?)");
  EXPECT_EQ(got_name("va", kLong), "got \"va\"") << "too short";
}

TEST(GotName, IgnoresLeadingDashes) {
  constexpr std::array<std::string_view, 4> kOptions = {"--bn", "--help", "--beta1", "--data-dir"};
  for (const std::string_view other : {"--bs", "-b", "--half", "--eval", "--ckpt-dir"})
    EXPECT_EQ(got_name(other, kOptions), fmt::format("got \"{}\"", other));
  EXPECT_EQ(got_name("--hlep", kOptions), "got \"--hlep\" (did you mean --help?)");
}

TEST(GotName, KnowsTheNamesOfOtherPrograms) {
  constexpr std::array<std::string_view, 3> kPrecisions = {"float32", "bfloat16", "float16"};
  EXPECT_EQ(got_name("16-mixed", kPrecisions), "got \"16-mixed\" (did you mean float16?)");
  EXPECT_EQ(got_name("mixed_bfloat16", kPrecisions),
            "got \"mixed_bfloat16\" (did you mean bfloat16?)");
  constexpr std::array<std::string_view, 2> kMetrics = {"loss", "validation_loss"};
  EXPECT_EQ(got_name("val_loss", kMetrics), "got \"val_loss\" (did you mean validation_loss?)");
  EXPECT_EQ(got_name("val_loss", std::span(kMetrics).first(1)), "got \"val_loss\"")
      << "a name that is not known here";
  EXPECT_EQ(got_name("BCELoss", std::array<std::string_view, 1>{"binary-crossentropy"}),
            "got \"BCELoss\" (did you mean binary-crossentropy, of logits, not of "
            "probabilities?)");
}

TEST(NamesHere, FoldsCaseAndUnderscores) {
  ASSERT_EQ(names_here("--Max_Epochs").size(), 1U);
  EXPECT_EQ(names_here("--Max_Epochs").front().name, "--epochs");
  EXPECT_EQ(names_here("--ckpt").size(), 2U) << "of two commands";
  EXPECT_TRUE(names_here("").empty());
}

TEST(GotName, SuggestsNothingIfNoNameIsSimilar) {
  EXPECT_EQ(got_name("attention", kKnown), "got \"attention\"");
  EXPECT_EQ(got_name("", kKnown), "got \"\"");
  EXPECT_EQ(got_name("dense", {}), "got \"dense\"");
  EXPECT_EQ(got_name(std::string(100, 'x'), kKnown), "got \"" + std::string(100, 'x') + "\"");
}

TEST(Counted, HasAPluralExceptForOne) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(2, "step"), "2 steps");
}

TEST(ParseNumber, RequiresTheWholeText) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("0.5"), 0.5);
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "99999999999"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<std::uint16_t>("-1"), std::nullopt);
}

enum class Color { red, blue, green };
constexpr auto kColors = enum_names<Color>(
    {{Color::red, "red"}, {Color::blue, "blue"}, {Color::blue, "azure"}, {Color::green, "green"}});

TEST(EnumNames, PrintTheFirstNameAndParseAll) {
  EXPECT_EQ(kColors.name(Color::blue), "blue");
  EXPECT_EQ(kColors.name(static_cast<Color>(7)), "unknown");
  EXPECT_EQ(kColors.parse("paint", "azure"), Color::blue);
  EXPECT_EQ(kColors.find("green"), Color::green);
  EXPECT_EQ(kColors.find("gren"), std::nullopt);
}

TEST(EnumNames, ListTheFirstNamesInAnError) {
  try {
    kColors.parse("paint", "gren");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(),
                 "[paint] expected red, blue or green, got \"gren\" (did you mean green?)");
  }
}

TEST(EnumNames, SuggestOtherNamesToo) {
  try {
    kColors.parse("paint", "azuer");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[paint] expected red, blue or green, got \"azuer\" (did you mean azure?)");
  }
}

TEST(ListNames, EndsWithTheirNumberIfThereAreMany) {
  const std::vector<std::string_view> names(1000, "x");
  const std::string text = list_names(names, " or ");
  EXPECT_TRUE(text.ends_with("x, x, … (1000 in all)"));
  EXPECT_LT(text.size(), 250U);
}

TEST(ListNames, SeparatesByCommas) {
  EXPECT_EQ(list_names(kKnown), "conv2d, dense, dropout");
  EXPECT_EQ(list_names(kKnown, " or "), "conv2d, dense or dropout");
  EXPECT_EQ(list_names(std::span(kKnown).first(1), " or "), "conv2d");
  EXPECT_EQ(list_names({}, " or "), "");
}

}  // namespace
}  // namespace lockstep::inline v0
