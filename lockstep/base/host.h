// Numbers in the small text files by which the kernel tells things.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The number that a file begins with; nothing where there is none, as in "max", or no such file.
std::optional<std::int64_t> number_of(const std::filesystem::path& file);

/// The number behind `name` in a file of lines "name number ...".
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name);

// The cores of this process and how replicas share them.

/// Cores that this process may run on (its affinity mask, as mpirun or a container set it); at least 1.
int available_cores();

/// Which processors those are, as Linux writes such lists: "0-3,8"; empty where the system does not tell.
std::string processor_list();

/// How many threads the kernels that the calling thread runs may use. Thread-local: each replica thread sets its own.
void set_thread_budget(int threads);

/// Resident memory of this process now, in bytes; 0 where the system does not tell.
std::size_t resident_bytes();

/// The processor's name for people, such as "AMD EPYC".
std::string cpu_name();

/// The name of this host.
std::string host_name();

// Which processors the system lets a thread run on, by their numbers; however many the host has.

/// Those of the calling thread's affinity mask, as mpirun or taskset set it, ascending; empty where the system does not
/// tell.
std::vector<int> allowed_processors();

/// Those that a mask could name: of the host, or of the set that a container or batch system confines this process to.
/// Changes the mask of the calling thread and changes it back.
std::vector<int> processors_of_cpu_set();

// What the control groups of this process, as containers and batch systems set them up, leave to it. Both versions of
// them; every group above a process's own bounds it too. `root` is where the kernel's files are.

/// Processors' worth of time that all processes of the group get together: 1.5 of "150000 100000"; 0 for no limit.
double processor_quota(const std::filesystem::path& root = "/");

/// Bytes of memory that are left to the group, those of files that the kernel can drop among them; the largest number
/// for no limit.
std::int64_t memory_left_in_group(const std::filesystem::path& root = "/");

// How much memory the host has left for this process.

/// Bytes that can still be used without swapping: what the kernel says is available, or less where the process's
/// control groups (device/control_group.h) allow less. Those of files that the kernel can drop count as free. The
/// largest number where nothing is known. `root` is where the kernel's files are.
std::int64_t available_host_memory(const std::filesystem::path& root = "/");

}  // namespace lockstep
