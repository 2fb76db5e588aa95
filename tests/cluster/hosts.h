// Hosts of scripts/cluster, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {

using Words = std::vector<std::string>;

/// `scripts/cluster WORDS…`
inline Words cluster(Words words) {
  words.insert(words.begin(), LOCKSTEP_SOURCE_DIR "/scripts/cluster");
  return words;
}

/// `scripts/cluster OPTIONS… -- lockstep ARGUMENTS`
inline Words cluster(const Words& options, const std::string& arguments) {
  Words words = cluster(options);
  words.emplace_back("--");
  for (const std::string& word : lockstep(arguments)) words.push_back(word);
  return words;
}

/// Tests on hosts; skipped with a reason if this machine cannot create them.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (is_running()) run(cluster({"down", "--name", name()}));
  }

  /// A cluster name that is unique to this test.
  static std::string name() {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(test, '/', '-');
    return fmt::format("test-{}-{}", test, getpid());
  }
  static bool is_running() {
    return run(cluster({"list"})).output.find(name()) != std::string::npos;
  }
  /// Output of `command` on a host of the running cluster.
  static Result on(int host, const Words& command) {
    Words words = cluster({"exec", "--name", name(), std::to_string(host), "--"});
    words.insert(words.end(), command.begin(), command.end());
    return run(words);
  }

 private:
  /// What this machine lacks to create hosts; empty if nothing.
  static std::string missing() {
    if (geteuid() != 0) return "needs root";
    for (const char* tool : {"ip", "tc"})
      if (run({"sh", "-c", fmt::format("command -v {}", tool)}).status != 0)
        return fmt::format("needs {}, of the package iproute2", tool);
    const Result namespaces =
        run({"unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "true"});
    return namespaces.status == 0 ? "" : "root cannot create namespaces here: " + namespaces.errors;
  }
};

}  // namespace lockstep::inline v0::apps
