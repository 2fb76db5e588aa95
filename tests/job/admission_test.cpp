#include "lockstep/job/launch/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::HasSubstr;

JoinRequest request(int rank, int size) {
  return {.version = "1",
          .job = "j",
          .rank = rank,
          .size = size,
          .host = "h",
          .node = "n",
          .addresses = {"10.0.0.1"},
          .port = 4711};
}

TEST(Admission, AdmitsEachRankOnce) {
  Admission admission(request(0, 4));
  EXPECT_EQ(admission.missing(), "ranks 1, 2, 3");
  EXPECT_EQ(admission.admit(request(2, 4)), "");
  EXPECT_EQ(admission.missing(), "ranks 1, 3");
  EXPECT_THAT(admission.admit(request(2, 4)), HasSubstr("expected one process of each rank"));
  EXPECT_EQ(admission.admit(request(3, 4)), "");
  EXPECT_EQ(admission.missing(), "rank 1");
  EXPECT_FALSE(admission.is_complete());
  admission.leave(2);
  EXPECT_EQ(admission.missing(), "ranks 1, 2");
  EXPECT_EQ(admission.admit(request(2, 4)), "") << "it has come again";
  EXPECT_EQ(admission.admit(request(1, 4)), "");
  EXPECT_TRUE(admission.is_complete());
  EXPECT_EQ(admission.table().members.size(), 4U);
}

TEST(Admission, RefusesProcessesOfOtherJobs) {
  Admission admission(request(0, 4));
  JoinRequest other = request(1, 3);
  EXPECT_THAT(admission.admit(other), HasSubstr("expected a job of 4, as rank 0 on h has, got 3"));
  other = request(1, 4);
  other.version = "2";
  EXPECT_THAT(admission.admit(other), HasSubstr("expected Lockstep 1"));
  other = request(1, 4);
  other.job = "k";
  EXPECT_THAT(admission.admit(other), HasSubstr("expected the job \"j\""));
}

TEST(Admission, ReadsOnlyWhatItWrites) {
  EXPECT_EQ(parse_join_request(to_text(request(3, 4))), request(3, 4));
  const JobTable table{.job = 77, .members = {request(0, 2), request(1, 2)}};
  const JobTable read = parse_job_table(to_text(table));
  EXPECT_EQ(read.job, 77U);
  EXPECT_EQ(read.members, table.members);
  for (const char* text :
       {"", "7", "[]", "{}", R"(["1","j",4,4,"h","n",[],1])", R"(["1","j",-1,4,"h","n",[],1])",
        R"(["1","j",0,4e9,"h","n",[],1])", R"(["1","j",0,4,"h","n",["x"],1])",
        R"(["1","j",0,4,"h","n",[],70000])", R"([1,"j",0,4,"h","n",[],1])"})
    EXPECT_THROW(parse_join_request(text), Error) << text;
  for (const char* text : {"[]", "[7]", R"(["x",[]])", R"([7,[["1","j",1,4,"h","n",[],1]]])"})
    EXPECT_THROW(parse_job_table(text), Error) << text;
}

}  // namespace
}  // namespace lockstep::inline v0::job
