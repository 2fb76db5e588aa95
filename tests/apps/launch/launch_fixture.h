// Jobs of lockstep launch with separate task processes, on one host and on simulated hosts that
// differ only in name.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/lockstep/launch/messages.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/connection.h"
#include "lockstep/net/reachability.h"
#include "tests/apps/program.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {

using Words = std::vector<std::string>;

/// A job whose tasks are configured by their environment, as by a controller.
class LaunchTest : public ::testing::Test {
 protected:
  /// `lockstep launch OPTIONS -- COMMAND` as task `rank`.
  Words task(int rank, const Words& options, const Words& command, int ranks = 2) const {
    Words words = {"env",
                   fmt::format("RANK={}", rank),
                   fmt::format("WORLD_SIZE={}", ranks),
                   "MASTER_ADDR=127.0.0.1",
                   fmt::format("MASTER_PORT={}", port_),
                   LOCKSTEP_PROGRAM,
                   "launch"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  /// A task on a simulated host of another name.
  Words task_elsewhere(int rank, const Words& options, const Words& command) const {
    Words all = {"--host", fmt::format("host{}", rank)};
    all.insert(all.end(), options.begin(), options.end());
    return task(rank, all, command);
  }
  static Words program(const Words& arguments) {
    Words words = {LOCKSTEP_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  Words shell(const std::string& text) const { return {"sh", "-c", text, mark_}; }

  /// Waits for the end of all processes with this test's mark in their command lines. Returns false
  /// if some remain.
  bool wait_until_all_ended() const {
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (marked_processes() == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  /// Waits for the first task to listen.
  bool is_listening() const {
    for (int attempt = 0; attempt < 200; ++attempt) {
      std::string why;
      if (net::connect_to("127.0.0.1", port_, std::chrono::seconds(1), why).is_open()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  /// A connection to the first task that has sent `join_request`. Authenticated as this user, which
  /// suffices for a job without a secret.
  net::Connection join(const launch::JoinRequest& join_request) const {
    is_listening();
    std::string why;
    net::FileDescriptor socket = net::connect_to("127.0.0.1", port_, std::chrono::seconds(1), why);
    EXPECT_TRUE(net::authenticate(socket, net::JobSecret::none(), net::kLaunchPurpose,
                                  std::chrono::seconds(20), why))
        << why;
    net::Connection link(std::move(socket), launch::kFrameLimits);
    link.send({launch::FrameKind::arrive, to_text(join_request)});
    return link;
  }

  /// Waits for a frame of this kind. Returns false if the connection ends without one, or if its
  /// body does not begin with `body`.
  static bool receives(net::Connection& link, launch::FrameKind kind,
                       const std::string& body = "") {
    while (link.is_open()) {
      pollfd ready = link.interest();
      if (poll(&ready, 1, 10000) <= 0) return false;
      for (const net::Frame& frame : link.receive())
        if (frame.is(kind)) return frame.body.starts_with(body);
    }
    return false;
  }

  const std::uint16_t port_ = net::Listener().port();
  const std::string mark_ = fmt::format("launch-test-{}-{}", getpid(), port_);

 private:
  int marked_processes() const {
    int count = 0;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      std::stringstream text;
      text << file.rdbuf();
      count += text.str().find(mark_) != std::string::npos ? 1 : 0;
    }
    return count;
  }
};

}  // namespace lockstep::inline v0::apps
