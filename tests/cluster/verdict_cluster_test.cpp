// The limit of trainings on hosts with slow links or small batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cluster/hosts.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

class LongVerdictOnHosts : public HostsTest {
 protected:
  /// The last epoch of a training on two hosts. `options`: options of scripts/cluster.
  static nlohmann::json epoch(const Words& options, const std::string& arguments) {
    Words words = {"run", "--hosts", "2", "--name", name()};
    words.insert(words.end(), options.begin(), options.end());
    const Result result =
        run(cluster(words, "train --epochs 2 --log-format json --log-every 20 " + arguments));
    EXPECT_EQ(result.status, 0) << result.errors;
    return result.event("epoch");
  }
};

// Sending the gradient of at least 0.9 MB takes 0.3 s or more; computing a batch takes far less.
TEST_F(LongVerdictOnHosts, IsCommunicationForAThrottledLink) {
  const nlohmann::json event =
      epoch({"--rate", "20mbit", "--burst", "32kb"},
            "--model cnn --data synthetic:28x28x1,10,1280 --global-batch 128");
  EXPECT_EQ(event["bound_by"], "communication") << event;
  EXPECT_GT(event["breakdown"]["communication"].get<double>(),
            event["breakdown"]["compute"].get<double>());
}

TEST_F(LongVerdictOnHosts, IsCommunicationForATinyBatch) {
  const nlohmann::json event =
      epoch({"--rate", "1gbit", "--burst", "32kb"},
            "--model cnn --data synthetic:28x28x1,10,400 --global-batch 2");
  EXPECT_EQ(event["bound_by"], "communication") << event;
  EXPECT_THAT(std::string(event["verdict"]), HasSubstr("a per-replica batch of ")) << event;
}

}  // namespace
}  // namespace lockstep::inline v0::apps
