// Reduces the flat gradient in buckets, as soon as the backward pass has completed them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/allreduce/buckets/streamed_sum.h"
#include "lockstep/allreduce/communication_thread.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::allreduce {

/// One range of the flat gradient, in elements.
struct BucketRange {
  std::size_t begin = 0;    ///< first element
  std::size_t end = 0;      ///< one past the last element
  std::size_t entries = 0;  ///< number of parameters
};

/// Splits parameters of `counts` elements each (including padding), in the order in which the
/// backward pass completes them. A bucket is closed when it has reached its size; a parameter is
/// never split.
std::vector<BucketRange> plan_buckets(std::span<const std::size_t> counts,
                                      const BucketOptions& options);

/// The error of a 16-bit type in the sum of one step.
struct WireError {
  double relative = 0;  ///< norm of the difference over norm of the float32 sum
  double largest = 0;   ///< largest difference of an element
};

/// Sums one replica's flat gradient over its group in buckets.
///
/// In each step, call `ready(i)` for every parameter, in flat order, when the backward pass has
/// completed it, then `finish()`. There is exactly one reduction per bucket and step. If the group
/// overlaps (Communicator::overlaps), the reduction of a bucket starts on a separate thread when
/// its last parameter is ready, and overlaps with the backward pass. The last bucket has nothing to
/// overlap with and runs on the calling thread. If members share memory, the cores that compute
/// also reduce, so all buckets wait for finish(), and replicas wait for each other once per step.
///
/// Gradients on a GPU are complete when the work on its stream has reached this point. ready(i)
/// enqueues a bucket's reduction after that work, on a separate stream, and finish() makes the
/// computing stream wait for all of them. The host does not wait and reads no value. It needs a
/// thread only if it moves the bytes itself (Communicator::moves_on_host).
class GradientBuckets {
 public:
  /// `gradients` is the flat gradient, which the caller owns and which must outlive this object.
  /// Parameter i begins at offsets[i] elements and ends where the next one begins. The last
  /// `exact_entries` entries are sent as float32 with any wire type (in a separate bucket if it is
  /// 16-bit). `compute` is the stream that computes gradients in GPU memory and must outlive this
  /// object; null, or a CPU stream, for gradients in host memory. `thread` runs overlapped
  /// reductions and may be shared; null: this object creates one if needed.
  GradientBuckets(Communicator group, std::span<float> gradients,
                  std::span<const std::size_t> offsets, const BucketOptions& options = {},
                  std::size_t exact_entries = 0, device::Stream* compute = nullptr,
                  std::shared_ptr<CommunicationThread> thread = nullptr);
  ~GradientBuckets();  ///< waits for pending reductions
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Reports that the gradient of `parameter` is complete for this step, or will be when the
  /// computing stream reaches this point. Once per step for each parameter, in any order. Throws
  /// Error (communication) if a reduction on a GPU could not start.
  void ready(std::size_t parameter);
  /// Launches the remaining buckets (gradients that are not ready are reduced with their current
  /// value, zero) and waits for all buckets; on a GPU, the stream waits. Throws Error
  /// (communication) if a reduction failed: then the gradient is invalid.
  void finish();

  /// Sums `values`, which are not part of the gradient, over the group in the middle of a step:
  /// after the work on `stream` and before later work there. It is ordered with the buckets in
  /// flight, so all members must call it at the same position between their calls of ready(). Its
  /// time is included in times(). Throws Error (communication).
  void sum(std::span<float> values, device::Stream& stream);

  /// Runs the host's part of a reduction. By default it runs immediately. While a step is recorded
  /// whose reductions are not part of the recording, this function must run it at the right
  /// position (device::Recorder::pause), also when the recording is launched, where ready() is not
  /// called.
  using HostRunner = std::function<void(std::function<void()> on_host)>;
  /// Sets the function for work that cannot be recorded; empty: run it immediately.
  void set_host_runner(HostRunner runner) { host_runner_ = std::move(runner); }

  /// While on, the host waits for each reduction on a GPU before it continues. For steps in which
  /// kernels may be launched for the first time: CUDA then loads them, which may wait for all GPUs
  /// of the process, while another one already waits for this one in a reduction.
  void set_host_waits(bool on) { host_waits_ = on; }

  /// Changes the bucket size to `bytes` (BucketOptions::bytes; the first bucket is not larger).
  /// Call it between steps, with the same value on all members.
  void set_bytes(std::size_t bytes);

  /// The ranges, in the order of their reduction.
  std::span<const BucketRange> buckets() const { return buckets_; }
  /// The human-readable contents of each bucket: "conv4 .. fc1", for Activity::describe_buckets().
  /// `names`: the index of a parameter and its name, in the order of the list; a parameter may have
  /// several names. `unnamed`: the contents of a bucket without names.
  std::vector<std::string> contents(std::span<const std::pair<std::size_t, std::string_view>> names,
                                    std::string_view unnamed = "") const;
  /// Number of reductions launched since construction; for tests.
  std::size_t launched() const { return launched_; }
  /// Time since construction in which computation on this replica waited for communication.
  const CommunicationTimes& times() const { return times_; }

  /// Makes the next step reduce in both types and record the difference. Not useful for float32.
  void measure_wire_error() {
    measures_error_ = true;
    wire_error_ = {};
  }
  /// The last measured difference, the same on all members; initially zeros.
  const WireError& wire_error() const { return wire_error_; }

 private:
  void plan();
  void reserve_wire(std::size_t values);
  void start_step();
  void wait_pending() const;
  void run_on_host(std::function<void()> on_host);
  void launch_next();
  void launch_rest();
  void sum_now(std::span<float> values, device::Stream& stream);
  void reduce(std::size_t bucket, const device::Event* ready = nullptr);
  void reduce_values(std::size_t bucket);
  void reduce_on_gpu(std::size_t bucket, const device::Event& ready);
  bool host_waits() const;
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
  std::size_t first_bytes_;          // as configured; set_bytes() may lower it
  std::vector<std::size_t> counts_;  // elements of each parameter
  std::size_t exact_entries_;
  std::vector<BucketRange> buckets_;
  std::size_t first_exact_ = 0;         // the first bucket that is sent as float32
  std::vector<std::size_t> bucket_of_;  // for each parameter
  std::vector<bool> is_ready_;          // for each parameter
  std::vector<std::size_t> missing_;    // for each bucket: parameters that are not ready
  std::size_t next_ = 0;                // the bucket to launch next
  std::size_t launched_ = 0;
  HostRunner host_runner_;
  bool host_waits_ = false;
  CommunicationTimes times_;
  // The members below are used by the reducing thread, one bucket at a time.
  struct Wait {
    std::chrono::steady_clock::time_point begin;
    double seconds = 0;
  };
  std::unique_ptr<StreamedSum> streamed_;  // null for gradients in host memory
  std::vector<Wait> waits_;  // waiting for other members, for each reduction of this step
  device::Buffer
      wire_;  // 16-bit buffer for the largest bucket; empty if everything is sent as float32
  bool measures_error_ = false;
  double squared_error_ = 0;
  double squared_norm_ = 0;
  WireError wire_error_;
  std::shared_ptr<CommunicationThread>
      shared_thread_;  // null: this object creates its own if needed
  std::shared_ptr<CommunicationThread> thread_;
};

}  // namespace lockstep::inline v0::allreduce
