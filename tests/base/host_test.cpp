#include "lockstep/base/system/host.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

#include "tests/base/kernel_files.h"

namespace lockstep::inline v0 {
namespace {

TEST(Processors, OfTheCpuSetIncludeTheAllowedOnes) {
  const std::vector<int> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(available_cores(), static_cast<int>(allowed.size()));
  const std::vector<int> possible = processors_of_cpu_set();
  EXPECT_TRUE(std::ranges::includes(possible, allowed));
}

TEST(Processors, OfTheCpuSetIgnoreTheAffinityMask) {
  const std::vector<int> possible = processors_of_cpu_set();
  if (possible.size() < 2) GTEST_SKIP() << "needs two processors";
  std::thread([&] {
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET(possible.back(), &last);
    ASSERT_EQ(sched_setaffinity(0, sizeof(last), &last), 0);
    EXPECT_EQ(processors_of_cpu_set(), possible);
    EXPECT_EQ(allowed_processors(), std::vector<int>{possible.back()})
        << "the binding is as it was";
    EXPECT_EQ(processor_list(), std::to_string(possible.back()));
  }).join();
}

using ProcessorQuota = KernelFiles;

TEST_F(ProcessorQuota, IsTheMinimumOfAllParentGroups) {
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

TEST_F(ProcessorQuota, SupportsVersion1) {
  write("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 0) << "no limit";
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "800000\n");
  EXPECT_EQ(processor_quota(root_), 8);
}

// A cgroup version 1 container shows the group of its host, and has its own group at the root.
TEST_F(ProcessorQuota, IsFoundIfTheGroupHasAnotherName) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/docker/1f\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 0.5);
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class HostMemory : public KernelFiles {
 protected:
  void write_group(const std::string& group, const std::string& most, std::int64_t used,
                   std::int64_t droppable) const {
    const std::string directory = "sys/fs/cgroup" + group;
    write(directory + "/memory.max", most + "\n");
    write(directory + "/memory.current", std::to_string(used) + "\n");
    write(directory + "/memory.stat",
          "anon 5\ninactive_file " + std::to_string(droppable) + "\nslab 7\n");
  }
};

TEST_F(HostMemory, IsThatReportedByTheKernel) {
  EXPECT_EQ(available_host_memory(root_), std::numeric_limits<std::int64_t>::max());
  write("proc/meminfo",
        "MemTotal:       4096 kB\nMemFree:         1024 kB\nMemAvailable:    2048 kB\n");
  EXPECT_EQ(available_host_memory(root_), 2 * kMiB);
}

TEST_F(HostMemory, IsLimitedByACgroup) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "1:cpu:/else\n0::/job/step\n");
  write_group("/job/step", "max", 30 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 100 * kMiB) << "no limit";
  write_group("/job", std::to_string(50 * kMiB), 30 * kMiB, 10 * kMiB);
  EXPECT_EQ(available_host_memory(root_), 30 * kMiB) << "that of the group above";
  write_group("/job/step", std::to_string(8 * kMiB), 9 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 0);
}

TEST_F(HostMemory, IsLimitedByTheContainer) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write_group("", std::to_string(20 * kMiB), 5 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 15 * kMiB);
}

TEST_F(HostMemory, IsLimitedByACgroupOfVersion1) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "4:cpu,cpuacct:/other\n3:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(50 * kMiB));
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(30 * kMiB));
  write("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file " + std::to_string(5 * kMiB));
  EXPECT_EQ(available_host_memory(root_), 25 * kMiB);
}

TEST(HostMemoryHere, IsKnown) {
  EXPECT_GT(available_host_memory(), 0);
  EXPECT_LT(available_host_memory(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace lockstep::inline v0
