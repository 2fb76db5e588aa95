// The MPI library that the program loads: that of its launcher, or an error that names what is
// missing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;

using checkpoint::ScratchDirectory;
using ::testing::HasSubstr;

constexpr int kMpiRanks = 3;

const std::string kMpiTrain =
    "train --model mlp --data synthetic:8x8x1,4,1000 --global-batch 100 --epochs 1 "
    "--allreduce ring --devices cpu:0 --checkpoint-dir none --log-format json";

/// Sets a variable of this process, and of those that it starts, for a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_.empty())
      unsetenv(name_);
    else
      setenv(name_, before_.c_str(), 1);
  }

 private:
  const char* name_;
  std::string before_;
};

std::string hash_under(std::vector<std::string> launcher) {
  std::istringstream words(LOCKSTEP_PROGRAM " " + kMpiTrain);
  for (std::string word; words >> word;) launcher.push_back(word);
  const Result result = run(launcher);
  EXPECT_EQ(result.status, 0) << result.errors;
  if (result.status != 0) return "failed";
  EXPECT_EQ(result.event("start")["ranks"], kMpiRanks);
  return result.event("end")["parameter_hash"];
}

std::string hash_under_mpirun() { return hash_under(mpirun_on(kMpiRanks)); }

/// The program alone, in the environment of a rank of Open MPI, with `libraries` before others.
Result run_with_libraries(const fs::path& libraries) {
  const Variable size("OMPI_COMM_WORLD_SIZE", "2");
  const Variable rank("OMPI_COMM_WORLD_RANK", "0");
  const Variable path("LD_LIBRARY_PATH", libraries.string());
  return run_lockstep(kMpiTrain);
}

TEST(MpiLibrary, IsNamedIfItCannotBeLoaded) {
  const ScratchDirectory folder;
  std::ofstream(folder.path() / "libmpi.so.40")
      << "not a library, but long enough for the header of one, "
         "which has sixty-four bytes";
  const Result result = run_with_libraries(folder.path());
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("lockstep: error: [mpi] expected Open MPI 4 or 5 for ranks "
                                       "that its launcher started; the loader reported \""));
  EXPECT_THAT(result.errors,
              HasSubstr("or start the ranks with lockstep launch, which needs no MPI"));
}

TEST(MpiLibrary, MustBeOfAKnownKind) {
  const Result result = run_with_libraries(LOCKSTEP_PRETEND_MPI_FOLDER);
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(
      result.errors,
      HasSubstr("lockstep: error: [mpi] expected libmpi.so.40 to be Open MPI 4 or 5; it says "
                "that it is \"Pretended MPI 1.0\""));
}

TEST(MpiLibrary, MustBeThatOfTheLauncher) {
  const Variable size("OMPI_COMM_WORLD_SIZE", "2");
  const Variable rank("OMPI_COMM_WORLD_RANK", "0");
  const Result result = run_lockstep(kMpiTrain);
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("[session] expected the 2 ranks that mpirun started in one "
                                       "job; Open MPI v"));
  EXPECT_THAT(result.errors, HasSubstr("which was loaded, treats each of them as a separate job"));
}

// Debian installs MPICH beside Open MPI.
TEST(MpiLibrary, IsMpichUnderItsLauncher) {
  const std::string launcher = LOCKSTEP_MPICH_MPIEXEC;
  if (launcher.ends_with("-NOTFOUND")) GTEST_SKIP() << "MPICH is not installed";
  EXPECT_EQ(hash_under({launcher, "-n", std::to_string(kMpiRanks)}), hash_under_mpirun());
}

// In the folders of LOCKSTEP_OTHER_MPIS, such as the wheels of Open MPI 5, MPICH and Intel MPI.
TEST(LongMpiLibrary, IsThatOfEachLauncher) {
  const char* folders = std::getenv("LOCKSTEP_OTHER_MPIS");
  if (folders == nullptr) GTEST_SKIP() << "LOCKSTEP_OTHER_MPIS is not set";
  const std::string expected = hash_under_mpirun();
  // More ranks than cores, and root, for the mpirun of Open MPI 5.
  const Variable policy("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
  const Variable root("OMPI_ALLOW_RUN_AS_ROOT", "1");
  const Variable sure("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    SCOPED_TRACE(folder);
    const Variable path("LD_LIBRARY_PATH", folder + "/lib");
    EXPECT_EQ(hash_under({folder + "/bin/mpiexec", "-n", std::to_string(kMpiRanks)}), expected);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
