#include "lockstep/base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kKnown = {"conv2d", "dense", "dropout"};

TEST(GotName, AsksForTheNearestName) {
  EXPECT_EQ(got_name("conv2", kKnown), "got \"conv2\" (did you mean conv2d?)");
  EXPECT_EQ(got_name("dropuot", kKnown), "got \"dropuot\" (did you mean dropout?)");
}

TEST(GotName, DoesNotGuessWhereNothingIsNear) {
  EXPECT_EQ(got_name("attention", kKnown), "got \"attention\"");
  EXPECT_EQ(got_name("", kKnown), "got \"\"");
  EXPECT_EQ(got_name("dense", {}), "got \"dense\"");
  EXPECT_EQ(got_name(std::string(100, 'x'), kKnown), "got \"" + std::string(100, 'x') + "\"");
}

TEST(ListNames, SeparatesByCommas) { EXPECT_EQ(list_names(kKnown), "conv2d, dense, dropout"); }

}  // namespace
}  // namespace lockstep
