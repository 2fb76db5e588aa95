// TFRecord files of very different sizes under mpirun: distribution over ranks, and damaged
// records.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

constexpr std::size_t kImageBytes = 36;

class ShardedData : public ::testing::Test {
 protected:
  /// Writes a file of images whose brightness is their label; "f" is compressed.
  void write(const std::string& name, std::int64_t records) const {
    data::TFRecordWriter writer(file(name),
                                name == "f" ? data::Compression::gzip : data::Compression::none);
    for (std::int64_t record = 0; record < records; ++record) {
      const std::int64_t label = record % 3;
      writer.write(data::serialize_example(
          {{"image",
            data::BytesList{std::string(kImageBytes, static_cast<char>(40 * label + record % 7))}},
           {"label", data::Int64List{label}}}));
    }
    writer.close();
  }

  void write_seven() const {
    for (const auto& [name, records] :
         {std::pair{"a", 10}, {"b", 3000}, {"c", 200}, {"d", 1}, {"e", 17}, {"f", 700}, {"g", 75}})
      write(name, records);
  }

  void flip_byte(const std::string& name, std::int64_t offset) const {
    std::fstream bytes(file(name), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(offset);
    const char byte = static_cast<char>(bytes.get());
    bytes.seekp(offset);
    bytes.put(static_cast<char>(byte ^ 1));
  }

  std::filesystem::path file(const std::string& name) const {
    return scratch_.path() / (name + ".tfrecord");
  }

  std::string train(const std::string& more = "") const {
    return fmt::format(
        "train --model mlp --epochs 1 --data {}/*.tfrecord --input-shape 6x6x1 --classes 3 "
        "--global-batch 64 "
        "{}",
        scratch_.path().string(), more);
  }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(ShardedData, IsReadEvenlyAndOnce) {
  write_seven();
  const Result four = run(mpirun(4, train("--log-format json --log-every 1")));
  ASSERT_EQ(four.status, 0) << four.errors;
  const auto start = four.event("start");
  EXPECT_EQ(start["shard_policy"], "auto");
  EXPECT_EQ(start["files"], 7);
  ASSERT_EQ(start["shares"].size(), 4);
  std::int64_t records = 0;
  for (const auto& share : start["shares"]) {
    EXPECT_THAT(share["records"].get<std::int64_t>(), ::testing::AllOf(Ge(1000), Le(1001)));
    records += share["records"].get<std::int64_t>();
  }
  EXPECT_EQ(records, 4003);
  const auto epoch = four.event("epoch");
  EXPECT_EQ(epoch["samples"], 4003);
  EXPECT_EQ(epoch["times_seen"], 1);
  const Result one = run_lockstep(train("--log-format json --log-every 1"));
  ASSERT_EQ(one.losses().size(), four.losses().size());
  for (std::size_t i = 0; i < one.losses().size(); ++i)
    EXPECT_NEAR(four.losses()[i], one.losses()[i], 1e-5);
}

TEST_F(ShardedData, IsListedInTable) {
  write_seven();
  const std::string run_path = scratch_.path() / "run";
  const Result result = run(mpirun(2, train("--verbose --checkpoint-dir " + run_path)));
  EXPECT_THAT(result.output, HasSubstr("shard policy auto: 4003 records of 7 files, "));
  EXPECT_THAT(result.output,
              HasSubstr("   rank   files       records      bytes\n      0       7          200"));
  EXPECT_THAT(result.output, HasSubstr("\nevery record seen once"));
  EXPECT_THAT(result.errors, HasSubstr("--verify-checkpoint full: a checkpoint takes up to "));
  const Result plain =
      run(mpirun(2, train("--resume never --overwrite --checkpoint-dir " + run_path)));
  EXPECT_THAT(plain.output, Not(HasSubstr("shard policy")));
  EXPECT_THAT(plain.errors, Not(HasSubstr("--verify-checkpoint")));
}

TEST_F(ShardedData, ByFileEndsWithLongestRank) {
  write_seven();
  const Result result = run(mpirun(2, train("--shard-policy file --log-format json")));
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto start = result.event("start");
  EXPECT_EQ(start["shares"][0]["records"], 10 + 200 + 17 + 75);
  EXPECT_EQ(start["shares"][1]["records"], 3000 + 1 + 700);
  EXPECT_EQ(start["steps_per_epoch"], (3701 + 31) / 32);
  EXPECT_EQ(result.event("epoch")["samples"], 4003);
  EXPECT_EQ(result.event("epoch")["times_seen"], 1);
}

TEST_F(ShardedData, OffReadsAllOnEachRank) {
  write("a", 100);
  const Result result = run(mpirun(2, train("--shard-policy off --log-format json")));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("epoch")["samples"], 200);
  EXPECT_EQ(result.event("epoch")["times_seen"], 2);
  EXPECT_EQ(result.event("start")["steps_per_epoch"], 4);
}

TEST_F(ShardedData, ByFileRequiresFilePerRank) {
  write("a", 100);
  const Result result = run(mpirun(2, train("--shard-policy file")));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("[shard-policy file] expected at least one file for each of 2 ranks; auto "
                        "distributes records instead; 1 TFRecord file in "));
}

TEST_F(ShardedData, FailsAtDamagedRecordUnlessSkipped) {
  write("a", 100);
  write("b", 300);
  flip_byte("b", 12 + 40);  // within the data of the first record
  const Result fails = run(mpirun(2, train()));
  EXPECT_EQ(fails.status, 3);
  EXPECT_THAT(fails.errors, HasSubstr("b.tfrecord: record 0 at byte 0"));
  EXPECT_THAT(fails.errors, HasSubstr("data CRC"));

  const Result skips = run(mpirun(2, train("--bad-records skip:1 --epochs 2 --log-format json")));
  ASSERT_EQ(skips.status, 0) << skips.errors;
  const auto epoch = skips.event("epoch");
  EXPECT_EQ(epoch["samples"], 400);
  EXPECT_EQ(epoch["times_seen"], 0);
  ASSERT_EQ(epoch["bad_records"].size(), 1);
  EXPECT_EQ(epoch["bad_records"][0]["file"], "b.tfrecord");
  EXPECT_EQ(epoch["bad_records"][0]["records"], 1);
  EXPECT_THAT(epoch["bad_records"][0]["first"].get<std::string>(), HasSubstr("record 0 at byte 0"));

  const Result single = run_lockstep(train("--bad-records skip:1"));
  EXPECT_THAT(single.output,
              HasSubstr("b.tfrecord: 1 bad record replaced by the next one; the first: ["));
  EXPECT_EQ(run(mpirun(2, train("--bad-records skip:0"))).status, 3);
}

TEST_F(ShardedData, IsReadUpToTruncation) {
  write("a", 100);
  write("b", 300);
  std::filesystem::resize_file(file("b"), std::filesystem::file_size(file("b")) - 5);
  const Result fails = run_lockstep(train());
  EXPECT_EQ(fails.status, 3);
  EXPECT_THAT(fails.errors, HasSubstr("b.tfrecord: record 299"));
  const Result skips = run(mpirun(2, train("--bad-records skip:1 --log-format json")));
  ASSERT_EQ(skips.status, 0) << skips.errors;
  EXPECT_EQ(skips.event("start")["records"], 399);
  ASSERT_EQ(skips.event("start")["damaged_files"].size(), 1);
  EXPECT_THAT(skips.event("start")["damaged_files"][0].get<std::string>(),
              HasSubstr("b.tfrecord: record 299 at byte"));
  EXPECT_EQ(skips.event("epoch")["times_seen"], 1);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
