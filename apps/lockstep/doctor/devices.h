// The GPUs: seen, alike, healthy, free, one for each rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// A GPU of a host, as the management library sees it.
struct HealthFacts {
  std::string name = {};
  std::string uuid = {};
  std::int64_t total_bytes = 0;
  std::int64_t used_bytes = 0;
  std::int64_t uncorrected_errors = -1;
  bool wants_reset = false;
  bool lacks_spare_rows = false;
  bool is_slowed = false;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(HealthFacts, name, uuid, total_bytes, used_bytes, uncorrected_errors, wants_reset,
                                 lacks_spare_rows, is_slowed)
};

struct DeviceFacts {
  std::vector<std::string> gpus = {};  ///< names of those that this program can use
  std::string unavailable = {};        ///< why it can use none
  bool has_cuda = false;               ///< whether it was compiled for CUDA
  std::vector<HealthFacts> health = {};

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(DeviceFacts, gpus, unavailable, has_cuda, health)
};

DeviceFacts measure_devices();

/// `devices`.
Outcome judge_devices(const Reports<DeviceFacts>& reports);

}  // namespace lockstep::apps::doctor
