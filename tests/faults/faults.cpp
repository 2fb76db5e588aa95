#include "tests/faults/faults.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/replica/local_replicas.h"

namespace lockstep::faults {
namespace {

constexpr std::chrono::milliseconds kSlowness(200);  // of each step of a straggler
constexpr std::chrono::milliseconds kSlowInput(
    300);  // beside the computation of a step, which hides some of it

constexpr double kComputingSeconds = 5;  // longer than two stall timeouts of the tests

void compute() {
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < kComputingSeconds) continue;
}

[[noreturn]] void wait_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// The lowest bit of the mantissa, of a weight in the middle of the second layer's kernel: nothing
// that a loss would show.
void flip_one_bit(strategy::Replica& replica) {
  const auto& entries = replica.model().parameter_table().entries();
  const auto kernel = std::ranges::find(entries, "dense_1/kernel", &model::ParameterInfo::name);
  float& weight = replica.model().parameters()[kernel->offset + kernel->count / 2];
  weight = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) ^ 1U);
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& kinds() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"none", "nothing"},
      {"killed", "SIGKILL before a step"},
      {"stopped", "SIGSTOP before a step"},
      {"computes", "computes for 5 s before a step, and reports nothing"},
      {"returns", "ends its loop before a step, and its session"},
      {"sleeps", "sleeps for ever before a step"},
      {"sleeps-in-backward", "sleeps for ever when half of the gradients are complete"},
      {"sleeps-in-input", "sleeps for ever while it reads"},
      {"layout", "has one layer of another size"},
      {"leaves", "ends without a word before a step, with status 0"},
      {"leaves-before-training", "returns from main while the others begin to train"},
      {"leaves-after-training", "ends without MPI_Finalize after the training, with status 0"},
      {"throws", "throws an exception before a step"},
      {"throws-before-the-replicas", "throws an exception while the others set up the replicas"},
      {"throws-before-training", "throws an exception while the others begin to train"},
      {"throws-and-sleeps",
       "throws an exception before a step, while what reads ahead sleeps for ever"},
      {"stops-and-sleeps",
       "asks for the end of the training after a step, while what reads ahead sleeps for ever"},
      {"throws-in-backward", "throws an exception when half of the gradients are complete"},
      {"fails-in-backward",
       "throws an error of communication when half of the gradients are complete"},
      {"flips-a-bit", "changes one bit of one weight before a step"},
      {"slow-backward", "takes 200 ms more in every backward"},
      {"slow-input", "takes 300 ms to read each step's records, beside the step before"}};
  return all;
}

void Mischief::strike_before(std::int64_t step) const {
  if (is("killed", step)) std::raise(SIGKILL);
  if (is("stopped", step)) std::raise(SIGSTOP);
  if (is("computes", step)) compute();
  if (is("sleeps", step)) wait_for_ever();
  if (is("leaves", step)) _exit(0);
  if (is("throws-and-sleeps", step)) wait_for_sleeping_reader();
  if (is("throws", step) || is("throws-and-sleeps", step))
    throw std::runtime_error("a shard cannot be read");
}

void Mischief::strike_before(std::int64_t step, Trainer& trainer) const {
  strike_before(step);
  if (is("flips-a-bit", step)) flip_one_bit(trainer.replicas()[0]);
}

void Mischief::strike_in_backward(std::int64_t step) const {
  if (is("sleeps-in-backward", step)) wait_for_ever();
  if (is("throws-in-backward", step)) throw std::runtime_error("a layer cannot go on");
  if (is("fails-in-backward", step))
    throw Error(ErrorCategory::communication, "layer", "expected an answer",
                "a layer has lost its connection");
  if (is("slow-backward")) std::this_thread::sleep_for(kSlowness);
}

void Mischief::sleep_while_reading() const {
  reader_sleeps_ = true;
  wait_for_ever();
}

void Mischief::wait_for_sleeping_reader() const {
  while (!reader_sleeps_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void FaultyLayer::forward(const model::Tensors& tensors, const model::PassContext& /*pass*/) const {
  std::ranges::copy(tensors.inputs[0], tensors.output.begin());
}

void FaultyLayer::backward(const model::Tensors& tensors, const model::PassContext& pass) const {
  if (mischief_->is_of(pass)) mischief_->strike_in_backward(pass.step);
  if (!tensors.input_gradients[0].empty())
    std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
}

Dataset with_faulty_reading(const Dataset& dataset, std::shared_ptr<const Mischief> mischief,
                            std::int64_t part, std::int64_t batch) {
  return dataset.map([mischief = std::move(mischief), part, batch](data::Sample& /*sample*/,
                                                                   const data::SampleKey& key) {
    if (mischief->is("slow-input")) std::this_thread::sleep_for(kSlowInput / part);
    // Records come in the order of their ids, `part` to a step.
    const bool sleeps_behind =
        mischief->is("throws-and-sleeps") || mischief->is("stops-and-sleeps");
    if (sleeps_behind && key.record_id >= batch * (mischief->step() + 1))
      mischief->sleep_while_reading();
    if (mischief->is("sleeps-in-input") && key.record_id >= part * mischief->step())
      wait_for_ever();
  });
}

}  // namespace lockstep::faults
