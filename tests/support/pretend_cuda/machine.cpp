#include "tests/support/pretend_cuda/machine.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace lockstep::pretend {
namespace {

struct Settings {
  std::mutex mutex;
  MachineOptions options;
};

Settings& settings() {
  static Settings settings;
  return settings;
}

constinit thread_local int host_functions = 0;

}  // namespace

Machine::Machine(const MachineOptions& options) : before_(machine()) {
  const std::lock_guard lock(settings().mutex);
  settings().options = options;
}

Machine::~Machine() {
  const std::lock_guard lock(settings().mutex);
  settings().options = before_;
}

MachineOptions machine() {
  const std::lock_guard lock(settings().mutex);
  return settings().options;
}

void misused(const std::string& how) {
  std::fprintf(stderr, "CUDA was misused: %s\n", how.c_str());
  std::abort();
}

cudaError_t readiness() {
  if (host_functions > 0) return cudaErrorNotPermitted;
  const MachineOptions options = machine();
  // A driver serves every toolkit of its major version.
  if (options.driver_version / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return options.gpus == 0 ? cudaErrorNoDevice : cudaSuccess;
}

InsideHostFunction::InsideHostFunction() { ++host_functions; }
InsideHostFunction::~InsideHostFunction() { --host_functions; }

}  // namespace lockstep::pretend
