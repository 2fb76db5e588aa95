#include "lockstep/interop/distributed_optimizer.h"
#include "lockstep/interop/gradient_reducer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "tests/interop/distributed_loop.h"
#include "tests/interop/rank_threads.h"

namespace lockstep::inline v0::interop {
namespace {

using own::Momentum;
using own::Network;
using ::testing::Each;
using ::testing::HasSubstr;

class Equivalence : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Equivalence, AnyRanksAndPassesEqualOneProcess) {
  const auto [ranks, passes] = GetParam();
  const std::vector<float> alone = own::train_alone();
  run_ranks(ranks, [&, passes = passes](job::Workers& workers) {
    const auto ours = own::train_as_rank(workers, {.backward_passes_per_step = passes});
    EXPECT_LT(own::relative_difference(alone, ours), 1e-6) << "rank " << workers.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Equivalence,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 4, 7)),
                         [](const auto& param_info) {
                           return std::to_string(std::get<0>(param_info.param)) + "_ranks_" +
                                  std::to_string(std::get<1>(param_info.param)) + "_passes";
                         });

TEST(DistributedOptimizer, GradientReadyDoesNotChangeTheResult) {
  const std::vector<float> alone = own::train_alone();
  run_ranks(3, [&](job::Workers& workers) {
    const auto ours =
        own::train_as_rank(workers, {.backward_passes_per_step = 2}, 1, /*announces=*/true);
    EXPECT_LT(own::relative_difference(alone, ours), 1e-6);
  });
}

TEST(DistributedOptimizer, BroadcastsInitialParameters) {
  const std::vector<float> alone = own::train_alone();
  run_ranks(3, [&](job::Workers& workers) {
    const auto ours =
        own::train_as_rank(workers, {}, static_cast<unsigned>(1 + 10 * workers.rank()));
    EXPECT_LT(own::relative_difference(alone, ours), 1e-6);
  });
}

TEST(DistributedOptimizer, BroadcastsOptimizerState) {
  run_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    momentum.velocities[1].values.assign(own::kHidden, static_cast<float>(5 + workers.rank()));
    DistributedOptimizer optimizer(workers, momentum);
    optimizer.broadcast_optimizer_state(1);
    EXPECT_THAT(momentum.velocities[1].values, Each(6));
  });
}

TEST(DistributedOptimizer, FlushesRemainingPassesOfAnEpoch) {
  run_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    const own::Samples samples = own::make_samples(10);
    DistributedOptimizer optimizer(workers, momentum, {.backward_passes_per_step = 3});
    EXPECT_FALSE(optimizer.flush());
    network.backward(samples, 0, 5);
    optimizer.backward_done(5);
    EXPECT_TRUE(optimizer.flush());
    EXPECT_EQ(momentum.steps, 1);
    EXPECT_EQ(optimizer.samples(), 10);
  });
}

TEST(DistributedOptimizer, SkipsAStepWithoutSamples) {
  run_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    DistributedOptimizer optimizer(workers, momentum);
    optimizer.backward_done(0);
    EXPECT_FALSE(optimizer.step());
    EXPECT_EQ(momentum.steps, 0);
  });
}

/// Trains one step per element of `values`, the gradient of the last rank. Returns the warnings,
/// and which steps each rank makes.
std::string warnings_of_steps(int ranks, const DistributedOptions& options,
                              const std::vector<float>& values, const std::vector<bool>& made) {
  ::testing::internal::CaptureStderr();
  run_ranks(ranks, [&](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    DistributedOptimizer optimizer(workers, momentum, options);
    for (std::size_t step = 0; step < values.size(); ++step) {
      const bool is_last = workers.rank() == workers.size() - 1;
      network.arrays[1].gradient.assign(own::kHidden, is_last ? values[step] : 1);
      optimizer.backward_done(is_last ? 3 : 2);
      EXPECT_EQ(optimizer.step(), made[step]) << step;
      EXPECT_EQ(optimizer.is_finite(), made[step] || !options.skip_non_finite) << step;
    }
    EXPECT_EQ(momentum.steps, std::ranges::count(made, true));
    const bool is_sound = std::ranges::all_of(momentum.velocities[1].values,
                                              [](float value) { return std::isfinite(value); });
    EXPECT_EQ(is_sound, options.skip_non_finite);
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(DistributedOptimizer, SkipsStepsWithNonFiniteGradientsIfEnabled) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, kNan, 2, -kInfinity};
  for (const int ranks : {1, 2, 3})
    EXPECT_EQ(
        warnings_of_steps(ranks, {.skip_non_finite = true}, values, {true, false, true, false}),
        fmt::format("lockstep: warning: step 2 skipped: non-finite gradient on rank {0}\n"
                    "lockstep: warning: step 4 skipped: non-finite gradient on rank {0}\n",
                    ranks - 1));
  EXPECT_EQ(warnings_of_steps(2, {}, values, {true, true, true, true}), "");
}

TEST(DistributedOptimizer, AllowsChangesOfReducedGradients) {
  run_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    DistributedOptimizer optimizer(workers, momentum);
    network.arrays[1].gradient.assign(own::kHidden, static_cast<float>(workers.rank()));
    optimizer.backward_done();
    optimizer.synchronize();
    EXPECT_THAT(network.arrays[1].gradient, Each(0.5F));
    for (float& value : network.arrays[1].gradient) value = 2;
    optimizer.step();
    EXPECT_THAT(momentum.velocities[1].values, Each(2));
  });
}

/// A loop that changes a gradient in one step after it was reported.
class ChangesOneGradient : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(ChangesOneGradient, IsRejectedInThatStepOnAllRanks) {
  const auto [ranks, passes, announces] = GetParam();
  constexpr int kStep = 5;
  std::vector<int> updates(static_cast<std::size_t>(ranks));
  const auto errors =
      errors_of_ranks(ranks, [&, passes = passes, announces = announces](job::Workers& workers) {
        Network network;
        Momentum momentum(network);
        DistributedOptimizer optimizer(workers, momentum, {.backward_passes_per_step = passes});
        float& last = network.arrays[0].gradient.back();
        const auto change = [&](int step) {
          if (step == kStep && workers.rank() == workers.size() - 1) last = -last;
        };
        for (int step = 0; step <= kStep; ++step) {
          for (int pass = 0; pass < passes; ++pass) {
            for (own::Array& array : network.arrays) std::ranges::fill(array.gradient, 1.5F);
            if (announces) {
              optimizer.begin_backward();
              optimizer.gradient_ready(0);
              if (pass + 1 == passes) change(step);
            }
            optimizer.backward_done();
          }
          if (!announces) change(step);
          optimizer.step();
          ++updates[static_cast<std::size_t>(workers.rank())];
        }
      });
  EXPECT_THAT(errors, Each(HasSubstr("expected gradients to stay unchanged from the backward pass "
                                     "to step(): call synchronize() before reading or changing "
                                     "them; the gradient of hidden/weights was changed")));
  EXPECT_THAT(updates, Each(kStep));
}

INSTANTIATE_TEST_SUITE_P(Loops, ChangesOneGradient,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(1, 2),
                                            ::testing::Bool()),
                         [](const auto& param_info) {
                           return fmt::format("{}_ranks_{}_passes{}", std::get<0>(param_info.param),
                                              std::get<1>(param_info.param),
                                              std::get<2>(param_info.param) ? "_announced" : "");
                         });

// Longer than, and not a multiple of, the blocks in which gradients are hashed and copied.
template <typename T>
void reduce_gradients_longer_than_a_hash_block(job::Workers& workers) {
  struct Descent {
    std::vector<T> values = std::vector<T>(10001);
    std::vector<T> gradient = std::vector<T>(10001);
    std::vector<Parameter> parameters() { return {{"w", values, gradient}}; }
    void step() {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= gradient[i];
    }
  } descent;
  DistributedOptimizer optimizer(workers, descent);
  for (std::size_t i = 0; i < descent.gradient.size(); ++i)
    descent.gradient[i] = static_cast<T>(i) + T{2} * static_cast<T>(workers.rank());
  optimizer.backward_done();
  optimizer.step();
  for (std::size_t i = 0; i < descent.values.size(); ++i)
    ASSERT_EQ(descent.values[i], -static_cast<T>(i + 1)) << i;
}

TEST(DistributedOptimizer, ReducesGradientsLongerThanAHashBlock) {
  run_ranks(2, reduce_gradients_longer_than_a_hash_block<float>);
  run_ranks(2, reduce_gradients_longer_than_a_hash_block<double>);
}

/// y = w x + b with w in double and b in float.
struct MixedLine {
  std::vector<double> w{0}, dw{0};
  std::vector<float> b{0}, db{0};

  std::vector<Parameter> parameters() { return {{"w", w, dw}, {"b", {b.data(), 1}, db}}; }
  std::vector<Parameter> state() { return parameters(); }
  void step() {
    w[0] -= 0.3 * dw[0];
    b[0] -= 0.3F * db[0];
  }
  /// The gradient of the mean squared error over samples `ids` of x = (id - 5) / 3.
  void backward(const std::vector<int>& ids) {
    double sum_w = 0;
    double sum_b = 0;
    for (const int id : ids) {
      const double x = (id - 5) / 3.0;
      const double error = w[0] * x + static_cast<double>(b[0]) - (3.7 * x + 1);
      sum_w += 2 * error * x / static_cast<double>(ids.size());
      sum_b += 2 * error / static_cast<double>(ids.size());
    }
    dw[0] = sum_w;
    db[0] = static_cast<float>(sum_b);
  }
  static std::vector<int> ids_between(int begin, int end) {
    std::vector<int> ids(static_cast<std::size_t>(end - begin));
    std::iota(ids.begin(), ids.end(), begin);
    return ids;
  }
};

TEST(DistributedOptimizer, TrainsDoublesOnAnyNumberOfRanksAsInOneProcess) {
  constexpr int kParts[] = {0, 2, 3, 3, 10};  // unequal parts, one of them empty
  MixedLine alone;
  for (int step = 0; step < 40; ++step) {
    alone.backward(MixedLine::ids_between(0, 10));
    alone.step();
  }
  EXPECT_NEAR(alone.w[0], 3.7, 1e-3);
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](job::Workers& workers) {
      const int begin = kParts[workers.rank() * 4 / ranks];
      const int end = kParts[(workers.rank() + 1) * 4 / ranks];
      MixedLine line;
      line.w[0] = workers.rank();
      DistributedOptimizer optimizer(workers, line);
      optimizer.broadcast_parameters();
      for (int step = 0; step < 40; ++step) {
        if (begin < end) line.backward(MixedLine::ids_between(begin, end));
        optimizer.backward_done(end - begin);
        optimizer.step();
      }
      EXPECT_NEAR(line.w[0], alone.w[0], 1e-6) << "the float parameter takes part";
      EXPECT_NEAR(line.b[0], alone.b[0], 1e-6F);
    });
}

TEST(DistributedOptimizer, BroadcastsAndProtectsDoubles) {
  run_ranks(2, [&](job::Workers& workers) {
    MixedLine line;
    line.w[0] = 0.1 + workers.rank();
    DistributedOptimizer optimizer(workers, line);
    optimizer.broadcast_optimizer_state(1);
    EXPECT_EQ(line.w[0], 1.1);
  });
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    MixedLine line;
    DistributedOptimizer optimizer(workers, line);
    line.backward(MixedLine::ids_between(0, 10));
    optimizer.backward_done(10);
    line.dw[0] *= 1 + 1e-16 * 4;
    optimizer.step();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the gradient of w was changed")));
}

/// Rank r has 5 - r batches; batch i has i % 3 + 1 samples.
std::vector<std::vector<int>> batches_of(int rank) {
  std::vector<std::vector<int>> batches;
  for (int i = 0; i < 5 - rank; ++i)
    batches.push_back(MixedLine::ids_between(2 * rank + i, 2 * rank + i + i % 3 + 1));
  return batches;
}

TEST(DistributedOptimizer, JoinsRanksWhoseDataEndEarlier) {
  for (const int ranks : {1, 2, 4})
    for (const std::size_t passes : {1U, 2U}) {
      MixedLine alone;
      for (std::size_t step = 0; step * passes < batches_of(0).size(); ++step) {
        std::vector<int> ids;
        for (int rank = 0; rank < ranks; ++rank)
          for (std::size_t i = step * passes; i < (step + 1) * passes; ++i)
            if (const auto batches = batches_of(rank); i < batches.size())
              ids.insert(ids.end(), batches[i].begin(), batches[i].end());
        alone.backward(ids);
        alone.step();
      }
      run_ranks(ranks, [&](job::Workers& workers) {
        MixedLine line;
        DistributedOptimizer optimizer(workers, line,
                                       {.backward_passes_per_step = static_cast<int>(passes)});
        std::size_t done = 0;
        for (const std::vector<int>& batch : batches_of(workers.rank())) {
          line.backward(batch);
          optimizer.backward_done(static_cast<double>(batch.size()));
          if (++done % passes == 0) optimizer.step();
        }
        const int joined = optimizer.join();
        if (passes == 1) {
          EXPECT_EQ(joined, workers.rank()) << "of the steps of rank 0";
        }
        EXPECT_NEAR(line.w[0], alone.w[0], 1e-6) << ranks << " ranks, " << passes << " passes";
        EXPECT_NEAR(line.b[0], alone.b[0], 1e-6F);
      });
    }
}

TEST(DistributedOptimizer, DiscardsAReducedStep) {
  run_ranks(2, [](job::Workers& workers) {
    MixedLine line;
    DistributedOptimizer optimizer(workers, line);
    for (int step = 0; step < 2; ++step) {
      line.dw[0] = 1 + workers.rank();
      optimizer.backward_done(1);
      optimizer.synchronize();
      EXPECT_EQ(line.dw[0], 1.5);
      if (step == 0)
        optimizer.discard();
      else
        optimizer.step();
    }
    EXPECT_NEAR(line.w[0], -0.45, 1e-15);
  });
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    MixedLine line;
    DistributedOptimizer optimizer(workers, line);
    optimizer.backward_done(1);
    optimizer.discard();
  });
  EXPECT_THAT(errors, Each(HasSubstr("expected synchronize() before discard()")));
}

TEST(DistributedOptimizer, RejectsAGradientOfAnotherTypeThanItsParameter) {
  struct Wrong {
    std::vector<double> values{0};
    std::vector<float> gradient{0};
    std::vector<Parameter> parameters() { return {{"w", values, gradient}}; }
    void step() {}
  };
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    Wrong wrong;
    DistributedOptimizer optimizer(workers, wrong);
  });
  EXPECT_THAT(errors, Each(HasSubstr("expected 1 values of w and 1 of its gradient, of double, got "
                                     "1 of double and 1 of float")));
}

TEST(DistributedOptimizer, CountsMissingGradientsAsZeroAndReportsThemEquallyOnAllRanks) {
  struct Branches {
    std::vector<float> values = std::vector<float>(3);
    std::vector<float> gradients = {4, 4, 4};
    int rank = 0;
    std::vector<Parameter> parameters() {
      const std::span<float> v(values);
      const std::span<float> g(gradients);
      return {{.name = "all", .values = v.first(1), .gradient = g.first(1)},
              {.name = "odd",
               .values = v.subspan(1, 1),
               .gradient = g.subspan(1, 1),
               .has_gradient = rank % 2 == 1},
              {.name = "none", .values = v.last(1), .gradient = g.last(1), .has_gradient = false}};
    }
    void step() {}
  };
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](job::Workers& workers) {
      Branches branches;
      branches.rank = workers.rank();
      DistributedOptimizer optimizer(workers, branches);
      optimizer.backward_done(2);
      optimizer.step();
      EXPECT_THAT(branches.gradients, ::testing::ElementsAre(4, ranks == 1 ? 0 : 2, 0));
      EXPECT_TRUE(optimizer.has_gradient(0));
      EXPECT_EQ(optimizer.has_gradient(1), ranks == 2);
      EXPECT_FALSE(optimizer.has_gradient(2));
    });
}

TEST(DistributedOptimizer, RejectsStateOfOtherSizes) {
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    if (workers.rank() == 1) momentum.velocities[1].values.resize(3);
    DistributedOptimizer optimizer(workers, momentum);
    optimizer.broadcast_optimizer_state();
  });
  EXPECT_THAT(errors, Each(HasSubstr("hidden/bias/velocity")));
}

TEST(DistributedOptimizer, RejectsParametersAddedAfterWrapping) {
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    DistributedOptimizer optimizer(workers, momentum);
    network.arrays.push_back({"more", {1}});
    optimizer.backward_done();
  });
  EXPECT_THAT(errors, Each(HasSubstr("expected 3 parameters as in the first call, got 4")));
}

struct Misuse {
  std::string name;
  std::function<void(DistributedOptimizer<Momentum>&, Network&)> calls;
  std::string error;
};

class MisusedOptimizer : public ::testing::TestWithParam<Misuse> {};

TEST_P(MisusedOptimizer, ReportsTheExpectedCallOrderOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](job::Workers& workers) {
    Network network;
    Momentum momentum(network);
    DistributedOptimizer optimizer(workers, momentum);
    if (workers.rank() == 1) return GetParam().calls(optimizer, network);
    optimizer.backward_done();
    optimizer.step();
    workers.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr(GetParam().error)));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, MisusedOptimizer,
    ::testing::Values(
        Misuse{"step_without_backward", [](auto& optimizer, auto&) { optimizer.step(); },
               "expected a backward pass before step()"},
        Misuse{"backward_twice",
               [](auto& optimizer, auto&) {
                 optimizer.backward_done();
                 optimizer.backward_done();
               },
               "expected step() after one backward pass (backward_passes_per_step); backward pass "
               "2 began before it"},
        Misuse{"gradient_changed",
               [](auto& optimizer, Network& network) {
                 optimizer.backward_done();
                 network.arrays[2].gradient[0] += 1;
                 optimizer.step();
               },
               "call synchronize() before reading or changing them; the gradient of output/weights "
               "was changed"},
        Misuse{"zero_grad_too_early",
               [](auto& optimizer, auto&) {
                 optimizer.backward_done();
                 optimizer.zero_grad();
               },
               "expected step() before zero_grad()"},
        Misuse{"announced_twice",
               [](auto& optimizer, auto&) {
                 optimizer.begin_backward();
                 optimizer.gradient_ready(1);
                 optimizer.gradient_ready(1);
               },
               "expected one gradient per parameter in a backward pass; hidden/bias was announced "
               "twice"},
        Misuse{
            "announced_outside", [](auto& optimizer, auto&) { optimizer.gradient_ready(1); },
            "expected begin_backward() before gradient_ready(); hidden/bias was announced outside"},
        Misuse{"announced_what_is_not", [](auto& optimizer, auto&) { optimizer.gradient_ready(3); },
               "expected a parameter number below 3, got 3"},
        Misuse{"other_samples_at_the_end",
               [](auto& optimizer, auto&) {
                 optimizer.begin_backward(4);
                 optimizer.backward_done(5);
               },
               "expected the same number of samples as in begin_backward(), 4; backward_done() got "
               "5 samples"},
        Misuse{"broadcast_in_mid_step",
               [](auto& optimizer, auto&) {
                 optimizer.backward_done();
                 optimizer.broadcast_parameters();
               },
               "expected step() before broadcast_parameters()"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Workers, ReduceBroadcastAndGatherPlainSpans) {
  run_ranks(3, [](job::Workers& workers) {
    std::vector<double> values{1.0 * workers.rank(), 7};
    workers.all_reduce(std::span(values));
    EXPECT_THAT(values, ::testing::ElementsAre(3, 21));
    std::vector<int> numbers{workers.rank()};
    workers.broadcast(std::span(numbers), 2);
    EXPECT_EQ(numbers[0], 2);
    const std::vector<short> mine(static_cast<std::size_t>(workers.rank()), 4);
    const auto all = workers.all_gather(std::span(mine));
    ASSERT_EQ(all.size(), 3U);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(all[rank], std::vector<short>(rank, 4));
    EXPECT_TRUE(workers.any(workers.rank() == 1));
    EXPECT_EQ(allreduce::error_of([&] { workers.broadcast(std::span(numbers), 3); }),
              "[broadcast] expected a root from 0 to 2, got 3");
  });
}

}  // namespace
}  // namespace lockstep::inline v0::interop
