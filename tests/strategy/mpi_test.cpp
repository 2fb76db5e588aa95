// Decisions of all ranks for a reason on one rank; run under mpirun on 1 to 4 ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/job/clock_offset.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/plateau.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/data/support.h"
#include "tests/strategy/normalization.h"
#include "tests/strategy/training.h"
#include "tests/support/mpi_session.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

MultiWorkerMirroredStrategy ranks_with(int local_replicas) {
  return MultiWorkerMirroredStrategy(
      job::mpi_session(), std::vector<device::Device>(static_cast<std::size_t>(local_replicas)));
}

bool is_last_rank() { return job::mpi_session().rank() == job::mpi_session().size() - 1; }

/// The scratch directory of the chief, known to all ranks.
class SharedDirectory {
 public:
  SharedDirectory() : path_(job::mpi_session().all_gather(scratch_.path()).front()) {}
  ~SharedDirectory() { job::mpi_session().barrier(); }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  std::filesystem::path path() const { return path_ / "run"; }

 private:
  checkpoint::ScratchDirectory scratch_;
  std::filesystem::path path_;
};

TEST(MpiSession, HasAllRanksAndNodes) {
  const job::Session& session = job::mpi_session();
  EXPECT_EQ(session.nodes(), 1);
  EXPECT_EQ(session.local_rank(), session.rank());
  EXPECT_EQ(session.local_size(), session.size());
  const auto all = session.all_gather(std::string(static_cast<std::size_t>(session.rank()), 'x'));
  for (std::size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank);
}

// Each rank, or each pair of ranks, acts as a host; they share a clock, so the offset is 0.
TEST(MpiSession, ComparesTheClocksOfHosts) {
  const job::Session& session = job::mpi_session();
  for (const int ranks_of_host : {1, 2}) {
    std::vector<int> host_of_rank;
    for (int rank = 0; rank < session.size(); ++rank) host_of_rank.push_back(rank / ranks_of_host);
    const trace::ClockOffset mine = job::measure_clock_offset(session, host_of_rank);
    const bool is_remote = session.rank() >= ranks_of_host;
    EXPECT_EQ(mine.uncertainty > 0, is_remote);
    EXPECT_LE(std::abs(mine.offset), mine.uncertainty);
    const auto all = session.all_gather(fmt::format("{} {}", mine.time, mine.offset));
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (host_of_rank[rank] == host_of_rank[rank - 1] && host_of_rank[rank] > 0) {
        EXPECT_EQ(all[rank], all[rank - 1]);
      }
  }
}

TEST(MpiStrategy, NumbersReplicasInTheOrderOfRanks) {
  const auto strategy = ranks_with(2);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2 * job::mpi_session().size());
  EXPECT_EQ(strategy.first_replica(), 2 * job::mpi_session().rank());
  for (const job::Placement& place : strategy.placements())
    EXPECT_EQ(place.rank, place.replica / 2);
}

TEST(MpiIndexExchange, GathersFromAllRanks) {
  const auto strategy = ranks_with(2);
  for (const data::IndexExchange& exchange :
       {index_exchange(job::mpi_session()), index_exchange(strategy)}) {
    ASSERT_EQ(exchange.members, job::mpi_session().size());
    EXPECT_EQ(exchange.node, job::mpi_session().node());
    const auto all = exchange.all_gather(fmt::format("{}", exchange.member));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(exchange.members));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      EXPECT_EQ(all[rank], fmt::format("{}", rank));
  }
}

TEST(MpiIndexExchange, ReadsOnOneRankPerNode) {
  const SharedDirectory directory;
  const int rank = job::mpi_session().rank();
  const auto own = directory.path() / fmt::format("{}", rank);
  std::filesystem::create_directories(own);
  data::TFRecordWriter writer(own / "a.tfrecord", data::Compression::gzip);
  writer.write(
      data::serialize_example({{"features", data::FloatList{1}}, {"label", data::Int64List{1}}}));
  writer.close();
  std::ofstream(own / "table.csv") << "a,b,k\n1,2,0\n3,4,1\n";
  for (const char* const name : {"a.tfrecord", "table.csv"})  // damages the copies of other ranks
    if (rank > 0) std::fstream(own / name).seekp(14) << "\"\"\"";
  const data::IndexExchange exchange = index_exchange(job::mpi_session());
  const auto table = data::Dataset::from_csv(
      own / "table.csv", {.scale = data::ColumnScale::none, .exchange = exchange});
  EXPECT_EQ(read(table.source(), 1).features(), (std::vector<float>{3, 4}));
  const auto packed = data::Dataset::from_tfrecords((own / "a.tfrecord").string(),
                                                    {.classes = 2, .exchange = exchange});
  EXPECT_EQ(read(packed.source(), 0).features(), std::vector<float>{1});
}

TEST(MpiPretrained, ReachesAllRanksOrFailsOnAll) {
  const SharedDirectory directory;
  auto strategy = ranks_with(2);
  FitOptions fit{.epochs = 0, .steps = 2};
  fit.checkpoint.directory = directory.path();
  const Outcome saved = train(strategy, normalized_network(), small_data().batch(40), {}, fit);

  Trainer trainer(strategy, normalized_network(), {.seed = 9});
  EXPECT_NE(trainer.parameter_hash(), saved.parameter_hash);
  trainer.initialize_from({.path = directory.path()});
  trainer.replicas().check_agreement(0);
  EXPECT_EQ(trainer.parameter_hash(), saved.parameter_hash);

  // Only the chief reads; all ranks throw its error.
  Trainer other(strategy, plain_network());
  const std::uint64_t before = other.parameter_hash();
  EXPECT_THAT(error_of([&] { other.initialize_from({.path = directory.path()}); }),
              HasSubstr("[init-from] expected the weights of plain"));
  EXPECT_EQ(other.parameter_hash(), before);
}

TEST(MpiStrategy, MayHaveDifferentNumbersOfReplicasOnItsRanks) {
  const int local = is_last_rank() ? 2 : 1;
  auto strategy = ranks_with(local);
  EXPECT_EQ(strategy.num_replicas_in_sync(), job::mpi_session().size() + 1);
  const Outcome outcome = train(strategy, plain_network(), shuffled_data(), {}, {.epochs = 1});
  EXPECT_EQ(outcome.history.epochs[0].samples, 203);
}

TEST(MpiTrainer, EndsWithTheSameParametersOnAllRanks) {
  auto strategy = ranks_with(1);
  const Outcome outcome = train(strategy, dropout_network(), shuffled_data(), {}, {.epochs = 2});
  for (const std::string& hash :
       job::mpi_session().all_gather(std::to_string(outcome.parameter_hash)))
    EXPECT_EQ(hash, std::to_string(outcome.parameter_hash));
}

// On the ring, buckets overlap with the backward pass, and statistics are exchanged between them.
TEST(MpiTrainer, NormalizesOverAllReplicasAsOneProcessDoes) {
  const NormalizedTraining one = train_alone(unequal_images(), 5, normalizing({}));
  for (const allreduce::Route route :
       {allreduce::Route::automatic, allreduce::Route::ring, allreduce::Route::mpi}) {
    MultiWorkerMirroredStrategy strategy(job::mpi_session(), std::vector<device::Device>(2),
                                         {.route = route});
    for (const NormalizedTraining& replica :
         train_on(strategy, unequal_images(), 5, normalizing(kSync)))
      expect_same_training(replica, one);
  }
}

TEST(MpiTrainer, NormalizesInGroupsWithinAndAcrossRanks) {
  MultiWorkerMirroredStrategy strategy(job::mpi_session(), std::vector<device::Device>(2));
  const int half =
      job::mpi_session()
          .size();  // two replicas per rank: groups of one rank, of two ranks, or of one and a half
  const auto trained =
      train_on(strategy, unequal_images(), 5,
               normalizing({.kind = NormalizationScope::Kind::group, .group = half}));
  const auto buffers = std::as_bytes(std::span(trained.back().buffers));
  const std::string mine(reinterpret_cast<const char*>(buffers.data()), buffers.size());
  const auto all = job::mpi_session().all_gather(mine);
  // The last replica of each rank: statistics are equal within a group, and differ between groups.
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool in_first_group = static_cast<int>(2 * rank + 1) < half;
    EXPECT_EQ(all[rank] == all.front(), in_first_group == (1 < half)) << "rank " << rank;
  }
}

// A replica that fails while the others wait for its statistics.
TEST(MpiTrainer, EndsOnAllRanksIfOneReplicaDoesNotNormalize) {
  for (const allreduce::Route route : {allreduce::Route::automatic, allreduce::Route::ring}) {
    MultiWorkerMirroredStrategy strategy(job::mpi_session(), std::vector<device::Device>(2),
                                         {.route = route});
    LocalReplicas replicas(strategy, std::make_shared<const model::Network>(normalized_images()),
                           normalizing(kSync));
    replicas.initialize(1);
    const auto stream = unequal_images().stream({.last_step = 1,
                                                 .replicas = strategy.num_replicas_in_sync(),
                                                 .first_replica = strategy.first_replica(),
                                                 .local_replicas = 2});
    std::vector<data::Batch> parts;
    ASSERT_TRUE(stream->next(parts));
    const std::string error = error_of([&] {
      replicas.run([&](Replica& replica, int local) {
        if (is_last_rank() && local == 1) throw std::runtime_error("lost its samples");
        replica.train_step(parts[static_cast<std::size_t>(local)], request_of(0));
      });
    });
    EXPECT_THAT(error, HasSubstr("lost its samples"));
  }
}

class StopOnLastRank final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    if (is_last_rank() && logs.step == 4) request_stop();
  }
};

TEST(MpiTrainer, StopsOnAllRanksOnRequestOfOne) {
  auto strategy = ranks_with(1);
  FitOptions fit{.epochs = 3};
  fit.callbacks = {std::make_shared<StopOnLastRank>()};
  EXPECT_EQ(train(strategy, plain_network(), shuffled_data(), {}, fit).history.end.steps, 4);
}

TEST(MpiTrainer, UsesTheRateAndTheStatesOfTheChief) {
  const SharedDirectory directory;
  auto strategy = ranks_with(1);
  const auto fit_to = [&](std::int64_t steps) {
    FitOptions fit{.epochs = 9, .steps = steps};
    fit.checkpoint.directory = directory.path();
    fit.callbacks = {std::make_shared<LearningRate>([](std::int64_t, float rate) {
                       return job::mpi_session().is_chief() ? rate / 2 : rate;
                     }),
                     std::make_shared<EarlyStopping>(EarlyStoppingOptions{
                         .metric = {.name = "loss"}, .patience = 2, .min_delta = 1e9})};
    return fit;
  };
  const Outcome first =
      train(strategy, plain_network(), shuffled_data(), {.schedule = {.peak = 0.25F}}, fit_to(14));
  EXPECT_EQ(first.steps.back().learning_rate, 0.125F);
  const Outcome last =
      train(strategy, plain_network(), shuffled_data(), {.schedule = {.peak = 0.25F}}, fit_to(0));
  EXPECT_EQ(last.history.end.steps, 18) << "the first epoch was the best, two did not improve";
}

class RaiseOnLastRank final : public Callback {
 public:
  explicit RaiseOnLastRank(bool in_validation) : in_validation_(in_validation) {}
  void on_test_begin() override {
    if (in_validation_ && is_last_rank()) std::raise(SIGTERM);
  }
  void on_batch_end(const StepLogs& logs) override {
    if (!in_validation_ && is_last_rank() && logs.step == 4) std::raise(SIGTERM);
  }

 private:
  bool in_validation_;
};

TEST(MpiTrainer, EndsOnAllRanksWithOneCheckpointOnASignal) {
  for (const bool in_validation : {false, true}) {
    const SharedDirectory directory;
    auto strategy = ranks_with(1);
    FitOptions fit{.epochs = 3, .validation = small_data(200).batch(4)};
    fit.signals = {SIGTERM};
    fit.checkpoint.directory = directory.path();
    fit.callbacks = {std::make_shared<RaiseOnLastRank>(in_validation)};
    const History history = train(strategy, plain_network(), shuffled_data(), {}, fit).history;
    EXPECT_EQ(history.end.signal, SIGTERM);
    EXPECT_EQ(history.end.steps, in_validation ? 6 : 5);
    if (job::mpi_session().is_chief()) {
      const auto saved = checkpoint::list_checkpoints(directory.path());
      ASSERT_EQ(saved.size(), 1U);
      EXPECT_EQ(saved[0].step, history.end.steps);
    }
  }
}

TEST(MpiTrainer, ResumesExactly) {
  const SharedDirectory directory;
  auto strategy = ranks_with(1);
  FitOptions fit{.epochs = 3, .steps = 8};
  fit.checkpoint.directory = directory.path();
  train(strategy, normalized_network(), shuffled_data(), {}, fit);
  fit.steps = 0;
  const Outcome resumed = train(strategy, normalized_network(), shuffled_data(), {}, fit);
  const Outcome straight =
      train(strategy, normalized_network(), shuffled_data(), {}, {.epochs = 3});
  EXPECT_EQ(resumed.losses.size(), 10U);
  EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
}

TEST(MpiTrainer, AveragesMovingStatisticsOverAllRanks) {
  auto strategy = ranks_with(1);
  Trainer trainer(strategy, normalized_network());
  trainer.fit(shuffled_data(), {.epochs = 1});
  trainer.replicas().run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
  const auto buffers = trainer.replicas()[0].model().buffers();
  const std::string mine(reinterpret_cast<const char*>(buffers.data()), buffers.size_bytes());
  for (const std::string& other : job::mpi_session().all_gather(mine)) EXPECT_EQ(other, mine);
}

TEST(MpiTrainer, EvaluatesEachRecordOnce) {
  auto strategy = ranks_with(1);
  Trainer trainer(strategy, plain_network());
  EXPECT_EQ(trainer.evaluate(small_data(101).batch(10)).samples, 101);
}

TEST(MpiTrainer, HasTheSameMetricsOnAllRanks) {
  auto strategy = ranks_with(2);
  model::Network network({16}, "two");
  network.add(model::Dense({.units = 2}));
  TrainerOptions options;
  options.metrics = model::make_metrics("auc:exact=true,confusion", options.loss, 2);
  const data::Dataset dataset = data::Dataset::synthetic({16}, 2, 101).batch(10);
  Trainer trainer(strategy, network, options);
  const EpochLogs epoch = trainer.fit(dataset).epochs.front();
  const Evaluation evaluation = trainer.evaluate(dataset);
  for (const auto& values : {epoch.values, evaluation.values}) {
    const double auc = values[0].values[0];
    EXPECT_TRUE(auc >= 0 && auc <= 1) << auc;
    const auto& counts = values[1].values;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 101);
    const std::string mine = fmt::format("{} {}", auc, counts[0]);
    for (const std::string& other : job::mpi_session().all_gather(mine)) EXPECT_EQ(other, mine);
  }
}

TEST(MpiTrainer, RejectsRanksWithDifferentData) {
  if (job::mpi_session().size() == 1) return;
  const int last = job::mpi_session().size() - 1;
  const auto error = [](const data::Dataset& dataset, const FitOptions& fit = {}) {
    auto strategy = ranks_with(1);  // an error ends it
    Trainer trainer(strategy, plain_network());
    return error_of([&] { trainer.fit(dataset, fit); });
  };
  EXPECT_EQ(error(small_data(is_last_rank() ? 50 : 49).batch(10)),
            fmt::format("[ranks] expected the same data on all ranks; rank 0 has 49 records of "
                        "[16] in 4 classes; rank {} has 50 records of [16] in 4 classes",
                        last));
  EXPECT_EQ(error(small_data(49).batch(is_last_rank() ? 5 : 10)),
            fmt::format("[ranks] expected the same global batch on all ranks; rank 0 has 10; rank "
                        "{} has 5",
                        last));
  EXPECT_EQ(error(small_data(49).batch(10), {.steps = is_last_rank() ? 1 : 2}),
            fmt::format("[ranks] expected the same number of steps on all ranks; rank 0 has 2; "
                        "rank {} has 1",
                        last));
  FitOptions fit{.steps = 1};
  fit.checkpoint.resume =
      is_last_rank() ? checkpoint::Resume::never : checkpoint::Resume::automatic;
  EXPECT_EQ(error(small_data(49).batch(10), fit),
            fmt::format("[ranks] expected the same resume on all ranks; rank 0 has auto; rank {} "
                        "has never",
                        last));
}

TEST(MpiTrainer, NamesTheOptionThatDiffersBetweenRanks) {
  if (job::mpi_session().size() == 1) return;
  model::Network network({16}, "one");
  network.output("kind", network.add(model::Dense({.units = kClasses})));
  const bool is_last = is_last_rank();
  const OutputLoss kind{.output = "kind", .target = "label"};
  OutputLoss measured = kind;
  measured.metrics = model::make_metrics(is_last ? "f1" : "top2", {}, kClasses);
  OutputLoss weighed = kind;
  weighed.weight = is_last ? 2 : 0.5F;
  const std::vector<std::string> frozen = {"*/bias"};
  const ParameterGroup group{.pattern = "*/bias", .learning_rate = is_last ? 0.5F : 0.25F};
  model::Schedule schedule;
  schedule.warmup_steps = is_last ? 2 : 1;
  using model::MeanSquaredError;
  using model::SparseCategoricalCrossentropy;
  struct Case {
    TrainerOptions options;
    const char* what;
    const char* first;  // value on rank 0, or its beginning
    const char* other;
  };
  const std::vector<Case> cases = {
      {{.loss = is_last ? model::Loss(MeanSquaredError{}) : SparseCategoricalCrossentropy{}},
       "losses",
       "cross-entropy",
       "mse"},
      {{.losses = {weighed}},
       "losses",
       "kind=cross-entropy:target=label,weight=0.5",
       "kind=cross-entropy:target=label,weight=2"},
      {{.losses = {measured}}, "metrics", "kind:top2", "kind:f1"},
      {{.class_weights = {1, 1, 1, is_last ? 2.0F : 1.0F}}, "class weights", "1,1,1,1", "1,1,1,2"},
      {{.optimizer = is_last ? model::OptimizerOptions(model::Sgd{}) : model::Adam{}},
       "optimizer",
       "adam:",
       "sgd:"},
      {{.schedule = schedule}, "warm-up steps", "1", "2"},
      {{.freeze = is_last ? frozen : std::vector<std::string>()},
       "frozen parameters",
       "none",
       "*/bias"},
      {{.groups = {group}}, "groups of parameters", "*/bias:lr=0.25", "*/bias:lr=0.5"},
      {{.accumulate = is_last ? 2 : 1}, "micro-batches per step", "1", "2"},
      {{.seed = is_last ? 8U : 7U}, "seed", "7", "8"}};
  for (const auto& [options, what, first, other] : cases) {
    auto strategy = ranks_with(1);
    const std::string error = error_of([&] { Trainer(strategy, network, options); });
    EXPECT_THAT(error,
                HasSubstr(fmt::format("[ranks] expected the same {} on all ranks; rank 0 has {}",
                                      what, first)));
    EXPECT_THAT(error,
                HasSubstr(fmt::format("; rank {} has {}", job::mpi_session().size() - 1, other)));
  }
}

TEST(MpiStrategy, RejectsRoutesThatDifferBetweenRanks) {
  if (job::mpi_session().size() == 1) return;
  const allreduce::Route route = is_last_rank() ? allreduce::Route::mpi : allreduce::Route::ring;
  EXPECT_EQ(error_of([&] {
              MultiWorkerMirroredStrategy(job::mpi_session(), std::vector<device::Device>(1),
                                          {.route = route});
            }),
            fmt::format("[ranks] expected the same all-reduce route on all ranks; rank 0 has ring; "
                        "rank {} has mpi",
                        job::mpi_session().size() - 1));
}

TEST(MpiTrainer, NamesTheLayerThatDiffersBetweenRanks) {
  if (job::mpi_session().size() == 1) return;
  model::Network network({16});
  network.add(model::Dense({.units = kClasses}));
  if (is_last_rank())
    network.add(model::Tanh());
  else
    network.add(model::ReLU());
  auto strategy = ranks_with(1);
  EXPECT_THAT(error_of([&] { Trainer(strategy, network, {}); }),
              AllOf(HasSubstr("[ranks] expected the same layer 2 on all ranks; rank 0 has {"),
                    HasSubstr("\"relu\""), HasSubstr("\"tanh\"")));
}

}  // namespace
}  // namespace lockstep::inline v0::train
