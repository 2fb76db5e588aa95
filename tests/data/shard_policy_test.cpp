#include "lockstep/data/order/batch_plan.h"

#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

TEST(ShardPolicy, HasNames) {
  for (const ShardPolicy policy : {ShardPolicy::automatic, ShardPolicy::file, ShardPolicy::data, ShardPolicy::off})
    EXPECT_EQ(parse_shard_policy(to_string(policy)), policy);
  EXPECT_EQ(to_string(ShardPolicy::automatic), "auto");
  EXPECT_EQ(input_error_of([] { parse_shard_policy("records"); }),
            "[shard-policy] expected auto, file, data or off, got \"records\"");
}

}  // namespace
}  // namespace lockstep::data
