// A training of a second or less, as the tests of the commands ask for it.
#pragma once

#include <string>

namespace lockstep::apps {

inline const std::string kData = " --data synthetic:8x8x1:4:1003 --global-batch 100 ";
inline const std::string kTrain = "train --model mlp --log-format json --log-every 1" + kData;

}  // namespace lockstep::apps
