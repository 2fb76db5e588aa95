// Test reports of ranks: rank 0 reports as usual, other ranks only their failures. A rank that is
// still in a test shortly before ctest's timeout reports which one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>

namespace lockstep::inline v0 {

inline constexpr unsigned kSecondsBeforeTimeout =
    100;  // TIMEOUT in tests/support/mpi_test.cmake is 120

class RankListener final : public ::testing::EmptyTestEventListener {
 public:
  explicit RankListener(int rank) : rank_(rank) {
    std::signal(SIGALRM, [](int) {
      const std::array<char, 512>& text = running();
      static_cast<void>(!::write(STDERR_FILENO, text.data(), std::strlen(text.data())));
    });
    ::alarm(kSecondsBeforeTimeout);
  }

  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + '.' + test.name();
    const std::string text = "rank " + std::to_string(rank_) + " has not finished " + test_ + '\n';
    text.copy(running().data(), running().size() - 1);
    running()[std::min(text.size(), running().size() - 1)] = '\0';
  }

  // Called under googletest's lock: querying the current test here would deadlock.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || rank_ == 0) return;
    std::cerr << "rank " << rank_ << ": " << test_ << ": "
              << (result.file_name() != nullptr ? result.file_name() : "?") << ':'
              << result.line_number() << ": " << result.message() << std::endl;
  }

 private:
  // The message of the signal handler.
  static std::array<char, 512>& running() {
    static std::array<char, 512> text{};
    return text;
  }

  int rank_;
  std::string test_;
};

/// Called after InitGoogleTest.
inline void listen_as_rank(int rank) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0)
    const std::unique_ptr<::testing::TestEventListener> silenced(
        listeners.Release(listeners.default_result_printer()));
  listeners.Append(new RankListener(rank));
}

}  // namespace lockstep::inline v0
