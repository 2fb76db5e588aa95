// lockstep doctor on the ranks that mpirun started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/apps/doctor_program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> behind(std::vector<std::string> words,
                                const std::vector<std::string>& command) {
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// Waits for the first file that appears in a folder.
class FolderWatch {
 public:
  explicit FolderWatch(const std::filesystem::path& folder)
      : descriptor_(inotify_init1(IN_CLOEXEC)) {
    inotify_add_watch(descriptor_, folder.c_str(), IN_CREATE);
  }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;
  ~FolderWatch() { close(descriptor_); }

  bool sees_a_file() const {
    constexpr int kMilliseconds = 30000;
    pollfd ready{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, kMilliseconds) == 1;
  }

 private:
  int descriptor_;
};

TEST(MpirunDoctor, FindsNoProblemsAndPrintsOnce) {
  const Examined examined(run(mpirun(2, "doctor --quick --json")));
  EXPECT_EQ(examined.status(), 0) << examined.report();
  EXPECT_TRUE(examined.problems().empty()) << examined.report();
  ASSERT_EQ(examined.report()["ranks"].size(), 2U);
  EXPECT_LT(examined.report()["seconds"], 60);
  for (const char* check :
       {"connections", "versions", "shared-memory", "links", "routes", "matrix-product"})
    EXPECT_THAT(examined.level_of(check), ::testing::AnyOf("ok", "warning")) << check;
  EXPECT_EQ(examined.level_of("data"), "skipped");
}

TEST(MpirunDoctorFault, RanksBoundToOneCore) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two processors";
  const Examined examined(run(behind({"taskset", "-c", "0"}, mpirun(2, "doctor --quick --json"))));
  EXPECT_THAT(only_problem(examined, "cores"),
              AllOf(HasSubstr("2 ranks are bound to processor 0 of "),
                    HasSubstr(" -> mpirun --map-by core")));
}

TEST(MpirunDoctorFault, RanksWithoutSharedMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to hide /proc";
  // UCX, which some builds of Open MPI use, would report the missing /proc on standard output.
  const std::string hide = "export UCX_LOG_LEVEL=fatal; mount -t tmpfs none /proc";
  if (run({"unshare", "--mount", "sh", "-c", hide}).status != 0)
    GTEST_SKIP() << "root may not mount here";
  std::vector<std::string> command = mpirun(2, "");
  command.back() = "unshare";
  for (const std::string& word : std::vector<std::string>{
           "--mount", "sh", "-c", hide + " && exec " + LOCKSTEP_PROGRAM + " doctor --quick --json"})
    command.push_back(word);
  const Examined examined(run(command));
  EXPECT_EQ(examined.status(), 0) << "training does without it";
  const auto findings = examined.findings_of("shared-memory");
  ASSERT_EQ(findings.size(), 1U) << examined.report();
  EXPECT_EQ(findings.front()["ranks"], (std::vector<int>{0, 1}));
  EXPECT_THAT(std::string(findings.front()["what"]),
              HasSubstr("cannot map the memory of 1 other rank of its host: "));
  EXPECT_THAT(std::string(findings.front()["remedy"]), HasSubstr("--pid=host"));
}

TEST(MpirunDoctorFault, KilledRank) {
  const checkpoint::ScratchDirectory scratch;
  const FolderWatch watch(scratch.path());
  Process process(
      mpirun(2, "doctor --seconds 30 --json --checkpoint-dir " + scratch.path().string()));
  ASSERT_TRUE(watch.sees_a_file());
  const std::vector<pid_t> ranks = process.children();
  ASSERT_EQ(ranks.size(), 2U);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(ranks[1], SIGKILL);
  const Examined examined(process.finish());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  // mpirun returns the status of the killed rank or of rank 0 (4), whichever it detects first.
  EXPECT_THAT(examined.status(), ::testing::AnyOf(4, 128 + SIGKILL));
  const auto findings = examined.findings_of("progress");
  ASSERT_EQ(findings.size(), 1U) << examined.report();
  EXPECT_THAT(std::string(findings.front()["what"]),
              AllOf(HasSubstr("; rank 1, host "), HasSubstr(" is gone")));
  EXPECT_EQ(findings.front()["remedy"], "check that host (dmesg, top), or exclude it");
  EXPECT_EQ(examined.level_of("connections"), "ok") << "what was known by then";
}

}  // namespace
}  // namespace lockstep::inline v0::apps
