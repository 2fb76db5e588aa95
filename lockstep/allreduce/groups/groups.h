// Creates groups of threads of one process, of ranks of a job, or of both.
#pragma once

#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/device/device.h"

namespace lockstep::inline v0::allreduce {

/// A group of `size` threads of this process (1 or more); element i is for replica i. Throws Error
/// (input) for a route without RouteInfo::process.
std::vector<Communicator> make_in_process_group(int size, Route route = Route::automatic);

/// The calling rank as a member of a group of `ranks`, with one replica per rank. `route` is one
/// with RouteInfo::ranks; automatic selects the first of Topology::candidates. Collective over
/// `ranks`. The group must be destroyed before the transport ends. Throws Error (input) for a route
/// that does not connect these ranks.
Communicator make_rank_group(const Communicator& ranks, Route route);

/// A group of the replicas of all ranks. Element i is local replica i; its rank() is the global
/// replica number (replicas of rank 0 first, then of rank 1, …). Ranks may have different numbers
/// of replicas. Reduces within the process in replica order, then between ranks by `route`, then
/// distributes the result. Only the thread of a rank's first replica sends
/// messages. Collective over `ranks`. For one rank it is
/// make_in_process_group, with `route` if that connects threads, else with automatic. Throws Error
/// (input) for a route that does not connect these ranks.
std::vector<Communicator> make_multi_worker_group(const Communicator& ranks, int local_replicas,
                                                  Route route);

// Groups of replicas on given devices.

/// Throws Error (input) unless `devices` meet the requirements of `route`. A route that is only for
/// GPUs requires that all are; nccl also requires a build with NCCL, and a GPU in this machine.
void require_devices(Route route, const std::vector<device::Device>& devices);

/// Throws Error (input) if `route` requires ranks, for a process that mpirun did not start.
void require_no_ranks(Route route);

/// A group of threads of this process; element i is for devices[i]. On the CPU this is
/// make_in_process_group. Members with one GPU each use NCCL; members that share one GPU use a
/// kernel on it (route "in-gpu", or "none" for one member, which uses NCCL for route nccl). `route`
/// is one with RouteInfo::process on the CPU, or RouteInfo::gpus; staged works for any GPUs, shared
/// or not. Throws Error (input) for devices that cannot form a group, Error (device) for a GPU that
/// is not available, and Error (communication) if NCCL fails.
std::vector<Communicator> make_device_group(const std::vector<device::Device>& devices,
                                            Route route = Route::automatic);

/// A group of the replicas of all ranks, numbered as by make_multi_worker_group, which it is on the
/// CPU. automatic is nccl on one node; between nodes it is nccl if NCCL reaches all members, else
/// staged (the host reduces), with the reason in `*reason`. hierarchical is nccl. automatic is also
/// staged if replicas share a GPU: replicas of one rank with such `devices`, or replicas of several
/// ranks with `share_gpus`. Without `share_gpus` the latter is an Error (device) that names two
/// ranks and their GPU, which is identified by its UUID independently of CUDA_VISIBLE_DEVICES.
/// Collective over `ranks`. Throws like the other
/// overload, the same on all ranks.
std::vector<Communicator> make_device_group(const Communicator& ranks,
                                            const std::vector<device::Device>& devices, Route route,
                                            bool share_gpus = false, std::string* reason = nullptr);

}  // namespace lockstep::inline v0::allreduce
