// The machine that the pretended CUDA shows: how many GPUs, how much memory, which driver.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

namespace lockstep::pretend {

struct MachineOptions {
  int gpus = 8;
  int first_gpu = 0;  // in the host's order: more than 0 where CUDA_VISIBLE_DEVICES hides others
  std::size_t bytes_per_gpu = std::size_t{1}
                              << 28;            // that can be allocated; each is written when it is
  std::size_t largest_piece = ~std::size_t{0};  // of what is free, which lies in pieces
  int driver_version = CUDART_VERSION;          // what the driver serves; 0: there is no driver
  bool sums_convolutions =
      true;  // whether cuDNN's graph API has engines for convolutions with sums
  // Whether allocating memory, and the first launch of a kernel on a GPU, wait for the work of all
  // GPUs, as CUDA may.
  bool waits_for_all = false;
  bool runs_first_products =
      true;  // whether cuBLASLt runs the algorithms that its heuristics propose first
  bool compiles_at_run_time = false;  // whether all but the first working one compile their kernels
  int idle_engines = 1;               // that cuDNN proposes first, and that do not work
};

/// As long as this lives the machine is another one. Whatever was allocated before counts on it
/// too.
class Machine {
 public:
  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  MachineOptions before_;
};

/// The GPUs on which this process has made a context, in order. A context takes some hundred
/// megabytes of a real GPU.
std::set<int> gpus_with_context();

/// As long as this lives it is as in a new process: there are no contexts from before, and the
/// calling thread has chosen no GPU.
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

/// What a call of CUDA is to the host: a wait lasts until a GPU has finished work, a poll is
/// repeated as often as there is time, and every other call is a command.
enum class Call : std::uint8_t { command, wait, poll, graph };
/// How many calls of a kind this process has made.
std::uint64_t calls(Call kind);
/// How many commands it had made when it last launched a graph.
std::uint64_t commands_before_graph();

// The rest is for the parts of the pretended CUDA.

/// The machine as it is now.
MachineOptions machine();

/// Ends the program: for wrong use that CUDA leaves undefined, answers with a hang, or whose answer
/// nobody reads.
[[noreturn]] void usage_error(const std::string& how);

/// `error`, which cudaGetLastError of this thread tells from now on unless it is success.
cudaError_t answer(cudaError_t error);

/// What every call of CUDA asks first: is there a driver, is it new enough, is there a GPU, may
/// this thread call. Makes the context of this process on the calling thread's GPU, as nearly all
/// calls do, and counts the call.
cudaError_t readiness(Call call = Call::command);
/// The same for the few calls that make no context.
cudaError_t readiness_without_context();

/// As long as this lives, CUDA may not be called by this thread: it is inside a host function of a
/// stream.
class InsideHostFunction {
 public:
  InsideHostFunction();
  ~InsideHostFunction();
  InsideHostFunction(const InsideHostFunction&) = delete;
  InsideHostFunction& operator=(const InsideHostFunction&) = delete;
};

/// The calling thread's GPU: 0 where it has chosen none.
int current_gpu();
/// Changes it without a context.
void set_current_gpu(int gpu);
/// Makes the context of this process on a GPU, unless it is there.
void make_context(int gpu);

}  // namespace lockstep::pretend
