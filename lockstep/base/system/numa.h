// NUMA nodes of processors and of PCI devices, as reported by Linux.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lockstep::inline v0 {

/// Parses a list of numbers in Linux format, "0-3,8,10-11". Stops at the first character that does
/// not fit.
std::vector<int> parse_number_list(std::string_view text);

/// The NUMA node of the PCI device `id`, such as "0000:3B:00.0"; -1 if unknown.
int numa_node_of_pci(std::string_view id,
                     const std::filesystem::path& devices = "/sys/bus/pci/devices");

/// The NUMA nodes of the processors that this process may run on, ascending; empty if unknown.
std::vector<int> numa_nodes_of_process(
    const std::filesystem::path& nodes = "/sys/devices/system/node");

}  // namespace lockstep::inline v0
