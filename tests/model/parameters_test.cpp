#include "lockstep/model/tensor/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;

ParameterInfo parameter(std::string name, Shape shape) {
  ParameterInfo info;
  info.name = std::move(name);
  info.shape = std::move(shape);
  return info;
}

TEST(ParameterTable, PlacesEveryParameterOnACacheLine) {
  const ParameterTable table(
      {parameter("c", {3, 5}), parameter("a", {16}), parameter("b", {}), parameter("d", {17})});
  std::vector<std::size_t> offsets;
  for (const ParameterInfo& entry : table.entries()) offsets.push_back(entry.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 16, 32, 48));
  EXPECT_EQ(table.flat_size(), 80u);
  EXPECT_EQ(table.element_count(), 15u + 16 + 1 + 17);
}

TEST(ParameterTable, FindsByName) {
  const ParameterTable table({parameter("b", {2}), parameter("a", {3})});
  ASSERT_NE(table.find("a"), nullptr);
  EXPECT_EQ(table.find("a")->count, 3u);
  EXPECT_EQ(table.find("c"), nullptr);
  EXPECT_THAT(table.indices_by_name(), ElementsAre(1, 0));
}

TEST(ParameterTable, IsEmptyWithoutParameters) {
  const ParameterTable table;
  EXPECT_EQ(table.flat_size(), 0u);
  EXPECT_TRUE(table.entries().empty());
}

TEST(ParameterTable, HashIsOverValuesInTheOrderOfNames) {
  const ParameterTable table({parameter("a", {2}), parameter("b", {3})});
  const ParameterTable reversed({parameter("b", {3}), parameter("a", {2})});
  std::vector<float> flat(table.flat_size());
  std::vector<float> flat_reversed(reversed.flat_size());
  const std::vector<float> a = {1, 2};
  const std::vector<float> b = {3, 4, 5};
  for (const auto& [tab, array] :
       {std::pair{&table, &flat}, std::pair{&reversed, &flat_reversed}}) {
    std::ranges::copy(a, ParameterTable::slice(std::span(*array), *tab->find("a")).begin());
    std::ranges::copy(b, ParameterTable::slice(std::span(*array), *tab->find("b")).begin());
  }
  const std::uint64_t hash = table.hash(flat);
  EXPECT_EQ(reversed.hash(flat_reversed), hash) << "not the order in memory";
  flat[2] = 7;
  EXPECT_EQ(table.hash(flat), hash) << "padding does not count";
  flat[1] = 2.5f;
  EXPECT_NE(table.hash(flat), hash);
}

}  // namespace
}  // namespace lockstep::inline v0::model
