// What the control groups of this process, as containers and batch systems set them up, leave to it. Both versions of
// them; every group above a process's own bounds it too. `root` is where the kernel's files are.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep::device {

/// Processors' worth of time that all processes of the group get together: 1.5 of "150000 100000"; 0 for no limit.
double processor_quota(const std::filesystem::path& root = "/");

/// Bytes of memory that are left to the group, those of files that the kernel can drop among them; the largest number
/// for no limit.
std::int64_t memory_left_in_group(const std::filesystem::path& root = "/");

}  // namespace lockstep::device
