#include "lockstep/allreduce/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::allreduce {
namespace {

TEST(WireScale, MakesTheSumAsLargeAsFits) {
  for (const float largest : {1e-20F, 3e-9F, 0.3F, 1.0F, 1.5F, 70000.0F, 1e30F})
    for (const int members : {1, 2, 3, 64}) {
      const float scale = wire_scale(largest, members);
      EXPECT_EQ(std::scalbn(1.0F, std::ilogb(scale)), scale) << "a power of two";
      EXPECT_LE(scale * largest * static_cast<float>(members), 32768.0F);
      EXPECT_GT(scale * largest * static_cast<float>(members), 16383.0F);
    }
}

TEST(WireScale, StaysWithinFloat32) {
  EXPECT_EQ(wire_scale(std::numeric_limits<float>::denorm_min(), 1), 0x1p100F);
  EXPECT_EQ(wire_scale(std::numeric_limits<float>::max(), 1000), 0x1p-100F);
}

TEST(WireScale, LeavesAloneWhatItCannotHelp) {
  for (const float largest : {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(wire_scale(largest, 2), 1.0F);
}

TEST(MagnitudeBits, AreOrderedAndEndAtInfinity) {
  EXPECT_EQ(magnitude_bits(-0.0F), 0U);
  EXPECT_LT(magnitude_bits(-1.0F), magnitude_bits(1.5F));
  EXPECT_EQ(magnitude_bits(std::numeric_limits<float>::quiet_NaN()),
            magnitude_bits(-std::numeric_limits<float>::infinity()));
}

}  // namespace
}  // namespace lockstep::allreduce
