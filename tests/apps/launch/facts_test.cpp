// Messages between tasks, agents and hosts of a launch, and their validation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/daemon.h"
#include "apps/lockstep/launch/messages.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The message of Error (communication); empty if none was thrown.
std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::communication);
    return error.what();
  }
  return "";
}

const JoinRequest kJoinRequest{.job = "j",
                               .rank = 3,
                               .ranks = 4,
                               .local_ranks = 2,
                               .host = "h",
                               .place = "p q",
                               .processors = {0, 5},
                               .gpus = "1,GPU-8932f937",
                               .interface = "eth0",
                               .addresses = {"10.0.0.1", "::2"},
                               .port = 65535};

TEST(JoinRequest, RoundTrips) {
  EXPECT_EQ(parse_join_request(to_text(kJoinRequest)), kJoinRequest);
}

TEST(JoinRequest, RejectsInvalidFields) {
  const auto with = [](const char* name, const json& value) {
    json text = json::parse(to_text(kJoinRequest));
    text[name] = value;
    return refusal_of([&] { parse_join_request(text.dump()); });
  };
  EXPECT_EQ(with("rank", 3), "");
  for (const json& rank : {json(4), json(-1), json(1e300), json("3"), json(18446744073709551615U)})
    EXPECT_THAT(with("rank", rank), HasSubstr("expected a number from 0 to 3")) << rank;
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a;b", "a:2", "a,b", "$(x)", "../a"})
    EXPECT_THAT(with("host", host), HasSubstr("the name of a host")) << host;
  EXPECT_THAT(with("gpus", "0 -x LD_PRELOAD=x"), HasSubstr("a list of GPUs"));
  EXPECT_THAT(with("interface", "eth0,eth1"), HasSubstr("the name of an interface"));
  EXPECT_THAT(with("addresses", {"localhost"}), HasSubstr("a numeric address"));
  EXPECT_THAT(with("place", "a\nb"), HasSubstr("a string without control characters"));
  EXPECT_THAT(with("processors", json::array({-1})), HasSubstr("a number from 0"));
  EXPECT_THAT(with("port", 65536), HasSubstr("a number from 0 to 65535"));
}

TEST(JoinRequest, RejectsOtherMessages) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("[1"),
        std::string(200000, '['), "[" + std::string(100000, '0')})
    EXPECT_NE(refusal_of([&] { parse_join_request(text); }), "");
}

// The command line of the agent in Open MPI 4.1, including shell quotes.
const std::vector<std::string> kWords = {
    "PATH=/opt/bin:$PATH ; export PATH ; /opt/bin/orted",
    "-mca",
    "orte_leave_session_attached",
    "\"1\"",
    "-mca",
    "ess",
    "\"env\"",
    "-mca",
    "ess_base_jobid",
    "\"1469054976\"",
    "-mca",
    "ess_base_vpid",
    "1",
    "-mca",
    "ess_base_num_procs",
    "\"2\"",
    "-mca",
    "orte_node_regex",
    "\"vm,host[1:1]@0(2)\"",
    "-mca",
    "orte_hnp_uri",
    "\"1469054976.0;tcp://10.0.0.1,192.0.2.2:47663;tcp6://[fd00::2]:55749\"",
    "--mca",
    "btl_tcp_if_include",
    "\"eth0\"",
    "--mca",
    "plm_rsh_agent",
    "\"/proc/1/exe launch-agent\"",
    "-mca",
    "orte_launch_agent",
    "\"/tmp/mine\"",
    "-mca",
    "pmix",
    "\"^s1,s2,cray,isolated\""};

TEST(Daemon, ReceivesFactsInsteadOfCommand) {
  const DaemonFacts facts = read_daemon_command(kWords, kOrte);
  EXPECT_EQ(facts.job, "1469054976");
  EXPECT_EQ(facts.number, 1);
  EXPECT_EQ(facts.daemons, 2);
  EXPECT_EQ(facts.nodes, "vm,host[1:1]@0(2)");
  EXPECT_THAT(facts.parameters, ElementsAre(std::pair("btl_tcp_if_include", "eth0"),
                                            std::pair("pmix", "^s1,s2,cray,isolated")))
      << "none that names a program";
  EXPECT_THAT(addresses_of_uri(facts.uri), ElementsAre("10.0.0.1", "192.0.2.2", "fd00::2"));
  EXPECT_EQ(parse_daemon(to_text(facts), kOrte), facts);
  const Call call{.host = "b", .daemon = facts};
  EXPECT_EQ(parse_call(to_text(call), kOrte), call);
}

TEST(Daemon, HasCommandBuiltByItsHost) {
  const DaemonFacts facts = read_daemon_command(kWords, kOrte);
  const auto words = daemon_command(
      facts, {"--oversubscribe", "--mca", "btl", "self,tcp", "--mca", "pmix", "^s1"}, true, kOrte);
  EXPECT_EQ(words[0], "orted");
  EXPECT_THAT(words,
              Contains("1469054976.0;tcp://10.0.0.1,192.0.2.2:47663;tcp6://[fd00::2]:55749"));
  EXPECT_THAT(words, Contains("self,tcp")) << "of the task's own command line";
  EXPECT_THAT(words, Contains("^s1,s2,cray,isolated"));
  EXPECT_THAT(words, Not(Contains("^s1"))) << "which the facts have";
  EXPECT_THAT(words, Not(Contains("--oversubscribe")));
}

TEST(Daemon, RejectsInvalidFacts) {
  const std::string good = to_text(read_daemon_command(kWords, kOrte));
  const auto with = [&](const char* name, const json& value) {
    json text = json::parse(good);
    text[name] = value;
    return refusal_of([&] { parse_daemon(text.dump(), kOrte); });
  };
  EXPECT_EQ(with("number", 2), "");
  EXPECT_THAT(with("job", "1; id"), HasSubstr("the name of an mpirun job"));
  EXPECT_THAT(with("nodes", "$(id)"), HasSubstr("mpirun's list of nodes"));
  for (const char* uri :
       {"", "1469054976.0", "1469054976.0;tcp://evil.example:1", "1469054976.0;tcp://10.0.0.1",
        "1469054976.0;tcp://10.0.0.1:0", "1469054976.0;file:///x:1", "1.0;tcp://10.0.0.1:1",
        "1469054976.0;tcp://10.0.0.1:1\n"})
    EXPECT_NE(with("uri", uri), "") << uri;
  for (const char* name :
       {"orte_launch_agent", "plm_rsh_agent", "mca_base_component_path", "orte_fork_agent"})
    EXPECT_THAT(with("parameters", json::array({json::array({name, "x"})})),
                HasSubstr("an Open MPI parameter that mpirun may send"));
  EXPECT_NE(with("parameters", json::array({json::array({"pmix", "`id`"})})), "");
}

// The command line of the agent in Open MPI 5.
const std::vector<std::string> kPrrteWords = {
    "PRTE_PREFIX=/usr;export PRTE_PREFIX;/usr/bin/prted",
    "--prtemca",
    "ess",
    "\"env\"",
    "--prtemca",
    "ess_base_nspace",
    "\"prterun-vm-29242@0\"",
    "--prtemca",
    "ess_base_vpid",
    "1",
    "--prtemca",
    "ess_base_num_procs",
    "\"2\"",
    "--prtemca",
    "prte_hnp_uri",
    "\"prterun-vm-29242@0.0;tcp://10.0.0.1,192.0.2.2:59297:24,64;tcp6://[fd00::2]:36893:64\"",
    "--prtemca",
    "PREFIXES",
    "\"errmgr,ess\"",
    "--prtemca",
    "prte_if_include",
    "\"eth0\"",
    "--prtemca",
    "plm",
    "\"ssh\""};

TEST(Daemon, OfOpenMpi5ReceivesFactsInsteadOfCommand) {
  const DaemonFacts facts = read_daemon_command(kPrrteWords, kPrrte);
  EXPECT_EQ(facts.job, "prterun-vm-29242@0");
  EXPECT_EQ(facts.number, 1);
  EXPECT_EQ(facts.daemons, 2);
  EXPECT_THAT(facts.parameters, ElementsAre(std::pair("prte_if_include", "eth0")));
  EXPECT_THAT(addresses_of_uri(facts.uri), ElementsAre("10.0.0.1", "192.0.2.2", "fd00::2"));
  EXPECT_EQ(parse_daemon(to_text(facts), kPrrte), facts);
  EXPECT_THAT(refusal_of([&] { parse_daemon(to_text(facts), kOrte); }),
              HasSubstr("of ORTE (Open MPI 4)"));

  const auto words =
      daemon_command(facts, {"--mca", "btl", "self,tcp", "--prtemca", "x", "y"}, true, kPrrte);
  EXPECT_THAT(std::vector(words.begin(), words.begin() + 5),
              ElementsAre("prted", "--allow-run-as-root", "--prtemca", "ess", "env"));
  EXPECT_THAT(
      words,
      Contains(
          "prterun-vm-29242@0.0;tcp://10.0.0.1,192.0.2.2:59297:24,64;tcp6://[fd00::2]:36893:64"));
  EXPECT_THAT(words, Contains("y")) << "of the task's own command line";
  EXPECT_THAT(words, Not(Contains("self,tcp"))) << "which mpirun hands to the ranks";
}

TEST(Runtime, MatchesMpiVersion) {
  EXPECT_EQ(runtime_of("Open MPI v4.1.4, package: Debian OpenMPI").daemon, "orted");
  EXPECT_EQ(runtime_of("Open MPI v5.0.7, package: Debian OpenMPI").daemon, "prted");
  for (const char* other :
       {"MPICH Version:\t4.2.0\nMPICH Release date", "Open MPI v3.1.0, package", ""})
    EXPECT_THAT([&] { runtime_of(other); },
                ::testing::ThrowsMessage<Error>(HasSubstr("[launch] expected Open MPI 4 or 5")))
        << other;
}

// Injected commands.
TEST(Daemon, RejectsShellCommands) {
  EXPECT_NE(refusal_of([] { parse_daemon(R"(["id > pwned", [0]])", kOrte); }), "");
}

}  // namespace
}  // namespace lockstep::inline v0::apps::launch
