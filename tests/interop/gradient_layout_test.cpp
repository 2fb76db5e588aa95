#include "lockstep/interop/gradient_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/allreduce/buckets/layout.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::interop {
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<ParameterLayout> kParameters{{"a", {3, 5}}, {"b", {1}}, {"c", {16}}, {"d", {17}}};

TEST(GradientLayout, StartsWithTheLastParameterAndAlignsToCacheLines) {
  const GradientLayout layout = make_gradient_layout(kParameters, {});
  EXPECT_THAT(layout.offsets, ElementsAre(64, 48, 32, 0));
  EXPECT_THAT(layout.begins, ElementsAre(0, 32, 48, 64));
  EXPECT_THAT(layout.entries, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(layout.counts, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(layout.size, 80U);
}

TEST(GradientLayout, KeepsNamedGroupsTogether) {
  const GradientLayout layout = make_gradient_layout(kParameters, {.groups = {{"d", "a"}}});
  EXPECT_THAT(layout.entries, ElementsAre(0, 2, 1, 0));
  EXPECT_THAT(layout.counts, ElementsAre(2, 1, 1));
  EXPECT_THAT(layout.offsets, ElementsAre(32, 64, 48, 0));
}

TEST(GradientLayout, SplitsParametersIntoGroupCountGroups) {
  EXPECT_THAT(make_gradient_layout(kParameters, {.group_count = 2}).entries,
              ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(make_gradient_layout(kParameters, {.group_count = 3}).counts, ElementsAre(1, 1, 2));
  EXPECT_THAT(make_gradient_layout(kParameters, {.group_count = 9}).counts,
              ElementsAre(1, 1, 1, 1));
}

TEST(GradientLayout, RejectsDuplicateParameterNames) {
  const std::vector<ParameterLayout> twice{{"w", {1}}, {"b", {1}}, {"w", {2}}};
  EXPECT_EQ(error_of([&] { make_gradient_layout(twice, {}); }),
            "[distributed_optimizer] expected a unique name for each parameter; parameters 0 and 2 "
            "are both named w");
}

TEST(GradientLayout, RejectsUnknownAndRepeatedNamesInGroups) {
  EXPECT_THAT(error_of([&] {
                make_gradient_layout(kParameters, {.groups = {{"a", "x"}}});
              }),
              HasSubstr("expected parameter names in groups; x is not a parameter"));
  EXPECT_THAT(error_of([&] {
                make_gradient_layout(kParameters, {.groups = {{"a", "b"}, {"b"}}});
              }),
              HasSubstr("expected each parameter in at most one group; b is in two"));
}

TEST(GradientLayout, IsComparedByNameAndShape) {
  const auto entries = describe(kParameters);
  EXPECT_EQ(entries[0].name, "a [3, 5]");
  EXPECT_EQ(entries[0].elements, 15U);
}

struct BadOptions {
  std::string name;
  ReducerOptions options;
  std::string needed;
};

class OptionsOutOfRange : public ::testing::TestWithParam<BadOptions> {};

TEST_P(OptionsOutOfRange, AreRejectedByName) {
  EXPECT_THAT(error_of([&] { check_options(GetParam().options); }), HasSubstr(GetParam().needed));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionsOutOfRange,
    ::testing::Values(
        BadOptions{"passes",
                   {.backward_passes_per_step = 0},
                   "backward_passes_per_step of at least 1, got 0"},
        BadOptions{"predivide", {.predivide_factor = -1}, "expected a predivide_factor above 0"},
        BadOptions{"predivided_sum",
                   {.reduction = Reduction::sum, .predivide_factor = 2},
                   "expected reduction average for a predivide_factor"},
        BadOptions{"clip", {.clip_norm = -1}, "expected a clip_norm of at least 0, got -1"},
        BadOptions{
            "group_count", {.group_count = -1}, "expected a group_count of at least 0, got -1"},
        BadOptions{
            "both_groups", {.groups = {{"a"}}, .group_count = 1}, "either groups or group_count"}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace lockstep::inline v0::interop
