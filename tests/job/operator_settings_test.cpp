#include "lockstep/job/operator_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cstdlib>
#include <map>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

OperatorSettings settings_of(const std::map<std::string, std::string>& variables) {
  return OperatorSettings::of([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(OperatorSettings, AreReadFromTheEnvironment) {
  EXPECT_EQ(settings_of({}).lines(), "");
  const OperatorSettings settings = settings_of({{"LOCKSTEP_STALL_TIMEOUT", "0.5"},
                                                 {"LOCKSTEP_START_TIMEOUT", "3600"},
                                                 {"LOCKSTEP_ALLREDUCE", "ring"},
                                                 {"LOCKSTEP_BUCKET_BYTES", "4096"},
                                                 {"LOCKSTEP_TRACE", "a b.json:steps=3-9"},
                                                 {"LOCKSTEP_DATA", "x"}});
  EXPECT_EQ(settings.stall_timeout, 0.5);
  EXPECT_EQ(settings.start_timeout, 3600);
  EXPECT_EQ(settings.allreduce, "ring");
  EXPECT_EQ(settings.bucket_bytes, 4096);
  EXPECT_EQ(settings.trace.file, "a b.json");
  EXPECT_EQ(settings.trace.last_step, 9);
}

TEST(OperatorSettings, ReachOtherRanksAsLines) {
  const OperatorSettings settings =
      settings_of({{"LOCKSTEP_STALL_TIMEOUT", "0"}, {"LOCKSTEP_TRACE", "x=y.json"}});
  const OperatorSettings other = OperatorSettings::from_lines(settings.lines());
  EXPECT_EQ(other.stall_timeout, 0);
  EXPECT_EQ(other.trace.file, "x=y.json");
  EXPECT_EQ(other.start_timeout, std::nullopt);
  EXPECT_EQ(other.lines(), settings.lines());
  EXPECT_THAT(other.of_wrapped_loops(), ElementsAre("LOCKSTEP_TRACE"));
}

TEST(OperatorSettings, RejectWhatIsNotANumberOfSeconds) {
  for (const char* text : {"", "-1", "nan", "inf", "120s", " 3", "two minutes"})
    EXPECT_THAT(allreduce::error_of([&] {
                  settings_of({{"LOCKSTEP_STALL_TIMEOUT", text}});
                }),
                HasSubstr("[environment] expected LOCKSTEP_STALL_TIMEOUT to"))
        << text;
  EXPECT_THAT(allreduce::error_of([&] {
                settings_of({{"LOCKSTEP_ALLREDUCE", "rign"}});
              }),
              HasSubstr("did you mean ring?"));
  EXPECT_THAT(allreduce::error_of([&] {
                settings_of({{"LOCKSTEP_TRANSPORT", "tpc"}});
              }),
              HasSubstr("[environment] expected LOCKSTEP_TRANSPORT to be auto, mpi or tcp, got "
                        "\"tpc\" (did you mean tcp?)"));
  EXPECT_THAT(allreduce::error_of([&] {
                settings_of({{"LOCKSTEP_BUCKET_BYTES", "0"}});
              }),
              HasSubstr("expected LOCKSTEP_BUCKET_BYTES to be from 1"));
}

TEST(OperatorSettings, NameMisspelledVariables) {
  ::setenv("LOCKSTEP_STALL_TIMOUT", "5", 1);
  ::setenv("LOCKSTEP_DATA", "5", 1);
  const std::vector<std::string> warnings = similar_variables();
  ::unsetenv("LOCKSTEP_STALL_TIMOUT");
  ::unsetenv("LOCKSTEP_DATA");
  EXPECT_THAT(warnings, Contains("LOCKSTEP_STALL_TIMOUT is not used (did you mean "
                                 "LOCKSTEP_STALL_TIMEOUT?)"));
  EXPECT_EQ(warnings.size(), 1U);
}

}  // namespace
}  // namespace lockstep::inline v0::job
