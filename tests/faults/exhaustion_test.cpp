// Processes that run out of system resources.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "tests/faults/endings.h"
#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

struct End {
  int status = -1;
  std::string output;
};

End run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  End end;
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) end.output += piece.data();
  const int status = pclose(pipe);
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

/// Expects status 0, or an error of the library with its line.
void expect_error_or_success(const End& end, const std::string& what) {
  if (end.status == 0) return;
  EXPECT_THAT(end.status, AllOf(Ge(2), Le(5))) << what << ": " << end.output;
  EXPECT_NE(end.output.find("lockstep: error: "), std::string::npos) << what << ": " << end.output;
}

// The limit does not apply to root.
TEST(AProcessWithoutThreads, EndsWithADeviceError) {
  const std::string user = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
  bool failed = false;
  for (int threads = 1; threads <= 12; ++threads) {
    const std::string limit = fmt::format("timeout 10 {}prlimit --nproc={} ", user, threads);
    const End end = run(limit + LOCKSTEP_FAULTY_TRAINING + " --replicas 3 --steps 5");
    expect_error_or_success(end, limit);
    failed = failed || end.status == 5;
  }
  EXPECT_TRUE(failed);
}

TEST(AProcessWithoutDescriptors, EndsWithAnError) {
  for (const int files : {16, 24, 32, 64, 128}) {
    const std::string limit = fmt::format("timeout 10 prlimit --nofile={} ", files);
    expect_error_or_success(run(limit + LOCKSTEP_FAULTY_TRAINING + " --replicas 3 --steps 5"),
                            limit);
  }
}

/// A command line for two ranks, each started by `wrapper`.
std::string two_ranks(const std::string& wrapper) {
  return fmt::format("timeout 20 {} {} {} --steps 5", mpirun_line_on(2), wrapper,
                     LOCKSTEP_FAULTY_TRAINING);
}

TEST(RanksWithoutDescriptors, EndWithAnError) {
  bool succeeded = false;
  for (const int files : {16, 23, 32, 128}) {
    const std::string limit = fmt::format("prlimit --nofile={}", files);
    const End end = run(two_ranks(limit));
    expect_error_or_success(end, limit);
    succeeded = succeeded || end.status == 0;
  }
  EXPECT_TRUE(succeeded);
}

TEST(RanksWithoutSharedMemory, StillTrain) {
  const std::string full = "unshare --mount sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && ";
  if (run(full + "true'").status != 0) GTEST_SKIP() << "no permission to mount a file system";
  const End end = run(full + two_ranks("") + "'");
  EXPECT_EQ(end.status, 0) << end.output;
  EXPECT_NE(end.output.find("trained 5 steps"), std::string::npos) << end.output;
}

}  // namespace
}  // namespace lockstep::inline v0::faults
