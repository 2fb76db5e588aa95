#include "strategy/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/error.h"

namespace lockstep::strategy {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr const char* kJobs =
    R"("cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]})";
constexpr const char* kWorkersAlone = R"("cluster": {"worker": ["b:1", "c:1"]})";

Cluster cluster_of(const std::string& jobs, const std::string& type, int index) {
  const auto cluster =
      Cluster::parse("{" + jobs + R"(, "task": {"type": ")" + type + R"(", "index": )" + std::to_string(index) + "}}");
  return cluster.value();
}

/// The message of the Error (input) that `call` throws.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

std::string parse_refusal(const std::string& text) {
  return refusal([&] { Cluster::parse(text); });
}

/// TF_CONFIG for the life of the object.
class TfConfig {
 public:
  explicit TfConfig(const char* text) { text == nullptr ? ::unsetenv("TF_CONFIG") : ::setenv("TF_CONFIG", text, 1); }
  TfConfig(const TfConfig&) = delete;
  TfConfig& operator=(const TfConfig&) = delete;
  ~TfConfig() { ::unsetenv("TF_CONFIG"); }
};

TEST(Cluster, AbsentOrEmptyIsNoCluster) {
  {
    const TfConfig unset(nullptr);
    EXPECT_FALSE(Cluster::from_environment().has_value());
  }
  const TfConfig empty("");
  EXPECT_FALSE(Cluster::from_environment().has_value());
  EXPECT_FALSE(Cluster::parse(" \n").has_value());
  EXPECT_FALSE(Cluster::parse("{}").has_value());
  EXPECT_FALSE(Cluster::parse(R"({"cluster": {}, "task": {"type": "worker", "index": 0}})").has_value());
}

TEST(Cluster, ReadsTheEnvironment) {
  const TfConfig config(
      R"({"cluster": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"})");
  const Cluster cluster = Cluster::from_environment().value();
  EXPECT_EQ(cluster.task_type(), TaskType::worker);
  EXPECT_EQ(cluster.task_index(), 1);
  EXPECT_EQ(cluster.task_name(), "worker:1");
  EXPECT_THAT(cluster.tasks(TaskType::worker), ElementsAre("b:1", "c:1"));
  EXPECT_TRUE(cluster.tasks(TaskType::ps).empty());
}

TEST(Cluster, TheIndexMayBeText) {
  EXPECT_EQ(Cluster::parse(R"({"cluster": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": "1"}})")
                ->task_index(),
            1);
}

struct Role {
  const char* name;
  const char* jobs;
  const char* type;
  int index;
  bool chief;
  int rank;
  int count;
};

std::ostream& operator<<(std::ostream& out, const Role& role) { return out << role.name; }
std::string name_of_role(const ::testing::TestParamInfo<Role>& info) { return info.param.name; }

class ClusterRole : public ::testing::TestWithParam<Role> {};

TEST_P(ClusterRole, IsThatOfTfDistribute) {
  const Role& role = GetParam();
  const Cluster cluster = cluster_of(role.jobs, role.type, role.index);
  EXPECT_EQ(cluster.is_chief(), role.chief);
  EXPECT_EQ(cluster.worker_rank(), role.rank);
  EXPECT_EQ(cluster.worker_count(), role.count);
  EXPECT_NO_THROW(cluster.check_against_mpi(role.rank, role.count));
}

INSTANTIATE_TEST_SUITE_P(
    Roles, ClusterRole,
    ::testing::Values(Role{"chief", kJobs, "chief", 0, true, 0, 3},
                      Role{"worker_0_beside_a_chief", kJobs, "worker", 0, false, 1, 3},
                      Role{"worker_1_beside_a_chief", kJobs, "worker", 1, false, 2, 3},
                      Role{"evaluator", kJobs, "evaluator", 0, true, 0, 1},
                      Role{"worker_0_of_workers", kWorkersAlone, "worker", 0, true, 0, 2},
                      Role{"worker_1_of_workers", kWorkersAlone, "worker", 1, false, 1, 2},
                      Role{"chief_alone", R"("cluster": {"chief": ["a:1"]})", "chief", 0, true, 0, 1},
                      Role{"worker_alone", R"("cluster": {"worker": ["a:1"]})", "worker", 0, true, 0, 1}),
    name_of_role);

TEST(Cluster, AParameterServerTakesNoPart) {
  const Cluster server = cluster_of(kJobs, "ps", 0);
  EXPECT_FALSE(server.is_chief());
  EXPECT_EQ(refusal([&] { server.check_against_mpi(0, 3); }),
            "[TF_CONFIG] needed a chief, worker or evaluator: multi-worker training has no parameter servers; this "
            "task is ps:0");
}

TEST(Cluster, RefusesWhatIsNoTfConfig) {
  EXPECT_THAT(parse_refusal("{\"cluster\":"), StartsWith("[TF_CONFIG] needed JSON; "));
  EXPECT_EQ(parse_refusal("[1]"), "[TF_CONFIG] needed an object with \"cluster\" and \"task\"; got [1]");
  EXPECT_EQ(parse_refusal(R"({"cluster": ["a:1"]})"),
            "[TF_CONFIG] needed a \"cluster\" that lists addresses by type of task; got [\"a:1\"]");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": "a:1"}})"),
            "[TF_CONFIG] needed a list of addresses \"host:port\" for worker; got \"a:1\"");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": [""]}})"),
            "[TF_CONFIG] needed a list of addresses \"host:port\" for worker; got [\"\"]");
}

TEST(Cluster, RefusesUnknownTypes) {
  const std::string needed = "[TF_CONFIG] needed tasks of type chief, worker, ps or evaluator; ";
  EXPECT_EQ(parse_refusal(R"({"cluster": {"master": ["a:1"]}})"), needed + "got \"master\"");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "boss", 0); }), needed + "got \"boss\"");
}

TEST(Cluster, RefusesSeveralChiefsOrEvaluators) {
  EXPECT_EQ(parse_refusal(R"({"cluster": {"chief": ["a:1", "b:1"]}})"), "[TF_CONFIG] needed at most one chief; got 2");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"evaluator": ["a:1", "b:1", "c:1"]}})"),
            "[TF_CONFIG] needed at most one evaluator; got 3");
}

TEST(Cluster, RefusesATaskThatIsNotInTheCluster) {
  const std::string cluster = std::string("{") + kWorkersAlone;
  const std::string needed = "[TF_CONFIG] needed a \"task\" with \"type\" and \"index\" beside the cluster; ";
  EXPECT_EQ(parse_refusal(cluster + "}"), needed + "there is none");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker"}})"), needed + R"(got {"type":"worker"})");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": 1, "index": 0}})"), needed + R"(got {"index":0,"type":1})");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "chief", 0); }),
            "[TF_CONFIG] needed a task of the cluster; the cluster has no chief");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "worker", 2); }),
            "[TF_CONFIG] needed a worker index below 2; got 2");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "worker", -1); }), "[TF_CONFIG] needed a task index from 0; got -1");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker", "index": "one"}})"),
            "[TF_CONFIG] needed a task index from 0; got \"one\"");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker", "index": 1.0}})"),
            "[TF_CONFIG] needed a task index from 0; got 1.0");
}

TEST(Cluster, AnEmptyJobHasNoTasks) {
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}})"),
            "[TF_CONFIG] needed a worker index below 0; got 0");
}

TEST(Cluster, MustAgreeWithMpi) {
  const Cluster cluster = cluster_of(kJobs, "worker", 0);
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(2, 3); }),
            "[TF_CONFIG] needed the same cluster as MPI's, where this is rank 2 of 3; it says worker:0, which is rank "
            "1 of 3");
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(1, 4); }),
            "[TF_CONFIG] needed the same cluster as MPI's, where this is rank 1 of 4; it says worker:0, which is rank "
            "1 of 3");
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(0, 1); }),
            "[TF_CONFIG] needed the same cluster as MPI's, where this is rank 0 of 1; it says worker:0, which is rank "
            "1 of 3; start all "
            "tasks with one mpirun");
}

}  // namespace
}  // namespace lockstep::strategy
