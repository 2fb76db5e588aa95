// Cuts the flat gradient into ranges that are reduced as soon as backward has completed them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allreduce/communicator.h"

namespace lockstep::allreduce {

struct BucketOptions {
  std::size_t first_bytes = std::size_t{1} << 20;  ///< small, so that communication starts early
  std::size_t bytes = std::size_t{25} << 20;
};

/// One range of the flat gradient, in elements.
struct BucketRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t entries = 0;  ///< parameters in it
};

/// Ranges over parameters of `counts` elements each (padding included) in the order backward completes them: a bucket
/// closes when it has reached its size, and a parameter is never split.
std::vector<BucketRange> plan_buckets(std::span<const std::size_t> counts, const BucketOptions& options);

/// Sums one replica's flat gradient over its group, bucket by bucket.
///
/// Each step: `ready(i)` for every parameter, in flat order, as backward completes it; then `finish()`. A bucket's
/// all-reduce is launched when its last parameter is ready, so exactly one reduction per bucket and step.
class GradientBuckets {
 public:
  /// `gradients` is the flat gradient, owned by the caller and outliving this object; parameter i begins at offsets[i]
  /// elements and ends where the next begins.
  GradientBuckets(Communicator group, std::span<float> gradients, std::span<const std::size_t> offsets,
                  const BucketOptions& options = {});

  /// The gradient of `parameter` is complete for this step; once a step for each parameter, in any order.
  void ready(std::size_t parameter);
  /// Launches what is left (parameters without a gradient this step count as they stand: zero) and waits for all
  /// buckets. Throws Error (communication) if a reduction failed: then the gradient is not to be used.
  void finish();

  std::span<const BucketRange> buckets() const { return buckets_; }
  /// Reductions launched since construction; a test counts them.
  std::size_t launched() const { return launched_; }

 private:
  void start_step();
  void launch_next();

  Communicator group_;
  std::span<float> gradients_;
  std::vector<BucketRange> buckets_;
  std::vector<std::size_t> bucket_of_;  // for each parameter
  std::vector<bool> is_ready_;          // for each parameter
  std::vector<std::size_t> missing_;    // for each bucket: parameters that are not ready
  std::vector<Request> requests_;
  std::size_t next_ = 0;  // the bucket to launch next
  std::size_t launched_ = 0;
};

}  // namespace lockstep::allreduce
