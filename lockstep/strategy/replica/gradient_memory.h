// Memory for the flat gradient of one replica, which its group reduces in place, and for the step
// scalars after it.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/allreduce/buckets/straggler.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/loss/loss.h"

namespace lockstep::inline v0::strategy {

/// The contribution of one replica to a step, or the sum over all replicas.
struct StepReport {
  model::MetricSums metrics = {};  ///< sums of a good step, without the number of classes
  /// Replicas whose loss was not finite; their metrics count 0 samples.
  std::int64_t non_finite = 0;
  bool is_finite = true;       ///< whether the sum of all losses is finite
  std::int64_t terminate = 0;  ///< number of ranks that received SIGTERM
  std::int64_t interrupt = 0;  ///< number of ranks that received SIGINT
  std::int64_t hangup = 0;     ///< number of ranks that received SIGHUP

  /// The signal that ends the job; 0 for none. The largest number of several, as in StopDecision,
  /// which uses a maximum over ranks.
  int signal() const { return terminate ? SIGTERM : interrupt ? SIGINT : hangup ? SIGHUP : 0; }
  /// Counts this rank's `signal`; 0 for none.
  void add_signal(int signal);

  /// Writes the signals after the model::SummableMetrics, which the model writes at the beginning
  /// of the step scalars.
  void write_signals(std::span<float> step_scalars) const;
  /// Reads the report from the summed step scalars.
  static StepReport read(std::span<const float> step_scalars);
};

/// The allocator of the model's flat gradient. After the gradient are the step scalars: control
/// values that are summed over the replicas in the gradient's last bucket, without an additional
/// message. Must outlive the model.
class GradientMemory final : public device::Allocator {
 public:
  /// Number of step scalars for the whole job; they are first.
  static constexpr std::size_t kReport = 16;
  /// Number of step scalars per replica; they follow in replica order.
  static constexpr std::size_t kPerReplica = 3;

  /// `group`: the replicas, each of which has its own step scalars.
  explicit GradientMemory(allreduce::Communicator group) : group_(std::move(group)) {}

  /// Must be called once, by the model.
  device::Buffer allocate(std::size_t bytes) override;

  /// Gradient and step scalars: the buffer to reduce.
  std::span<float> all() const { return memory_.as<float>(); }
  /// Offset of the step scalars in all(), in elements.
  std::size_t gradient_size() const { return all().size() - step_scalar_count(); }
  /// The step scalars of the job and of all replicas.
  std::span<float> step_scalars() const { return all().last(step_scalar_count()); }
  /// The step scalars of the job.
  std::span<float> report() const { return step_scalars().first(kReport); }
  /// The part of `step_scalars` (or of a copy) that belongs to `replica`.
  static std::span<float> of_replica(std::span<float> step_scalars, int replica) {
    return step_scalars.subspan(kReport + static_cast<std::size_t>(replica) * kPerReplica,
                                kPerReplica);
  }

 private:
  std::size_t step_scalar_count() const {
    return kReport + static_cast<std::size_t>(group_.size()) * kPerReplica;
  }

  allreduce::Communicator group_;
  device::Buffer memory_;
};

/// The host's part of the step scalars of one replica: its contribution to a step, and the sums.
class StepScalars {
 public:
  /// `memory` must outlive this object. `device`: that of the model.
  StepScalars(const GradientMemory& memory, allreduce::Communicator group, device::Device device);

  /// Sets the host's values of a step: the signal that this rank has received (0 for none), and its
  /// times. The sums of the losses are written on the model's device.
  void stage(int signal, const allreduce::BusySeconds& busy);
  /// Enqueues the copy of the staged values to the gradient's last bucket.
  void write(device::Stream& stream) const;
  /// Enqueues the copy of the sums to the host.
  void fetch(device::Stream& stream);
  /// Records the end of the work that read() waits for.
  void end_step(device::Stream& stream);
  /// Waits for the end of the step, and returns the report that was fetched. Throws Error
  /// (communication) if another replica failed.
  StepReport read();
  /// Busy time of each replica of the job in the step that was read.
  std::span<const allreduce::BusySeconds> busy() const { return busy_; }

 private:
  const GradientMemory& memory_;
  allreduce::Communicator group_;
  device::Buffer staged_;             // this host's values and zeros, then the fetched sums
  std::optional<device::Event> end_;  // end of the step
  std::vector<allreduce::BusySeconds> busy_;
};

}  // namespace lockstep::inline v0::strategy
