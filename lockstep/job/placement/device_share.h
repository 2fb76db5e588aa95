// How the ranks of a node share its cores and GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

/// The cores of a rank, exchanged between ranks.
struct CoreClaim {
  int node = 0;                 ///< number of its host
  std::string processors = {};  ///< one character per processor, '1' if the rank may run on it
  double quota = 0;             ///< CPU quota of its control group, in processors; 0: no limit
};

/// Number of cores for rank `rank`: its processors, divided by the number of ranks of the same node
/// with the same processors (as with `--bind-to none`). Limited by the CPU quota, which the ranks
/// of the node with the same quota share. At least 1.
int share_of_cores(const std::vector<CoreClaim>& claims, int rank);

/// Number of cores for the calling rank. Collective.
int share_of_cores(const Session& session);

/// The GPUs of a rank, exchanged between ranks, to resolve `auto` and `gpu:all`.
struct DeviceClaim {
  int node = 0;                   ///< number of its host
  std::string host;               ///< its name
  std::string devices;            ///< value of --devices: "auto"
  std::vector<std::string> gpus;  ///< UUIDs of the GPUs visible to it, in the driver's order
  std::string no_gpu;             ///< why no GPU is visible; empty if some are

  /// Ranks with equal claims divide their GPUs.
  bool operator==(const DeviceClaim&) const = default;
};

/// The devices of rank `rank`, whose claim is `auto` or `gpu:all`. Ranks of a node that see the
/// same GPUs divide them in rank order: `auto` assigns one GPU to each rank, `gpu:all` an equal
/// part. If no other rank sees the same GPUs (a single process, or a launcher that sets
/// CUDA_VISIBLE_DEVICES for each rank), the rank uses all of them. Without a GPU, `auto` is cpu:0.
/// With `share_gpus`, if there are more ranks than GPUs, they are assigned round-robin. Throws
/// Error (device) if there are more ranks than GPUs, or if `gpu:all` finds no GPU or a number of
/// GPUs that the ranks do not divide evenly.
std::vector<device::Device> share_of_devices(const std::vector<DeviceClaim>& claims, int rank,
                                             bool share_gpus);

/// The devices of the calling rank for `list` (see device::parse_devices). If share_of_devices
/// throws for any rank, all ranks throw. Collective.
std::vector<device::Device> choose_devices(const Session& session, std::string_view list,
                                           bool share_gpus = false);

}  // namespace lockstep::inline v0::job
