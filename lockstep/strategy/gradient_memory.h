// The flat gradient of one replica, in memory that its group reduces in place, with room for a few numbers that travel
// along.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/buffer.h"

namespace lockstep::strategy {

/// Handed to the model as the place of its flat gradient. Behind the gradient lie its passengers: control values that
/// are summed over the replicas in the gradient's last bucket, at no further message. Must outlive the model.
class GradientMemory final : public device::Allocator {
 public:
  /// Numbers of the job as a whole, the first passengers.
  static constexpr std::size_t kReport = 16;
  /// Numbers of each replica, in replica order, behind them.
  static constexpr std::size_t kPerReplica = 2;

  /// For the replicas of `group`: each has numbers of its own among the passengers.
  explicit GradientMemory(allreduce::Communicator group) : group_(std::move(group)) {}

  /// To be called once, by the model.
  device::Buffer allocate(std::size_t bytes) override;

  /// Gradient and passengers: what is to be reduced.
  std::span<float> all() const { return memory_.as<float>(); }
  /// Where the passengers begin, in elements of all().
  std::size_t gradient_size() const { return all().size() - passenger_count(); }
  std::span<float> passengers() const { return all().last(passenger_count()); }  ///< all of them
  std::span<float> report() const { return passengers().first(kReport); }        ///< the numbers of the job
  /// Among `passengers`, here or where they are copied to.
  static std::span<float> of_replica(std::span<float> passengers, int replica) {
    return passengers.subspan(kReport + static_cast<std::size_t>(replica) * kPerReplica, kPerReplica);
  }

 private:
  std::size_t passenger_count() const { return kReport + static_cast<std::size_t>(group_.size()) * kPerReplica; }

  allreduce::Communicator group_;
  device::Buffer memory_;
};

}  // namespace lockstep::strategy
