// Copies of elements from places in one array to places in another.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

/// Element (i0, i1, ...) is at the offset plus the sum of i_k times the stride of axis k, in either
/// array. All numbers are in elements. No two elements have the same place.
struct StridedCopy {
  static constexpr int kMaxAxes = 6;
  struct Place {
    std::int64_t offset = 0;
    std::int64_t strides[kMaxAxes] = {1};
  };

  int axes = 1;
  std::int64_t extents[kMaxAxes] = {1};
  Place source;
  Place target;

  /// Appends an axis, the fastest so far; merges it with the one before if that is possible.
  void add(std::int64_t extent, std::int64_t source_stride, std::int64_t target_stride) {
    if (extent == 1) return;
    int last = axes - 1;
    if (extents[last] == 1) {
      extents[last] = extent;
    } else if (source.strides[last] == extent * source_stride &&
               target.strides[last] == extent * target_stride) {
      extents[last] *= extent;
    } else {
      last = axes++;
      LOCKSTEP_CHECK(axes <= kMaxAxes);
      extents[last] = extent;
    }
    source.strides[last] = source_stride;
    target.strides[last] = target_stride;
  }

  /// Number of elements.
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int k = 0; k < axes; ++k) product *= extents[k];
    return product;
  }

  /// The inverse copy, from target to source.
  StridedCopy reversed() const {
    StridedCopy copy = *this;
    copy.source = target;
    copy.target = source;
    return copy;
  }

  /// Whether the copy consists of whole, aligned runs of `run` elements.
  bool consists_of(std::int64_t run) const {
    const int last = axes - 1;
    if (source.strides[last] != 1 || target.strides[last] != 1 || extents[last] % run != 0)
      return false;
    for (const Place* place : {&source, &target}) {
      if (place->offset % run != 0) return false;
      for (int k = 0; k < last; ++k)
        if (place->strides[k] % run != 0) return false;
    }
    return true;
  }

  /// This copy with elements `run` times as large; requires consists_of(run).
  StridedCopy in_runs_of(std::int64_t run) const {
    StridedCopy copy = *this;
    copy.extents[axes - 1] /= run;
    for (Place* place : {&copy.source, &copy.target}) {
      place->offset /= run;
      for (int k = 0; k < axes - 1; ++k) place->strides[k] /= run;
    }
    return copy;
  }
};

/// Whether the copies, which do not overlap, leave elements of `target` unwritten.
inline bool leaves_gaps(std::span<const StridedCopy> copies, const TensorView& target) {
  std::int64_t written = 0;
  for (const StridedCopy& copy : copies) written += copy.count();
  return written < static_cast<std::int64_t>(target.size());
}

}  // namespace lockstep::inline v0::model
