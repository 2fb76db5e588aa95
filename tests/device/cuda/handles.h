// Streams, events and memory of the current simulated GPU for a test, released at its end.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/device/cuda/cuda.h"

namespace lockstep::inline v0::device::cuda {

inline StreamHandle make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, flags), "a stream");
  return StreamHandle(stream);
}

inline EventHandle make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "an event");
  return EventHandle(event);
}

/// Elements on the GPU. The host may read them after synchronizing the stream that wrote them.
template <typename T>
class Elements {
 public:
  explicit Elements(std::size_t count) : count_(count) {
    void* data = nullptr;
    check(cudaMalloc(&data, count * sizeof(T)), "memory");
    data_.reset(static_cast<T*>(data));
  }
  T* get() const { return data_.get(); }
  std::span<T> span() const { return {data_.get(), count_}; }
  T& operator[](std::size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* data) const { cudaFree(data); }
  };
  std::size_t count_;
  std::unique_ptr<T, Free> data_;
};

inline void synchronize(const StreamHandle& stream) {
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}

}  // namespace lockstep::inline v0::device::cuda
