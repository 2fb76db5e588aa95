// The names of the ways that gradients take.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::allreduce {

/// `automatic` stands for a choice by topology and measurement (select_route). `nccl` and `staged` are between GPUs.
enum class Route { automatic, in_process, shared_memory, ring, hierarchical, mpi, nccl, staged };

/// Reads the `--allreduce` option. Throws Error (input) that lists the names.
Route parse_route(std::string_view name);
/// The name that parse_route reads.
std::string to_string(Route route);

}  // namespace lockstep::allreduce
