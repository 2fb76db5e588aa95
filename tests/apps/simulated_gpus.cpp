// Gives the program that it is linked into two simulated GPUs.
#include <cstddef>

#include "tests/support/pretend_cuda/machine.h"

namespace {

const lockstep::pretend::Machine two_gpus({.gpus = 2, .bytes_per_gpu = std::size_t{1} << 30});

}  // namespace
