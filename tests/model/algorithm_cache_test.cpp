#include "lockstep/model/cuda/algorithm_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace lockstep::inline v0::model::cuda {
namespace {

namespace fs = std::filesystem;

class AlgorithmCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& text) const { std::ofstream(file_) << text; }

  // Tests may run concurrently.
  fs::path folder_ = fs::path(testing::TempDir()) /
                     ("algorithm_cache_test_" +
                      std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  fs::path file_ = folder_ / "convolutions.json";
};

constexpr ConvolutionAlgorithm kOne{.number = 3, .math = 1, .workspace_bytes = 4096};
constexpr ConvolutionAlgorithm kNone{.number = -1};
constexpr ConvolutionAlgorithm kFolded{.number = 2, .math = kGraphMath, .folded = true};

TEST_F(AlgorithmCacheTest, PersistsResultsForTheNextRun) {
  AlgorithmCache(file_).add("forward of a", kOne);
  AlgorithmCache(file_).add("forward with sums of a", kNone);
  AlgorithmCache(file_).add("forward of c", kFolded);
  const AlgorithmCache next(file_);
  EXPECT_EQ(next.find("forward of a"), kOne);
  EXPECT_EQ(next.find("forward of c"), kFolded);
  EXPECT_EQ(next.find("forward with sums of a"), kNone);
  EXPECT_EQ(next.find("forward of b"), std::nullopt);
}

TEST_F(AlgorithmCacheTest, ReadsFilesWithoutSums) {
  write(R"({"forward of a": [3, 1, 4096], "backward data of a": [1, 0, 0]})");
  AlgorithmCache cache(file_);
  EXPECT_EQ(cache.find("forward of a"), kOne);
  cache.add("forward with sums of a", kNone);
  EXPECT_EQ(AlgorithmCache(file_).find("backward data of a"), (ConvolutionAlgorithm{.number = 1}));
}

TEST_F(AlgorithmCacheTest, MergesConcurrentResults) {
  AlgorithmCache mine(file_);
  AlgorithmCache(file_).add("theirs", kOne);
  mine.add("mine", kNone);
  EXPECT_EQ(AlgorithmCache(file_).find("theirs"), kOne);
}

TEST_F(AlgorithmCacheTest, SkipsDamagedEntries) {
  for (const char* text :
       {"", "{", "[1, 2]",
        R"({"a": 1, "b": [1, 2], "c": ["x", 0, 0], "d": [0, 0, -1], "e": [0, 0, 0, 1]})"}) {
    SCOPED_TRACE(text);
    write(text);
    AlgorithmCache cache(file_);
    for (const char* name : {"a", "b", "c", "d", "e"})
      EXPECT_EQ(cache.find(name), std::nullopt) << name;
    cache.add("a", kOne);
    EXPECT_EQ(AlgorithmCache(file_).find("a"), kOne);
  }
}

// A process id alone is not unique among replicas of a process, or processes of several hosts.
TEST_F(AlgorithmCacheTest, WritesToAUniqueTemporaryFile) {
  fs::create_directory(fs::path(fmt::format("{}.{}", file_.string(), ::getpid())));
  const auto add = [this](const std::string& name) {
    for (int i = 0; i < 20; ++i) AlgorithmCache(file_).add(fmt::format("{} {}", name, i), kOne);
  };
  std::thread other(add, "theirs");
  add("mine");
  other.join();
  AlgorithmCache(file_).add("last", kNone);
  EXPECT_EQ(AlgorithmCache(file_).find("last"), kNone);
  std::ifstream stream(file_);
  EXPECT_TRUE(nlohmann::json::accept(stream));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2)
      << "the file, and the folder made above";
}

TEST_F(AlgorithmCacheTest, LeavesNoFileIfItCannotWrite) {
  fs::create_directory(file_);
  AlgorithmCache cache(file_);
  cache.add("a", kOne);
  EXPECT_EQ(cache.find("a"), kOne);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(AlgorithmCacheTest, WorksWithoutAFile) {
  AlgorithmCache cache{fs::path()};
  cache.add("a", kOne);
  EXPECT_EQ(cache.find("a"), kOne);
}

}  // namespace
}  // namespace lockstep::inline v0::model::cuda
