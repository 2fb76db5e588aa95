#include "lockstep/strategy/strategies.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using allreduce::Route;
using ::testing::HasSubstr;

std::vector<device::Device> cpus(std::size_t count) { return std::vector<device::Device>(count); }

TEST(MakeStrategy, ChoosesByRanksAndDevices) {
  job::Session session(0, nullptr);
  EXPECT_EQ(make_strategy(session)->name(), "one-device");
  EXPECT_EQ(make_strategy(session, "auto", cpus(1))->name(), "one-device");
  EXPECT_EQ(make_strategy(session, "auto", cpus(3))->name(), "mirrored");
}

TEST(MakeStrategy, NamesVariablesThatOnlyWrappedLoopsUse) {
  setenv("LOCKSTEP_BUCKET_BYTES", "1000", 1);
  job::Session session(0, nullptr);
  unsetenv("LOCKSTEP_BUCKET_BYTES");
  ::testing::internal::CaptureStderr();
  static_cast<void>(make_strategy(session, "auto", cpus(1)));
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "lockstep: warning: LOCKSTEP_BUCKET_BYTES has no effect here: only programs that wrap a "
      "loop of their own use it\n");
}

TEST(MakeStrategy, UsesTheNamedStrategy) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "multi-worker-mirrored", cpus(2));
  EXPECT_EQ(strategy->name(), "multi-worker-mirrored");
  EXPECT_EQ(strategy->num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy->local_replicas(), 2);
  EXPECT_EQ(strategy->first_replica(), 0);
  EXPECT_EQ(make_strategy(session, "mirrored", cpus(1))->num_replicas_in_sync(), 1);
}

TEST(MakeStrategy, RejectsUnknownNames) {
  job::Session session(0, nullptr);
  EXPECT_EQ(
      error_of([&] { make_strategy(session, "mirror", cpus(1)); }),
      "[strategy] expected auto, one-device, mirrored, multi-worker-mirrored or local-steps, got "
      "\"mirror\" (did "
      "you mean mirrored?)");
  EXPECT_THAT(error_of([&] { make_strategy(session, "one-device", cpus(2)); }),
              HasSubstr("expected exactly one device for one-device"));
  EXPECT_THAT(error_of([&] { make_strategy(session, "mirrored", {}); }),
              HasSubstr("at least one device"));
}

TEST(MakeStrategy, SuggestsReplacementsForTfDistribute) {
  for (const char* name : {"tpu", "TPUStrategy"})
    EXPECT_EQ(error_of([&] { parse_strategy("--strategy", name); }),
              fmt::format("[--strategy] expected mirrored for the processors or GPUs of one host, "
                          "multi-worker-mirrored for those of several; TPUs are not supported, got "
                          "\"{}\"",
                          name));
  for (const char* name : {"central-storage", "central_storage", "CentralStorageStrategy"})
    EXPECT_THAT(error_of([&] { parse_strategy("--strategy", name); }),
                HasSubstr("expected mirrored, which has the variables of central storage"))
        << name;
  EXPECT_EQ(error_of([&] { parse_strategy("--strategy", "DiLoCo"); }),
            "[--strategy] expected local-steps with --outer-step nesterov, got \"DiLoCo\"");
  job::Session session(0, nullptr);
  EXPECT_EQ(make_strategy(session, "local-steps", cpus(2))->name(), "local-steps");
  EXPECT_THAT(error_of([&] { make_strategy(session, "parameter-server", cpus(1)); }),
              HasSubstr("[strategy] expected multi-worker-mirrored"));
}

TEST(MakeStrategy, RejectsRoutesBetweenRanksForOneProcess) {
  job::Session session(0, nullptr);
  EXPECT_EQ(
      error_of([&] { make_strategy(session, "auto", cpus(2), {.route = Route::ring}); }),
      "[--allreduce] expected ranks started by mpirun for ring; this process was started alone");
}

TEST(Strategy, ListsPlacements) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", cpus(2));
  ASSERT_EQ(strategy->placements().size(), 2U);
  EXPECT_EQ(strategy->placements()[1].replica, 1);
  EXPECT_EQ(strategy->placements()[1].device, "cpu:0");
  EXPECT_GE(strategy->placements()[1].cores, 1);
  EXPECT_THAT(strategy->table(), HasSubstr("replica"));
  EXPECT_THAT(strategy->table(), HasSubstr(strategy->placements()[0].host));
}

TEST(Strategy, ErrorOfOneReplicaAbortsTheOthers) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", cpus(3));
  const auto body = [&](int local) {
    if (local == 1) throw Error(ErrorCategory::data, "replica", "expected luck", "had none");
    strategy->group(local).barrier();
  };
  EXPECT_EQ(error_of([&] { strategy->run(body); }), "[replica] expected luck; had none");
}

/// Sets TF_CONFIG during a test.
class WithTfConfig {
 public:
  explicit WithTfConfig(const char* text) { setenv("TF_CONFIG", text, 1); }
  ~WithTfConfig() { unsetenv("TF_CONFIG"); }
};

TEST(MultiWorkerMirroredStrategy, ChecksTfConfigAgainstMpi) {
  job::Session session(0, nullptr);
  const WithTfConfig two(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_THAT(
      error_of([&] { make_strategy(session, "multi-worker-mirrored", cpus(1)); }),
      HasSubstr(
          "expected a TF_CONFIG that agrees with the launcher on every rank, or none; rank 0: "));
}

TEST(MakeStrategy, RejectsASingleWorkerOfSeveralInTfConfig) {
  job::Session session(0, nullptr);
  const WithTfConfig two(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})");
  EXPECT_THAT(error_of([&] { make_strategy(session, "auto", cpus(1)); }), HasSubstr("TF_CONFIG"));
}

TEST(MultiWorkerMirroredStrategy, AcceptsATfConfigThatAgrees) {
  job::Session session(0, nullptr);
  const WithTfConfig one(
      R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(make_strategy(session, "multi-worker-mirrored", cpus(1))->num_replicas_in_sync(), 1);
}

}  // namespace
}  // namespace lockstep::inline v0::train
