#include "allreduce/watch/token.h"

#include <fmt/format.h>

#include <random>

namespace lockstep::allreduce {

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace lockstep::allreduce
