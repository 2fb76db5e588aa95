// The simulated machine: number of GPUs, memory, driver.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

namespace lockstep::inline v0::pretend {

struct MachineOptions {
  int gpus = 8;
  int first_gpu = 0;  // in the host's order: more than 0 where CUDA_VISIBLE_DEVICES hides others
  std::size_t bytes_per_gpu = std::size_t{1}
                              << 28;            // that can be allocated; each is written when it is
  std::size_t largest_piece = ~std::size_t{0};  // largest free piece of the memory
  int driver_version = CUDART_VERSION;          // version of the driver; 0: no driver
  bool sums_convolutions =
      true;  // whether cuDNN's graph API has engines for convolutions with sums
  // Whether allocating memory, and the first launch of a kernel on a GPU, wait for the work of all
  // GPUs, as CUDA may.
  bool waits_for_all = false;
  bool runs_first_products =
      true;  // whether cuBLASLt runs the algorithms that its heuristics propose first
  bool compiles_at_run_time = false;  // whether all but the first working one compile their kernels
  int idle_engines = 1;               // failing engines that cuDNN proposes first
};

/// Replaces the machine during its lifetime. Earlier allocations count on it, too.
class Machine {
 public:
  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  MachineOptions before_;
};

/// The GPUs on which this process has created a context, in order. On a real GPU, a context uses
/// hundreds of megabytes.
std::set<int> gpus_with_context();

/// Simulates a new process during its lifetime: there are no contexts, and the calling thread has
/// not selected a GPU.
class NewProcess {
 public:
  NewProcess();
  ~NewProcess();
  NewProcess(const NewProcess&) = delete;
  NewProcess& operator=(const NewProcess&) = delete;

 private:
  std::set<int> contexts_;
  int gpu_;
};

/// Kinds of CUDA calls: a wait blocks until a GPU has finished work, a poll may be repeated any
/// number of times, and every other call is a command.
enum class Call : std::uint8_t { command, wait, poll, graph };
/// Number of calls of a kind by this process.
std::uint64_t calls(Call kind);
/// Number of commands before the last launch of a graph.
std::uint64_t commands_before_graph();

// The rest is for the other parts of the simulated CUDA.

/// The machine as it is now.
MachineOptions machine();

/// Ends the program after a misuse that is undefined in CUDA, hangs, or returns an error that is
/// usually ignored.
[[noreturn]] void usage_error(const std::string& how);

/// Returns `error`, and sets it for cudaGetLastError of this thread unless it is success.
cudaError_t answer(cudaError_t error);

/// Checks the conditions of a CUDA call: a driver that is new enough, a GPU, a thread that may
/// call. Creates the context of this process on the calling thread's GPU, as nearly all calls do,
/// and counts the call.
cudaError_t readiness(Call call = Call::command);
/// For the few calls that create no context.
cudaError_t readiness_without_context();

/// Marks that this thread is inside a host function of a stream, where CUDA must not be called.
class InsideHostFunction {
 public:
  InsideHostFunction();
  ~InsideHostFunction();
  InsideHostFunction(const InsideHostFunction&) = delete;
  InsideHostFunction& operator=(const InsideHostFunction&) = delete;
};

/// The calling thread's GPU; 0 by default.
int current_gpu();
/// Selects a GPU without creating a context.
void set_current_gpu(int gpu);
/// Creates the context of this process on a GPU unless it exists.
void make_context(int gpu);

}  // namespace lockstep::inline v0::pretend
