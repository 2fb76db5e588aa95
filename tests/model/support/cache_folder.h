// A temporary cache of measured algorithms, which exists while a test runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::inline v0::model {

/// Tests do not share measurements, and may run concurrently.
class CacheFolder {
 public:
  CacheFolder() {
    const auto* const before = std::getenv("LOCKSTEP_CACHE_DIR");
    before_ = before == nullptr ? "" : before;
    std::filesystem::remove_all(folder_);
    ::setenv("LOCKSTEP_CACHE_DIR", folder_.c_str(), 1);
  }
  ~CacheFolder() {
    if (before_.empty())
      ::unsetenv("LOCKSTEP_CACHE_DIR");
    else
      ::setenv("LOCKSTEP_CACHE_DIR", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  /// Algorithms by the description of what they compute.
  nlohmann::json read() const {
    return nlohmann::json::parse(std::ifstream(folder_ / "convolutions.json"));
  }
  void write(const nlohmann::json& all) const {
    std::ofstream(folder_ / "convolutions.json") << all;
  }

 private:
  static std::string name() {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(test->test_suite_name()) + "_" + test->name();
  }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / name();
  std::string before_;
};

}  // namespace lockstep::inline v0::model
