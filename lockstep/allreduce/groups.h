// How groups come to be: threads of one process, ranks of an MPI job, and both together.
#pragma once

#include <mpi.h>

#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/route.h"
#include "lockstep/device/device.h"

namespace lockstep::allreduce {

/// `size` members (1 or more) that are threads of this process; element i is for replica i.
std::vector<Communicator> make_in_process_group(int size);

/// The calling rank as a member of `ranks`, one replica a rank. `route` is any but in_process and nccl;
/// automatic takes the first of Topology::candidates.
/// Collective over `ranks`, which the group duplicates; MPI must live longer than the group. Throws Error (input) for a
/// route that does not connect these ranks.
Communicator make_mpi_group(MPI_Comm ranks, Route route);

/// Replicas of all ranks of `ranks`: element i is local replica i, its rank() is the global replica number (replicas of
/// rank 0 first, then of rank 1, …). Ranks may drive different numbers of replicas. Reduces in the process in replica
/// order, then between ranks by `route`, then hands the result back. The thread of a rank's first replica is the only
/// one that calls MPI (MPI_THREAD_SERIALIZED is enough). Collective over `ranks`; for one rank it is
/// make_in_process_group, whatever the route. Throws Error (input) for a route that does not connect these ranks.
std::vector<Communicator> make_multi_worker_group(MPI_Comm ranks, int local_replicas, Route route);

// How groups of replicas on given devices come to be; groups.h has those of the CPU.

/// Throws Error (input) unless this build has NCCL, this machine a GPU, and all of `devices` are GPUs: what Route::nccl
/// needs. An empty list stands for replicas on the CPU.
void require_nccl(const std::vector<device::Device>& devices);

/// Throws Error (input) unless all of `devices` are GPUs, as `route` needs.
void require_gpus(Route route, const std::vector<device::Device>& devices);

/// Members that are threads of this process; element i is for devices[i]. On the CPU this is make_in_process_group.
/// GPUs, one each, are served by NCCL; where all share one GPU a kernel on it reduces (route "in-gpu", or "none" for
/// one member). `route` is automatic or in_process, or nccl or
/// staged for GPUs; staged serves any GPUs, shared or not. Throws Error (input) for devices that cannot form
/// a group, Error (device) for a GPU that is not available, Error (communication) where NCCL fails.
std::vector<Communicator> make_device_group(const std::vector<device::Device>& devices, Route route = Route::automatic);

/// Members that are replicas of all ranks of `ranks`, numbered as by make_multi_worker_group, which it is for the CPU.
/// automatic is nccl on one node; hierarchical between nodes (NCCL within, a ring of the CPU between them), but nccl
/// where ranks drive several GPUs. It is staged (the host reduces) where replicas share a GPU: those of one rank, which
/// were named so, or those of several with `share_gpus`; without it that is an Error (device) that names two ranks and
/// their GPU, known by its UUID whatever CUDA_VISIBLE_DEVICES makes its number. Collective over `ranks`; MPI_COMM_NULL
/// stands for this process alone. Throws like the other, the same on all ranks.
std::vector<Communicator> make_device_group(MPI_Comm ranks, const std::vector<device::Device>& devices, Route route,
                                            bool share_gpus = false);

}  // namespace lockstep::allreduce
