// Jobs whose processes connect themselves, without MPI.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/socket.h"
#include "tests/paths.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::HasSubstr;

/// The output of a shell command.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), bytes);
  pclose(pipe);
  return text;
}

std::uint16_t free_port() { return net::Listener().port(); }

/// Hosts without IPv6 have no ::1.
bool is_an_address_here(const char* address) try {
  return net::Listener(address, std::uint16_t{0}).port() != 0;
} catch (const Error&) {
  return false;
}

/// Starts processes as a controller does that knows no MPI.
struct Job {
  int ranks = 3;
  std::string what = "sums";
  std::string environment = "LOCKSTEP_START_TIMEOUT=20";
  std::string rank_one = {};    ///< further environment of rank 1
  std::string left_out = {};    ///< a rank that is not started
  std::string beside = "true";  ///< another command, at the same time
  std::string delay = "0";      ///< seconds before rank 1 starts
  std::string address = "127.0.0.1";
  std::uint16_t port = free_port();

  /// What they print; at the end "status S of R" for each.
  std::string run() const {
    return output_of(fmt::format(
        "({8}) & for r in $(seq 0 {0}); do [ \"$r\" = '{5}' ] || "
        "(e=; [ $r = 1 ] && sleep {9} && e='{4}'; env {3} LOCKSTEP_TRANSPORT=tcp RANK=$r "
        "WORLD_SIZE={6} "
        "MASTER_ADDR={10} MASTER_PORT={1} $e {7} {2} 2>&1; echo status $? of $r) & done; wait",
        ranks - 1, port, what, environment, rank_one, left_out, ranks, LOCKSTEP_CONNECTED_RANK,
        beside, delay, address));
  }
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(ConnectedJob, ComputesOnAllRanks) {
  for (const int ranks : {1, 2, 4}) {
    const std::string output = Job{.ranks = ranks}.run();
    EXPECT_EQ(count_of(output, "status 0"), ranks) << output;
    const std::string route = ranks > 1 ? "shared-memory" : "none";
    EXPECT_THAT(output, HasSubstr(fmt::format("{} ranks on 1 nodes by {}", ranks, route)));
  }
}

TEST(ConnectedJob, SendsMessagesInARing) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    if (!is_an_address_here(address)) continue;
    const std::string output =
        Job{.environment = "LOCKSTEP_ALLREDUCE=ring LOCKSTEP_JOB_SECRET=0123456789abcdef",
            .address = address}
            .run();
    EXPECT_THAT(output, HasSubstr("3 ranks on 1 nodes by ring"));
    EXPECT_EQ(count_of(output, "status 0"), 3) << output;
  }
}

TEST(ConnectedJob, NamesTheRankThatThrows) {
  const std::string output = Job{.what = "throws"}.run();
  EXPECT_THAT(output, HasSubstr("lockstep: error: bad image 17.jpg (rank 1, host "));
  EXPECT_EQ(count_of(output, "lockstep: error"), 1) << output;
  EXPECT_EQ(count_of(output, "status 1 of 1"), 1) << output;
  EXPECT_EQ(count_of(output, "status 0"), 0) << output;
}

TEST(ConnectedJob, EndsIfARankIsKilled) {
  for (const char* what : {"killed", "leaves"}) {
    const std::string output = Job{.what = what}.run();
    EXPECT_THAT(output, HasSubstr("rank 1, host ")) << output;
    EXPECT_EQ(count_of(output, "status 4"), 2) << output;
  }
}

TEST(ConnectedJob, NamesARankThatHangs) {
  const std::string output = Job{.what = "hangs", .environment = "LOCKSTEP_STALL_TIMEOUT=2"}.run();
  EXPECT_THAT(output, HasSubstr("[watchdog] expected progress within 2 s; rank 1"));
  EXPECT_EQ(count_of(output, "status 4"), 3) << output;
}

TEST(ConnectedJob, NamesARankThatDoesNotJoin) {
  const std::string output = Job{.environment = "LOCKSTEP_START_TIMEOUT=2", .left_out = "1"}.run();
  EXPECT_THAT(output,
              HasSubstr("lockstep: error: [start] expected all 3 ranks to join within 2 s"));
  EXPECT_EQ(count_of(output, "no answer of rank 1\n"), 2) << output;  // rank 0 tells rank 2
  EXPECT_EQ(count_of(output, "status 4"), 2) << output;
}

// A port scanner, a browser, and one that says nothing.
TEST(ConnectedJob, IgnoresStrangers) {
  Job job{.environment = "LOCKSTEP_START_TIMEOUT=20 LOCKSTEP_JOB_SECRET=0123456789abcdef"};
  const std::string connect = fmt::format("exec 3<>/dev/tcp/127.0.0.1/{}", job.port);
  job.beside = fmt::format(
      "bash -c 'for i in $(seq 50); do ({0}; head -c 100000 /dev/urandom >&3) 2>/dev/null; "
      "({0}; echo GET / HTTP/1.1 >&3) 2>/dev/null; done; {0} && sleep 2' 2>/dev/null",
      connect);
  job.delay = "1";
  const std::string output = job.run();
  EXPECT_EQ(count_of(output, "status 0"), 3) << output;
}

TEST(ConnectedJob, RefusesAnotherSecret) {
  const std::string output =
      Job{.environment = "LOCKSTEP_START_TIMEOUT=3 LOCKSTEP_JOB_SECRET=0123456789abcdef",
          .rank_one = "LOCKSTEP_JOB_SECRET=another-9abcdef0"}
          .run();
  // By rank 0, which tells rank 2.
  EXPECT_EQ(count_of(output, "no answer of rank 1;"), 2) << output;
  EXPECT_THAT(output, HasSubstr("connections did not know the secret of the job"));
  EXPECT_THAT(output, HasSubstr("it does not know the secret of this job"));
  EXPECT_EQ(count_of(output, "status 4"), 3) << output;
}

TEST(ConnectedJob, RefusesARankThatComesTwice) {
  const std::string output =
      Job{.ranks = 2, .environment = "LOCKSTEP_START_TIMEOUT=3", .rank_one = "WORLD_SIZE=3"}.run();
  EXPECT_THAT(output, HasSubstr("[start] expected rank 0 to admit this process"));
  EXPECT_THAT(output, HasSubstr("expected a job of 2"));
}

}  // namespace
}  // namespace lockstep::inline v0::job
