// Cuts the flat gradient into ranges that are reduced as soon as backward has completed them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/allreduce/communication_thread.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/reduction.h"
#include "lockstep/allreduce/streamed_sum.h"
#include "lockstep/device/buffer.h"

namespace lockstep::allreduce {

/// How a flat gradient is cut and sent.
struct BucketOptions {
  std::size_t first_bytes = std::size_t{1} << 20;  ///< small, so that communication starts early
  std::size_t bytes = std::size_t{25} << 20;       ///< size of a bucket; one ends with the parameter that reaches it
  WireType wire = WireType::float32;               ///< the type in which elements travel
};

/// One range of the flat gradient, in elements.
struct BucketRange {
  std::size_t begin = 0;    ///< first element
  std::size_t end = 0;      ///< behind the last one
  std::size_t entries = 0;  ///< parameters in it
};

/// Ranges over parameters of `counts` elements each (padding included) in the order backward completes them: a bucket
/// closes when it has reached its size, and a parameter is never split.
std::vector<BucketRange> plan_buckets(std::span<const std::size_t> counts, const BucketOptions& options);

/// Where a step's time went, in seconds of the host since construction.
struct CommunicationTimes {
  double exposed = 0;  ///< the computation stood still for communication
  double waited = 0;   ///< of it, before all members had come: the time of whoever came last

  /// Both times added: those of several groups, or of several stretches.
  CommunicationTimes operator+(const CommunicationTimes& others) const {
    return {exposed + others.exposed, waited + others.waited};
  }
  /// What came since `earlier`.
  CommunicationTimes operator-(const CommunicationTimes& earlier) const {
    return {exposed - earlier.exposed, waited - earlier.waited};
  }
};

/// How a 16-bit wire type changed the sum of one step.
struct WireError {
  double relative = 0;  ///< norm of the difference over norm of the float32 sum
  double largest = 0;   ///< largest difference of an element
};

/// Sums one replica's flat gradient over its group, bucket by bucket.
///
/// Each step: `ready(i)` for every parameter, in flat order, as backward completes it; then `finish()`. Exactly one
/// reduction per bucket and step. Where the group overlaps (Communicator::overlaps) a bucket's reduction starts on a
/// thread of its own when its last parameter is ready, while backward goes on; the last bucket has nothing left to
/// overlap with and runs on the calling thread. Where members share memory reducing is the cores' own work: all buckets
/// wait for finish(), so that replicas wait for each other once a step.
///
/// Gradients on a GPU are complete when the work that is on its stream has come so far: then ready(i) puts a bucket's
/// reduction behind that work, on a stream beside, and finish() makes the stream wait for all of them. The host awaits
/// nothing and reads no value; it needs a thread only where it moves the bytes itself (Communicator::moves_on_host).
class GradientBuckets {
 public:
  /// `gradients` is the flat gradient, owned by the caller and outliving this object; parameter i begins at offsets[i]
  /// elements and ends where the next begins. The last `exact_entries` entries travel as float32 whatever the wire type
  /// (and then in a bucket of their own). `compute` is the stream that computes gradients in the memory of a GPU, and
  /// outlives this object; null, or a stream of the CPU, for gradients in host memory. Reductions beside the
  /// computation are done by `thread`, where one is given that others use as well.
  GradientBuckets(Communicator group, std::span<float> gradients, std::span<const std::size_t> offsets,
                  const BucketOptions& options = {}, std::size_t exact_entries = 0, device::Stream* compute = nullptr,
                  std::shared_ptr<CommunicationThread> thread = nullptr);
  ~GradientBuckets();  ///< waits for the reductions under way
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// The gradient of `parameter` is complete for this step, or will be when the computing stream has come here; once a
  /// step for each parameter, in any order. Throws Error (communication) if a reduction on a GPU could not begin.
  void ready(std::size_t parameter);
  /// Launches what is left (parameters without a gradient this step count as they stand: zero) and waits for all
  /// buckets; for those on a GPU its stream does. Throws Error (communication) if a reduction failed: then the gradient
  /// is not to be used.
  void finish();

  /// Sums `values`, which are none of the gradient, over the group, in the middle of a step: after the work on `stream`
  /// and before what follows there. It takes its turn among the buckets that are under way, and so must come at the
  /// same place between the calls of ready() on all members. Its time counts as times() do. Throws Error
  /// (communication).
  void sum(std::span<float> values, device::Stream& stream);

  /// How the host's part of a reduction is done: at once, unless a step is being recorded whose reductions are not part
  /// of the recording. Then `aside` sees to it that each comes at its place (device::Recorder::pause), also when the
  /// recording is launched: calls of ready() are left out there. Empty: at once again.
  using Aside = std::function<void(std::function<void()> on_host)>;
  /// Has `aside` called around what a recording cannot hold; see Aside.
  void set_aside(Aside aside) { aside_ = std::move(aside); }

  /// Cuts anew, into buckets of `bytes` (BucketOptions::bytes; the first is no larger). Between steps, the same on all
  /// members.
  void set_bytes(std::size_t bytes);

  /// The ranges, in the order of their reduction.
  std::span<const BucketRange> buckets() const { return buckets_; }
  /// Reductions launched since construction; a test counts them.
  std::size_t launched() const { return launched_; }
  /// Seconds since the start in which this replica stood still for communication.
  const CommunicationTimes& times() const { return times_; }

  /// Reduces in the next step's buckets both ways, and remembers how far apart they come. Of no use for float32.
  void measure_wire_error() { measures_error_ = true; }
  /// What measure_wire_error() found, the same on all members; zeros before.
  const WireError& wire_error() const { return wire_error_; }

 private:
  void plan();
  void reserve_wire(std::size_t values);
  void start_step();
  void settle() const;
  void aside(std::function<void()> on_host);
  void launch_next();
  void launch_rest();
  void sum_now(std::span<float> values, device::Stream& stream);
  void reduce(std::size_t bucket, const device::Event* ready = nullptr);
  void reduce_values(std::size_t bucket);
  void reduce_on_gpu(std::size_t bucket, const device::Event& ready);
  bool starts_early() const { return thread_ || (streamed_ && group_.overlaps()); }
  std::span<float> values_of(std::size_t bucket) const;
  double seconds_waited_since(std::chrono::steady_clock::time_point begin) const;
  template <typename Half>
  void reduce_as(const Communicator& group, std::span<float> values);
  static float scale_for(const Communicator& group, std::span<const float> values);
  void add_error(std::span<const float> narrow, std::span<const float> exact);

  Communicator group_;
  std::span<float> gradients_;
  BucketOptions options_;
  std::vector<std::size_t> counts_;  // elements of each parameter
  std::size_t exact_entries_;
  std::vector<BucketRange> buckets_;
  std::size_t first_exact_ = 0;         // the first bucket that travels as float32
  std::vector<std::size_t> bucket_of_;  // for each parameter
  std::vector<bool> is_ready_;          // for each parameter
  std::vector<std::size_t> missing_;    // for each bucket: parameters that are not ready
  std::size_t next_ = 0;                // the bucket to launch next
  std::size_t launched_ = 0;
  Aside aside_;
  CommunicationTimes times_;
  // The rest is used by whoever reduces: one bucket at a time.
  struct Wait {
    std::chrono::steady_clock::time_point begin;
    double seconds = 0;
  };
  std::unique_ptr<StreamedSum> streamed_;  // null for gradients in host memory
  std::vector<Wait> waits_;                // for other members to come, of each reduction of this step
  device::Buffer wire_;  // room for the largest bucket as 16-bit floats; nothing where all travels as float32
  bool measures_error_ = false;
  double squared_error_ = 0;
  double squared_norm_ = 0;
  WireError wire_error_;
  std::shared_ptr<CommunicationThread> shared_thread_;  // null: this object makes its own where it needs one
  std::shared_ptr<CommunicationThread> thread_;
};

}  // namespace lockstep::allreduce
