#include "lockstep/interop/equivalence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/interop/distributed_loop.h"
#include "tests/interop/own_network.h"
#include "tests/interop/rank_threads.h"

namespace lockstep::inline v0::interop {
namespace {

using own::Part;
using ::testing::HasSubstr;

/// What a loop does wrong.
enum class Planted {
  nothing,
  no_samples,       // backward_done() without the number of samples
  sum,              // Reduction::sum
  divides_twice,    // by the number of ranks, before the wrapper does
  drops_the_rest,   // in the last batch
  pads_the_rest,    // repeats samples, so that all ranks have the same number
  drops_silently,   // as drops_the_rest, without numbers of samples
  whole_batch,      // each rank takes the whole batch
  own_weights,      // each rank begins with its own, without a broadcast
  seed_of_rank,     // noise of a generator that is seeded with the rank
  seed_of_process,  // noise of a generator that is seeded differently in each process
  other_loss,       // a loss that is divided by the number of ranks
};

std::string name_of(Planted planted) {
  constexpr const char* kNames[] = {"nothing",        "no_samples",      "sum",
                                    "divides_twice",  "drops_the_rest",  "pads_the_rest",
                                    "drops_silently", "whole_batch",     "own_weights",
                                    "seed_of_rank",   "seed_of_process", "other_loss"};
  return kNames[static_cast<std::size_t>(planted)];
}

/// A correct loop but for `planted`. `process`: a number of the process, which a correct loop
/// does not use.
StepLosses train(job::Workers& workers, Planted planted, int process) {
  own::Samples samples = own::make_samples(own::kSamples);
  own::Network network(planted == Planted::own_weights ? static_cast<unsigned>(1 + workers.rank())
                                                       : 1U);
  own::Momentum momentum(network);
  DistributedOptimizer optimizer(
      workers, momentum,
      {.reduction = planted == Planted::sum ? Reduction::sum : Reduction::average});
  if (planted != Planted::own_weights) optimizer.broadcast_parameters();
  std::mt19937 noise(
      static_cast<unsigned>(planted == Planted::seed_of_process ? process : workers.rank()));
  StepLosses losses;
  for (int step = 0; step < 5; ++step) {
    const Part batch = own::batch_of(step);
    const std::size_t count = batch.end - batch.begin;
    const auto ranks = static_cast<std::size_t>(workers.size());
    Part part = batch.of(workers.rank(), workers.size());
    if (planted == Planted::whole_batch) part = batch;
    if (planted == Planted::drops_the_rest || planted == Planted::drops_silently)
      part.end = std::min(part.end, part.begin + count / ranks);
    if (planted == Planted::pads_the_rest)
      part.begin = part.end - std::min(part.end, (count + ranks - 1) / ranks);
    if (planted == Planted::seed_of_rank || planted == Planted::seed_of_process)
      for (float& input : samples.inputs)
        input += std::uniform_real_distribution<float>(-0.1F, 0.1F)(noise);
    network.zero_grad();
    double loss = network.backward(samples, part.begin, part.end);
    if (planted == Planted::divides_twice)
      for (own::Array& array : network.arrays)
        for (float& value : array.gradient) value /= static_cast<float>(ranks);
    if (planted == Planted::other_loss) loss /= workers.size();
    losses.push_back(loss);
    if (planted == Planted::no_samples || planted == Planted::drops_silently)
      optimizer.backward_done();
    else
      optimizer.backward_done(static_cast<double>(part.end - part.begin));
    optimizer.step();
  }
  return losses;
}

/// What each of `ranks` ranks finds.
std::vector<EquivalenceResult> found(
    int ranks, const std::function<StepLosses(job::Workers&, int process)>& loop) {
  std::vector<EquivalenceResult> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](job::Workers& workers) {
    const int process = workers.rank();
    all[static_cast<std::size_t>(process)] =
        verify_equivalence(workers, [&](job::Workers& some) { return loop(some, process); });
  });
  return all;
}

struct PlantedCase {
  Planted planted;
  Mistake mistake;
  std::int64_t step = 0;
  std::string text{};
  int ranks = 3;  // 28 samples are not a multiple of it
};

class VerifyEquivalence : public ::testing::TestWithParam<PlantedCase> {};

TEST_P(VerifyEquivalence, NamesTheMistake) {
  const auto results = found(GetParam().ranks, [](job::Workers& workers, int process) {
    return train(workers, GetParam().planted, process);
  });
  for (const EquivalenceResult& result : results) {
    EXPECT_EQ(result.mistake, GetParam().mistake) << result.text();
    EXPECT_EQ(result.step, GetParam().step);
    EXPECT_THAT(result.text(), HasSubstr(GetParam().text));
    EXPECT_EQ(result.text(), results.front().text());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Loops, VerifyEquivalence,
    ::testing::Values(
        PlantedCase{Planted::nothing, Mistake::none},
        PlantedCase{Planted::nothing, Mistake::none, 0, {}, 1},
        PlantedCase{Planted::nothing, Mistake::none, 0, {}, 4},
        PlantedCase{Planted::no_samples, Mistake::ranks_not_samples, 1,
                    "averaged over ranks in place of samples"},
        // The first steps have as many samples on each of two ranks; so has the last.
        PlantedCase{Planted::no_samples, Mistake::none, 0, {}, 2},
        PlantedCase{Planted::sum, Mistake::summed, 1, "3 times as large"},
        PlantedCase{Planted::divides_twice, Mistake::summed, 1, "1/3 as large"},
        PlantedCase{Planted::drops_the_rest, Mistake::last_batch, 1,
                    "27 samples together and 28 alone"},
        PlantedCase{Planted::pads_the_rest, Mistake::last_batch, 1,
                    "29 samples together and 28 alone"},
        PlantedCase{Planted::whole_batch, Mistake::whole_batch, 1,
                    "84 samples together and 28 alone"},
        PlantedCase{Planted::own_weights, Mistake::initial_weights, 1,
                    "hidden/weights on rank 1 than on rank 0: call broadcast_parameters()"},
        PlantedCase{Planted::seed_of_rank, Mistake::seed, 1, "depend on the rank"},
        PlantedCase{Planted::seed_of_process, Mistake::seed, 1, "depend on the process"},
        PlantedCase{Planted::other_loss, Mistake::losses, 1, "with equal gradients"}),
    [](const auto& param_info) {
      return name_of(param_info.param.planted) + "_on_" + std::to_string(param_info.param.ranks);
    });

// Batches of 28 are divided by 4, and the last of 16 by 4 too; a last batch of 13 is not.
TEST(VerifyEquivalence, NamesALastBatchWhoseSamplesAreNotCounted) {
  for (const EquivalenceResult& result : found(2, [](job::Workers&workers, int /*process*/) {
         const own::Samples samples = own::make_samples(own::kSamples);
         own::Network network;
         own::Momentum momentum(network);
         DistributedOptimizer optimizer(workers, momentum);
         for (const Part batch : {Part{0, 28}, Part{28, 56}, Part{56, 69}}) {
           Part part = batch.of(workers.rank(), workers.size());
           if (workers.size() > 1) part.end = std::min(part.end, part.begin + 3);
           if (batch.begin < 56) part = batch.of(workers.rank(), workers.size());
           network.zero_grad();
           network.backward(samples, part.begin, part.end);
           optimizer.backward_done();
           optimizer.step();
         }
         return StepLosses();
       })) {
    EXPECT_EQ(result.mistake, Mistake::last_batch) << result.text();
    EXPECT_EQ(result.step, 3);
    EXPECT_THAT(result.text(), HasSubstr("the steps before are equal"));
  }
}

TEST(VerifyEquivalence, NamesADroppedLastStep) {
  for (const EquivalenceResult& result : found(2, [](job::Workers&workers, int /*process*/) {
         const own::Samples samples = own::make_samples(own::kSamples);
         own::Network network;
         own::Momentum momentum(network);
         DistributedOptimizer optimizer(workers, momentum);
         const int steps = workers.size() == 1 ? 4 : 3;
         for (int step = 0; step < steps; ++step) {
           const Part part = own::batch_of(step).of(workers.rank(), workers.size());
           network.zero_grad();
           network.backward(samples, part.begin, part.end);
           optimizer.backward_done(static_cast<double>(part.end - part.begin));
           optimizer.step();
         }
         return StepLosses();
       })) {
    EXPECT_EQ(result.mistake, Mistake::last_batch);
    EXPECT_THAT(result.text(), HasSubstr("expected 4 steps, as one process makes, got 3"));
  }
}

/// y = v normalized(W x), with the mean and variance of the batch; the gradient by differences.
struct NormalizedNetwork {
  std::vector<double> weights;
  std::vector<double> output;
  std::vector<double> d_weights = std::vector<double>(weights.size());
  std::vector<double> d_output = std::vector<double>(output.size());

  double loss(const own::Samples& samples, Part part) const {
    const std::size_t count = part.end - part.begin;
    const std::size_t hidden = output.size();
    std::vector<double> y(count);
    for (std::size_t h = 0; h < hidden; ++h) {
      std::vector<double> values(count);
      double mean = 0;
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t f = 0; f < own::kInputs; ++f)
          values[i] += weights[h * own::kInputs + f] *
                       static_cast<double>(samples.inputs[(part.begin + i) * own::kInputs + f]);
        mean += values[i] / static_cast<double>(count);
      }
      double variance = 1e-5;
      for (const double value : values)
        variance += (value - mean) * (value - mean) / static_cast<double>(count);
      for (std::size_t i = 0; i < count; ++i)
        y[i] += output[h] * std::max(0.0, (values[i] - mean) / std::sqrt(variance));
    }
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double error = y[i] - static_cast<double>(samples.targets[part.begin + i]);
      sum += error * error / static_cast<double>(count);
    }
    return sum;
  }

  void backward(const own::Samples& samples, Part part) {
    const auto slope = [&](double& value) {
      constexpr double kStep = 1e-6;
      const double before = value;
      value = before + kStep;
      const double above = loss(samples, part);
      value = before - kStep;
      const double below = loss(samples, part);
      value = before;
      return (above - below) / (2 * kStep);
    };
    for (std::size_t i = 0; i < weights.size(); ++i) d_weights[i] = slope(weights[i]);
    for (std::size_t i = 0; i < output.size(); ++i) d_output[i] = slope(output[i]);
  }

  std::vector<Parameter> parameters() {
    return {{"hidden", weights, d_weights, {4, own::kInputs}}, {"output", output, d_output}};
  }
  void step() {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.1 * d_weights[i];
    for (std::size_t i = 0; i < output.size(); ++i) output[i] -= 0.1 * d_output[i];
  }
};

TEST(VerifyEquivalence, NamesStatisticsOfTheBatch) {
  for (const EquivalenceResult& result : found(2, [](job::Workers&workers, int /*process*/) {
         const own::Samples samples = own::make_samples(own::kSamples);
         NormalizedNetwork network{{}, {0.5, -0.3, 0.8, 0.1}};
         for (std::size_t i = 0; i < 4 * own::kInputs; ++i)
           network.weights.push_back(std::sin(static_cast<double>(3 * i + 1)));
         network.d_weights.resize(network.weights.size());
         DistributedOptimizer optimizer(workers, network);
         for (int step = 0; step < 3; ++step) {
           const Part part = own::batch_of(step).of(workers.rank(), workers.size());
           network.backward(samples, part);
           optimizer.backward_done(static_cast<double>(part.end - part.begin));
           optimizer.step();
         }
         return StepLosses();
       })) {
    EXPECT_EQ(result.mistake, Mistake::batch_statistics) << result.text();
    EXPECT_EQ(result.parameter, "hidden");
  }
}

TEST(VerifyEquivalence, RequiresAnOptimizerOverItsWorkers) {
  for (const std::string& error : errors_of_ranks(2, [](job::Workers& workers) {
         verify_equivalence(workers, [](job::Workers&) { return StepLosses(); });
       }))
    EXPECT_THAT(error, HasSubstr("[verify_equivalence] expected a loop that creates an optimizer"));
}

TEST(VerifyEquivalence, DoesNotChangeWhatALoopComputes) {
  run_ranks(2, [](job::Workers& workers) {
    const StepLosses plain = train(workers, Planted::nothing, 0);
    StepLosses observed;
    const EquivalenceResult result = verify_equivalence(workers, [&](job::Workers& some) {
      observed = train(some, Planted::nothing, 0);
      return observed;
    });
    EXPECT_TRUE(result);
    EXPECT_EQ(observed, plain);
    EXPECT_EQ(workers.observer(), nullptr);
  });
}

}  // namespace
}  // namespace lockstep::inline v0::interop
