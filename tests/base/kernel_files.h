// A directory that simulates the kernel's files.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::inline v0 {

/// A test that fills such a directory; the directory is removed at the end.
class KernelFiles : public ::testing::Test {
 protected:
  KernelFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-kernel-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make " << name;
    root_ = name;
  }
  ~KernelFiles() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
};

}  // namespace lockstep::inline v0
