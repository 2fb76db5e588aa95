#include "lockstep/base/system/numa.h"
#include "lockstep/base/system/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0 {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "lockstep-numa-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << '\n';
  }

  std::filesystem::path root_;
};

TEST(ParseNumberList, ReadsNumbersAndRanges) {
  EXPECT_THAT(parse_number_list("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_number_list("7"), ElementsAre(7));
  EXPECT_THAT(parse_number_list(""), IsEmpty());
  EXPECT_THAT(parse_number_list("none"), IsEmpty());
  EXPECT_THAT(parse_number_list("1,x,2"), ElementsAre(1));
  EXPECT_THAT(parse_number_list("1-x"), IsEmpty());
}

TEST(NumberList, JoinsRuns) {
  EXPECT_EQ(number_list({}), "");
  EXPECT_EQ(number_list(std::vector{3}), "3");
  EXPECT_EQ(number_list(std::vector{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(number_list(std::vector{0, 1, 2, 5, 7, 8}, 3), "0-2,5,7,8");
}

TEST_F(FakeSystem, ReturnsTheNodeOfAPciDevice) {
  write("0000:3b:00.0/numa_node", "1");
  write("0000:3c:00.0/numa_node", "-1");
  EXPECT_EQ(numa_node_of_pci("0000:3B:00.0", root_), 1)
      << "CUDA writes capital letters, Linux small ones";
  EXPECT_EQ(numa_node_of_pci("0000:3C:00.0", root_), -1);
  EXPECT_EQ(numa_node_of_pci("0000:3D:00.0", root_), -1);
}

TEST_F(FakeSystem, ReturnsTheNodesOfThisProcess) {
  write("node0/cpulist", "100000-100001");
  write("node2/cpulist", "0-4095");
  write("node10/cpulist", "");
  write("possible", "0-2");
  EXPECT_THAT(numa_nodes_of_process(root_), ElementsAre(2))
      << "processors beyond the mask are ignored";
  EXPECT_THAT(numa_nodes_of_process(root_ / "nowhere"), IsEmpty());
}

}  // namespace
}  // namespace lockstep::inline v0
