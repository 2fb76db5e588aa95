// A training of a second or less, as the tests of the commands ask for it.
#pragma once

#include "tests/apps/program.h"

#include <string>

namespace lockstep::apps {

inline const std::string kData = " --data synthetic:8x8x1,4,1003 --global-batch 100 ";
inline const std::string kTrain =
    "train --checkpoint-dir none --model mlp --log-format json --log-every 1" + kData;

/// Of the training that `result` is of, from its last event.
inline std::string hash_of(const Result& result) {
  return result.event("end").value("parameter_hash", "");
}

}  // namespace lockstep::apps
