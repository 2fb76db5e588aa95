#include "tests/support/pretend_cuda/machine.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace lockstep::inline v0::pretend {
namespace {

struct Settings {
  std::mutex mutex;
  MachineOptions options;
  std::set<int> contexts;
};

Settings& settings() {
  static Settings settings;
  return settings;
}

constinit thread_local int host_functions = 0;

std::array<std::atomic<std::uint64_t>, 4> counts{};  // by Call
std::atomic<std::uint64_t> at_graph{0};

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

void usage_error(const std::string& how) {
  std::fprintf(stderr, "CUDA was misused: %s\n", how.c_str());
  std::abort();
}

std::set<int> gpus_with_context() {
  const std::lock_guard lock(settings().mutex);
  return settings().contexts;
}

NewProcess::NewProcess() : gpu_(current_gpu()) {
  set_current_gpu(0);
  const std::lock_guard lock(settings().mutex);
  contexts_.swap(settings().contexts);
}

NewProcess::~NewProcess() {
  set_current_gpu(gpu_);
  const std::lock_guard lock(settings().mutex);
  settings().contexts.merge(contexts_);
}

void make_context(int gpu) {
  const std::lock_guard lock(settings().mutex);
  settings().contexts.insert(gpu);
}

std::uint64_t calls(Call kind) { return counts[static_cast<std::size_t>(kind)]; }
std::uint64_t commands_before_graph() { return at_graph; }

cudaError_t readiness(Call call) {
  ++counts[static_cast<std::size_t>(call)];
  if (call == Call::graph) at_graph = calls(Call::command);
  const cudaError_t status = readiness_without_context();
  if (status == cudaSuccess) make_context(current_gpu());
  return status;
}

cudaError_t readiness_without_context() {
  if (host_functions > 0) return cudaErrorNotPermitted;
  const MachineOptions options = machine();
  // A driver serves every toolkit of its major version.
  if (options.driver_version / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return options.gpus == 0 ? cudaErrorNoDevice : cudaSuccess;
}

InsideHostFunction::InsideHostFunction() { ++host_functions; }
InsideHostFunction::~InsideHostFunction() { --host_functions; }

}  // namespace lockstep::inline v0::pretend
