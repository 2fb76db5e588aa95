#include "lockstep/model/layers/shape/kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

template <typename Unit>
__global__ void copy_units(const Unit* from, Unit* to, StridedCopy copy, std::int64_t count) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride())) {
    std::int64_t rest = index;
    std::int64_t source = copy.source.offset;
    std::int64_t target = copy.target.offset;
    for (int k = copy.axes - 1; k > 0; --k) {
      const std::int64_t place = rest % copy.extents[k];
      rest /= copy.extents[k];
      source += place * copy.source.strides[k];
      target += place * copy.target.strides[k];
    }
    to[target + rest * copy.target.strides[0]] = from[source + rest * copy.source.strides[0]];
  }
}

template <typename Unit>
void launch_copy(const StridedCopy& copy, const TensorView& from, const TensorView& to,
                 cudaStream_t stream) {
  const std::int64_t count = copy.count();
  device::cuda::launch(copy_units<Unit>, blocks_for(static_cast<std::size_t>(count)), kThreads,
                       stream, data<Unit>(from), data<Unit>(to), copy, count);
}

}  // namespace

void copy_strided(const StridedCopy& copy, const TensorView& from, const TensorView& to,
                  cudaStream_t stream) {
  if (from.empty()) return;
  const std::size_t bytes = element_bytes(from.type());
  const auto pack = static_cast<std::int64_t>(sizeof(uint4) / bytes);
  if (copy.consists_of(pack))
    launch_copy<uint4>(copy.in_runs_of(pack), from, to, stream);
  else if (bytes == sizeof(float))
    launch_copy<float>(copy, from, to, stream);
  else
    launch_copy<std::uint16_t>(copy, from, to, stream);
}

}  // namespace lockstep::inline v0::model::cuda
