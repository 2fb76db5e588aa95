// How much memory the host has left for this process.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep::device {

/// Bytes that can still be used without swapping: what the kernel says is available, or less where the process's
/// control groups (device/control_group.h) allow less. Those of files that the kernel can drop count as free. The
/// largest number where nothing is known. `root` is where the kernel's files are.
std::int64_t available_host_memory(const std::filesystem::path& root = "/");

}  // namespace lockstep::device
