#include "lockstep/job/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::inline v0::job {
namespace {

using allreduce::MpiKind;
using ::testing::ElementsAre;

Launch launch_in(const std::map<std::string, std::string>& variables) {
  return detect_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, IsNoneInAnEmptyEnvironment) {
  const Launch launch = launch_in({});
  EXPECT_FALSE(launch.launched);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.ranks, 1);
}

TEST(Launcher, DetectsOpenMpi) {
  const Launch launch =
      launch_in({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}});
  EXPECT_TRUE(launch.launched);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_THAT(launch.mpi, ElementsAre(MpiKind::open_mpi));
}

TEST(Launcher, DetectsPmi) {
  const Launch launch = launch_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_TRUE(launch.launched);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.ranks, 2);
  EXPECT_THAT(launch.mpi, ElementsAre(MpiKind::mpich, MpiKind::open_mpi));
}

TEST(Launcher, DetectsPmixOfSrun) {
  const Launch launch =
      launch_in({{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_TRUE(launch.launched);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_TRUE(launch.connects);
}

TEST(Launcher, HasNoRankCountFromPmixAlone) { EXPECT_EQ(launch_in({{"PMIX_RANK", "0"}}).ranks, 0); }

TEST(Launcher, DetectsSrunWithoutPmi) {
  const Launch launch = launch_in({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "6"}});
  EXPECT_TRUE(launch.launched);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 6);
  EXPECT_FALSE(launch.connects);
}

TEST(Launcher, IgnoresABatchScript) {
  EXPECT_FALSE(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).launched);
  EXPECT_FALSE(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).launched);
}

TEST(Launcher, IgnoresInvalidNumbers) {
  EXPECT_FALSE(launch_in({{"OMPI_COMM_WORLD_SIZE", "many"}, {"PMI_RANK", "-1"}}).launched);
}

}  // namespace
}  // namespace lockstep::inline v0::job
