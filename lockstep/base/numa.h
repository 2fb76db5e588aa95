// Which memory of the host is near: NUMA nodes of processors and of PCI devices, as Linux tells them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lockstep {

/// Reads a list of numbers as Linux writes it: "0-3,8,10-11". What is not such a list ends it.
std::vector<int> parse_number_list(std::string_view text);

/// The NUMA node of the PCI device `id`, such as "0000:3B:00.0"; -1 where the system does not tell.
int numa_node_of_pci(std::string_view id, const std::filesystem::path& devices = "/sys/bus/pci/devices");

/// The NUMA nodes of the processors that this process may run on, ascending; empty where the system does not tell.
std::vector<int> numa_nodes_of_process(const std::filesystem::path& nodes = "/sys/devices/system/node");

}  // namespace lockstep
