// Results of reductions for all options.
#include "lockstep/interop/gradient_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/interop/rank_threads.h"

namespace lockstep::inline v0::interop {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const std::vector<ParameterLayout> kTwo{{"weights", {2}}, {"bias", {1}}};

void pass(GradientReducer& reducer, double samples, float weights, float bias) {
  reducer.begin_pass(samples);
  reducer.submit(1, std::vector{bias});
  reducer.submit(0, std::vector{weights, -weights});
  reducer.end_pass();
}

std::vector<float> result(const GradientReducer& reducer) {
  std::vector<float> all;
  for (std::size_t i = 0; i < 2; ++i)
    all.insert(all.end(), reducer.gradient(i).begin(), reducer.gradient(i).end());
  return all;
}

// Rank r submits p (r + 1) and 10 p (r + 1) in pass p, from 1.
struct Case {
  std::string name;
  int ranks;
  ReducerOptions options;
  std::vector<float> expected;  // weights[0], bias
  float tolerance = 0;
};

class Reductions : public ::testing::TestWithParam<Case> {};

TEST_P(Reductions, FollowTheirOptions) {
  run_ranks(GetParam().ranks, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo, GetParam().options);
    const auto own = static_cast<float>(workers.rank() + 1);
    for (int step = 0; step < 3; ++step) {
      for (int number = 1; number <= GetParam().options.backward_passes_per_step; ++number)
        pass(reducer, 1, own * static_cast<float>(number), 10 * own * static_cast<float>(number));
      reducer.reduce();
      const std::vector<float> got = result(reducer);
      EXPECT_NEAR(got[0], GetParam().expected[0], GetParam().tolerance) << "step " << step;
      EXPECT_NEAR(got[1], -GetParam().expected[0], GetParam().tolerance) << "step " << step;
      EXPECT_NEAR(got[2], GetParam().expected[1], GetParam().tolerance) << "step " << step;
      reducer.applied();
    }
    EXPECT_EQ(reducer.steps(), 3);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Reductions,
    ::testing::Values(
        Case{"average_of_two", 2, {}, {1.5F, 15}}, Case{"average_of_three", 3, {}, {2, 20}, 1e-6F},
        Case{"sum_of_two", 2, {.reduction = Reduction::sum}, {3, 30}},
        Case{"sum_of_four", 4, {.reduction = Reduction::sum}, {10, 100}},
        Case{"divided_after_the_sum", 4, {.predivide_factor = 1}, {2.5F, 25}},
        Case{"divided_by_two_before_and_after", 4, {.predivide_factor = 2}, {2.5F, 25}},
        Case{"passes_are_averaged", 2, {.backward_passes_per_step = 4}, {3.75F, 37.5F}},
        Case{"passes_are_added",
             2,
             {.reduction = Reduction::sum, .backward_passes_per_step = 4},
             {30, 300}},
        Case{"bfloat16", 2, {.compression = allreduce::WireType::bfloat16}, {1.5F, 15}, 0.1F},
        Case{"float16", 3, {.compression = allreduce::WireType::float16}, {2, 20}, 0.02F},
        Case{"a_bucket_each", 3, {.first_bucket_bytes = 1, .bucket_bytes = 1}, {2, 20}, 1e-6F},
        Case{"grouped",
             2,
             {.first_bucket_bytes = 1, .bucket_bytes = 1, .groups = {{"bias", "weights"}}},
             {1.5F, 15}},
        Case{"clipped", 2, {.clip_norm = 1.5}, {0.1485221F, 1.4852213F}, 1e-5F}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GradientReducer, WeightsPassesAndRanksBySamples) {
  run_ranks(3, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo, {.backward_passes_per_step = 2});
    // Samples by rank and pass. Samples are numbered consecutively; a gradient is their mean
    // number.
    const std::vector<std::vector<double>> samples{{4, 2}, {1, 3}, {5, 0}};
    const std::vector<std::vector<float>> means{
        {2.5F, 5.5F}, {7, 9}, {13, std::numeric_limits<float>::quiet_NaN()}};
    const auto rank = static_cast<std::size_t>(workers.rank());
    for (int step = 0; step < 3; ++step) {
      for (std::size_t number = 0; number < 2; ++number)
        pass(reducer, samples[rank][number], means[rank][number], 2 * means[rank][number]);
      reducer.reduce();
      EXPECT_NEAR(result(reducer)[0], 8, 1e-5);
      EXPECT_NEAR(result(reducer)[2], 16, 1e-5);
      EXPECT_EQ(reducer.samples(), 15);
      reducer.applied();
    }
  });
}

struct WideCase {
  std::string name;
  ReducerOptions options;
};

class WideParameters : public ::testing::TestWithParam<WideCase> {};

// A third and a seventh are not exact in float32, so an error of at most 1e-15 requires that all
// sums and factors are float64.
TEST_P(WideParameters, AreReducedAsFloat64) {
  run_ranks(3, [](job::Workers& workers) {
    const std::vector<ParameterLayout> parameters{
        {"wide", {2}, true}, {"narrow", {2}}, {"last", {1}, true}};
    GradientReducer reducer(workers, parameters, GetParam().options);
    const int passes = GetParam().options.backward_passes_per_step;
    for (int step = 0; step < 3; ++step) {
      for (int number = 0; number < passes; ++number) {
        const double own = (workers.rank() + 1.0 + number) / 3;
        reducer.begin_pass(step + 1 + workers.rank());
        reducer.submit(2, std::vector{own});
        reducer.submit(1, std::vector{static_cast<float>(own), 0.0F});
        if (workers.rank() == 1) reducer.submit(0, std::vector{own / 7, -own});
        reducer.end_pass();
      }
      reducer.reduce();
      double samples = 0, sum = 0, sum_of_one = 0;
      for (int rank = 0; rank < 3; ++rank)
        for (int number = 0; number < passes; ++number) {
          const double share = (step + 1.0 + rank) * (rank + 1.0 + number) / 3;
          samples += step + 1 + rank;
          sum += share;
          if (rank == 1) sum_of_one += share;
        }
      const double clip = GetParam().options.clip_norm;
      const double by = clip > 0 ? clip / reducer.gradient_norm() : 1;
      EXPECT_NEAR(reducer.gradient<double>(2)[0], by * sum / samples, 1e-15) << "step " << step;
      EXPECT_NEAR(reducer.gradient<double>(0)[0], by * sum_of_one / samples / 7, 1e-15);
      EXPECT_NEAR(reducer.gradient<double>(0)[1], -by * sum_of_one / samples, 1e-15);
      EXPECT_NEAR(reducer.gradient(1)[0], by * sum / samples, 1e-2);
      if (clip > 0) {
        const double wide = sum_of_one / samples;
        EXPECT_NEAR(reducer.gradient_norm(),
                    std::sqrt(2 * std::pow(sum / samples, 2) + std::pow(wide / 7, 2) + wide * wide),
                    1e-6);
      }
      reducer.applied();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WideParameters,
    ::testing::Values(WideCase{"average", {}}, WideCase{"clipped", {.clip_norm = 0.01}},
                      WideCase{"passes", {.backward_passes_per_step = 3}},
                      WideCase{"predivided", {.predivide_factor = 1.5}},
                      WideCase{"bfloat16", {.compression = allreduce::WireType::bfloat16}},
                      WideCase{"grouped", {.groups = {{"wide", "narrow"}}}}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GradientReducer, ReducesOnlyFloat64Parameters) {
  run_ranks(2, [](job::Workers& workers) {
    GradientReducer reducer(workers, {{"wide", {1}, true}},
                            {.compression = allreduce::WireType::float16});
    reducer.begin_pass(1);
    reducer.submit(0, std::vector{(workers.rank() + 1) / 3.0});
    reducer.end_pass();
    reducer.reduce();
    EXPECT_NEAR(reducer.gradient<double>(0)[0], 0.5, 1e-15);
  });
}

TEST(GradientReducer, CorrectsForAChangedNumberOfSamples) {
  run_ranks(2, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo);
    for (const double samples : {8.0, 8.0, 3.0, 0.0, 8.0}) {
      pass(reducer, workers.rank() == 0 ? samples : samples / 2, workers.rank() == 0 ? 1 : 4, 0);
      reducer.reduce();
      EXPECT_NEAR(result(reducer)[0], samples == 0 ? 0 : 2, 1e-6) << samples;
      reducer.applied();
    }
  });
}

TEST(GradientReducer, CountsMissingGradientsAsZeroAndReportsThem) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [](job::Workers& workers) {
    GradientReducer reducer(workers, {{"everywhere", {1}}, {"on_rank_1", {1}}, {"nowhere", {1}}});
    for (int step = 0; step < 101; ++step) {
      reducer.begin_pass(1);
      reducer.submit(0, std::vector{3.0F});
      if (workers.rank() == 1) reducer.submit(1, std::vector{5.0F});
      reducer.end_pass();
      reducer.reduce();
      EXPECT_EQ(reducer.gradient(0)[0], 3.0F);
      EXPECT_EQ(reducer.gradient(1)[0], 2.5F);
      EXPECT_EQ(reducer.gradient(2)[0], 0.0F);
      EXPECT_TRUE(reducer.has_gradient(0));
      EXPECT_TRUE(reducer.has_gradient(1));
      EXPECT_FALSE(reducer.has_gradient(2));
      reducer.applied();
    }
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: no rank had a gradient of nowhere for 100 steps: these parameters "
            "are not trained\n");
}

TEST(GradientReducer, AcceptsGradientsAccumulatedInPlace) {
  run_ranks(2, [](job::Workers& workers) {
    GradientReducer reducer(workers, {{"w", {1}}}, {.backward_passes_per_step = 3});
    const float own = workers.rank() == 0 ? 1 : 3;
    for (int step = 0; step < 2; ++step) {
      reducer.gradient(0)[0] = 0;
      for (const double samples : {4.0, 2.0, 1.0}) {
        reducer.begin_pass(samples);
        reducer.gradient(0)[0] += own;
        reducer.submit_in_place(0);
        reducer.end_pass();
      }
      reducer.reduce();
      EXPECT_NEAR(reducer.gradient(0)[0], 2, 1e-6);
      reducer.applied();
    }
  });
}

TEST(GradientReducer, ReducesEachBucketOncePerStep) {
  run_ranks(2, [](job::Workers& workers) {
    GradientReducer reducer(
        workers, kTwo, {.backward_passes_per_step = 7, .first_bucket_bytes = 1, .bucket_bytes = 1});
    for (int step = 0; step < 3; ++step) {
      for (int number = 0; number < 7; ++number) pass(reducer, 1, 1, 1);
      reducer.reduce();
      reducer.applied();
    }
    EXPECT_EQ(reducer.buckets().launched(), 3 * reducer.buckets().buckets().size());
  });
}

TEST(GradientReducer, ReducesRemainingPassesOfAnEpoch) {
  run_ranks(3, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo, {.backward_passes_per_step = 4});
    EXPECT_FALSE(reducer.reduce_partial());
    for (int number = 0; number < workers.rank(); ++number)
      pass(reducer, 2, static_cast<float>(workers.rank()), 1);
    EXPECT_TRUE(reducer.reduce_partial());  // ranks have 0, 1 and 2 passes
    EXPECT_NEAR(result(reducer)[0], (1 + 2 + 2) / 3.0, 1e-6);
    EXPECT_EQ(reducer.samples(), 6);
    reducer.applied();
    for (int number = 0; number < 4; ++number) pass(reducer, 2, 5, 1);
    reducer.reduce();
    EXPECT_NEAR(result(reducer)[0], 5, 1e-6);
    reducer.applied();
  });
}

TEST(GradientReducer, SumsRemainingPassesEquallyOnAllRanks) {
  run_ranks(3, [](job::Workers& workers) {
    GradientReducer reducer(
        workers, kTwo, {.backward_passes_per_step = 4, .average_passes = false, .clip_norm = 1000});
    for (int number = 0; number < workers.rank(); ++number)
      pass(reducer, 2, static_cast<float>(workers.rank()), 0);
    EXPECT_TRUE(reducer.reduce_partial());  // ranks have 0, 1 and 2 passes: one on average
    EXPECT_NEAR(result(reducer)[0], (1 + 2 + 2) / 3.0, 1e-6);
    EXPECT_NEAR(reducer.gradient_norm(), std::sqrt(2.0) * 5 / 3, 1e-6);
    reducer.applied();
    for (int number = 0; number < 4; ++number) pass(reducer, 2, 5, 0);
    reducer.reduce();
    EXPECT_NEAR(result(reducer)[0], 20, 1e-5);
    reducer.applied();
  });
}

TEST(GradientReducer, ReportsTheSameNormBeforeClippingOnAnyNumberOfRanks) {
  for (const int ranks : {1, 4})
    run_ranks(ranks, [](job::Workers& workers) {
      GradientReducer reducer(workers, kTwo, {.clip_norm = 0.5});
      pass(reducer, 1, 3, 4);
      reducer.reduce();
      EXPECT_NEAR(reducer.gradient_norm(), std::sqrt(34.0), 1e-6);
      EXPECT_NEAR(result(reducer)[2], 0.5 * 4 / std::sqrt(34.0), 1e-6);
      reducer.applied();
      pass(reducer, 2, 3, 4);
      reducer.reduce();
      EXPECT_NEAR(reducer.gradient_norm(), std::sqrt(34.0), 1e-6) << "of other samples";
      EXPECT_NEAR(result(reducer)[2], 0.5 * 4 / std::sqrt(34.0), 1e-6);
    });
}

TEST(GradientReducer, DoesNotCopyGradientsOfASingleRank) {
  run_ranks(1, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo);
    EXPECT_TRUE(reducer.is_alone());
    pass(reducer, 3, 1, 2);
    reducer.reduce();
    EXPECT_TRUE(reducer.has_gradient(0));
    EXPECT_EQ(reducer.samples(), 3);
    EXPECT_THAT(result(reducer), Each(0));
    EXPECT_FALSE(GradientReducer(workers, kTwo, {.backward_passes_per_step = 2}).is_alone());
  });
}

TEST(GradientReducer, NamesTheFirstParameterThatDiffersOnAllRanks) {
  const auto errors = errors_of_ranks(3, [](job::Workers& workers) {
    std::vector<ParameterLayout> parameters = kTwo;
    if (workers.rank() == 2) parameters[1].shape = {1, 1};
    GradientReducer(workers, parameters);
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("parameter 1 is bias [1] on replica 0 and bias [1, 1] on replica 2")));
}

TEST(GradientReducer, ThrowsOnAllRanksIfOneHasInvalidArguments) {
  const auto errors = errors_of_ranks(3, [](job::Workers& workers) {
    std::vector<ParameterLayout> parameters = kTwo;
    if (workers.rank() == 1) parameters[0].name = "bias";
    GradientReducer(workers, parameters);
  });
  EXPECT_THAT(errors, Each(HasSubstr("parameters 0 and 1 are both named bias")));
}

TEST(GradientReducer, ThrowsOnAllRanksIfOptionsDiffer) {
  const auto errors = errors_of_ranks(3, [](job::Workers& workers) {
    GradientReducer(workers, kTwo, {.clip_norm = workers.rank() == 1 ? 0.5 : 0.0});
  });
  EXPECT_THAT(
      errors,
      Each(AllOf(HasSubstr("expected the same options on all ranks; rank 0 has average, "),
                 HasSubstr("clip_norm 0; rank 1 has average"), HasSubstr("clip_norm 0.5"))));
}

TEST(GradientReducer, RejectsGpuGradientsWithoutGpuMath) {
  run_ranks(1, [](job::Workers& workers) {
    job::Workers on_gpu(workers.session(), workers.group(), {device::DeviceKind::gpu, 0});
    EXPECT_THAT(allreduce::error_of([&] { GradientReducer(on_gpu, kTwo); }),
                HasSubstr("expected a stream and GradientMath of the GPU for gradients on gpu:0"));
  });
}

struct ReducerMisuse {
  std::string name;
  std::function<void(GradientReducer&)> calls;
  std::string error;
};

class MisusedReducer : public ::testing::TestWithParam<ReducerMisuse> {};

TEST_P(MisusedReducer, ReportsTheExpectedCallOrderOnAllRanks) {
  const auto errors = errors_of_ranks(3, [](job::Workers& workers) {
    GradientReducer reducer(workers, kTwo, {.backward_passes_per_step = 2});
    if (workers.rank() == 1) return GetParam().calls(reducer);  // the others do as they should
    pass(reducer, 1, 1, 1);
    pass(reducer, 1, 1, 1);
    reducer.reduce();
    reducer.applied();
    workers.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr(GetParam().error)));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, MisusedReducer,
    ::testing::Values(
        ReducerMisuse{"step_without_backward", [](GradientReducer& r) { r.reduce(); },
                      "expected a backward pass before step(); there was none since the last step"},
        ReducerMisuse{
            "step_after_too_few",
            [](GradientReducer& r) {
              pass(r, 1, 1, 1);
              r.reduce();
            },
            "expected 2 backward passes before step() (backward_passes_per_step); there were 1"},
        ReducerMisuse{
            "one_pass_too_many",
            [](GradientReducer& r) {
              for (int i = 0; i < 3; ++i) pass(r, 1, 1, 1);
            },
            "expected step() after 2 backward passes (backward_passes_per_step); backward pass "
            "3 began before it"},
        ReducerMisuse{"step_in_mid_pass",
                      [](GradientReducer& r) {
                        r.begin_pass(1);
                        r.reduce();
                      },
                      "expected the end of the backward pass before step()"},
        ReducerMisuse{"two_begun",
                      [](GradientReducer& r) {
                        r.begin_pass(1);
                        r.begin_pass(1);
                      },
                      "expected one backward pass to end before the next begins"},
        ReducerMisuse{"gradient_twice",
                      [](GradientReducer& r) {
                        r.begin_pass(1);
                        r.submit(1, std::vector{1.0F});
                        r.submit(1, std::vector{1.0F});
                      },
                      "expected one gradient per parameter in a backward pass; bias got two"},
        ReducerMisuse{
            "gradient_outside", [](GradientReducer& r) { r.submit(1, std::vector{1.0F}); },
            "expected an open backward pass for a gradient, got one for bias outside a pass"},
        ReducerMisuse{"gradient_of_other_size",
                      [](GradientReducer& r) {
                        r.begin_pass(1);
                        r.submit(0, std::vector{1.0F});
                      },
                      "expected 2 elements of weights; its gradient has 1"},
        ReducerMisuse{"negative_samples", [](GradientReducer& r) { r.begin_pass(-1); },
                      "expected a number of samples"},
        ReducerMisuse{
            "zero_grad_too_early",
            [](GradientReducer& r) {
              pass(r, 1, 1, 1);
              r.require_between_steps("zero_grad()");
            },
            "expected step() before zero_grad(); zero_grad() was called after a backward pass"},
        ReducerMisuse{"backward_after_synchronize",
                      [](GradientReducer& r) {
                        pass(r, 1, 1, 1);
                        pass(r, 1, 1, 1);
                        r.reduce();
                        r.begin_pass(1);
                      },
                      "expected step() after synchronize(); another backward pass began"},
        ReducerMisuse{"synchronized_twice",
                      [](GradientReducer& r) {
                        pass(r, 1, 1, 1);
                        pass(r, 1, 1, 1);
                        r.reduce();
                        r.reduce();
                      },
                      "expected step() once after synchronize()"},
        ReducerMisuse{
            "flushed_a_whole_step",
            [](GradientReducer& r) {
              pass(r, 1, 1, 1);
              pass(r, 1, 1, 1);
              r.reduce_partial();
            },
            "expected step() after 2 backward passes (backward_passes_per_step); flush() was "
            "called"},
        ReducerMisuse{"applied_too_early", [](GradientReducer& r) { r.applied(); },
                      "expected a backward pass before step()"}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace lockstep::inline v0::interop
