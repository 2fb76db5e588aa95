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

namespace lockstep::inline v0::faults {
namespace {

constexpr std::chrono::milliseconds kSlowness(200);   // extra time per step of a straggler
constexpr std::chrono::milliseconds kSlowInput(300);  // partly hidden by the computation of a step

constexpr double kComputingSeconds = 5;  // longer than two stall timeouts of the tests

void compute() {
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < kComputingSeconds) continue;
}

[[noreturn]] void wait_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Flips the lowest bit of the mantissa of a weight in the second layer's kernel, which no loss
// reveals.
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
      {"computes", "computes for 5 s before a step without reporting progress"},
      {"returns", "ends its loop and its session before a step"},
      {"sleeps", "sleeps for ever before a step"},
      {"sleeps-in-backward", "sleeps for ever when half of the gradients are complete"},
      {"sleeps-in-input", "sleeps for ever while it reads"},
      {"layout", "has one layer of another size"},
      {"leaves", "exits silently before a step, with status 0"},
      {"leaves-before-training", "returns from main while the others begin to train"},
      {"leaves-after-training", "ends without MPI_Finalize after the training, with status 0"},
      {"throws", "throws an exception before a step"},
      {"throws-before-the-replicas", "throws an exception while the others set up the replicas"},
      {"throws-before-training", "throws an exception while the others begin to train"},
      {"throws-and-sleeps",
       "throws an exception before a step, while the prefetching thread sleeps for ever"},
      {"stops-and-sleeps",
       "requests the end of the training after a step, while the prefetching thread sleeps for "
       "ever"},
      {"throws-in-backward", "throws an exception when half of the gradients are complete"},
      {"fails-in-backward", "throws a communication error when half of the gradients are complete"},
      {"flips-a-bit", "changes one bit of one weight before a step"},
      {"slow-backward", "takes 200 ms more in every backward pass"},
      {"slow-input",
       "takes 300 ms to read each step's records, overlapped with the previous step"}};
  return all;
}

void FaultInjector::inject_before_step(std::int64_t step) const {
  if (is("killed", step)) std::raise(SIGKILL);
  if (is("stopped", step)) std::raise(SIGSTOP);
  if (is("computes", step)) compute();
  if (is("sleeps", step)) wait_for_ever();
  if (is("leaves", step)) _exit(0);
  if (is("throws-and-sleeps", step)) wait_for_sleeping_reader();
  if (is("throws", step) || is("throws-and-sleeps", step))
    throw std::runtime_error("a shard cannot be read");
}

void FaultInjector::inject_before_step(std::int64_t step, Trainer& trainer) const {
  inject_before_step(step);
  if (is("flips-a-bit", step)) flip_one_bit(trainer.replicas()[0]);
}

void FaultInjector::inject_in_backward(std::int64_t step) const {
  if (is("sleeps-in-backward", step)) wait_for_ever();
  if (is("throws-in-backward", step)) throw std::runtime_error("a layer cannot go on");
  if (is("fails-in-backward", step))
    throw Error(ErrorCategory::communication, "layer", "expected an answer",
                "a layer has lost its connection");
  if (is("slow-backward")) std::this_thread::sleep_for(kSlowness);
}

void FaultInjector::sleep_while_reading() const {
  reader_sleeps_ = true;
  wait_for_ever();
}

void FaultInjector::wait_for_sleeping_reader() const {
  while (!reader_sleeps_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void FaultyLayer::forward(const model::Tensors& tensors, const model::PassContext& /*pass*/) const {
  std::ranges::copy(tensors.inputs[0], tensors.output.begin());
}

void FaultyLayer::backward(const model::Tensors& tensors, const model::PassContext& pass) const {
  if (injector_->is_failing_replica(pass)) injector_->inject_in_backward(pass.step);
  if (!tensors.input_gradients[0].empty())
    std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
}

Dataset with_faulty_reading(const Dataset& dataset, std::shared_ptr<const FaultInjector> injector,
                            std::int64_t part, std::int64_t batch) {
  return dataset.map([injector = std::move(injector), part, batch](data::Sample& /*sample*/,
                                                                   const data::SampleKey& key) {
    if (injector->is("slow-input")) std::this_thread::sleep_for(kSlowInput / part);
    // Records are in the order of their ids, `part` per step.
    const bool reader_hangs = injector->is("throws-and-sleeps") || injector->is("stops-and-sleeps");
    if (reader_hangs && key.record_id >= batch * (injector->step() + 1))
      injector->sleep_while_reading();
    if (injector->is("sleeps-in-input") && key.record_id >= part * injector->step())
      wait_for_ever();
  });
}

}  // namespace lockstep::inline v0::faults
