// Fault injection on one rank of a training.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::inline v0::faults {

/// The kind, place and time of a fault.
struct Fault {
  std::string kind = "none";  ///< one of kinds()
  int rank = 1;
  std::int64_t step = 5;  ///< steps done before it
};

/// The kinds of faults with their help texts.
const std::vector<std::pair<std::string, std::string>>& kinds();

/// Injects a fault on its rank; does nothing on other ranks.
class FaultInjector {
 public:
  /// `rank`: the calling rank. `sample`: the first sample of its last replica in a global batch.
  FaultInjector(Fault fault, int rank, std::int64_t sample)
      : fault_(std::move(fault)), is_here_(rank == fault_.rank), sample_(sample) {}

  /// Whether the fault is on this rank and of this kind.
  bool is(const std::string& kind) const { return is_here_ && fault_.kind == kind; }
  /// Whether it is also due at this step.
  bool is(const std::string& kind, std::int64_t step) const {
    return is(kind) && step == fault_.step;
  }
  std::int64_t step() const { return fault_.step; }
  /// Whether `pass` belongs to the failing replica.
  bool is_failing_replica(const model::PassContext& pass) const {
    return pass.first_sample == sample_;
  }

  /// Injects faults of the process between two steps.
  void inject_before_step(std::int64_t step) const;
  /// Injects faults of the process or the model between two steps.
  void inject_before_step(std::int64_t step, Trainer& trainer) const;
  /// Injects faults when half of the gradients are complete.
  void inject_in_backward(std::int64_t step) const;
  /// Hangs in the prefetching thread; wait_for_sleeping_reader() waits until it does.
  [[noreturn]] void sleep_while_reading() const;
  void wait_for_sleeping_reader() const;

 private:
  Fault fault_;
  bool is_here_;
  std::int64_t sample_;
  mutable std::atomic<bool> reader_sleeps_ = false;
};

/// An identity layer that injects a fault into the backward pass of the last replica of its rank.
/// At that point, the gradients of the layers after it are complete.
class FaultyLayer final : public CustomLayer {
 public:
  explicit FaultyLayer(std::shared_ptr<const FaultInjector> injector)
      : injector_(std::move(injector)) {}

  std::string kind() const override { return "faulty"; }
  model::Shape build(model::BuildContext& context) const override { return context.input(); }
  void forward(const model::Tensors& tensors, const model::PassContext& pass) const override;
  void backward(const model::Tensors& tensors, const model::PassContext& pass) const override;

 private:
  std::shared_ptr<const FaultInjector> injector_;
};

/// `dataset` with slow or hanging reads, depending on the fault. `part`: records per step of this
/// rank; `batch`: of all ranks.
Dataset with_faulty_reading(const Dataset& dataset, std::shared_ptr<const FaultInjector> injector,
                            std::int64_t part, std::int64_t batch);

}  // namespace lockstep::inline v0::faults
