// Networks for comparing two devices: one for each layer, and some of several layers.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

struct AgreementCase {
  std::string name;
  std::function<Network()> make;
  std::vector<std::int64_t> batches = {1, 3};
  double depth = 1;  // factor on the rounding errors

  friend std::ostream& operator<<(std::ostream& stream, const AgreementCase& one) {
    return stream << one.name;
  }
};

Network normalized_convolutions();

/// One for each layer, and small networks.
std::vector<AgreementCase> layer_cases();
/// One for each activation.
std::vector<AgreementCase> activation_cases();
/// Networks so deep that they amplify rounding to 16 bits, or that round themselves: compared in
/// float32 only.
std::vector<AgreementCase> deep_cases();

}  // namespace lockstep::inline v0::model
