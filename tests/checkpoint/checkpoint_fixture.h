// A small replica and a scratch directory for file tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"

namespace lockstep::inline v0::checkpoint {

/// A directory for the exclusive use of this test.
class ScratchDirectory {
 public:
  ScratchDirectory() : directory_(std::filesystem::temp_directory_path(), unique_prefix()) {}
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  static std::string unique_prefix() {
    std::string name = fmt::format("lockstep-{}", ::getpid());
    if (const auto* test = ::testing::UnitTest::GetInstance()->current_test_info())
      name += fmt::format("-{}-{}", test->test_suite_name(), test->name());
    std::replace(name.begin(), name.end(), '/', '-');
    return name + '-';
  }
  TemporaryDirectory directory_;
};

/// Two layers, a buffer, and Adam's slots. Every element is different and derived from `start`.
class SmallReplica {
 public:
  explicit SmallReplica(float start = 0,
                        std::vector<model::ParameterInfo> parameters = default_parameters())
      : parameter_table_(std::move(parameters)),
        buffer_table_({{"norm/moving_mean", {5}, 0, 0, false, {}}}),
        parameters_(filled(parameter_table_, start)),
        buffers_(filled(buffer_table_, start + 1000)),
        m_(filled(parameter_table_, start + 2000)),
        v_(filled(parameter_table_, start + 3000)) {}

  static std::vector<model::ParameterInfo> default_parameters() {
    return {{"dense/bias", {5}, 0, 0, false, {}},
            {"dense/kernel", {3, 5}, 0, 0, true, {}},
            {"scale", {}, 0, 0, true, {}}};
  }

  ReplicaArrays arrays() {
    return {&parameter_table_, parameters_, &buffer_table_, buffers_, {{"m", m_}, {"v", v_}}};
  }
  ReplicaArrays model_only() {
    return {&parameter_table_, parameters_, &buffer_table_, buffers_, {}};
  }
  std::vector<float>& parameters() { return parameters_; }
  std::vector<float>& buffers() { return buffers_; }
  std::vector<float>& m() { return m_; }
  std::vector<float>& v() { return v_; }

  bool holds_same_as(const SmallReplica& other) const {
    return parameters_ == other.parameters_ && buffers_ == other.buffers_ && m_ == other.m_ &&
           v_ == other.v_;
  }

 private:
  static std::vector<float> filled(const model::ParameterTable& table, float start) {
    std::vector<float> flat(table.flat_size(), 0.0f);
    for (const model::ParameterInfo& entry : table.entries()) {
      const std::span<float> values = model::ParameterTable::slice(std::span<float>(flat), entry);
      std::iota(values.begin(), values.end(), start + static_cast<float>(entry.offset));
    }
    return flat;
  }

  model::ParameterTable parameter_table_;
  model::ParameterTable buffer_table_;
  std::vector<float> parameters_;
  std::vector<float> buffers_;
  std::vector<float> m_;
  std::vector<float> v_;
};

inline allreduce::Communicator alone() { return allreduce::make_in_process_group(1).front(); }

inline TrainingState at_step(std::int64_t step) {
  TrainingState state;
  state.step = step;
  state.epoch = step / 100;
  state.global_batch = 64;
  return state;
}

/// Names in a directory, without the lock file.
inline std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.insert(entry.path().filename().string());
  names.erase(".lock");
  return names;
}

inline std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void overwrite(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline void flip_bit(const std::filesystem::path& path, std::size_t offset) {
  std::string bytes = contents_of(path);
  ASSERT_LT(offset, bytes.size());
  bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
  overwrite(path, bytes);
}

/// The message of the Error (checkpoint) that `call` throws; a description if it throws something
/// else or nothing.
inline std::string checkpoint_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.category() == ErrorCategory::checkpoint
               ? error.what()
               : fmt::format("Error of another category: {}", error.what());
  }
  return "no error";
}

/// During its lifetime, no file of this process can grow beyond `bytes`, which simulates a full
/// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

}  // namespace lockstep::inline v0::checkpoint
