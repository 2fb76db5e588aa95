// The machine that the pretended CUDA shows: how many GPUs, how much memory, which driver.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace lockstep::pretend {

struct MachineOptions {
  int gpus = 8;
  int first_gpu = 0;  // in the host's order: more than 0 where CUDA_VISIBLE_DEVICES hides others
  std::size_t bytes_per_gpu = std::size_t{1} << 28;  // that can be allocated; each is written when it is
  int driver_version = CUDART_VERSION;               // what the driver serves; 0: there is no driver
  bool sums_convolutions = true;                     // whether cuDNN's graph API has engines for convolutions with sums
};

/// As long as this lives the machine is another one. Whatever was allocated before counts on it too.
class Machine {
 public:
  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  MachineOptions before_;
};

// The rest is for the parts of the pretended CUDA.

/// The machine as it is now.
MachineOptions machine();

/// Ends the program: for wrong use that CUDA leaves undefined, answers with a hang, or whose answer nobody reads.
[[noreturn]] void misused(const std::string& how);

/// `error`, which cudaGetLastError of this thread tells from now on unless it is success.
cudaError_t answer(cudaError_t error);

/// What every call of CUDA asks first: is there a driver, is it new enough, is there a GPU, may this thread call.
cudaError_t readiness();

/// As long as this lives, CUDA may not be called by this thread: it is inside a host function of a stream.
class InsideHostFunction {
 public:
  InsideHostFunction();
  ~InsideHostFunction();
  InsideHostFunction(const InsideHostFunction&) = delete;
  InsideHostFunction& operator=(const InsideHostFunction&) = delete;
};

/// The calling thread's GPU.
int current_gpu();

}  // namespace lockstep::pretend
