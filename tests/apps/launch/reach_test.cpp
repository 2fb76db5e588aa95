// Whether hosts reach each other before mpirun runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "apps/lockstep/launch/messages.h"
#include "apps/lockstep/launch/rendezvous.h"
#include "lockstep/net/socket.h"
#include "tests/net/silence.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::uint16_t unused_port() { return net::Listener().port(); }

/// Limits the file descriptors of this process to numbers below `count`.
class FileLimit {
 public:
  explicit FileLimit(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit{.rlim_cur = count, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

  static rlim_t now() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }
  rlim_t most() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST(Reach, RequiresOneReachableAddress) {
  const net::Listener listener;
  EXPECT_THAT(try_to_reach({{"b", {"127.0.0.1"}, listener.port()}}, milliseconds(2000)), IsEmpty());
  EXPECT_THAT(
      try_to_reach({{"b", {"no address", "127.0.0.1"}, listener.port()}}, milliseconds(2000)),
      IsEmpty());
}

TEST(Reach, ReportsHostAddressAndInterface) {
  const net::Listener listener;
  EXPECT_THAT(try_to_reach({{"b", {"127.0.0.1"}, listener.port()},
                            {"c", {"127.0.0.1"}, unused_port()},
                            {"d", {}, 1}},
                           milliseconds(2000)),
              ElementsAre("c at 127.0.0.1 by lo: Connection refused", "d: it has no address"));
}

TEST(Reach, ReportsMostInformativeError) {
  const net::Silence silence;
  EXPECT_THAT(try_to_reach({{"b", {"127.0.0.1", "no address", "127.0.0.2"}, silence.port()}},
                           milliseconds(100)),
              ElementsAre("b at 127.0.0.2 by lo: Connection timed out"))
      << "127.0.0.1 is this host's own address";
}

TEST(Reach, ReportsMissingSocket) {
  const FileLimit none(3);
  EXPECT_THAT(try_to_reach({{"b", {"127.0.0.1"}, 1}}, milliseconds(100)),
              ElementsAre(HasSubstr("Too many open files")));
}

TEST(AllowConnections, RaisesLimitForLargeJobs) {
  const FileLimit few(64);
  allow_connections(1000);
  EXPECT_EQ(FileLimit::now(), std::min<rlim_t>(10128, few.most()));
  allow_connections(1);
  EXPECT_EQ(FileLimit::now(), std::min<rlim_t>(10128, few.most())) << "never lowered";
}

TEST(Reach, TargetsRoundTrip) {
  const std::vector<Target> sent = {{"b", {"10.0.0.1", "::1"}, 7}, {"c", {}, 65535}};
  EXPECT_EQ(parse_targets(to_text(sent)), sent);
}

}  // namespace
}  // namespace lockstep::inline v0::apps::launch
