// The command line of a training of less than a second.
#pragma once

#include "tests/apps/program.h"

#include <string>

namespace lockstep::inline v0::apps {

inline const std::string kData = " --data synthetic:8x8x1,4,1003 --global-batch 100 ";
inline const std::string kTrain =
    "train --checkpoint-dir none --model mlp --log-format json --log-every 1" + kData;

/// The parameter hash in the last event of the training.
inline std::string hash_of(const Result& result) {
  return result.event("end").value("parameter_hash", "");
}

}  // namespace lockstep::inline v0::apps
