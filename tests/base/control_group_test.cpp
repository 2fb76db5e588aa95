#include "lockstep/base/host.h"

#include "tests/base/kernel_files.h"

namespace lockstep {
namespace {

using ProcessorQuota = KernelFiles;

TEST_F(ProcessorQuota, IsTheLeastOfAllGroupsAbove) {
  EXPECT_EQ(processor_quota(root_), 0) << "nothing is known";
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(processor_quota(root_), 0) << "no limit";
  write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
  write("sys/fs/cgroup/job/step/cpu.max", "400000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
}

TEST_F(ProcessorQuota, IsThatOfTheWholeContainer) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(processor_quota(root_), 2);
}

TEST_F(ProcessorQuota, MayBeOfVersion1) {
  write("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 0) << "no limit";
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "800000\n");
  EXPECT_EQ(processor_quota(root_), 8);
}

// A cgroup version 1 container shows the group of its host, and has its own group at the root.
TEST_F(ProcessorQuota, IsFoundWhereTheGroupHasAnotherName) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/docker/1f\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 0.5);
}

}  // namespace
}  // namespace lockstep
