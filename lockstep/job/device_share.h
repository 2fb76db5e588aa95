// How many cores are a rank's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/device_list.h"
#include "lockstep/job/session.h"

namespace lockstep::job {

/// What a rank tells the others.
struct CoreClaim {
  int node = 0;                 ///< number of its host
  std::string processors = {};  ///< one character a processor, '1' where the rank may run
  double quota = 0;             ///< processors' worth of time that its control group is granted; 0: no limit
};

/// The cores of rank `rank`: its processors, divided by the ranks of the same node that were given exactly the same
/// ones (as with `--bind-to none`); fewer where the ranks of the node, of which those with the same quota share it, get
/// less time than that; at least 1.
int share_of_cores(const std::vector<CoreClaim>& claims, int rank);

/// The same, for the calling rank. Collective.
int share_of_cores(const Session& session);

// Which devices are a rank's own, where the command line leaves it open: `auto` and `gpu:all`.

/// What a rank tells the others.
struct DeviceClaim {
  int node = 0;                   ///< number of its host
  std::string host;               ///< its name
  std::string devices;            ///< as its command line names them: "auto"
  std::vector<std::string> gpus;  ///< UUIDs of the GPUs that it sees, in the driver's order
  std::string no_gpu;             ///< why it sees none; empty where it sees some

  /// Whether ranks that claim the same divide it.
  bool operator==(const DeviceClaim&) const = default;
};

/// The devices of rank `rank`, whose claim is `auto` or `gpu:all`. Ranks of a node that see the same GPUs divide them
/// in rank order: `auto` gives each rank one, `gpu:all` each an equal part; a rank that is alone in seeing its GPUs
/// (one process, or a launcher that sets CUDA_VISIBLE_DEVICES for each rank) takes all of them. Without a GPU `auto` is
/// cpu:0. With `share_gpus` more ranks than GPUs take them in turn. Throws Error (device) for more ranks than GPUs, for
/// `gpu:all` of GPUs that the ranks do not divide evenly, and for `gpu:all` without a GPU.
std::vector<device::Device> share_of_devices(const std::vector<DeviceClaim>& claims, int rank, bool share_gpus);

/// The devices that `list` names to the calling rank (the grammar of device::parse_devices). What share_of_devices
/// throws for any rank is thrown on all. Collective.
std::vector<device::Device> choose_devices(const Session& session, std::string_view list, bool share_gpus = false);

}  // namespace lockstep::job
