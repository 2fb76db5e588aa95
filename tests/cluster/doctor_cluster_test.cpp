// lockstep doctor across hosts that scripts/cluster creates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/doctor_program.h"
#include "tests/cluster/hosts.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorOnHosts : public HostsTest {};

TEST_F(DoctorOnHosts, NamesTheInterfaceThatCannotBeReached) {
  ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", "2"})).status, 0);
  ASSERT_EQ(on(1, {"sh", "-c",
                   "ip link add spare0 type veth peer name spare1 && ip address add 10.99.0.1/24 "
                   "dev spare0 && ip link set spare0 up && ip link set spare1 up"})
                .status,
            0);
  const Examined examined(run(cluster({"run", "--name", name()}, "doctor --quick --json")));
  EXPECT_EQ(examined.status(), 0) << examined.report();
  const auto findings = examined.findings_of("network");
  ASSERT_EQ(findings.size(), 1U) << examined.report();
  EXPECT_EQ(findings.front()["ranks"], std::vector<int>{0});
  EXPECT_THAT(std::string(findings.front()["what"]),
              HasSubstr("cannot reach node1 by spare0 10.99.0.1 ("));
  EXPECT_THAT(std::string(findings.front()["remedy"]), HasSubstr("--mca btl_tcp_if_include eth0"));
  EXPECT_EQ(examined.level_of("clocks"), "ok");
}

TEST_F(DoctorOnHosts, ReportsALinkSlowerThanItsInterface) {
  const Examined examined(
      run(cluster({"run", "--name", name(), "--hosts", "2", "--rate", "200mbit", "--burst", "64kb"},
                  "doctor --quick --json")));
  EXPECT_EQ(examined.status(), 0) << examined.report();
  const auto findings = examined.findings_of("links");
  ASSERT_EQ(findings.size(), 2U) << examined.report();
  EXPECT_THAT(
      std::string(findings.back()["what"]),
      AllOf(HasSubstr("node1 receives 0.0"), HasSubstr(" over an interface of 10000 Mbit/s")));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
