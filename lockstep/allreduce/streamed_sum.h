// Sums over a group, put on a stream of a GPU beside the one that computes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/reduction.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce {

/// For values in the memory of a GPU. Sums run in the order of their calls, on a stream that follows the computing one
/// where it is told to; the host awaits none of them, but for a group whose bytes it moves itself
/// (Communicator::moves_on_host).
class StreamedSum {
 public:
  /// `compute` outlives this object. `wire` is what values travel as.
  StreamedSum(const Communicator& group, device::Stream& compute, WireType wire);
  /// Waits for the sums under way, so that values cannot die under them; some seconds at most, since a GPU that has
  /// failed may never come to their end.
  ~StreamedSum();
  StreamedSum(const StreamedSum&) = delete;
  StreamedSum& operator=(const StreamedSum&) = delete;

  /// Makes room for as many `values` to travel in 16 bits. While no sum is under way.
  void reserve(std::size_t values);

  /// This moment of the computing stream.
  device::Event mark() { return compute_.record(); }

  /// Puts the sum of `values` over `group` on the stream, after `ready`.
  void add_exact(const Communicator& group, std::span<float> values, const device::Event& ready);
  /// The same for values that travel as `wire`: they are scaled, rounded, summed, and widened again.
  void add(const Communicator& group, std::span<float> values, const device::Event& ready);

  /// The same sum, as it travelled and as float32 would have given it.
  struct Both {
    std::vector<float> narrow;  ///< with the elements of the wire's type
    std::vector<float> exact;   ///< in float32
  };
  /// add(), and what add_exact() would have made of the values. Waits for both.
  Both add_both_ways(const Communicator& group, std::span<float> values, const device::Event& ready);

  /// Everything later on the computing stream comes after the sums put until now.
  void join() { compute_.wait(stream_.record()); }

 private:
  template <typename Half>
  void add_as(const Communicator& group, std::span<float> values);
  void reduce(const Communicator& group, std::span<float> values, ReduceOp op = ReduceOp::sum);

  device::Stream& compute_;
  device::Stream stream_;
  WireType wire_;
  Communicator group_;
  device::Buffer largest_;  // magnitude of all members' values: one float
  device::Buffer halves_;
};

}  // namespace lockstep::allreduce
