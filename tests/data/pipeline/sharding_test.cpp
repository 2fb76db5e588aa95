#include "lockstep/data/pipeline/sharding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

/// Synthetic records in synthetic files.
class FilesSource final : public CountingSource {
 public:
  FilesSource(const std::vector<std::int64_t>& files, std::int64_t record_bytes)
      : CountingSource(std::accumulate(files.begin(), files.end(), std::int64_t{0})) {
    for (const std::int64_t records : files)
      info_.files.push_back(
          {fmt::format("file-{}", info_.files.size()), records, records * record_bytes});
  }
};

Pipeline pipeline_of(std::vector<std::int64_t> files, std::int64_t global_batch,
                     ShardPolicy policy = ShardPolicy::automatic,
                     std::int64_t record_bytes = 1000) {
  Pipeline pipeline;
  pipeline.source = std::make_shared<FilesSource>(std::move(files), record_bytes);
  pipeline.spec = pipeline.source->spec();
  pipeline.shuffled = true;
  pipeline.global_batch = global_batch;
  pipeline.policy = policy;
  return pipeline;
}

/// The ids that a worker's replicas read in an epoch, in the order of steps and replicas.
std::vector<std::vector<std::int64_t>> ids_of_worker(const Sharding& sharding, ReplicaLayout layout,
                                                     int worker) {
  const RecordSequence sequence = sharding.sequence(worker, 7, 1);
  std::vector<std::vector<std::int64_t>> steps;
  for (std::int64_t step = 0; step < sharding.plan().steps_per_epoch(); ++step) {
    steps.emplace_back();
    for (int local = 0; local < layout.per_worker; ++local) {
      const Range range = sharding.plan().share(step, worker * layout.per_worker + local).positions;
      for (std::int64_t position = range.begin; position < range.end; ++position)
        steps.back().push_back(sequence[position]);
    }
  }
  return steps;
}

std::vector<std::int64_t> sorted_union(
    const std::vector<std::vector<std::vector<std::int64_t>>>& workers) {
  std::vector<std::int64_t> all;
  for (const auto& steps : workers)
    for (const auto& ids : steps) all.insert(all.end(), ids.begin(), ids.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::int64_t> count_to(std::int64_t records) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(records));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

struct FileSet {
  std::string name;
  std::vector<std::int64_t> files;
};

class AutoOverFiles : public ::testing::TestWithParam<FileSet> {};

TEST_P(AutoOverFiles, DistributesEveryRecordOnceAndEvenly) {
  for (const std::int64_t batch : {64, 100}) {
    const Pipeline pipeline = pipeline_of(GetParam().files, batch);
    const std::int64_t records = pipeline.source->size();
    const std::int64_t bytes = records * 1000;
    std::vector<std::vector<std::int64_t>> whole;
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const ReplicaLayout layout = {ranks, 1};
      const Sharding sharding(pipeline, layout);
      std::vector<std::vector<std::vector<std::int64_t>>> workers;
      std::vector<std::vector<std::int64_t>> joined(
          static_cast<std::size_t>(sharding.plan().steps_per_epoch()));
      for (int rank = 0; rank < ranks; ++rank) {
        workers.push_back(ids_of_worker(sharding, layout, rank));
        for (std::size_t step = 0; step < joined.size(); ++step)
          joined[step].insert(joined[step].end(), workers.back()[step].begin(),
                              workers.back()[step].end());
      }
      EXPECT_EQ(sorted_union(workers), count_to(records)) << ranks << " ranks";
      if (ranks == 1) whole = joined;
      EXPECT_EQ(joined, whole) << ranks << " ranks: another order";
      std::int64_t least = records;
      std::int64_t most = 0;
      for (const WorkerShare& share : sharding.shares(7, 1)) {
        least = std::min(least, share.records);
        most = std::max(most, share.records);
        EXPECT_LE(static_cast<double>(share.bytes),
                  1.2 * static_cast<double>(bytes) / ranks + 1000);
      }
      EXPECT_LE(most - least, 1) << ranks << " ranks, batch " << batch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sharding, AutoOverFiles,
                         ::testing::Values(FileSet{"one_file", {1003}},
                                           FileSet{"seven_files",
                                                   {10, 10'000, 200, 17, 3000, 999, 1}},
                                           FileSet{"empty_files", {0, 100, 0, 0, 700, 3, 0}},
                                           FileSet{"one_record", {1}}),
                         [](const auto& set) { return set.param.name; });

TEST(Sharding, ByFileDistributesFilesInTurn) {
  const Pipeline pipeline = pipeline_of({3, 0, 4, 5, 2}, 4, ShardPolicy::file);
  const ReplicaLayout layout = {2, 1};
  const Sharding sharding(pipeline, layout);
  // Files 0, 2 and 4 for one, 1 and 3 for the other.
  EXPECT_THAT(sorted_union({ids_of_worker(sharding, layout, 0)}),
              ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 12, 13));
  EXPECT_THAT(sorted_union({ids_of_worker(sharding, layout, 1)}),
              ::testing::ElementsAre(7, 8, 9, 10, 11));
  EXPECT_EQ(sharding.plan().steps_per_epoch(), 5);
  const auto shares = sharding.shares(7, 1);
  EXPECT_EQ(shares[0].records, 9);
  EXPECT_EQ(shares[0].files, 3);
  EXPECT_EQ(shares[0].bytes, 9000);
  EXPECT_EQ(shares[1].files, 1) << "one of its two files is empty";
}

TEST(Sharding, ByFileInTheOrderOfIdsWithoutShuffle) {
  Pipeline pipeline = pipeline_of({3, 2, 4}, 4, ShardPolicy::file);
  pipeline.shuffled = false;
  EXPECT_THAT(ids_of_worker(Sharding(pipeline, {2, 1}), {2, 1}, 0),
              ::testing::ElementsAre(::testing::ElementsAre(0, 1), ::testing::ElementsAre(2, 5),
                                     ::testing::ElementsAre(6, 7), ::testing::ElementsAre(8)));
}

TEST(Sharding, ByFileShufflesSmallRecordsInBlocksOfItsFiles) {
  const Pipeline pipeline =
      pipeline_of({40'000, 30'000, 50'000, 20'000}, 4, ShardPolicy::file, 200);
  const ReplicaLayout layout = {2, 1};
  const Sharding sharding(pipeline, layout);
  EXPECT_EQ(sorted_union({ids_of_worker(sharding, layout, 0), ids_of_worker(sharding, layout, 1)}),
            count_to(140'000));
  std::vector<int> ahead(140'000);
  for (int worker = 0; worker < 2; ++worker) {
    const RecordSequence sequence = sharding.sequence(worker, 7, 1);
    for (std::int64_t position = 0; position < (worker == 0 ? 90'000 : 50'000); ++position)
      sequence.for_each_block_ahead(position, [&](Range ids) {
        for (std::int64_t id = ids.begin; id < ids.end; ++id) ++ahead[static_cast<std::size_t>(id)];
      });
  }
  EXPECT_THAT(ahead, ::testing::Each(::testing::Ge(1)));
}

TEST(Sharding, OffReadsAllRecordsInADifferentOrderPerWorker) {
  const Pipeline pipeline = pipeline_of({50, 51}, 8, ShardPolicy::off);
  const ReplicaLayout layout = {4, 2};
  const Sharding sharding(pipeline, layout);
  EXPECT_EQ(sharding.plan().steps_per_epoch(), 26);
  const auto first = ids_of_worker(sharding, layout, 0);
  const auto second = ids_of_worker(sharding, layout, 1);
  EXPECT_EQ(sorted_union({first}), count_to(101));
  EXPECT_EQ(sorted_union({second}), count_to(101));
  EXPECT_NE(first, second);
}

TEST(Sharding, WithOneWorkerIsAutoByFileAndOff) {
  const ReplicaLayout layout = {3, 3};
  const auto expected = ids_of_worker(Sharding(pipeline_of({50, 51}, 8), layout), layout, 0);
  for (const ShardPolicy policy : {ShardPolicy::file, ShardPolicy::off})
    EXPECT_EQ(ids_of_worker(Sharding(pipeline_of({50, 51}, 8, policy), layout), layout, 0),
              expected);
}

TEST(Sharding, ByFileRequiresAFileForEachRank) {
  EXPECT_EQ(input_error_of([] {
              Sharding(pipeline_of({50, 51}, 8, ShardPolicy::file), {3, 1});
            }),
            "[shard-policy file] expected at least one file for each of 3 ranks; auto distributes "
            "records instead; counting has 2");
  Pipeline in_memory = pipeline_of({50}, 8, ShardPolicy::file);
  in_memory.source = std::make_shared<CountingSource>(50);
  EXPECT_EQ(input_error_of([&] {
              Sharding(in_memory, {2, 1});
            }),
            "[shard-policy file] expected at least one file for each of 2 ranks; auto distributes "
            "records instead; counting is not read from files");
}

TEST(Sharding, DescribesTheOrderForResuming) {
  EXPECT_EQ(Sharding(pipeline_of({50, 51}, 8), {1, 1}).order(), "shuffled one by one");
  EXPECT_EQ(Sharding(pipeline_of({40'000, 30'000}, 4, ShardPolicy::automatic, 500), {1, 1}).order(),
            "shuffled in blocks of 68 records and windows of 536860");
  Pipeline in_order = pipeline_of({50}, 8);
  in_order.shuffled = false;
  EXPECT_EQ(Sharding(in_order, {1, 1}).order(), "in the order of ids");
}

TEST(Sharding, OffSharesAreAllFiles) {
  const auto shares = Sharding(pipeline_of({50, 0, 51}, 8, ShardPolicy::off), {2, 1}).shares(1, 0);
  for (const WorkerShare& share : shares) {
    EXPECT_EQ(share.files, 2);
    EXPECT_EQ(share.records, 101);
    EXPECT_EQ(share.bytes, 101'000);
  }
}

TEST(Sharding, CountsManyRecordsByTheirAverage) {
  const Sharding sharding(pipeline_of({2'000'000, 1'000'000}, 100), {4, 1});
  const auto shares = sharding.shares(1, 0);
  EXPECT_EQ(shares[0].records, 750'000);
  EXPECT_EQ(shares[0].bytes, 750'000'000);
  EXPECT_EQ(shares[0].files, 0);
}

TEST(Sharding, ResumesAtEveryStepOnAnotherNumberOfRanks) {
  // Records so small that they are mixed in blocks.
  const Dataset dataset = Dataset::from_source(std::make_shared<FilesSource>(
                                                   std::vector<std::int64_t>{3000, 1003}, 6000))
                              .shuffle()
                              .batch(5);
  StreamOptions options = epochs(dataset, 1);
  const auto whole = ids_of(dataset, options);
  const Sharding blocks(pipeline_of({3000, 1003}, 5, ShardPolicy::automatic, 6000), {1, 1});
  ASSERT_NE(blocks.sequence(0, 1, 0)[0], Permutation(1, 4003)[0]);
  for (std::int64_t first = 0; first < options.last_step; first += first < 20 ? 1 : 97) {
    options.first_step = first;
    options.replicas = 1 + static_cast<int>(first % 8);
    std::vector<std::vector<std::int64_t>> joined(
        static_cast<std::size_t>(options.last_step - first));
    for (options.first_replica = 0; options.first_replica < options.replicas;
         ++options.first_replica) {
      const auto own = ids_of(dataset, options);
      for (std::size_t step = 0; step < joined.size(); ++step)
        joined[step].insert(joined[step].end(), own[step].begin(), own[step].end());
    }
    EXPECT_EQ(joined, std::vector(whole.begin() + first, whole.end())) << "from step " << first;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
