// Applies functions of one or two numbers to tensors on a GPU. For sources that nvcc compiles.
#pragma once

#include <cstddef>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

// Whole packs first, then the remaining elements one by one.
template <typename T, typename Function>
__global__ void map_one(const T* from, T* to, std::size_t count, Function function) {
  constexpr int kElements = Pack<T>::kElements;
  const std::size_t packs = count / kElements;
  for (std::size_t pack = first_index(); pack < packs; pack += index_stride()) {
    Values<T, kElements> values = load<T, kElements>(from + pack * kElements);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values.elements[i] = function(values.elements[i]);
    store<T, kElements>(to + pack * kElements, values);
  }
  for (std::size_t i = packs * kElements + first_index(); i < count; i += index_stride())
    to[i] = narrow<T>(function(widen(from[i])));
}

template <typename T, typename Function>
__global__ void map_two(const T* a, const T* b, T* to, std::size_t count, Function function) {
  constexpr int kElements = Pack<T>::kElements;
  const std::size_t packs = count / kElements;
  for (std::size_t pack = first_index(); pack < packs; pack += index_stride()) {
    Values<T, kElements> values = load<T, kElements>(a + pack * kElements);
    const Values<T, kElements> others = load<T, kElements>(b + pack * kElements);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      values.elements[i] = function(values.elements[i], others.elements[i]);
    store<T, kElements>(to + pack * kElements, values);
  }
  for (std::size_t i = packs * kElements + first_index(); i < count; i += index_stride())
    to[i] = narrow<T>(function(widen(a[i]), widen(b[i])));
}

/// to = function(from), optionally in place.
template <typename Function>
void map(const TensorView& from, const TensorView& to, Function function, cudaStream_t stream) {
  if (from.empty()) return;
  with_type(from.type(), [&]<typename T>(T) {
    device::cuda::launch(map_one<T, Function>, blocks_for(from.size_bytes() / kPackBytes), kThreads,
                         stream, data<T>(from), data<T>(to), from.size(), function);
  });
}

/// to = function(a, b); `to` may alias an input.
template <typename Function>
void map(const TensorView& a, const TensorView& b, const TensorView& to, Function function,
         cudaStream_t stream) {
  if (a.empty()) return;
  with_type(a.type(), [&]<typename T>(T) {
    device::cuda::launch(map_two<T, Function>, blocks_for(a.size_bytes() / kPackBytes), kThreads,
                         stream, data<T>(a), data<T>(b), data<T>(to), a.size(), function);
  });
}

}  // namespace lockstep::inline v0::model::cuda
