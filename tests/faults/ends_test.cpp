#include <gtest/gtest.h>
#include <fmt/format.h>
#include <string>
#include "tests/faults/job.h"
TEST(Try, It) {
  lockstep::faults::Job job(2, "");
  auto o = job.finish(30);
  fmt::print("{} {} {} {}\n", o.status, o.seconds, o.left_behind, o.output);
}
