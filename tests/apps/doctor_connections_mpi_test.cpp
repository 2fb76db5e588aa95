// lockstep doctor on ranks that do not reach rank 0 over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/doctor_program.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MpirunDoctorFault, RankZeroCannotListen) {
  const std::string preload = "LD_PRELOAD=" LOCKSTEP_PRETEND_NO_PORTS;
  const Examined examined(
      run(mpirun(2, {"env", preload, LOCKSTEP_PROGRAM, "doctor", "--quick", "--json"})));
  EXPECT_THAT(only_problem(examined, "connections"),
              AllOf(HasSubstr("expected a TCP port of 127.0.0.1 to listen on"),
                    HasSubstr(" -> allow TCP connections between the hosts")));
  EXPECT_NE(examined.level_of("routes"), "missing") << "the rest is checked as well";
}

}  // namespace
}  // namespace lockstep::inline v0::apps
