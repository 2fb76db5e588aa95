// Judgements of the doctor on synthetic measurements of single hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/lockstep/doctor/cores.h"
#include "apps/lockstep/doctor/data.h"
#include "apps/lockstep/doctor/devices.h"
#include "apps/lockstep/doctor/folders.h"
#include "apps/lockstep/doctor/host.h"
#include "apps/lockstep/doctor/replicas.h"
#include "tests/apps/doctor/reports.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const VersionFacts kVersions = {
    {"lockstep", "0.1.0"},    {"mpi built", "MPI 3.1"},   {"mpi loaded", "Open MPI v4.1.4"},
    {"onednn built", "2.6"},  {"onednn loaded", "2.6.3"}, {"processor", "Zen"},
    {"cuda built", "absent"}, {"cuda loaded", "absent"}};

TEST(JudgeVersions, AcceptsEqualVersions) {
  const Outcome outcome = judge_versions(on_hosts<VersionFacts>({kVersions, kVersions}));
  EXPECT_EQ(outcome.level(), Level::ok);
  EXPECT_THAT(outcome.summary, HasSubstr("lockstep 0.1.0, Open MPI v4.1.4, oneDNN 2.6.3"));
}

TEST(JudgeVersions, ListsDifferingRanks) {
  VersionFacts other = kVersions;
  other["mpi loaded"] = "Open MPI v5.0.1";
  const Finding finding =
      only(judge_versions(on_one_host<VersionFacts>({kVersions, other, kVersions, other})));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_THAT(finding.ranks, ElementsAre(1, 3));
  EXPECT_EQ(finding.what, "mpi loaded is Open MPI v5.0.1 on a, and Open MPI v4.1.4 on rank 0");
  EXPECT_THAT(finding.remedy, HasSubstr("install the same packages on every host"));
}

TEST(JudgeVersions, WarnsAboutDifferentProcessors) {
  VersionFacts other = kVersions;
  other["processor"] = "Haswell";
  EXPECT_EQ(only(judge_versions(on_hosts<VersionFacts>({kVersions, other}))).level, Level::warning);
}

TEST(JudgeVersions, ComparesLibrariesWithHeaders) {
  VersionFacts old = kVersions;
  old["cuda built"] = "13.0";
  old["cuda loaded"] = "12.4";
  const Finding finding = only(judge_versions(on_one_host<VersionFacts>({old})));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "this program was compiled for cuda 13.0, but loaded 12.4");
}

TEST(JudgeVersions, DetectsIncompatibleRanks) {
  VersionFacts other = kVersions;
  other["processor"] = "Haswell";
  EXPECT_TRUE(is_one_program(on_hosts<VersionFacts>({kVersions, other})));
  other["lockstep"] = "0.2.0";
  EXPECT_FALSE(is_one_program(on_hosts<VersionFacts>({kVersions, other})));
}

TEST(JudgeVersions, ListsRanksWithoutAnswer) {
  Reports<VersionFacts> reports = on_hosts<VersionFacts>({kVersions});
  reports.missing.push_back(
      {{.rank = 1, .node = 1, .local_rank = 0, .host = "b"}, "this check failed: no memory"});
  const Finding finding = only(judge_versions(reports));
  EXPECT_EQ(finding.what, "this check failed: no memory");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(JudgeOpenFiles, ExplainsHowToRaiseLimit) {
  const Outcome outcome =
      judge_open_files(on_one_host<LimitFacts>({{.open_files = 256, .open_files_hard = 4096},
                                                {.open_files = 256, .open_files_hard = 256},
                                                {.open_files = -1, .open_files_hard = -1}}));
  ASSERT_EQ(outcome.findings.size(), 2U);
  EXPECT_EQ(outcome.level(), Level::problem);
  EXPECT_EQ(outcome.findings[0].what, "may open 256 files, and a training may need 326");
  EXPECT_THAT(outcome.findings[0].remedy, HasSubstr("ulimit -n 4096"));
  EXPECT_THAT(outcome.findings[1].remedy, HasSubstr("the hard limit is 256: raise nofile"));
}

TEST(JudgeLockedMemory, IsOnlyCheckedWithRdmaCards) {
  LimitFacts facts{.open_files = 1024, .open_files_hard = 1024, .locked_bytes = 65536};
  EXPECT_EQ(judge_locked_memory(on_one_host<LimitFacts>({facts})).level(), Level::ok);
  facts.has_rdma = true;
  EXPECT_THAT(only(judge_locked_memory(on_one_host<LimitFacts>({facts}))).remedy,
              HasSubstr("ulimit -l unlimited"));
  facts.locked_bytes = -1;
  EXPECT_EQ(judge_locked_memory(on_one_host<LimitFacts>({facts})).level(), Level::ok);
}

TEST(JudgeCores, FailsIfRanksShareCoresAndOthersAreFree) {
  const CoreFacts bound{.processors = {3}, .online = 8};
  const Finding finding = only(judge_cores(on_one_host<CoreFacts>({bound, bound})));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "2 ranks are bound to processor 3 of a, which has 8 processors");
  EXPECT_THAT(finding.remedy, HasSubstr("--bind-to core"));
  EXPECT_EQ(judge_cores(on_hosts<CoreFacts>({bound, bound})).level(), Level::warning)
      << "of two hosts, but idle ones";
}

TEST(JudgeCores, WarnsIfAllCoresAreShared) {
  const CoreFacts all{.processors = {0, 1}, .online = 2};
  EXPECT_EQ(judge_cores(on_one_host<CoreFacts>({all, all})).level(), Level::ok);
  const Finding finding = only(judge_cores(on_one_host<CoreFacts>({all, all, all})));
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(finding.what, "3 ranks share the 2 processors of a");
}

TEST(JudgeCores, WarnsAboutIdleCores) {
  const Finding finding = only(judge_cores(on_one_host<CoreFacts>(
      {{.processors = {0}, .online = 64}, {.processors = {1}, .online = 64}})));
  EXPECT_EQ(finding.what, "the ranks of a may use 2 of its 64 processors");
  EXPECT_THAT(finding.remedy, HasSubstr("--use-hwthread-cpus --map-by slot:PE=32"));
}

TEST(JudgeCores, ChecksThreadsQuotaAndClock) {
  const std::vector<int> two = {0, 1};
  EXPECT_EQ(
      only(judge_cores(on_one_host<CoreFacts>({{.processors = two, .online = 2, .threads = 8}})))
          .what,
      "OMP_NUM_THREADS requests 8 threads on 2 processors");
  EXPECT_THAT(
      only(judge_cores(on_one_host<CoreFacts>({{.processors = two, .online = 2, .quota = 0.5}})))
          .what,
      HasSubstr("limits the ranks of a to the time of 0.5 processors, and they run on 2"));
  CoreFacts sleepy{
      .processors = two, .online = 2, .governor = "powersave", .driver = "acpi-cpufreq"};
  EXPECT_THAT(only(judge_cores(on_one_host<CoreFacts>({sleepy}))).remedy,
              HasSubstr("cpupower frequency-set"));
  sleepy.driver = "intel_pstate";
  EXPECT_EQ(judge_cores(on_one_host<CoreFacts>({sleepy})).level(), Level::ok);
}

TEST(JudgeCores, ComparesQuotaWithAllRanksThatShareIt) {
  std::vector<CoreFacts> four;
  for (int core = 0; core < 4; ++core)
    four.push_back({.processors = {core}, .online = 4, .quota = 2});
  const Finding finding = only(judge_cores(on_one_host<CoreFacts>(four)));
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(finding.what, HasSubstr("the time of 2.0 processors, and they run on 4"));
  EXPECT_EQ(judge_cores(on_hosts<CoreFacts>(four)).findings.front().what,
            "the ranks of a may use 1 of its 4 processors")
      << "a quota of each host";
}

TEST(MeasureCores, ReportsAffinityAndOnlineProcessors) {
  const CoreFacts facts = measure_cores();
  EXPECT_FALSE(facts.processors.empty());
  EXPECT_GE(facts.online, static_cast<int>(facts.processors.size()));
}

const MemoryFacts kRoomy{
    .shm_bytes = 8'000'000'000, .shm_free_bytes = 8'000'000'000, .available_bytes = 16'000'000'000};

TEST(JudgeSharedMemory, WarnsUnlessRequested) {
  MemoryFacts hidden = kRoomy;
  hidden.unseen = {0};
  hidden.why = std::strerror(EACCES);
  const auto reports = on_one_host<MemoryFacts>({kRoomy, hidden});
  const Finding finding = only(judge_shared_memory(reports, false));
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(finding.what, "cannot map the memory of 1 other rank of its host: Permission denied");
  EXPECT_THAT(finding.remedy, HasSubstr("hidepid=0"));
  EXPECT_EQ(judge_shared_memory(reports, true).level(), Level::problem);
}

TEST(JudgeSharedMemory, RequiresSpaceForMpi) {
  MemoryFacts facts = kRoomy;
  facts.shm_bytes = facts.shm_free_bytes = 30'000'000;
  EXPECT_EQ(only(judge_shared_memory(on_one_host<MemoryFacts>({facts}), false)).level,
            Level::warning);
  facts.shm_free_bytes = 1'000'000;
  const Finding finding =
      only(judge_shared_memory(on_one_host<MemoryFacts>({facts, facts}), false));
  EXPECT_EQ(finding.level, Level::problem) << "once for a host";
  EXPECT_THAT(finding.remedy, HasSubstr("--shm-size=1g"));
}

TEST(JudgeSharedMemory, RequiresSpaceForNcclWithGpus) {
  MemoryFacts facts = kRoomy;
  facts.shm_bytes = facts.shm_free_bytes = std::int64_t{64} << 20;  // the default of containers
  EXPECT_EQ(judge_shared_memory(on_one_host<MemoryFacts>({facts}), false).level(), Level::ok);
  EXPECT_EQ(only(judge_shared_memory(on_one_host<MemoryFacts>({facts}), false, {0})).what,
            "/dev/shm of a has 67 of 67 MB free; MPI and NCCL may need 128 MB");
  EXPECT_EQ(judge_shared_memory(on_one_host<MemoryFacts>({facts}), false, {1}).level(), Level::ok);
}

TEST(JudgeSharedMemory, ReportsSystemErrorIfUnavailable) {
  MemoryFacts facts = kRoomy;
  facts.offer_failure = "Operation not permitted";
  const Finding finding = only(judge_shared_memory(on_one_host<MemoryFacts>({facts}), false));
  EXPECT_EQ(finding.what, "cannot create shared memory: Operation not permitted");
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(judge_shared_memory(on_one_host<MemoryFacts>({facts}), true).level(), Level::problem);
}

TEST(JudgeMemory, MayBeUnknown) {
  const MemoryFacts unknown;
  const Outcome outcome = judge_memory(on_hosts<MemoryFacts>({unknown, unknown}));
  EXPECT_TRUE(outcome.findings.empty());
  EXPECT_EQ(outcome.summary, "unknown on a, b");
  EXPECT_EQ(judge_memory(on_hosts<MemoryFacts>({kRoomy, unknown})).summary,
            "at least 16 GB for each rank; unknown on b");
}

TEST(JudgeMemory, IsDividedAmongRanksOfHost) {
  MemoryFacts facts = kRoomy;
  facts.available_bytes = 1'500'000'000;
  EXPECT_EQ(judge_memory(on_one_host<MemoryFacts>({facts})).level(), Level::ok);
  EXPECT_EQ(only(judge_memory(on_one_host<MemoryFacts>({facts, facts}))).what,
            "a has 750 MB of free memory for each of its ranks");
}

TEST(JudgeDevices, ReportsUnhealthyGpusOncePerHost) {
  const DeviceFacts facts{
      .gpus = {"H100", "H100"},
      .has_cuda = true,
      .health = {{.name = "H100", .uuid = "GPU-1", .total_bytes = 80, .uncorrected_errors = 0},
                 {.name = "H100", .uuid = "GPU-2", .total_bytes = 80, .uncorrected_errors = 3}}};
  const Finding finding = only(judge_devices(on_one_host<DeviceFacts>({facts, facts})));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "GPU 1 of a (GPU-2) has 3 uncorrected ECC errors");
  EXPECT_THAT(finding.remedy, HasSubstr("nvidia-smi --gpu-reset"));
}

TEST(JudgeDevices, RequiresOneGpuPerRank) {
  const DeviceFacts one{.gpus = {"H100"}, .uuids = {"GPU-1"}, .has_cuda = true};
  const Finding finding = only(judge_devices(on_one_host<DeviceFacts>({one, one})));
  EXPECT_EQ(finding.what, "2 ranks of a see the same 1 GPU");
  EXPECT_THAT(finding.remedy, HasSubstr("--share-gpus"));
  DeviceFacts second = one;
  second.uuids = {"GPU-2"};
  EXPECT_EQ(judge_devices(on_one_host<DeviceFacts>({one, second})).level(), Level::ok)
      << "each its own";
  const DeviceFacts other{.gpus = {"A100"}, .uuids = {"GPU-3"}, .has_cuda = true};
  EXPECT_EQ(only(judge_devices(on_hosts<DeviceFacts>({one, other}))).what,
            "sees 1 x A100, and rank 0 sees 1 x H100");
}

TEST(JudgeDevices, ListsHostsWithGpus) {
  const DeviceFacts unusable{.health = {{.name = "H100"}}};
  EXPECT_EQ(nodes_with_gpus(on_hosts<DeviceFacts>({{}, unusable})), (std::set<int>{1}));
}

TEST(JudgeSpeed, ReportsSlowRank) {
  const Outcome outcome =
      judge_product(on_hosts<SpeedFacts>({{.gigaflops = 100, .copied_gigabytes = 20},
                                          {.gigaflops = 60, .copied_gigabytes = 20},
                                          {.gigaflops = 20}}));
  ASSERT_EQ(outcome.findings.size(), 2U);
  EXPECT_EQ(outcome.findings[0].level, Level::warning);
  EXPECT_THAT(outcome.findings[0].what,
              HasSubstr("multiplies at 60 GFLOP/s on b with 1 core, the fastest rank at 100"));
  EXPECT_EQ(outcome.findings[1].level, Level::problem);
  EXPECT_THAT(outcome.findings[1].ranks, ElementsAre(2));
}

TEST(JudgeSpeed, ReportsBusyHostsAndSlowMemory) {
  const auto reports =
      on_hosts<SpeedFacts>({{.gigaflops = 100, .copied_gigabytes = 20},
                            {.gigaflops = 99, .copied_gigabytes = 8, .share_of_cores = 0.52}});
  EXPECT_EQ(only(judge_product(reports)).what, "got at most 60 % of the time of its cores on b");
  EXPECT_EQ(only(judge_copy(reports)).what, "copies 8 GB/s on b, the fastest rank 20");
}

TEST(JudgeSpeed, IsOneNumberIfRanksAreEqual) {
  const auto reports = on_hosts<SpeedFacts>({{.gigaflops = 166.1, .copied_gigabytes = 20.1},
                                             {.gigaflops = 165.9, .copied_gigabytes = 23}});
  EXPECT_EQ(judge_product(reports).summary, "166 GFLOP/s per rank");
  EXPECT_EQ(judge_copy(reports).summary, "20.1 to 23 GB/s per rank, all at once");
}

TEST(SlowestCopy, IsRateOfSlowestRank) {
  EXPECT_EQ(slowest_copy(on_hosts<SpeedFacts>({{.copied_gigabytes = 9}, {.copied_gigabytes = 7}})),
            7);
  EXPECT_EQ(slowest_copy({}), 0);
}

TEST(JudgeReplicas, RecommendsOneCorePerReplicaIfFaster) {
  const Outcome outcome = judge_replicas(on_one_host<ReplicaFacts>(
      {{2, 9000, 15800}, {.cores = 2, .as_one = 8900, .as_many = 15700}}));
  EXPECT_EQ(outcome.level(), Level::ok);
  EXPECT_EQ(outcome.summary,
            "cnn, 64 images per core: one replica on 2 cores 8900/s, 2 replicas 15700/s: --devices "
            "cpu:0,cpu:0");
  EXPECT_THAT(judge_replicas(on_one_host<ReplicaFacts>({{16, 9000, 99000}})).summary,
              HasSubstr(": --devices cpu:0,cpu:0,… (16 times)"));
}

TEST(JudgeReplicas, WarnsIfNotMeasured) {
  Reports<ReplicaFacts> reports = on_one_host<ReplicaFacts>({{2, 9000, 15800}});
  reports.missing.push_back({{.rank = 1}, "this check did not finish within 4 s"});
  const Finding finding = only(judge_replicas(reports));
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(finding.what, "this check did not finish within 4 s");
}

TEST(JudgeReplicas, RecommendsOneReplicaForSmallGain) {
  EXPECT_THAT(judge_replicas(on_one_host<ReplicaFacts>({{2, 9000, 9800}})).summary,
              HasSubstr("2 replicas 9800/s: one is enough"));
  const Outcome one_core = judge_replicas(on_one_host<ReplicaFacts>({{.cores = 1}}));
  EXPECT_EQ(one_core.level(), Level::skipped);
  EXPECT_EQ(one_core.summary, "each rank has a share of one core: nothing to divide");
}

TEST(JudgeData, RequiresSameFilesOnAllRanks) {
  const DataFacts whole{.files = 8, .bytes = 8000, .fingerprint = "x"};
  const DataFacts part{.files = 7, .bytes = 7000, .fingerprint = "y"};
  const Finding finding =
      only(judge_data(on_hosts<DataFacts>({whole, whole, part}), "d/*.tfrecord"));
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(finding.what, "c has 7 files of 7 kB, and rank 0 has different ones: 8 files of 8 kB");
  EXPECT_EQ(judge_data({}, "").level(), Level::skipped);
}

class DataFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((scratch_.path() / name).parent_path());
    std::ofstream(scratch_.path() / name) << text;
  }
  DataFacts look() const { return examine_data("images:" + scratch_.path().string(), "", true); }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(DataFolder, ExaminesImages) {
  write("cat/1.png", "one");
  write("cat/2.png", "two");
  write("dog/1.png", "three");
  const DataFacts before = look();
  EXPECT_EQ(before.files, 3);
  EXPECT_EQ(before.folders, 2);
  EXPECT_EQ(before.failure, "");
  EXPECT_EQ(judge_data(on_one_host<DataFacts>({before}), "d").summary, "d: 3 files in 2 folders");
  write("cat/2.png", "another size");
  EXPECT_NE(look().fingerprint, before.fingerprint);
  write("cat/2.png", "two");
  EXPECT_EQ(look().fingerprint, before.fingerprint);
  write("cat/.3.png", "hidden");
  EXPECT_EQ(look().fingerprint, before.fingerprint);
  write("cat/0.png", "one more");
  EXPECT_NE(look().fingerprint, before.fingerprint);
}

TEST_F(DataFolder, ReportsUnreadableImages) {
  write("cat/2.png", "two");
  std::filesystem::create_symlink("/nowhere", scratch_.path() / "cat/1.png");
  EXPECT_THAT(look().failure, HasSubstr("1.png] expected a file that can be read"));
}

TEST(JudgeCheckpointFolder, RequiresSpaceAndSharedFolder) {
  FolderFacts chief{.writes = true, .folder = "/run", .free_bytes = 10'000'000};
  FolderFacts other;
  other.sees_marker = false;
  const Outcome outcome = judge_checkpoint_folder(on_hosts<FolderFacts>({chief, other}), "/run");
  ASSERT_EQ(outcome.findings.size(), 2U);
  EXPECT_EQ(outcome.findings[0].level, Level::problem);
  EXPECT_EQ(outcome.findings[0].what, "/run has 10 MB free");
  EXPECT_EQ(outcome.findings[1].level, Level::warning);
  EXPECT_EQ(outcome.findings[1].what, "/run on b is not the folder that rank 0 sees");
}

TEST(JudgeCheckpointFolder, AcceptsFolderToBeCreated) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path run = scratch.path() / "some" / "run";
  const FolderFacts facts = try_folder(run, 10);
  EXPECT_EQ(facts.parent, scratch.path().string());
  EXPECT_THAT(judge_checkpoint_folder(on_one_host<FolderFacts>({facts}), run.string()).summary,
              HasSubstr(run.string() + ": to be created in " + scratch.path().string() + ", "));
  std::filesystem::create_directories(run);
  EXPECT_EQ(try_folder(run, 10).parent, "");
  EXPECT_TRUE(std::filesystem::is_empty(run));
  std::filesystem::create_symlink("/nowhere/at/all", run / "link");
  EXPECT_EQ(try_folder(run / "link" / "run", 10).failure,
            (run / "link").string() + " is not a folder");
}

TEST(JudgeFolders, HaveSeparateRemedies) {
  const FolderFacts slow{
      .writes = true, .folder = "/tmp", .free_bytes = 9'000'000'000, .megabytes_per_second = 2};
  EXPECT_THAT(only(judge_checkpoint_folder(on_one_host<FolderFacts>({slow}), "/tmp")).remedy,
              HasSubstr("--save-every"));
  EXPECT_THAT(only(judge_temporary_folder(on_one_host<FolderFacts>({slow}))).remedy,
              HasSubstr("TMPDIR"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps::doctor
