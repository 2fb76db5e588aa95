#include "lockstep/job/launch/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "tests/job/refusal.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr const char* kJobs =
    R"("cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]})";
constexpr const char* kWorkersAlone = R"("cluster": {"worker": ["b:1", "c:1"]})";

Cluster cluster_of(const std::string& jobs, const std::string& type, int index) {
  const auto cluster = Cluster::parse("{" + jobs + R"(, "task": {"type": ")" + type +
                                      R"(", "index": )" + std::to_string(index) + "}}");
  return cluster.value();
}

std::string parse_refusal(const std::string& text) {
  return refusal([&] { Cluster::parse(text); });
}

/// Sets TF_CONFIG for the lifetime of the object.
class TfConfig {
 public:
  explicit TfConfig(const char* text) {
    text == nullptr ? ::unsetenv("TF_CONFIG") : ::setenv("TF_CONFIG", text, 1);
  }
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
  EXPECT_FALSE(
      Cluster::parse(R"({"cluster": {}, "task": {"type": "worker", "index": 0}})").has_value());
}

TEST(Cluster, ReadsTheEnvironment) {
  const TfConfig config(
      R"({"cluster": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"})");
  const Cluster cluster = Cluster::from_environment().value();
  EXPECT_EQ(cluster.task_name(), "worker:1");
  EXPECT_THAT(cluster.tasks(TaskType::worker), ElementsAre("b:1", "c:1"));
  EXPECT_TRUE(cluster.tasks(TaskType::ps).empty());
}

TEST(Cluster, TheIndexMayBeText) {
  EXPECT_EQ(
      Cluster::parse(
          R"({"cluster": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": "1"}})")
          ->task_name(),
      "worker:1");
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

TEST_P(ClusterRole, MatchesTfDistribute) {
  const Role& role = GetParam();
  const Cluster cluster = cluster_of(role.jobs, role.type, role.index);
  EXPECT_EQ(cluster.is_chief(), role.chief);
  EXPECT_EQ(cluster.worker_rank(), role.rank);
  EXPECT_EQ(cluster.worker_count(), role.count);
  EXPECT_NO_THROW(cluster.check_against_mpi(role.rank, role.count));
}

INSTANTIATE_TEST_SUITE_P(
    Roles, ClusterRole,
    ::testing::Values(
        Role{"chief", kJobs, "chief", 0, true, 0, 3},
        Role{"worker_0_beside_a_chief", kJobs, "worker", 0, false, 1, 3},
        Role{"worker_1_beside_a_chief", kJobs, "worker", 1, false, 2, 3},
        Role{"evaluator", kJobs, "evaluator", 0, true, 0, 1},
        Role{"worker_0_of_workers", kWorkersAlone, "worker", 0, true, 0, 2},
        Role{"worker_1_of_workers", kWorkersAlone, "worker", 1, false, 1, 2},
        Role{"chief_alone", R"("cluster": {"chief": ["a:1"]})", "chief", 0, true, 0, 1},
        Role{"worker_alone", R"("cluster": {"worker": ["a:1"]})", "worker", 0, true, 0, 1}),
    name_of_role);

TEST(Cluster, RejectsAParameterServer) {
  const Cluster server = cluster_of(kJobs, "ps", 0);
  EXPECT_FALSE(server.is_chief());
  EXPECT_EQ(refusal([&] { server.check_against_mpi(0, 3); }),
            "[TF_CONFIG] expected a chief, worker or evaluator: multi-worker training has no "
            "parameter servers; this "
            "task is ps:0");
}

TEST(Cluster, RejectsInvalidText) {
  EXPECT_THAT(parse_refusal("{\"cluster\":"), StartsWith("[TF_CONFIG] expected JSON, got "));
  EXPECT_EQ(parse_refusal("[1]"),
            "[TF_CONFIG] expected an object with \"cluster\" and \"task\", got an array of 1");
  EXPECT_EQ(
      parse_refusal(R"({"cluster": ["a:1"]})"),
      "[TF_CONFIG] expected a \"cluster\" that lists addresses by type of task, got an array of 1");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": "a:1"}})"),
            "[TF_CONFIG] expected a list of addresses \"host:port\" for worker, got \"a:1\"");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": [""]}})"),
            "[TF_CONFIG] expected a list of addresses \"host:port\" for worker, got an array of 1");
}

TEST(Cluster, RejectsUnknownTypes) {
  const std::string needed = "[TF_CONFIG] expected tasks of type chief, worker, ps or evaluator, ";
  EXPECT_EQ(parse_refusal(R"({"cluster": {"master": ["a:1"]}})"), needed + "got \"master\"");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "boss", 0); }), needed + "got \"boss\"");
}

TEST(Cluster, RejectsSeveralChiefsOrEvaluators) {
  EXPECT_EQ(parse_refusal(R"({"cluster": {"chief": ["a:1", "b:1"]}})"),
            "[TF_CONFIG] expected at most one chief, got 2");
  EXPECT_EQ(parse_refusal(R"({"cluster": {"evaluator": ["a:1", "b:1", "c:1"]}})"),
            "[TF_CONFIG] expected at most one evaluator, got 3");
}

TEST(Cluster, RejectsATaskOutsideTheCluster) {
  const std::string cluster = std::string("{") + kWorkersAlone;
  const std::string needed =
      "[TF_CONFIG] expected a \"task\" with \"type\" and \"index\" next to the cluster";
  EXPECT_EQ(parse_refusal(cluster + "}"), needed + "; there is none");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker"}})"),
            needed + ", got an object of 1 key");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": 1, "index": 0}})"),
            needed + ", got an object of 2 keys");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "chief", 0); }),
            "[TF_CONFIG] expected a task of the cluster; the cluster has no chief");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "worker", 2); }),
            "[TF_CONFIG] expected a worker index below 2, got 2");
  EXPECT_EQ(refusal([] { cluster_of(kWorkersAlone, "worker", -1); }),
            "[TF_CONFIG] expected a task index from 0, got -1");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker", "index": "one"}})"),
            "[TF_CONFIG] expected a task index from 0, got \"one\"");
  EXPECT_EQ(parse_refusal(cluster + R"(, "task": {"type": "worker", "index": 1.0}})"),
            "[TF_CONFIG] expected a task index from 0, got 1.0");
}

TEST(Cluster, AnEmptyJobHasNoTasks) {
  EXPECT_EQ(parse_refusal(R"({"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}})"),
            "[TF_CONFIG] expected a worker index below 0, got 0");
}

/// A value of TF_CONFIG, and the rank of the task, the number of ranks and the first rank according
/// to tf.distribute.
struct ValidForm {
  const char* name;
  const char* text;
  const char* task;
  bool chief;
  int rank;
  std::vector<std::string> addresses;
};
std::ostream& operator<<(std::ostream& out, const ValidForm& form) { return out << form.name; }

class ValidTfConfig : public ::testing::TestWithParam<ValidForm> {};

TEST_P(ValidTfConfig, IsReadAsByTfDistribute) {
  const ValidForm& form = GetParam();
  const Cluster cluster = Cluster::parse(form.text).value();
  EXPECT_EQ(cluster.task_name(), form.task);
  EXPECT_EQ(cluster.is_chief(), form.chief);
  EXPECT_EQ(cluster.worker_rank(), form.rank);
  EXPECT_EQ(cluster.worker_addresses(), form.addresses);
  EXPECT_EQ(cluster.worker_count(), static_cast<int>(form.addresses.size()));
  ASSERT_EQ(cluster.worker_names().size(), form.addresses.size());
  EXPECT_EQ(cluster.worker_names()[static_cast<std::size_t>(form.rank)], form.task);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, ValidTfConfig,
    ::testing::Values(
        ValidForm{"one_worker",
                  R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}})",
                  "worker:0",
                  true,
                  0,
                  {"a:1"}},
        ValidForm{
            "the_last_of_workers",
            R"({"cluster":{"worker":["a:1","b:1","c:1"]},"task":{"type":"worker","index":2}})",
            "worker:2",
            false,
            2,
            {"a:1", "b:1", "c:1"}},
        ValidForm{"workers_of_one_host",
                  R"({"cluster":{"worker":["a:1","a:2"]},"task":{"type":"worker","index":1}})",
                  "worker:1",
                  false,
                  1,
                  {"a:1", "a:2"}},
        ValidForm{
            "a_chief_before_workers_whatever_the_order",
            R"({"cluster":{"worker":["b:1","c:1"],"chief":["a:1"]},"task":{"type":"worker","index":0}})",
            "worker:0",
            false,
            1,
            {"a:1", "b:1", "c:1"}},
        ValidForm{
            "the_chief",
            R"({"cluster":{"worker":["b:1"],"chief":["a:1"]},"task":{"type":"chief","index":0}})",
            "chief:0",
            true,
            0,
            {"a:1", "b:1"}},
        ValidForm{
            "parameter_servers_do_not_count",
            R"({"cluster":{"worker":["b:1"],"ps":["p:1","q:1"]},"task":{"type":"worker","index":0}})",
            "worker:0",
            true,
            0,
            {"b:1"}},
        ValidForm{
            "an_evaluator_does_not_count",
            R"({"cluster":{"worker":["b:1"],"evaluator":["e:1"]},"task":{"type":"worker","index":0}})",
            "worker:0",
            true,
            0,
            {"b:1"}},
        ValidForm{
            "an_evaluator_is_alone",
            R"({"cluster":{"chief":["a:1"],"worker":["b:1"],"evaluator":["e:1"]},"task":{"type":"evaluator","index":0}})",
            "evaluator:0",
            true,
            0,
            {"e:1"}},
        ValidForm{"an_index_as_text",
                  R"({"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":"1"}})",
                  "worker:1",
                  false,
                  1,
                  {"a:1", "b:1"}},
        ValidForm{
            "addresses_of_ipv6",
            R"({"cluster":{"worker":["[::1]:1","[::2]:1"]},"task":{"type":"worker","index":1}})",
            "worker:1",
            false,
            1,
            {"[::1]:1", "[::2]:1"}},
        ValidForm{"other_keys",
                  R"({"environment":"cloud","rpc_layer":"grpc","cluster":{"worker":["a:1"]},
                                    "task":{"type":"worker","index":0,"trial":"7"},"job":{}})",
                  "worker:0",
                  true,
                  0,
                  {"a:1"}}),
    [](const auto& form) { return form.param.name; });

/// An invalid value, and its error message.
struct InvalidForm {
  const char* name;
  const char* text;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const InvalidForm& form) { return out << form.name; }

class InvalidTfConfig : public ::testing::TestWithParam<InvalidForm> {};

TEST_P(InvalidTfConfig, IsRejected) {
  EXPECT_THAT(parse_refusal(GetParam().text), StartsWith(GetParam().message));
}

constexpr const char* kNoTask =
    "[TF_CONFIG] expected a \"task\" with \"type\" and \"index\" next to the cluster";
constexpr const char* kNoIndex = "[TF_CONFIG] expected a task index from 0, got ";
constexpr const char* kNoAddresses =
    "[TF_CONFIG] expected a list of addresses \"host:port\" for worker, got ";

INSTANTIATE_TEST_SUITE_P(
    Forms, InvalidTfConfig,
    ::testing::Values(
        InvalidForm{"single_quotes", "{'cluster': {}}", "[TF_CONFIG] expected JSON, got "},
        InvalidForm{"a_comma_too_many", R"({"cluster":{"worker":["a:1",]}})",
                    "[TF_CONFIG] expected JSON, got "},
        InvalidForm{"two_objects", "{} {}", "[TF_CONFIG] expected JSON, got "},
        InvalidForm{"a_text", R"("worker")",
                    "[TF_CONFIG] expected an object with \"cluster\" and \"task\", got \"worker\""},
        InvalidForm{"nothing_but_brackets", "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
                    "[TF_CONFIG] expected JSON, got more than 8 levels"},
        InvalidForm{"null", "null",
                    "[TF_CONFIG] expected an object with \"cluster\" and \"task\", got null"},
        InvalidForm{"a_cluster_of_null", R"({"cluster":null})",
                    "[TF_CONFIG] expected a \"cluster\" that lists addresses"},
        InvalidForm{"jobs_as_objects",
                    R"({"cluster":{"worker":{"0":"a:1"}},"task":{"type":"worker","index":0}})",
                    kNoAddresses},
        InvalidForm{"addresses_as_numbers",
                    R"({"cluster":{"worker":[2222]},"task":{"type":"worker","index":0}})",
                    kNoAddresses},
        InvalidForm{
            "an_unknown_type",
            R"({"cluster":{"master":["a:1"]},"task":{"type":"master","index":0}})",
            "[TF_CONFIG] expected tasks of type chief, worker, ps or evaluator, got \"master\""},
        InvalidForm{
            "a_type_in_capitals",
            R"({"cluster":{"worker":["a:1"]},"task":{"type":"Worker","index":0}})",
            "[TF_CONFIG] expected tasks of type chief, worker, ps or evaluator, got \"Worker\""},
        InvalidForm{"a_type_that_is_not_in_the_cluster",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"chief","index":0}})",
                    "[TF_CONFIG] expected a task of the cluster; the cluster has no chief"},
        InvalidForm{"two_chiefs",
                    R"({"cluster":{"chief":["a:1","b:1"]},"task":{"type":"chief","index":0}})",
                    "[TF_CONFIG] expected at most one chief, got 2"},
        InvalidForm{
            "two_evaluators",
            R"({"cluster":{"worker":["a:1"],"evaluator":["d:1","e:1"]},"task":{"type":"worker","index":0}})",
            "[TF_CONFIG] expected at most one evaluator, got 2"},
        InvalidForm{"an_index_beyond_the_last",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1}})",
                    "[TF_CONFIG] expected a worker index below 1, got 1"},
        InvalidForm{"an_index_below_0",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":-1}})",
                    kNoIndex},
        InvalidForm{"an_index_of_null",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":null}})",
                    kNoIndex},
        InvalidForm{"an_index_of_true",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":true}})",
                    kNoIndex},
        InvalidForm{
            "an_index_beyond_numbers",
            R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":99999999999}})",
            kNoIndex},
        InvalidForm{"an_empty_index",
                    R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":""}})",
                    kNoIndex},
        InvalidForm{"no_task", R"({"cluster":{"worker":["a:1"]}})", kNoTask},
        InvalidForm{"a_task_without_a_type", R"({"cluster":{"worker":["a:1"]},"task":{"index":0}})",
                    kNoTask},
        InvalidForm{"a_task_as_text", R"({"cluster":{"worker":["a:1"]},"task":"worker:0"})",
                    kNoTask}),
    [](const auto& form) { return form.param.name; });

TEST(Cluster, MustAgreeWithMpi) {
  const Cluster cluster = cluster_of(kJobs, "worker", 0);
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(2, 3); }),
            "[TF_CONFIG] expected a cluster that matches MPI, where this is rank 2 of 3; it names "
            "worker:0, which is "
            "rank 1 of 3");
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(1, 4); }),
            "[TF_CONFIG] expected a cluster that matches MPI, where this is rank 1 of 4; it names "
            "worker:0, which is "
            "rank 1 of 3");
  EXPECT_EQ(refusal([&] { cluster.check_against_mpi(0, 1); }),
            "[TF_CONFIG] expected a cluster that matches MPI, where this is rank 0 of 1; it names "
            "worker:0, which is "
            "rank 1 of 3; start all tasks with one mpirun, or use --transport tcp");
}

}  // namespace
}  // namespace lockstep::inline v0::job
