// What can go wrong on one rank of a training, on purpose.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::faults {

/// What goes wrong, where and when.
struct Fault {
  std::string kind = "none";  ///< one of kinds()
  int rank = 1;
  std::int64_t step = 5;  ///< steps done before it
};

/// Each with what it does, for the help.
const std::vector<std::pair<std::string, std::string>>& kinds();

/// A fault as one rank has it: nothing happens on the others.
class Mischief {
 public:
  /// `rank`: the calling one. `sample`: the first of a global batch that its last replica computes.
  Mischief(Fault fault, int rank, std::int64_t sample)
      : fault_(std::move(fault)), is_here_(rank == fault_.rank), sample_(sample) {}

  /// Whether it is this rank's, and of this kind.
  bool is(const std::string& kind) const { return is_here_ && fault_.kind == kind; }
  /// The same, at this step.
  bool is(const std::string& kind, std::int64_t step) const {
    return is(kind) && step == fault_.step;
  }
  std::int64_t step() const { return fault_.step; }
  /// Whether `pass` is that of the replica that fails.
  bool is_of(const model::PassContext& pass) const { return pass.first_sample == sample_; }

  /// What happens between two steps, to a process.
  void strike_before(std::int64_t step) const;
  /// The same, or to a model.
  void strike_before(std::int64_t step, Trainer& trainer) const;
  /// What happens when half of the gradients are complete.
  void strike_in_backward(std::int64_t step) const;
  /// What happens to what reads ahead; the rest of the fault waits for it.
  [[noreturn]] void sleep_while_reading() const;
  void wait_for_sleeping_reader() const;

 private:
  Fault fault_;
  bool is_here_;
  std::int64_t sample_;
  mutable std::atomic<bool> reader_sleeps_ = false;
};

/// A layer that hands on what it gets, both ways, and in backward does what the fault asks, on the
/// last replica of its rank: between the layers behind it, whose gradients are complete by then,
/// and those before it.
class FaultyLayer final : public CustomLayer {
 public:
  explicit FaultyLayer(std::shared_ptr<const Mischief> mischief) : mischief_(std::move(mischief)) {}

  std::string kind() const override { return "faulty"; }
  model::Shape build(model::BuildContext& context) const override { return context.input(); }
  void forward(const model::Tensors& tensors, const model::PassContext& pass) const override;
  void backward(const model::Tensors& tensors, const model::PassContext& pass) const override;

 private:
  std::shared_ptr<const Mischief> mischief_;
};

/// `dataset` with reading that is slow, or never ends, where the fault asks for it. `part`: records
/// of a step that this rank reads, of `batch` that all do.
Dataset with_faulty_reading(const Dataset& dataset, std::shared_ptr<const Mischief> mischief,
                            std::int64_t part, std::int64_t batch);

}  // namespace lockstep::faults
