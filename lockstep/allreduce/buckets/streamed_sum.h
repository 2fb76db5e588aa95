// Sums over a group on a separate GPU stream, overlapped with the computation.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::allreduce {

/// For values in GPU memory. Sums run in call order on a separate stream, which waits for events of
/// the computing stream. The host does not wait for them, except in a group whose bytes it moves
/// itself (Communicator::moves_on_host).
class StreamedSum {
 public:
  /// `compute` must outlive this object. `wire` is the type of values in communication.
  StreamedSum(const Communicator& group, device::Stream& compute, WireType wire);
  /// Waits for pending sums, so that the values outlive them; a few seconds at most, because a GPU
  /// that has failed may never complete them.
  ~StreamedSum();
  StreamedSum(const StreamedSum&) = delete;
  StreamedSum& operator=(const StreamedSum&) = delete;

  /// Allocates a 16-bit buffer for `values` values. Call it while no sum is pending.
  void reserve(std::size_t values);

  /// While on, the host waits for each sum before it returns.
  void set_host_waits(bool on) { host_waits_ = on; }

  /// Records an event on the computing stream.
  device::Event mark() { return compute_.record(); }

  /// Enqueues the sum of `values` over `group` after `ready`.
  void add_exact(const Communicator& group, std::span<float> values, const device::Event& ready);
  /// Enqueues the sum in the type `wire`: values are scaled, rounded, summed, and widened again.
  void add(const Communicator& group, std::span<float> values, const device::Event& ready);

  /// The sums of add_in_both_types().
  struct Both {
    std::vector<float> narrow;  ///< in the type `wire`
    std::vector<float> exact;   ///< in float32
  };
  /// Computes the results of add() and of add_exact(), and waits for both.
  Both add_in_both_types(const Communicator& group, std::span<float> values,
                         const device::Event& ready);

  /// Makes later work on the computing stream wait for the sums enqueued so far.
  void join() { compute_.wait(stream_.record()); }

 private:
  template <typename Half>
  void add_as(const Communicator& group, std::span<float> values);
  template <typename T>
  void reduce(const Communicator& group, std::span<T> values, ReduceOp op = ReduceOp::sum);

  device::Stream& compute_;
  device::Stream stream_;
  WireType wire_;
  Communicator group_;
  device::Buffer largest_;  // one float: the largest magnitude of all members' values
  device::Buffer halves_;
  bool host_waits_ = false;
};

}  // namespace lockstep::inline v0::allreduce
