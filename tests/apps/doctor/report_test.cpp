#include "apps/lockstep/doctor/report.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <system_error>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

TEST(RankList, JoinsConsecutiveRanks) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "ranks 0-2,5,7-8");
}

TEST(HumanBytes, HasThreeDigits) {
  EXPECT_EQ(human_bytes(12), "12 bytes");
  EXPECT_EQ(human_bytes(1'500), "1.5 kB");
  EXPECT_EQ(human_bytes(25'300'000'000), "25.3 GB");
}

TEST(Outcome, MergesFindingsOfRanks) {
  Outcome outcome{.check = "x"};
  EXPECT_EQ(outcome.level(), Level::ok);
  for (const int rank : {4, 0, 4}) outcome.add({.ranks = {rank}, .what = "w", .remedy = "r"});
  outcome.add({.ranks = {1}, .level = Level::problem, .what = "w", .remedy = "r"});
  ASSERT_EQ(outcome.findings.size(), 2U);
  EXPECT_EQ(outcome.findings[0].ranks, (std::vector<int>{0, 4}));
  EXPECT_EQ(outcome.level(), Level::problem);
}

class ReportOfTwoRanks : public ::testing::Test {
 protected:
  ReportOfTwoRanks() {
    report_.add({.check = "clocks", .summary = "0.1 s apart at most"});
    report_.add(
        {.check = "open-files",
         .summary = "at least 100 on every rank",
         .findings = {{.ranks = {1}, .level = Level::problem, .what = "few", .remedy = "more"}}});
  }

  Report report_{{{.rank = 0, .node = 0, .local_rank = 0, .host = "a"},
                  {.rank = 1, .node = 1, .local_rank = 0, .host = "b"}}};
};

TEST_F(ReportOfTwoRanks, PrintsLinePerFinding) {
  EXPECT_EQ(report_.table(1.25),
            "lockstep doctor: 2 ranks on 2 hosts\n"
            "\n"
            "check            result   what was found\n"
            "clocks           ok       0.1 s apart at most\n"
            "open-files       problem  at least 100 on every rank\n"
            "  problem  rank 1: few -> more\n"
            "\n"
            "1 problem, 0 warnings; 1.2 s\n");
  EXPECT_EQ(Report({}).level(), Level::ok);
}

TEST_F(ReportOfTwoRanks, PrintsJson) {
  const auto report = report_.json(1.25);
  EXPECT_EQ(report["status"], "problem");
  EXPECT_EQ(report["ranks"][1]["host"], "b");
  EXPECT_EQ(report["checks"][0]["level"], "ok");
  EXPECT_EQ(report["findings"].size(), 1U);
  EXPECT_EQ(report["findings"][0].dump(),
            R"({"check":"open-files","level":"problem","ranks":[1],"what":"few","remedy":"more"})");
}

TEST(WorkWithin, AbandonsWorkAtTimeout) {
  EXPECT_EQ(within<int>(std::chrono::seconds(60), [] { return 7; }), 7);
  auto never = std::make_shared<std::promise<int>>();
  EXPECT_EQ(
      within<int>(std::chrono::milliseconds(1), [never] { return never->get_future().get(); }),
      std::nullopt);
  never->set_value(0);  // lets its thread end
}

TEST(WorkWithin, ReportsReasonOfFailure) {
  EXPECT_EQ(measured_within<int>(std::chrono::seconds(60), [] { return 7; }).facts, 7);
  EXPECT_EQ(measured_within<int>(
                std::chrono::seconds(60),
                []() -> int { throw std::system_error(EAGAIN, std::generic_category()); })
                .why_none,
            "this check failed: Resource temporarily unavailable");
  auto never = std::make_shared<std::promise<int>>();
  EXPECT_EQ(measured_within<int>(std::chrono::milliseconds(1),
                                 [never] { return never->get_future().get(); })
                .why_none,
            "this check did not finish within 0 s");
  never->set_value(0);
}

TEST(Measurement, LimitDecreasesToMinimum) {
  job::Session session;
  const Ranks ranks(session);
  EXPECT_EQ(ranks.limit(), Ranks::kLimit);
  EXPECT_EQ(ranks.limit(std::chrono::seconds(20)), std::chrono::seconds(20));
}

TEST(Measurement, FailureAffectsOneRank) {
  job::Session session;
  Ranks ranks(session);
  const auto reports =
      ranks.measure<Place>("test", []() -> Place { throw std::runtime_error("out of order"); });
  ASSERT_EQ(reports.missing.size(), 1U);
  EXPECT_EQ(reports.missing.front().why, "this check failed: out of order");
}

TEST(Measurement, AcceptsInvalidUtf8) {
  job::Session session;
  Ranks ranks(session);
  const auto reports =
      ranks.measure<Place>("test", [] { return Place{.rank = 3, .host = "\xff"}; });
  ASSERT_EQ(reports.answered.size(), 1U);
  EXPECT_EQ(reports.answered.front().facts.rank, 3);
  EXPECT_EQ(reports.answered.front().facts.host, "\xef\xbf\xbd") << "the replacement character";
}

TEST(Facts, AcceptMissingFields) {
  EXPECT_EQ(nlohmann::json::parse(R"({"rank": 3, "color": "red"})").get<Place>().rank, 3);
}

}  // namespace
}  // namespace lockstep::inline v0::apps::doctor
