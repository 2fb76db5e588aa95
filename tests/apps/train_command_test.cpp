#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/system/host.h"
#include "lockstep/device/gpu.h"
#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::contents_of;
using checkpoint::ScratchDirectory;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- A training

TEST(TrainCommand, PrintsEventsAndNothingElse) {
  const Result result = run_lockstep(kTrain + "--epochs 2 --validation-data synthetic:8x8x1,4,100");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.events().front()["event"], "start");
  EXPECT_EQ(result.events().size(), 1U + 22 + 2 + 1);
  EXPECT_EQ(result.event("epoch")["samples"], 1003);
  EXPECT_EQ(result.event("epoch")["validation_samples"], 100);
  EXPECT_LT(result.event("epoch")["loss"], 1.0);
  EXPECT_EQ(result.event("end")["steps"], 22);
  EXPECT_EQ(hash_of(result).size(), 16U);
}

TEST(TrainCommand, NamesRunAfterDirectory) {
  const ScratchDirectory directory;
  const auto start = [](const std::string& options) {
    const Result result = run_lockstep(kTrain + "--steps 1" + options);
    EXPECT_EQ(result.status, 0) << result.errors;
    return result.event("start");
  };
  const std::string wide = (directory.path() / "wide").string();
  const std::string curves = (directory.path() / "curves").string();
  EXPECT_EQ(start(" --summary-dir " + curves)["run"], "curves");
  EXPECT_EQ(start(" --summary-dir " + curves + " --checkpoint-dir " + wide + "/")["run"], "wide");
  EXPECT_FALSE(start("").contains("run"));
}

TEST(TrainCommand, PrintsText) {
  const std::string train = "train --model mlp --devices cpu:0,cpu:0 --epochs 1" + kData;
  const Result result = run_lockstep(train);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, ContainsRegex("^model mlp, [0-9]+ parameters; .*, 1003 records\n"
                                           "mirrored on 2 replicas; batch 100, 11 steps, "
                                           "learning rate 0.001\n"
                                           "epoch   step      loss  accuracy  samples/s     time\n"
                                           "    1   1/11 .*\n"
                                           "    1  11/11 "));
  const Result verbose = run_lockstep(train + "--verbose");
  EXPECT_THAT(verbose.output, HasSubstr("replica  rank  host"));
  EXPECT_THAT(verbose.output, HasSubstr("all-reduce in-process; at most 50 samples per replica"));
  EXPECT_EQ(run_lockstep("train --model mlp --quiet --epochs 1" + kData).output, "");
}

TEST(TrainCommand, WarnsOnceAbout16BitExchange) {
  const std::string line =
      "gradients are exchanged as bfloat16: the sum of the first step differs ";
  const std::string errors =
      run_lockstep(kTrain + "--devices cpu:0,cpu:0 --comm-dtype bfloat16").errors;
  EXPECT_THAT(errors, HasSubstr(line));
  EXPECT_EQ(errors.find(line), errors.rfind(line)) << errors;
  EXPECT_THAT(run_lockstep(kTrain + "--devices cpu:0,cpu:0").errors, Not(HasSubstr("exchanged")));
}

TEST(TrainCommand, RecomputesActivationsExactly) {
  const Result again = run_lockstep(kTrain + "--recompute blocks");
  EXPECT_THAT(again.errors, ContainsRegex("cpu:0 holds .* activations [0-9.]+ .some are computed "
                                          "again."));
  EXPECT_EQ(hash_of(again), hash_of(run_lockstep(kTrain + "--recompute none")));
}

TEST(TrainCommand, IsReproducibleForSeed) {
  const std::string twice = hash_of(run_lockstep(kTrain));
  EXPECT_EQ(hash_of(run_lockstep(kTrain)), twice);
  EXPECT_NE(hash_of(run_lockstep(kTrain + "--seed 2")), twice);
  EXPECT_NE(hash_of(run_lockstep(kTrain + "--no-shuffle")), twice);
}

TEST(TrainCommand, SynchronizesBatchNormalization) {
  const std::string train =
      "train --model resnet18 --log-format json --log-every 1 --steps 2 --data "
      "synthetic:8x8x1,4,20 --global-batch 6";
  const auto loss = [&](const std::string& options) -> double {
    const Result result = run_lockstep(train + options);
    EXPECT_EQ(result.status, 0) << result.errors;
    return result.event("epoch").value("loss", 0.0);
  };
  const double alone = loss("");
  EXPECT_NEAR(loss(" --devices cpu:0,cpu:0 --bn sync"), alone, 1e-3 * alone);
  EXPECT_GT(std::abs(loss(" --devices cpu:0,cpu:0 --bn local") - alone), 1e-2 * alone);
}

TEST(TrainCommand, WarnsAboutIdleReplicas) {
  const Result result = run_lockstep(
      "train --model linear --devices cpu:0,cpu:0,cpu:0 --data synthetic:8x8x1,4,10 --global-batch "
      "2");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("1 of 3 replicas have no sample in a step"));
}

TEST(TrainCommand, UsesLastValueOfOption) {
  EXPECT_EQ(run_lockstep(kTrain + "--steps 3 --steps 5").event("end")["steps"], 5);
}

TEST(TrainCommand, EveryScheduleOptimizerAndLossTrains) {
  for (
      const char* options :
      {"--optimizer sgd --momentum 0.9 --nesterov --learning-rate 0.1 --beta1 0.9 --beta2 0.999",
       "--optimizer adamw --weight-decay 0.1 --momentum 0",
       "--optimizer lars --learning-rate 1 --trust-coefficient 0.01 --momentum 0.5 --weight-decay "
       "0",
       "--optimizer lamb --learning-rate 0.01 --epsilon 1e-5",
       "--lr-schedule cosine --warmup-steps 3", "--lr-schedule linear --lr-final 0.1",
       "--lr-schedule step --lr-step-every 4 --lr-step-factor 0.5",
       "--optimizer rmsprop --lr 0.0003 --momentum 0.5 --rho 0.99 --lr-schedule one-cycle",
       "--optimizer adagrad --initial-accumulator 0 --learning-rate 0.003 --lr-schedule polynomial "
       "--lr-power 2",
       "--lr-schedule exponential --lr-step-every 5", "--lr-schedule inverse-sqrt --warmup-steps 3",
       "--lr-scaling sqrt --lr-base-batch 64", "--label-smoothing 0.1 --clip-norm 0.5",
       "--group dense/*:lr=0.002,decay=0.1 --group *_1/bias:decay=0", "--accumulate 7 --ema 0.9"}) {
    const Result result = run_lockstep(kTrain + "--steps 10 " + options);
    EXPECT_EQ(result.status, 0) << options << result.errors;
    EXPECT_LT(result.losses().back(), result.losses().front()) << options;
  }
}

TEST(TrainCommand, ScalesLossWithoutChangingResult) {
  const std::string train = kTrain + "--steps 10 ";
  const std::string hash = hash_of(run_lockstep(train));
  for (const char* scale : {"none", "256", "dynamic"})
    EXPECT_EQ(hash_of(run_lockstep(train + "--loss-scale " + scale)), hash) << scale;
  const Result dynamic = run_lockstep(train + "--loss-scale dynamic");
  EXPECT_EQ(dynamic.event("step")["loss_scale"], 65536);
  EXPECT_FALSE(run_lockstep(train).event("step").contains("loss_scale"));
}

TEST(TrainCommand, TrainsWithoutFrozenParameters) {
  const Result result =
      run_lockstep(kTrain + "--steps 5 --freeze dense/* --freeze dense_1/kernel,dense_1/bias");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("start")["trained_parameters"], 4 * 128 + 4);
  EXPECT_GT(result.event("start")["parameters"], 4 * 128 + 4);
  EXPECT_THAT(run_lockstep("train --model linear --steps 1 --freeze */bias" + kData).output,
              HasSubstr(", 256 of them trained;"));
}

TEST(TrainCommand, InitializesWithNewHead) {
  const ScratchDirectory directory;
  const std::string run = directory.path() / "run";
  ASSERT_EQ(run_lockstep(kTrain + "--steps 20 --checkpoint-dir " + run).status, 0);
  const std::string other =
      "train --model mlp --data synthetic:8x8x1,3,503 --global-batch 50 --steps 5 --log-format "
      "json --init-from " +
      run;
  const Result refused = run_lockstep(other);
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(
      refused.errors,
      HasSubstr("got dense_2/kernel [4, 128] instead of [3, 128], dense_2/bias [4] instead of "
                "[3]; --reset-head does not load dense_2"));
  const Result tuned = run_lockstep(other + " --reset-head");
  EXPECT_EQ(tuned.status, 0) << tuned.errors;
  EXPECT_EQ(tuned.event("start")["initialized_from"], run + "/step-00000020/model.safetensors");
  EXPECT_THAT(
      run_lockstep(other + " --reset-head --log-format text").output,
      HasSubstr("initialized from " + run + "/step-00000020/model.safetensors, without dense_2"));
  EXPECT_THAT(run_lockstep(other + " --partial").errors,
              AllOf(HasSubstr("loaded                       4  dense/kernel, dense/bias, "),
                    HasSubstr("of another shape or type     2  dense_2/kernel [4, 128] instead")));
}

TEST(TrainCommand, TrainsOnnxNetwork) {
  const ScratchDirectory directory;
  const std::string run = directory.path() / "run";
  const std::string file = directory.path() / "rows.onnx";
  std::filesystem::copy_file(
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference/onnx/rows.onnx", file);
  const std::string data = " --data synthetic:4x3x2,5,200 --global-batch 50 ";
  const std::string train = "train --log-format json --steps 4 --model " + file;
  const Result trained = run_lockstep(train + data + "--checkpoint-dir " + run);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(trained.event("start")["initialized_from"], file);
  EXPECT_EQ(trained.event("start")["parameters"], 175 + 40);
  // Evaluates without the file, because the checkpoint describes the network.
  std::filesystem::rename(file, file + ".moved.onnx");
  EXPECT_EQ(run_lockstep("evaluate --checkpoint " + run + " --data synthetic:4x3x2,5,200").status,
            0);
  EXPECT_EQ(run_lockstep(train + data).status, 2);
}

TEST(TrainCommand, ReplacesHeadOfOnnxNetwork) {
  const std::string train =
      "train --log-format json --steps 2 --global-batch 50 --data synthetic:4x3x2,3,200 --model " +
      std::string(LOCKSTEP_SOURCE_DIR) + "/tests/reference/onnx/rows.onnx";
  const Result tuned = run_lockstep(train + " --reset-head --freeze layers.2/*");
  EXPECT_EQ(tuned.status, 0) << tuned.errors;
  EXPECT_EQ(tuned.event("start")["trained_parameters"], 3 * 7 + 3);
}

TEST(TrainCommand, RejectsOnnxWithoutNetwork) {
  const ScratchDirectory directory;
  const std::string file = directory.path() / "net.onnx";
  std::ofstream(file) << "no protobuf";
  const Result refused = run_lockstep("train --steps 1 --model " + file + kData);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("net.onnx] expected a model of ONNX, got text"));
}

TEST(TrainCommand, PrefersResumeToInitialization) {
  const ScratchDirectory directory;
  const std::string saving = kTrain + "--checkpoint-dir " + (directory.path() / "run").string() +
                             " --init-from " + (directory.path() / "gone").string();
  ASSERT_EQ(
      run_lockstep(kTrain + "--steps 3 --checkpoint-dir " + (directory.path() / "run").string())
          .status,
      0);
  const Result resumed = run_lockstep(saving + " --steps 6");
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors,
              HasSubstr("pretrained weights are ignored: the training resumes from "));
  EXPECT_EQ(run_lockstep(saving + " --steps 6 --resume never --overwrite").status, 3);
}

TEST(TrainCommand, ReportsFinishedTraining) {
  const ScratchDirectory directory;
  const std::string run = directory.path() / "run";
  const std::string train =
      "train --model mlp --lr-schedule cosine" + kData + "--checkpoint-dir " + run;
  ASSERT_EQ(run_lockstep(train + " --epochs 2").status, 0);
  for (const int epochs : {1, 2}) {
    const Result again = run_lockstep(fmt::format("{} --epochs {}", train, epochs));
    EXPECT_EQ(again.status, 0) << again.errors;
    EXPECT_THAT(again.output,
                HasSubstr(fmt::format("nothing was trained: {}/step-00000022 is at step 22, and "
                                      "this training ends at step {}; more --epochs",
                                      run, 11 * epochs)));
    EXPECT_THAT(again.output, Not(HasSubstr("resumed from")));
    EXPECT_THAT(again.output, Not(HasSubstr("parameter hash")));
    EXPECT_THAT(again.errors, Not(HasSubstr("learning rate"))) << "which no step uses";
  }
  const Result other = run_lockstep(train + " --epochs 2 --learning-rate 0.25 --json");
  EXPECT_EQ(other.event("end")["steps_trained"], 0);
  EXPECT_THAT(other.event("end")["nothing_trained"].get<std::string>(),
              HasSubstr("another --checkpoint-dir begins a new one"));
  EXPECT_THAT(other.errors, HasSubstr("peak learning rate: 0.001 in the earlier run; no "
                                      "step is left to train with 0.25\n"));
}

// ---- Devices

TEST(TrainCommand, ListsItsDevices) {
  const Result result = run_lockstep(kTrain + "--steps 1 --devices cpu:0,cpu:0");
  const auto devices = result.event("start")["devices"];
  ASSERT_EQ(devices.size(), 2U) << result.errors;
  EXPECT_EQ(devices[1]["replica"], 1);
  EXPECT_EQ(devices[1]["rank"], 0);
  EXPECT_EQ(devices[1]["host"], host_name());
  EXPECT_EQ(devices[1]["device"], "cpu:0");
  EXPECT_GE(devices[1]["cores"], 1);
  EXPECT_FALSE(devices[1].contains("gpu"));
}

TEST(TrainCommand, ExplainsMissingGpu) {
  if (device::gpu_is_available()) GTEST_SKIP() << "this machine has one";
  for (const char* list : {"gpu:0", "gpu:all"}) {
    const Result result = run_lockstep(kTrain + "--devices " + list);
    EXPECT_EQ(result.status, 5) << result.errors;
    EXPECT_THAT(result.errors, ContainsRegex("lockstep: error: \\[devices\\] expected .*" +
                                             std::string(list) + "; "));
    EXPECT_THAT(result.errors, EndsWith("; " + device::gpu_unavailable_reason() + "\n"));
  }
}

TEST(TrainCommand, WarnsAboutFewerCoresThanDataThreads) {
  const int threads = available_cores() + 1;
  const Result result =
      run_lockstep(fmt::format("{} --steps 1 --data-threads {}", kTrain, threads));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr(fmt::format(
                                 "of the host's cores, fewer than --data-threads {}: ", threads)));
}

TEST(TrainCommand, HasTwoOptionsForJson) {
  const std::string train = "train --model linear --steps 1" + kData;
  for (const char* options : {"--json", "--log-format json", "--log-format text --json"})
    EXPECT_EQ(run_lockstep(train + options).event("end")["steps"], 1) << options;
  EXPECT_THAT(run_lockstep(train + "--json --log-format text").output, HasSubstr("model linear, "));
  EXPECT_THAT(run_lockstep(train + "--json --print-config").output,
              HasSubstr("log-format=\"json\"\n"));
  EXPECT_EQ(run_lockstep("version --log-format json").events().size(), 1U);
}

// ---- Configuration files

TEST(TrainCommand, ReadsPrintedConfiguration) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  std::ofstream(path) << run_lockstep(kTrain + "--seed 7 --no-shuffle --print-config").output;
  const Result expected = run_lockstep(kTrain + "--seed 7 --no-shuffle");
  EXPECT_EQ(hash_of(run_lockstep("train --config " + path)), hash_of(expected));
  EXPECT_EQ(run_lockstep("train --config=" + path + " --steps 3").event("end")["steps"], 3);
}

TEST(TrainCommand, ConfigurationKeepsAnyCharacters) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  for (const char* value : {"a#b", "it's#1", "a;c", "a,b", "50%\\x"}) {
    const std::string checkpoints = directory.path() / value;
    const std::string options =
        fmt::format("{}--steps 1 --checkpoint-dir {} ", kTrain, checkpoints);
    const std::string printed = run_lockstep(options + "--print-config").output;
    std::ofstream(path) << "# It's a comment\n" << printed;
    EXPECT_EQ(run_lockstep("train --print-config --config " + path).output, printed);
    EXPECT_EQ(run_lockstep(options).event("start")["options"]["checkpoint-dir"], checkpoints);
  }
}

TEST(TrainCommand, UsesLastLineOfConfiguration) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  std::ofstream(path) << "devices=\"cpu:0\"\ndevices=\"cpu:0\"\nsteps=2\nsteps = 3\n"
                         "group=\"*.bias:decay=0\"\ngroup=\"*.gamma:decay=0\"\n";
  const std::string printed = run_lockstep("train --print-config --config " + path).output;
  EXPECT_THAT(printed, HasSubstr("devices=\"cpu:0\"\n"));
  EXPECT_THAT(printed, HasSubstr("steps=3\n"));
  EXPECT_THAT(printed, AllOf(HasSubstr("*.bias:decay=0"), HasSubstr("*.gamma:decay=0")))
      << "of which each counts";
}

TEST(TrainCommand, WritesEventsBesideTheText) {
  const ScratchDirectory directory;
  const std::string events = directory.path() / "run.jsonl";
  const std::string train = "train --model linear" + kData + "--checkpoint-dir " +
                            (directory.path() / "run").string() + " --events " + events;
  const Result first = run_lockstep(train + " --epochs 1 --json");
  ASSERT_EQ(first.status, 0) << first.errors;
  const std::vector<nlohmann::json> printed = first.events();
  const std::vector<nlohmann::json> written =
      Result{.status = 0, .output = contents_of(events), .errors = {}}.events();
  ASSERT_EQ(written.size(), printed.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(written[i]["event"], printed[i]["event"]);
    EXPECT_EQ(written[i].value("loss", 0.0), printed[i].value("loss", 0.0));
  }
  const Result second = run_lockstep(train + " --epochs 2");
  EXPECT_THAT(second.output, HasSubstr("model linear")) << "the text";
  const std::string both = contents_of(events);
  EXPECT_THAT(both, AllOf(HasSubstr("\"steps\":11"), HasSubstr("\"steps\":22")))
      << "a run that resumes continues the file";
  run_lockstep(train + " --epochs 1 --resume never --overwrite");
  EXPECT_THAT(contents_of(events), Not(HasSubstr("\"steps\":22")));
  const Result lost = run_lockstep("train --model linear" + kData + "--checkpoint-dir none " +
                                   "--events " + (directory.path() / "no" / "file").string());
  EXPECT_EQ(lost.status, 3);
  EXPECT_THAT(lost.errors, HasSubstr("expected to write the events to this file; No such file"));
}

TEST(TrainCommand, DoesNotOverwriteData) {
  const ScratchDirectory directory;
  const std::string table = directory.path() / "table.csv";
  const std::string content = "x,label\n1,a\n2,b\n3,a\n";
  std::ofstream(table) << content;
  for (const char* option : {"--csv-log", "--events", "--profile", "--trace", "--metrics-file"}) {
    const Result result = run_lockstep(
        fmt::format("train --model linear --steps 1 --data csv:{0} {1} {0}", table, option));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr("expected another file than the data, got " + table));
  }
  const std::string run = directory.path() / "run";
  run_lockstep("train --model linear --steps 1 --checkpoint-dir " + run + " --data csv:" + table);
  const Result predicted = run_lockstep(
      fmt::format("predict --checkpoint {} --data csv:{} --output {}", run, table, table));
  EXPECT_EQ(predicted.status, 2);
  EXPECT_THAT(predicted.errors, HasSubstr("[--output] expected another file than the data"));
  EXPECT_EQ(contents_of(table), content);
}

TEST(TrainCommand, WarnsAboutWeightsOfOtherClasses) {
  const ScratchDirectory directory;
  const std::string first = directory.path() / "first.csv";
  const std::string second = directory.path() / "second.csv";
  const std::string run = directory.path() / "run";
  std::ofstream(first) << "x,label\n1,bad\n2,good\n";
  std::ofstream(second) << "x,label\n1,defect\n2,normal\n";
  const std::string train = "train --model linear --steps 1 --data csv:";
  run_lockstep(train + first + " --checkpoint-dir " + run);
  EXPECT_THAT(run_lockstep(train + second + " --init-from " + run).errors,
              HasSubstr("are those of other data: class 0 was bad in their training, and is "
                        "defect"));
  EXPECT_EQ(run_lockstep(train + first + " --init-from " + run + " --quiet").errors, "");
}

TEST(TrainCommand, UsesLastConfiguration) {
  const ScratchDirectory directory;
  const std::string first = directory.path() / "a.toml";
  const std::string last = directory.path() / "b.toml";
  std::ofstream(first) << "seed=1\nsteps=3\n";
  std::ofstream(last) << "seed=2\n";
  const std::string printed =
      run_lockstep("train --print-config --config " + first + " --config=" + last).output;
  EXPECT_THAT(printed, HasSubstr("seed=2\n"));
  EXPECT_THAT(printed, ::testing::Not(HasSubstr("steps=3\n")));
}

TEST(TrainCommand, ReadsSectionOfConfiguration) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  std::ofstream(path) << "[predict]\ndata=\"nowhere\"\n[train]\nmodel=\"mlp\"\ndata=\"synthetic:"
                         "8x8x1,4,1003\"\nlog-"
                         "format=\"json\"\nsteps=2\n";
  EXPECT_EQ(run_lockstep("train --checkpoint-dir none --config " + path).event("end")["steps"], 2);
}

TEST(TrainCommand, NamesInvalidConfiguration) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  const std::string expected = "[--config " + path +
                               "] expected valid options for lockstep train (`lockstep train "
                               "--help` lists them)";
  struct Case {
    const char* text;
    const char* got;
  };
  for (const Case& wrong :
       {Case{"modle=\"mlp\"\n", ", got \"--modle\" (did you mean --model?)\n"},
        Case{"optimizer.name=\"sgd\"\n", ", got \"--optimizer.name\""},
        Case{"epochs=-1\n", "; [command line] expected --epochs to be at least 0, got -1\n"},
        Case{"[train]\nloss=\"hinge\"\n", "; [loss] expected "}, Case{"seed=\"x\"\n", "; "}}) {
    std::ofstream(path) << wrong.text;
    const Result result = run_lockstep("train --config " + path);
    EXPECT_EQ(result.status, 2) << wrong.text;
    EXPECT_THAT(result.errors, HasSubstr(expected + wrong.got)) << wrong.text;
  }
  for (const auto& [text, got] :
       {std::pair("[training]\nsteps=2\n", "got \"steps\" in a section [training]"),
        {"[train.more]\nsteps=2\n", "got \"steps\" in a section [train.more]"}}) {
    std::ofstream(path) << text;
    const Result result = run_lockstep("train --config " + path);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors,
                HasSubstr("[--config " + path +
                          "] expected options of train, or in a section [train], " + got));
  }
  EXPECT_THAT(
      run_lockstep("train --config /").errors,
      HasSubstr("[--config /] expected a readable file of name=value lines, got a directory"));
  for (const char* line : {"seed", "= 7", "model=\"mlp", "model='mlp' x"}) {
    std::ofstream(path) << "steps=2\n" << line << "\n";
    EXPECT_THAT(run_lockstep("train --config " + path).errors,
                HasSubstr(fmt::format("[--config {}] expected a readable file of name=value lines, "
                                      "got \"{}\" in line 2",
                                      path, line)));
  }
  std::ofstream(path) << "global-batch=abc\n";
  EXPECT_THAT(run_lockstep("train --config " + path).errors,
              HasSubstr("[--config " + path +
                        "] expected valid options for lockstep train (`lockstep train --help` "
                        "lists them); [command line] expected --global-batch to be a whole number, "
                        "written in digits, got \"abc\"\n"));
}

// ---- Aliases of options

TEST(TrainCommand, HasAliases) {
  const Result expected = run_lockstep(kTrain + "--steps 2 --global-batch 50 --learning-rate 0.05");
  const std::string aliases =
      "train --model mlp --log-format json --log-every 1 --data synthetic:8x8x1,4,1003 --steps 2 "
      "--batch-size 50 --lr 0.05 --loss cross-entropy --precision fp32";
  EXPECT_EQ(hash_of(run_lockstep(aliases)), hash_of(expected));
  const std::string printed = run_lockstep(aliases + " --print-config").output;
  EXPECT_THAT(printed, HasSubstr("\nglobal-batch=50\n"));
  EXPECT_THAT(printed, HasSubstr("learning-rate=0.05\n"));
  EXPECT_THAT(printed, ::testing::Not(HasSubstr("batch-size")));
}

TEST(TrainCommand, PrefersAliasToConfiguration) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "run.toml";
  std::ofstream(path) << "learning-rate=0.5\n";
  EXPECT_THAT(run_lockstep("train --print-config --lr 0.05 --config " + path).output,
              HasSubstr("learning-rate=0.05\n"));
  std::ofstream(path) << "learning-rate=0.5\nlr=0.25\n";
  EXPECT_THAT(run_lockstep("train --config " + path).errors,
              HasSubstr("[--config " + path +
                        "] expected --learning-rate or --lr, two names of the same option, got "
                        "both\n"));
}

TEST(TrainCommand, AcceptsLargestSeedAndUsesLast) {
  EXPECT_THAT(run_lockstep(kTrain + "--seed 1 --seed 18446744073709551615 --print-config").output,
              HasSubstr("seed=18446744073709551615\n"));
}

// ---- Bad models and data

class BadInput : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  /// TFRecord shards of `rows` records of two numbers and a class 0, 1 or 2.
  std::string shards(int rows) const {
    std::string table;
    for (int i = 0; i < rows; ++i) table += fmt::format("{},{},{}\n", i * 0.5, -i, i % 3);
    const Result result = run_lockstep("data convert csv --input " + write("table.csv", table) +
                                       " --output " + path("shards") + " --shards 1");
    EXPECT_EQ(result.status, 0) << result.errors;
    for (const auto& entry : std::filesystem::directory_iterator(path("shards")))
      if (entry.path().extension() == ".tfrecord") return entry.path();
    return {};
  }
  ScratchDirectory directory_;
};

TEST_F(BadInput, ModelWhoseClassesDiffer) {
  const std::string model =
      write("net.json", R"({"layers": [{"type": "flatten"}, {"type": "dense", "units": 7}]})");
  const Result result = run_lockstep("train --model " + model + kData);
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected 7 classes, the outputs of model"));
  EXPECT_THAT(result.errors, EndsWith("got 4 classes\n"));
}

TEST_F(BadInput, ModelWhoseShapesDoNotFit) {
  const std::string model = write(
      "net.json",
      R"({"layers": [{"type": "conv2d", "filters": 8, "kernel": 9}, {"type": "flatten"}, {"type": "dense", "units": "classes"}]})");
  const Result result = run_lockstep("train --model " + model + kData);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("conv2d"));
}

TEST_F(BadInput, ModelWithoutParameters) {
  const std::string model =
      write("net.json", R"({"name": "bare", "layers": [{"type": "flatten"}, {"type": "relu"}]})");
  const Result result = run_lockstep("train --model " + model + kData);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              EndsWith("[model] expected a layer with parameters to train, got none in bare\n"));
}

TEST_F(BadInput, ModelWithoutJson) {
  const Result result = run_lockstep("train --model " + write("net.json", "{layers") + kData);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("net.json"));
}

TEST_F(BadInput, IntactRecordsTrain) {
  const Result result =
      run_lockstep("train --model linear --global-batch 8 --log-format json --data " + shards(50));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("epoch")["samples"], 50);
}

TEST_F(BadInput, TruncatedFile) {
  const std::string file = shards(50);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 5);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("shards")))
    if (entry.path().extension() != ".tfrecord" && entry.path().filename() != "dataset.json" &&
        entry.is_regular_file())
      std::filesystem::remove(entry.path());
  const Result result = run_lockstep("train --model linear --data " + file);
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr(file));
}

TEST_F(BadInput, FlippedBitInARecord) {
  const std::string file = shards(50);
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(std::filesystem::file_size(file) / 2);
  bytes.seekg(place);
  const char byte = static_cast<char>(bytes.get() ^ 0x10);
  bytes.seekp(place);
  bytes.put(byte);
  bytes.close();
  const Result result = run_lockstep("train --model linear --global-batch 8 --data " + file);
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr(file));
  EXPECT_THAT(result.errors, HasSubstr("record 2"));  // the middle of a file of 50 records
}

TEST_F(BadInput, LabelsOutOfRange) {
  const Result result =
      run_lockstep("train --model linear --global-batch 8 --classes 2 --data " + shards(50));
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("label"));
}

TEST_F(BadInput, QuantitiesAsLabels) {
  const std::string table = write("houses.csv", "area,price\n1,159047\n2,1026874\n");
  const Result result = run_lockstep("train --model mlp --data csv:" + table);
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("expected labels that number the classes from 0; quantities "
                                       "are trained on with --loss mean-squared-error"));
  EXPECT_THAT(result.errors, EndsWith("got 1026875 classes in 2 records\n"));
}

TEST_F(BadInput, EmptyFile) {
  const Result result = run_lockstep("train --model linear --data " + write("empty.tfrecord", ""));
  EXPECT_EQ(result.status, 3) << result.errors;
}

}  // namespace
}  // namespace lockstep::inline v0::apps
