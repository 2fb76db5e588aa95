#include "lockstep/interop/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A session of one rank, without a launcher.
class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(lockstep_init(nullptr, &session_), LOCKSTEP_OK) << lockstep_last_error();
  }
  void TearDown() override {
    lockstep_optimizer_free(optimizer_);
    lockstep_finalize(session_);
  }

  int create(const lockstep_options& options) {
    parameters_ = {{"a", values_.data(), gradients_.data(), 2, LOCKSTEP_FLOAT32},
                   {"b", values_.data() + 2, gradients_.data() + 2, 1, LOCKSTEP_FLOAT32}};
    return lockstep_optimizer_create(session_, parameters_.data(), parameters_.size(), &options,
                                     descend, this, &optimizer_);
  }
  static int descend(void* state) {
    auto* test = static_cast<CApi*>(state);
    for (std::size_t i = 0; i < 3; ++i) test->values_[i] -= test->gradients_[i];
    return test->fails_;
  }

  lockstep_session* session_ = nullptr;
  lockstep_optimizer* optimizer_ = nullptr;
  int fails_ = 0;
  std::array<float, 3> values_{1, 2, 3};
  std::array<float, 3> gradients_{};
  std::vector<lockstep_parameter> parameters_;
};

TEST_F(CApi, ReturnsRankAndVersion) {
  EXPECT_EQ(lockstep_rank(session_), 0);
  EXPECT_EQ(lockstep_world_size(session_), 1);
  EXPECT_EQ(lockstep_local_rank(session_), 0);
  EXPECT_EQ(lockstep_local_size(session_), 1);
  EXPECT_EQ(lockstep_node(session_), 0);
  EXPECT_THAT(lockstep_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST_F(CApi, ReducesEveryType) {
  std::array<double, 2> values{1.5, -2};
  for (int type = LOCKSTEP_FLOAT32; type <= LOCKSTEP_UINT8; ++type)
    for (const int op : {LOCKSTEP_SUM, LOCKSTEP_MAX, LOCKSTEP_MIN, LOCKSTEP_PRODUCT})
      EXPECT_EQ(lockstep_all_reduce(session_, values.data(), 1, type, op), LOCKSTEP_OK)
          << lockstep_last_error();
  EXPECT_THAT(values, ElementsAre(1.5, -2));
  EXPECT_EQ(lockstep_broadcast(session_, values.data(), sizeof(values), 0), LOCKSTEP_OK);
  std::array<double, 2> all{};
  EXPECT_EQ(lockstep_all_gather(session_, values.data(), sizeof(values), all.data()), LOCKSTEP_OK);
  EXPECT_EQ(all, values);
  EXPECT_EQ(lockstep_barrier(session_), LOCKSTEP_OK);
  int result = 5;
  EXPECT_EQ(lockstep_any(session_, 0, &result), LOCKSTEP_OK);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(lockstep_any(session_, 7, &result), LOCKSTEP_OK);
  EXPECT_EQ(result, 1);
}

TEST_F(CApi, StepsOnTheGradientOfAllPasses) {
  lockstep_options options = lockstep_default_options();
  options.backward_passes_per_step = 2;
  ASSERT_EQ(create(options), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_broadcast_parameters(optimizer_, 0), LOCKSTEP_OK);
  int updated = 5;
  gradients_ = {1, 1, 1};
  EXPECT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_THAT(gradients_, ElementsAre(0, 0, 0)) << "the next pass adds to zeros";
  gradients_ = {5, 5, 5};
  EXPECT_EQ(lockstep_begin_backward(optimizer_, 3), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_gradient_ready(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_backward_done(optimizer_, 3), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_step(optimizer_, &updated), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(updated, 1);
  EXPECT_THAT(values_, ElementsAre(-3, -2, -1));
  EXPECT_EQ(lockstep_flush(optimizer_, &updated), LOCKSTEP_OK);
  EXPECT_EQ(updated, 0);
}

TEST_F(CApi, StepsOnDoubles) {
  double value = 1;
  double gradient = 1e-9;
  const lockstep_parameter parameter = {"w", &value, &gradient, 1, LOCKSTEP_FLOAT64};
  struct Numbers {
    double* value;
    double* gradient;
  } numbers{&value, &gradient};
  const auto update = [](void* state) {
    auto* both = static_cast<Numbers*>(state);
    *both->value -= *both->gradient;
    return 0;
  };
  ASSERT_EQ(
      lockstep_optimizer_create(session_, &parameter, 1, nullptr, update, &numbers, &optimizer_),
      LOCKSTEP_OK)
      << lockstep_last_error();
  EXPECT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(value, 1 - 1e-9);
  EXPECT_EQ(lockstep_has_gradient(optimizer_, 0), 1);
  EXPECT_EQ(lockstep_has_gradient(optimizer_, 1), 0);
  EXPECT_EQ(lockstep_broadcast_optimizer_state(optimizer_, &parameter, 1, 0), LOCKSTEP_OK)
      << lockstep_last_error();
  EXPECT_EQ(value, 1 - 1e-9);
}

TEST_F(CApi, SkipsAStepThatIsNotFinite) {
  lockstep_options options = lockstep_default_options();
  options.skip_non_finite = 1;
  ASSERT_EQ(create(options), LOCKSTEP_OK);
  gradients_ = {1, std::numeric_limits<float>::quiet_NaN(), 1};
  EXPECT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  int updated = 5;
  EXPECT_EQ(lockstep_step(optimizer_, &updated), LOCKSTEP_OK);
  EXPECT_EQ(updated, 0);
  EXPECT_THAT(values_, ElementsAre(1, 2, 3));
}

// A caller that was compiled with a version of fewer options gets the defaults of the others.
TEST_F(CApi, KnowsShorterOptionsAndRejectsLongerOnes) {
  lockstep_options options = lockstep_default_options();
  EXPECT_EQ(options.size, sizeof(options));
  options.size = offsetof(lockstep_options, clip_norm);
  options.clip_norm = -1;
  EXPECT_EQ(create(options), LOCKSTEP_OK) << lockstep_last_error();
  lockstep_optimizer_free(std::exchange(optimizer_, nullptr));
  options.size = sizeof(options);
  EXPECT_EQ(create(options), LOCKSTEP_INPUT) << "clip_norm is read";
  for (const std::size_t size : {std::size_t{0}, sizeof(options) + 8}) {
    options.size = size;
    EXPECT_EQ(create(options), LOCKSTEP_INPUT);
    EXPECT_THAT(lockstep_last_error(), HasSubstr("expected options with a size of at most"));
  }
  lockstep_session_options session_options = {};
  lockstep_session* other = nullptr;
  EXPECT_EQ(lockstep_init(&session_options, &other), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("start from the defaults, got 0"));
}

TEST_F(CApi, ClipsAndReturnsTheNorm) {
  lockstep_options options = lockstep_default_options();
  options.clip_norm = 2.5;
  ASSERT_EQ(create(options), LOCKSTEP_OK);
  gradients_ = {3, 0, 4};
  EXPECT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_synchronize(optimizer_), LOCKSTEP_OK);
  EXPECT_THAT(gradients_, ElementsAre(1.5, 0, 2));
  EXPECT_EQ(lockstep_gradient_norm(optimizer_), 5);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_OK);
}

TEST_F(CApi, ReturnsErrorStatusAndMessage) {
  EXPECT_EQ(lockstep_init(nullptr, nullptr), LOCKSTEP_INPUT);
  EXPECT_STREQ(lockstep_last_error(),
               "[lockstep_init] expected a pointer for the session, got NULL");
  EXPECT_EQ(lockstep_barrier(session_), LOCKSTEP_OK);
  EXPECT_STREQ(lockstep_last_error(), "");
  float value = 0;
  EXPECT_EQ(lockstep_all_reduce(session_, &value, 1, 9, LOCKSTEP_SUM), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected a type of enum lockstep_type, got 9"));
  EXPECT_EQ(lockstep_all_reduce(session_, &value, 1, LOCKSTEP_FLOAT32, 9), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("LOCKSTEP_PRODUCT or LOCKSTEP_AVERAGE, got 9"));
  EXPECT_EQ(lockstep_broadcast(session_, &value, 4, 1), LOCKSTEP_INPUT);
  EXPECT_STREQ(lockstep_last_error(), "[lockstep_broadcast] expected a root from 0 to 0, got 1");
  EXPECT_EQ(lockstep_broadcast(session_, nullptr, 4, 0), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_all_gather(session_, &value, 4, nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_any(session_, 1, nullptr), LOCKSTEP_INPUT);
}

TEST_F(CApi, RejectsInvalidOptimizers) {
  lockstep_options options = lockstep_default_options();
  options.compression = LOCKSTEP_INT32;
  EXPECT_EQ(create(options), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected compression LOCKSTEP_FLOAT32"));
  EXPECT_EQ(optimizer_, nullptr);
  parameters_[1].name = "a";
  EXPECT_EQ(lockstep_optimizer_create(session_, parameters_.data(), 2, nullptr, descend, this,
                                      &optimizer_),
            LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("parameters 0 and 1 are both named a"));
  parameters_[1].name = nullptr;
  EXPECT_EQ(lockstep_optimizer_create(session_, parameters_.data(), 2, nullptr, descend, this,
                                      &optimizer_),
            LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected a name for each parameter, got NULL"));
  EXPECT_EQ(lockstep_optimizer_create(session_, parameters_.data(), 1, nullptr, nullptr, this,
                                      &optimizer_),
            LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected an update function, got NULL"));
}

TEST_F(CApi, ReportsAFailedUpdate) {
  ASSERT_EQ(create(lockstep_default_options()), LOCKSTEP_OK);
  fails_ = 3;
  EXPECT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected the update function to return 0, got 3"));
}

TEST_F(CApi, RejectsNullOptimizers) {
  EXPECT_EQ(lockstep_broadcast_parameters(nullptr, 0), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_begin_backward(nullptr, 1), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_gradient_ready(nullptr, 0), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_backward_done(nullptr, 1), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_synchronize(nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_flush(nullptr, nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_step(nullptr, nullptr), LOCKSTEP_INPUT);
  EXPECT_STREQ(lockstep_last_error(), "[lockstep_step] expected an optimizer, got NULL");
  EXPECT_EQ(lockstep_gradient_norm(nullptr), 0);
}

TEST(CApiSession, AcceptsOptionsAndRejectsUnknownRoutes) {
  lockstep_session_options options = lockstep_default_session_options();
  EXPECT_EQ(options.stall_timeout, 120);
  options.all_reduce = "pigeons";
  lockstep_session* session = nullptr;
  EXPECT_EQ(lockstep_init(&options, &session), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("pigeons"));
  EXPECT_EQ(session, nullptr);
  options.all_reduce = "auto";
  EXPECT_EQ(options.communicator, -1);
  options.communicator = 0;
  EXPECT_EQ(lockstep_init(&options, &session), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected MPI_Init before a session with a comm"));
  EXPECT_EQ(session, nullptr);
  options.communicator = -1;
  EXPECT_EQ(options.start_timeout, -1);
  options.start_timeout = 30;
  options.stall_timeout = 0;
  EXPECT_EQ(lockstep_init(&options, &session), LOCKSTEP_OK);
  lockstep_still_at_work(session);
  lockstep_finalize(session);
}

TEST_F(CApi, ReportsTheExpectedCallOrder) {
  ASSERT_EQ(create(lockstep_default_options()), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("expected a backward pass before step()"));
}

TEST_F(CApi, ContinuesAfterMisuse) {
  ASSERT_EQ(create(lockstep_default_options()), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_broadcast(session_, values_.data(), 4, 77), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_barrier(session_), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_broadcast_parameters(optimizer_, -1), LOCKSTEP_INPUT);
  EXPECT_STREQ(lockstep_last_error(),
               "[lockstep_broadcast_parameters] expected a root from 0 to 0, got -1");
  EXPECT_EQ(lockstep_broadcast_parameters(optimizer_, 0), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_gradient_ready(optimizer_, 0), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_backward_done(optimizer_, -1), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_begin_backward(optimizer_, 2), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_begin_backward(optimizer_, 2), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_gradient_ready(optimizer_, 7), LOCKSTEP_INPUT);
  gradients_ = {1, 1, 1};
  EXPECT_EQ(lockstep_gradient_ready(optimizer_, 0), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_gradient_ready(optimizer_, 0), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_backward_done(optimizer_, 3), LOCKSTEP_INPUT) << "it began with 2 samples";
  EXPECT_EQ(lockstep_backward_done(optimizer_, 2), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_EQ(lockstep_backward_done(optimizer_, 2), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_flush(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_THAT(values_, ElementsAre(0, 1, 2));
}

TEST_F(CApi, UsesReportedGradientsAfterARejectedChange) {
  lockstep_options options = lockstep_default_options();
  options.backward_passes_per_step = 2;
  ASSERT_EQ(create(options), LOCKSTEP_OK);
  for (int pass = 0; pass < 2; ++pass) {
    gradients_ = {1, 1, 1};
    ASSERT_EQ(lockstep_backward_done(optimizer_, 2), LOCKSTEP_OK) << lockstep_last_error();
  }
  gradients_ = {9, 9, 9};
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), ::testing::HasSubstr(" was changed"));
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_OK) << lockstep_last_error();
  EXPECT_THAT(gradients_, ElementsAre(1, 1, 1));
}

TEST_F(CApi, UsesReportedGradientsOnOneRank) {
  ASSERT_EQ(create(lockstep_default_options()), LOCKSTEP_OK);
  for (int step = 0; step < 6; ++step) {
    gradients_ = {1, 1, 1};
    ASSERT_EQ(lockstep_backward_done(optimizer_, 2), LOCKSTEP_OK) << lockstep_last_error();
    if (step == 4) {
      gradients_ = {1, 1, 9};
      EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
      EXPECT_THAT(lockstep_last_error(), ::testing::HasSubstr("the gradient of b was changed"));
    }
    EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_OK) << lockstep_last_error();
  }
  EXPECT_THAT(values_, ElementsAre(-5, -4, -3));
}

// Calls that fail for another reason must not end the check of reported gradients.
TEST_F(CApi, RejectsAChangedGradientAfterAnotherMisuse) {
  ASSERT_EQ(create(lockstep_default_options()), LOCKSTEP_OK);
  ASSERT_EQ(lockstep_begin_backward(optimizer_, 1), LOCKSTEP_OK);
  gradients_ = {1, 1, 1};
  ASSERT_EQ(lockstep_gradient_ready(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  ASSERT_EQ(lockstep_backward_done(optimizer_, 1), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_flush(optimizer_, nullptr), LOCKSTEP_INPUT);
  gradients_ = {1, 1, 9};
  EXPECT_EQ(lockstep_step(optimizer_, nullptr), LOCKSTEP_INPUT);
  EXPECT_THAT(lockstep_last_error(), ::testing::HasSubstr("the gradient of b was changed"));
}

TEST(CApiOfNull, HasNoRanks) {
  for (const auto number : {lockstep_rank, lockstep_world_size, lockstep_local_rank,
                            lockstep_local_size, lockstep_node})
    EXPECT_EQ(number(nullptr), -1);
}

TEST_F(CApi, RejectsASecondSession) {
  lockstep_session* const first = session_;
  EXPECT_EQ(lockstep_init(nullptr, &session_), LOCKSTEP_INPUT);
  EXPECT_STREQ(lockstep_last_error(),
               "[session] expected one session per process, got a second one before the end of the "
               "first");
  EXPECT_EQ(session_, first);
  lockstep_session* second = nullptr;
  EXPECT_EQ(lockstep_init(nullptr, &second), LOCKSTEP_INPUT);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(lockstep_barrier(session_), LOCKSTEP_OK) << lockstep_last_error();
}

}  // namespace
