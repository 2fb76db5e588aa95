#include "lockstep/base/host.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/base/kernel_files.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class HostMemory : public KernelFiles {
 protected:
  void write_group(const std::string& group, const std::string& most, std::int64_t used, std::int64_t droppable) const {
    const std::string directory = "sys/fs/cgroup" + group;
    write(directory + "/memory.max", most + "\n");
    write(directory + "/memory.current", std::to_string(used) + "\n");
    write(directory + "/memory.stat", "anon 5\ninactive_file " + std::to_string(droppable) + "\nslab 7\n");
  }
};

TEST_F(HostMemory, IsWhatTheKernelSays) {
  EXPECT_EQ(available_host_memory(root_), std::numeric_limits<std::int64_t>::max());
  write("proc/meminfo", "MemTotal:       4096 kB\nMemFree:         1024 kB\nMemAvailable:    2048 kB\n");
  EXPECT_EQ(available_host_memory(root_), 2 * kMiB);
}

TEST_F(HostMemory, IsLessWhereAGroupAllowsLess) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "1:cpu:/else\n0::/job/step\n");
  write_group("/job/step", "max", 30 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 100 * kMiB) << "no limit";
  write_group("/job", std::to_string(50 * kMiB), 30 * kMiB, 10 * kMiB);
  EXPECT_EQ(available_host_memory(root_), 30 * kMiB) << "that of the group above";
  write_group("/job/step", std::to_string(8 * kMiB), 9 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 0);
}

TEST_F(HostMemory, IsLessWhereTheWholeContainerMayHaveLess) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write_group("", std::to_string(20 * kMiB), 5 * kMiB, 0);
  EXPECT_EQ(available_host_memory(root_), 15 * kMiB);
}

TEST_F(HostMemory, IsLessWhereAGroupOfVersion1AllowsLess) {
  write("proc/meminfo", "MemAvailable: 102400 kB\n");
  write("proc/self/cgroup", "4:cpu,cpuacct:/other\n3:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(50 * kMiB));
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(30 * kMiB));
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(5 * kMiB));
  EXPECT_EQ(available_host_memory(root_), 25 * kMiB);
}

TEST(HostMemoryHere, IsKnown) {
  EXPECT_GT(available_host_memory(), 0);
  EXPECT_LT(available_host_memory(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace lockstep
