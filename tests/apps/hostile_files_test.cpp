// Fault injections 9 and 13: outputs that are devices, FIFOs or links, and inputs with excessive
// nesting or compression.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/data/record/compression.h"
#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::contents_of;
using checkpoint::overwrite;
using ::testing::HasSubstr;

const std::string kTraining =
    "train --model mlp:8 --data synthetic:4x4x1,4,64 --global-batch 16 --data-threads 1 ";

class HostileFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  /// A checkpoint of a real training.
  void train() {
    const Result trained = run_lockstep(kTraining + "--steps 4 --checkpoint-dir " + path("run"));
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }

  /// `lockstep ARGUMENTS` with a limited address space.
  static Result run_limited(const std::string& arguments, int kilobytes = 2'000'000) {
    return run({"sh", "-c",
                fmt::format("ulimit -v {}; exec {} {}", kilobytes, LOCKSTEP_PROGRAM, arguments)});
  }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(HostileFiles, AreRejectedAsTorchScript) {
  const std::string expected =
      "lockstep: error: [model] expected a TorchScript file, which "
      "torch.jit.script(module).save(FILE) writes, or torch.jit.trace, got ";
  overwrite(path("text.pt"), "no archive");
  overwrite(path("archive"), "PK\x03\x04 net/data.pkl");  // the beginning of a file of torch.save
  for (const auto& [name, reason] :
       {std::pair{"text.pt", ", which is another format\n"},
        {"archive",
         ", which has no code: torch.save writes tensors, and a state_dict does not say "
         "what to compute\n"}}) {
    const Result refused = run_lockstep("train --data synthetic:4x4x1,4,64 --model " + path(name));
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.errors, expected + path(name) + reason);
  }
}

// ---- 9: special files and links as outputs

class SpecialOutputs : public HostileFiles {
 protected:
  /// Creates a device like /dev/null at `name`. Returns false without permission to do so.
  bool make_null(const std::string& name) {
    constexpr dev_t kNull = (1 << 8) + 3;
    return ::mknod(path(name).c_str(), S_IFCHR | 0666, kNull) == 0;
  }
};

TEST_F(SpecialOutputs, AreKeptByExport) {
  train();
  ASSERT_EQ(
      run_lockstep(fmt::format("checkpoint export {} --output {}", path("run"), path("plain")))
          .status,
      0);
  const std::string model = contents_of(path("plain"));
  const std::string export_to =
      fmt::format("{} checkpoint export {} --output ", LOCKSTEP_PROGRAM, path("run"));

  overwrite(path("real"), "old");
  fs::create_symlink("real", path("link"));
  EXPECT_EQ(run({"sh", "-c", export_to + path("link")}).status, 0);
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(contents_of(path("real")), model);

  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const Result piped = run({"sh", "-c",
                            fmt::format("cat {} > {} & {}; status=$?; wait; exit $status",
                                        path("fifo"), path("piped"), export_to + path("fifo"))});
  EXPECT_EQ(piped.status, 0) << piped.errors;
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  EXPECT_EQ(contents_of(path("piped")), model);

  const Result to_stdout =
      run({"sh", "-c", fmt::format("{}/dev/stdout | cat > {}", export_to, path("stdout"))});
  EXPECT_EQ(to_stdout.status, 0) << to_stdout.errors;
  EXPECT_EQ(contents_of(path("stdout")), model) << "no line of the command is among the bytes";

  const Result to_directory = run({"sh", "-c", export_to + scratch_.path().string()});
  EXPECT_EQ(to_directory.status, 3);
  EXPECT_THAT(to_directory.errors, HasSubstr("expected to write the file; Is a directory"));

  if (!make_null("null")) GTEST_SKIP() << "mknod, for the device: " << std::strerror(errno);
  EXPECT_EQ(run({"sh", "-c", export_to + path("null")}).status, 0);
  EXPECT_TRUE(fs::is_character_file(path("null")));
}

TEST_F(SpecialOutputs, AreKeptByPredict) {
  train();
  const std::string predict =
      fmt::format("predict --checkpoint {} --data synthetic:4x4x1,4,64 --output ", path("run"));
  overwrite(path("real.csv"), "old");
  fs::create_symlink("real.csv", path("link.csv"));
  const Result linked = run_lockstep(predict + path("link.csv"));
  EXPECT_EQ(linked.status, 0) << linked.errors;
  EXPECT_TRUE(fs::is_symlink(path("link.csv")));
  EXPECT_THAT(contents_of(path("real.csv")), HasSubstr("record,predicted"));
  if (!make_null("null.csv")) GTEST_SKIP() << "mknod, for the device: " << std::strerror(errno);
  EXPECT_EQ(run_lockstep(predict + path("null.csv")).status, 0);
  EXPECT_TRUE(fs::is_character_file(path("null.csv")));
}

TEST_F(SpecialOutputs, AreKeptByConvertAndIndex) {
  fs::create_directory(path("out"));
  overwrite(path("table.csv"), "width,label\n1,0\n2,1\n3,0\n");
  overwrite(path("real"), "old");
  const std::string shard = "train-00000-of-00001.tfrecord";
  fs::create_symlink("../real", path("out/" + shard));
  const std::string convert =
      fmt::format("data convert csv --input {}:label=label --output {} --overwrite",
                  path("table.csv"), path("out"));
  const Result converted = run_lockstep(convert);
  EXPECT_EQ(converted.status, 0) << converted.errors;
  EXPECT_TRUE(fs::is_symlink(path("out/" + shard)));
  EXPECT_GT(contents_of(path("real")).size(), 3u);

  overwrite(path("victim"), "old");
  fs::create_symlink("../victim", path("out/" + shard + ".index"));
  const Result indexed = run_lockstep("data index " + path("out"));
  EXPECT_EQ(indexed.status, 3);
  EXPECT_EQ(contents_of(path("victim")), "old");
  EXPECT_TRUE(fs::is_symlink(path("out/" + shard + ".index")));
}

TEST_F(SpecialOutputs, FifoInCheckpointDoesNotBlock) {
  train();
  const fs::path step = path("run/step-00000004");
  fs::remove(step / "model.safetensors");
  ASSERT_EQ(::mkfifo((step / "model.safetensors").c_str(), 0600), 0);
  for (const std::string command :
       {"checkpoint verify ", "checkpoint inspect ", "checkpoint export --output /dev/null "})
    EXPECT_EQ(run_lockstep(command + step.string()).status, 3) << command;
  EXPECT_EQ(
      run_lockstep(kTraining + "--steps 5 --init-from " + (step / "model.safetensors").string())
          .status,
      3);
  EXPECT_EQ(
      run_lockstep(kTraining + "--steps 5 --data csv:" + (step / "model.safetensors").string())
          .status,
      3);
}

// ---- 13: nesting and size

class Bombs : public HostileFiles {
 protected:
  static std::string nested(std::size_t depth = 200'000) {
    return std::string(depth, '[') + std::string(depth, ']');
  }

  std::string safetensors(const std::string& header) {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    overwrite(path("bomb.safetensors"), bytes + header);
    return path("bomb.safetensors");
  }

  /// A checkpoint in which `bytes` replace the file `name`, with valid checksums.
  std::string checkpoint_with(const char* name, const std::string& bytes) {
    checkpoint::SmallReplica replica(1);
    checkpoint::CheckpointDirectory({path("made")}, checkpoint::alone())
        .save(replica.arrays(), checkpoint::at_step(10));
    const fs::path step = path("made/step-00000010");
    overwrite(step / name, bytes);
    if (name == std::string(checkpoint::kManifestName)) return step.string();
    checkpoint::Manifest manifest = checkpoint::read_manifest(step);
    for (checkpoint::FileDigest& file : manifest.files)
      if (file.name == name) file = checkpoint::digest_file(step / name);
    checkpoint::write_manifest(step, manifest);
    return step.string();
  }
};

TEST_F(Bombs, NestedSafetensors) {
  const std::string train = kTraining + "--steps 1 --init-from ";
  for (const std::string& header :
       {"{\"a\":" + nested() + "}", "{\"__metadata__\":" + nested() + "}"}) {
    const Result result = run_limited(train + safetensors(header));
    EXPECT_EQ(result.status, 3) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("more than 8 levels of arrays and objects"));
  }
}

TEST_F(Bombs, WideSafetensors) {
  std::string header = "{\"a\":[[]";
  for (int i = 1; i < 4'000'000; ++i) header += ",[]";
  const Result result =
      run_limited(kTraining + "--steps 1 --init-from " + safetensors(header + "]}"));
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("expected JSON, got more than "));
}

TEST_F(Bombs, NestedModel) {
  overwrite(path("model.json"), "{\"layers\":" + nested() + "}");
  const Result result =
      run_limited("train --steps 1 --data synthetic:4x4x1,4,64 --global-batch 16 --model " +
                  path("model.json"));
  EXPECT_EQ(result.status, 2) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("more than 64 levels of arrays and objects"));
}

TEST_F(Bombs, NestedStateAndManifest) {
  const std::string state = fmt::format(
      R"({{"step":1,"epoch":0,"seed":1,"global_batch":1,"precision":"float32","loss_scale":1,"metrics":{{}},)"
      R"("configuration":{}}})",
      nested());
  const std::string with_state = checkpoint_with(checkpoint::kStateFile, state);
  for (const std::string command : {"checkpoint inspect ", "checkpoint inspect --json "}) {
    const Result result = run_limited(command + with_state);
    EXPECT_EQ(result.status, 3) << command << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("more than 64 levels of arrays and objects"));
  }
  const Result result =
      run_limited("checkpoint verify " +
                  checkpoint_with(checkpoint::kManifestName, "{\"files\":" + nested() + "}"));
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("more than 64 levels of arrays and objects"));
}

TEST_F(Bombs, NestedDatasetDescription) {
  fs::create_directory(path("data"));
  overwrite(path("data/dataset.json"), "{\"lockstep_dataset\":" + nested() + "}");
  for (const std::string& command :
       {kTraining + "--steps 1 --data ", std::string("data inspect ")}) {
    const Result result = run_limited(command + path("data"));
    EXPECT_EQ(result.status, 3) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("more than 64 levels of arrays and objects"));
  }
}

TEST_F(Bombs, PackedRecords) {
  std::string member;
  data::Deflater deflater(data::Compression::gzip);
  deflater.add(std::string(64 << 20, '\0'), member);
  deflater.finish(member);
  std::string bomb;
  for (int i = 0; i < 32; ++i) bomb += member;  // two gigabytes in two megabytes
  overwrite(path("bomb.tfrecord"), bomb);
  for (const std::string more : {"", " --bad-records skip:10"}) {
    const Result result =
        run_limited(kTraining + "--steps 1 --data " + path("bomb.tfrecord") + more, 1'000'000);
    EXPECT_EQ(result.status, 3) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("bomb.tfrecord: record 0 at byte 0"));
    EXPECT_THAT(result.errors, HasSubstr("length CRC"));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
