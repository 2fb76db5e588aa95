// The resources of this host and process: cores, memory and names, and the kernel files that report
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::inline v0 {

/// The number at the start of `file`; nullopt if the file does not exist or starts with something
/// else, such as "max".
std::optional<std::int64_t> number_of(const std::filesystem::path& file);

/// The number after `name` in a file of lines "name number ...".
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name);

/// `numbers`, ascending, in Linux format: "0-3,8". Runs shorter than `shortest_run` are listed.
std::string number_list(std::span<const int> numbers, std::size_t shortest_run = 2);

// Cores of this process, and how replicas share them.

/// Number of cores that this process may run on (its affinity mask, as set by mpirun or a
/// container); at least 1.
int available_cores();

/// These processors as number_list(); empty if unknown.
std::string processor_list();

/// Sets the number of threads that kernels of the calling thread may use. Thread-local: each
/// replica thread sets its own.
void set_thread_budget(int threads);
/// The thread budget of the calling thread; by default, the number of threads that OpenMP uses.
int thread_budget();

/// Bytes of a cache line.
inline constexpr std::size_t kCacheLine = 64;

/// Current resident memory of this process in bytes; 0 if unknown.
std::size_t resident_bytes();

/// The processor's marketing name, such as "AMD EPYC".
std::string cpu_name();

/// The name of this host.
std::string host_name();

// Processor numbers that a thread may run on; no limit on the number of processors.

/// Processors in the calling thread's affinity mask, as set by mpirun or taskset, ascending; empty
/// if unknown.
std::vector<int> allowed_processors();

/// Processors that a mask could contain: those of the host, or of the cpuset to which a container
/// or batch system confines this process. Temporarily changes the mask of the calling thread.
std::vector<int> processors_of_cpu_set();

// Limits from the control groups of this process, as set up by containers and batch systems.
// Supports cgroup versions 1 and 2, and applies the limits of all parent groups. `root` is the root
// of the kernel's files.

/// CPU quota shared by all processes of the group, in processors: 1.5 for "150000 100000"; 0 for no
/// limit.
double processor_quota(const std::filesystem::path& root = "/");

/// Bytes of memory that the group may still allocate, including file cache that the kernel can
/// drop; the maximum value for no limit.
std::int64_t memory_left_in_group(const std::filesystem::path& root = "/");

/// Bytes that this process can still use without swapping: the memory that the kernel reports as
/// available, or less if the process's control groups (memory_left_in_group) allow less. File cache
/// that the kernel can drop counts as free. The maximum value if unknown.
std::int64_t available_host_memory(const std::filesystem::path& root = "/");

/// Requests huge pages where the array fills them, for fewer page faults and TLB misses. Call it
/// before the first access.
void use_huge_pages(void* data, std::size_t bytes);

}  // namespace lockstep::inline v0
