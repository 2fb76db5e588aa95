// The errors of CUDA, and the last one of the calling thread.
#include <algorithm>
#include <array>

#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::pretend {
namespace {

constinit thread_local cudaError_t last_error = cudaSuccess;

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr std::array kWords = {
    Words{cudaSuccess, "cudaSuccess", "no error"},
    Words{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    Words{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    Words{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
          "invalid configuration argument"},
    Words{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
          "CUDA driver version is insufficient for CUDA runtime version"},
    Words{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    Words{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    Words{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
          "invalid resource handle"},
    Words{cudaErrorIllegalState, "cudaErrorIllegalState",
          "the operation cannot be performed in the present state"},
    Words{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    Words{cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
          "part or all of the requested memory range is already mapped"},
    Words{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
          "pointer does not correspond to a registered memory region"},
    Words{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    Words{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    Words{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
          "operation not permitted when stream is capturing"},
    Words{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
          "operation failed due to a previous error during capture"},
    Words{cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
          "operation would result in a merge of separate capture sequences"},
    Words{cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
          "capture was not ended in the same stream as it began"},
    Words{cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
          "capturing stream has unjoined work"},
    Words{cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
          "dependency created on uncaptured work in another stream"},
    Words{cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
          "operation would make the legacy stream depend on a capturing blocking stream"},
    Words{cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
          "operation not permitted on an event last recorded in a capturing stream"},
    Words{cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
          "attempt to terminate a thread-local capture sequence from another thread"},
};

const Words* words_of(cudaError_t error) {
  const auto* found = std::ranges::find(kWords, error, &Words::error);
  return found == kWords.end() ? nullptr : found;
}

}  // namespace

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace lockstep::inline v0::pretend

namespace pretend = lockstep::pretend;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = pretend::last_error;
  pretend::last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const pretend::Words* words = pretend::words_of(error);
  return words == nullptr ? "unrecognized error code" : words->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const pretend::Words* words = pretend::words_of(error);
  return words == nullptr ? "unrecognized error code" : words->text;
}

}  // extern "C"
