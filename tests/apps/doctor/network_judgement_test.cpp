// Judgements of the doctor on synthetic measurements between hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "apps/lockstep/doctor/host.h"
#include "apps/lockstep/doctor/network.h"
#include "apps/lockstep/doctor/routes.h"
#include "lockstep/net/reachability.h"
#include "tests/apps/doctor/reports.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NetworkFacts host(std::vector<Attempt> attempts, int mtu = 1500,
                  const std::string& interface = "eth0") {
  return {.addresses = {{.interface = interface,
                         .address = "10.0.0.1",
                         .network = "10.0.0.0/24",
                         .mtu = mtu,
                         .bits_per_second = 10'000'000'000}},
          .attempts = std::move(attempts),
          .ports = 28232};
}

/// An attempt to reach `interface` of the host of `rank`.
Attempt attempt(int rank, const std::string& interface, const std::string& failure) {
  return {.rank = rank,
          .interface = interface,
          .address = "10.0.0.1",
          .network = "10.0.0.0/24",
          .failure = failure};
}

Attempt bridge(int rank) {
  return {.rank = rank,
          .interface = "docker0",
          .address = "172.17.0.1",
          .network = "172.17.0.0/16",
          .failure = "another host answers there"};
}

TEST(Greeter, ListensOnlyAtItsAddresses) {
  const Greeter greeter(7, {{.interface = "lo", .address = "127.0.0.1"},
                            {.interface = "none", .address = "192.0.2.77"}});
  ASSERT_EQ(greeter.ports().size(), 2U);
  EXPECT_EQ(greeter.ports()[1], 0) << "not an address of this host";
  const auto port = static_cast<std::uint16_t>(greeter.ports()[0]);
  std::string why;
  const net::FileDescriptor client =
      net::connect_to("127.0.0.1", port, std::chrono::seconds(20), why);
  ASSERT_TRUE(client.is_open()) << why;
  EXPECT_FALSE(net::connect_to("127.0.0.2", port, std::chrono::seconds(20), why).is_open());
  pollfd ready{.fd = client.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 20000), 1);
  std::string greeting(64, ' ');
  greeting.resize(static_cast<std::size_t>(
      std::max<ssize_t>(0, recv(client.get(), greeting.data(), greeting.size(), 0))));
  EXPECT_EQ(greeting, "lockstep 7         ");
}

TEST(JudgeNetwork, AcceptsReachableAddresses) {
  EXPECT_EQ(judge_network(on_hosts<NetworkFacts>(
                              {host({attempt(1, "eth0", "")}), host({attempt(0, "eth0", "")})}))
                .level(),
            Level::ok);
}

TEST(JudgeNetwork, WarnsAboutUnreachableInterface) {
  const auto reports =
      on_hosts<NetworkFacts>({host({attempt(2, "eth0", ""), bridge(2)}),
                              host({attempt(2, "eth0", ""), bridge(2)}), host({})});
  const Finding finding = only(judge_network(reports));
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
  EXPECT_EQ(finding.what, "cannot reach c by docker0 172.17.0.1 (another host answers there)");
  EXPECT_THAT(finding.remedy,
              HasSubstr("--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"));
}

TEST(JudgeNetwork, RecommendsNetworkIfInterfaceNamesDiffer) {
  const auto reports = on_hosts<NetworkFacts>({host({attempt(1, "enp3s0", ""), bridge(1)}),
                                               host({attempt(0, "eth0", "")}, 1500, "enp3s0")});
  EXPECT_THAT(only(judge_network(reports)).remedy,
              HasSubstr("--mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include "
                        "10.0.0.0/24; for NCCL, set NCCL_SOCKET_IFNAME=enp3s0,eth0"));
}

TEST(JudgeNetwork, FailsForHostWithoutPort) {
  const auto reports = on_hosts<NetworkFacts>(
      {host({{.rank = 1, .failure = "it could not open a port"}}), host({attempt(0, "eth0", "")})});
  const Finding finding = only(judge_network(reports));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "cannot reach b (it could not open a port)");
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -n"));
}

TEST(JudgeNetwork, FailsIfNoAddressAnswers) {
  const Finding finding = only(judge_network(on_hosts<NetworkFacts>(
      {host({attempt(1, "eth0", "Connection timed out")}), host({attempt(0, "eth0", "")})})));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_THAT(finding.remedy, HasSubstr("firewall"));
}

TEST(JudgeNetwork, WarnsAboutDifferentMtus) {
  const Finding finding = only(judge_network(on_hosts<NetworkFacts>(
      {host({attempt(1, "eth0", "")}, 9000), host({attempt(0, "eth0", "")}, 1500)})));
  EXPECT_EQ(finding.what, "eth0 of b sends packets of 1500 bytes on 10.0.0.0/24, and a of 9000");
  EXPECT_EQ(finding.remedy, "set the same MTU on all hosts: ip link set eth0 mtu 1500");
  EXPECT_EQ(judge_network(on_hosts<NetworkFacts>({host({}, 9000), host({}, 1500)})).level(),
            Level::ok)
      << "this path is not used";
}

TEST(JudgePorts, WarnsAboutFewPorts) {
  NetworkFacts few = host({});
  few.ports = 100;
  EXPECT_EQ(only(judge_ports(on_hosts<NetworkFacts>({few, host({})}))).what,
            "a has 100 ports for the connections of its ranks");
}

TEST(JudgeClocks, ReportsClockOffsets) {
  const auto reading = [](double ahead, double uncertain) {
    return ClockReading{{.rank = 1, .node = 1, .local_rank = 0, .host = "b"}, ahead, uncertain};
  };
  EXPECT_EQ(judge_clocks({}).level(), Level::ok);
  EXPECT_EQ(judge_clocks({reading(0.5, 0.001)}).level(), Level::ok);
  EXPECT_EQ(judge_clocks({reading(1.5, 1)}).level(), Level::ok) << "not certain";
  const Finding finding = only(judge_clocks({reading(-12, 0.001)}));
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(finding.what, "the clock of b is 12 s behind that of rank 0's host");
  EXPECT_THAT(finding.remedy, HasSubstr("timedatectl set-ntp true"));
  EXPECT_EQ(judge_clocks({reading(3600, 0.001)}).level(), Level::problem);
}

TEST(JudgeLinks, AreComparedWithEachOther) {
  const auto links = on_hosts<LinkFacts>({{.from = 2, .gigabytes = 1.2},
                                          {.from = 0, .gigabytes = 1.1},
                                          {.from = 1, .gigabytes = 0.3}});
  EXPECT_EQ(only(judge_links(links, {})).what,
            "c receives 0.3 GB/s from rank 1, while others receive 1.1");
}

TEST(JudgeLinks, AreComparedWithInterfaceSpeed) {
  const auto network = on_hosts<NetworkFacts>({host({attempt(1, "eth0", "")}), host({})});
  const auto links =
      on_hosts<LinkFacts>({{.from = 1, .gigabytes = 0.2}, {.from = 0, .gigabytes = 0.2}});
  EXPECT_EQ(
      only(judge_links(links, network)).what,
      "b receives 0.2 GB/s from rank 0 over an interface of 10000 Mbit/s, which could carry 1.25");
  EXPECT_EQ(
      judge_links(
          on_one_host<LinkFacts>({{.from = 1, .gigabytes = 9}, {.from = 0, .gigabytes = 1}}), {})
          .level(),
      Level::ok)
      << "no wire within a host";
}

TEST(JudgeRoutes, AreComparedWithMemoryAndLinks) {
  const LinkSpeeds speeds{.copied_gigabytes = 20, .wire_gigabytes = 1};
  const RouteReading memory{.route = allreduce::Route::shared_memory,
                            .bytes = 1,
                            .bus_gigabytes = 3,
                            .carried_gigabytes = 2};
  const RouteReading ring{
      .route = allreduce::Route::ring, .bytes = 1, .bus_gigabytes = 0.6, .carried_gigabytes = 0.6};
  EXPECT_EQ(only(judge_routes({memory}, speeds)).what,
            "shared-memory transfers 2 GB/s, while memory can be copied at 20");
  const Outcome fine = judge_routes({ring}, speeds);
  EXPECT_EQ(fine.level(), Level::ok);
  EXPECT_EQ(fine.summary, "ring 0.6 GB/s (60 % of the link)");
  EXPECT_EQ(only(judge_routes({ring}, {.copied_gigabytes = 20, .wire_gigabytes = 10})).what,
            "ring transfers 0.6 GB/s, while the link carries 10");
  EXPECT_EQ(judge_routes({ring}, {}).level(), Level::ok) << "nothing to hold it against";
}

TEST(JudgeRoutes, ReportFailures) {
  const Finding finding = only(judge_routes(
      {{.route = allreduce::Route::hierarchical, .failure = "[x] expected y; z"}}, {}));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "hierarchical does not work here: [x] expected y; z");
}

}  // namespace
}  // namespace lockstep::inline v0::apps::doctor
