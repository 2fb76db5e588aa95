// Saved trainings: resuming, evaluating and predicting from their checkpoints.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/trainer.h"
#include "tests/apps/saved.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Saved, ResumesExactlyAfterKillInEpoch) {
  Process process(lockstep(train() + "--epochs 100000"));  // it cannot end by itself
  ASSERT_TRUE(process.wait_for(R"("event":"checkpoint","step":16)"));
  process.kill(SIGKILL);
  EXPECT_EQ(process.finish().status, 128 + SIGKILL);

  constexpr std::int64_t kStepsPerEpoch = 11;
  const std::int64_t newest = checkpoint::list_checkpoints(directory()).front().step;
  const std::string epochs = fmt::format("--epochs {}", newest / kStepsPerEpoch + 1);
  const Result again = run_lockstep(train() + epochs);
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_GE(again.event("start")["first_step"], 16);
  EXPECT_LT(again.event("start")["first_step"], again.event("end")["steps"]);
  const Result straight = run_lockstep(kTrain + epochs);
  ASSERT_EQ(straight.status, 0) << straight.errors;
  EXPECT_EQ(hash_of(again), hash_of(straight));
  EXPECT_EQ(again.event("epoch")["samples"], 1003);
}

TEST_F(Saved, KeepsBestAndStopsEarly) {
  const std::string options =
      "--epochs 9 --keep 1 --keep-best loss:max --early-stop loss:patience=2,min_delta=1e9 "
      "--csv-log " +
      directory("log.csv");
  const Result result = run_lockstep(train() + options);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("end")["steps"], 33) << "one epoch is the best, two are waited for";
  EXPECT_THAT(result.event("end").value("stop_reason", ""),
              HasSubstr("loss has not improved since step 11, when it was "));
  const Result best =
      run_lockstep("evaluate --log-format json --checkpoint " + directory() + ":best" + kData);
  EXPECT_EQ(best.event("evaluate")["step"], 11) << "the loss was the largest";
  const std::string log = checkpoint::contents_of(directory("log.csv"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 4) << "a header and an epoch each: " << log;
}

TEST_F(Saved, StoresImagePreprocessing) {
  const std::string images = " --data synthetic-images:32x32x3,4,60 --global-batch 20 ";
  const std::string train =
      "train --model mlp --log-format json --checkpoint-dir " + directory() + images;
  ASSERT_EQ(run_lockstep(train + "--images cifar10 --epochs 1").status, 0);
  const auto evaluated = [&](const std::string& options) -> double {
    return run_lockstep("evaluate --log-format json --checkpoint " + directory() + images + options)
        .event("evaluate")["loss"];
  };
  EXPECT_EQ(evaluated(""), evaluated("--images cifar10"));
  EXPECT_NE(evaluated(""), evaluated("--images none"));
  const Result otherwise = run_lockstep(train + "--epochs 2");
  EXPECT_EQ(otherwise.status, 3);
  EXPECT_THAT(otherwise.errors,
              HasSubstr("[resume] expected the sample preparation of " + directory()));
  EXPECT_THAT(
      otherwise.errors,
      HasSubstr(
          "(\", images cifar10-train\"), got \"\"; use another --checkpoint-dir to start over"));
  EXPECT_EQ(run_lockstep(train + "--images cifar10 --epochs 2").status, 0);
}

TEST_F(Saved, PredictsEmbeddings) {
  const std::string data = " --data synthetic:4x4x1,3,30 --global-batch 7 ";
  ASSERT_EQ(
      run_lockstep("train --model mlp:5 --quiet --checkpoint-dir " + directory() + data).status, 0);
  const Result result =
      run_lockstep("predict --embeddings --output - --checkpoint " + directory() + data);
  EXPECT_THAT(result.output, StartsWith("record,output_0,output_1,output_2,output_3,output_4\n0,"));
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 31);
  EXPECT_THAT(result.errors, HasSubstr("predicted 30 of 30 records"));
  ASSERT_EQ(
      run_lockstep("train --model linear --quiet --checkpoint-dir " + directory("l") + data).status,
      0);
  const Result refused =
      run_lockstep("predict --embeddings --output - --checkpoint " + directory("l") + data);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("[features] expected a network of layers with parameters"));
}

TEST_F(Saved, PredictsEmbeddingsOfMovingAverages) {
  std::ofstream(directory("a.csv")) << "x,k\n1,0\n-1,1\n2,0\n-2,1\n";
  const std::string data = " --data csv:" + directory("a.csv");
  ASSERT_EQ(run_lockstep("train --model mlp:3 --ema 0.9 --steps 20 --learning-rate 0.1 --quiet "
                         "--global-batch 4 --checkpoint-dir " +
                         directory() + data + ":scale=none")
                .status,
            0);
  const std::filesystem::path last = checkpoint::list_checkpoints(directory()).front().path;
  const auto stored = [&](const char* file, const std::string& name) {
    const checkpoint::SafetensorsFile tensors(last / file);
    std::vector<float> values(3);
    const auto* const entry = tensors.find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry != nullptr) tensors.read(*entry, values);
    return values;
  };
  const std::string average = std::string(model::kAverageSlot) + "/dense/";
  const std::vector<float> kernel = stored("optimizer.safetensors", average + "kernel");
  const std::vector<float> bias = stored("optimizer.safetensors", average + "bias");
  EXPECT_NE(kernel, stored("model.safetensors", "dense/kernel"));
  const Result result =
      run_lockstep("predict --embeddings --quiet --output - --checkpoint " + directory() + data);
  const auto rows = numbers_of(result.output);
  ASSERT_EQ(rows.size(), 4U) << result.errors;
  for (const auto& [row, x] : {std::pair(0, 1.0F), {1, -1.0F}, {2, 2.0F}, {3, -2.0F}})
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(rows[static_cast<std::size_t>(row)].at(i + 1),
                  std::max(0.0F, kernel[i] * x + bias[i]), 1e-5);
}

TEST_F(Saved, StoresImageSteps) {
  const std::string images = " --data synthetic-images:32x32x3,4,60 --global-batch 20 ";
  const std::string training = "--images random-crop=16,flip,normalize=cifar10,erase";
  for (const char* evaluation : {"", ":resize=20,crop=16"}) {
    const std::string steps = training + evaluation;
    const std::string run = directory(steps.size() == training.size() ? "derived" : "given");
    const Result trained =
        run_lockstep("train --model mlp --epochs 1 --checkpoint-dir " + run + images + steps);
    ASSERT_EQ(trained.status, 0) << trained.errors;
    EXPECT_THAT(trained.output, HasSubstr(", images random-crop=16,flip,normalize=cifar10,erase"));
    const auto evaluated = [&](const std::string& options) -> double {
      return run_lockstep("evaluate --json --checkpoint " + run + images + options)
          .event("evaluate")["loss"];
    };
    EXPECT_EQ(evaluated(""), evaluated(steps));
    EXPECT_EQ(evaluated("") == evaluated("--images resize=20,crop=16"), *evaluation != '\0');
    EXPECT_EQ(evaluated("") == evaluated("--images resize=18,crop=16,normalize=cifar10"),
              *evaluation == '\0');
  }
  std::ofstream(directory("options.ini")) << "image-size=16\nepochs=1\nmodel=\"mlp\"\n";
  EXPECT_THAT(
      run_lockstep("train --checkpoint-dir none --config " + directory("options.ini") + images)
          .output,
      HasSubstr(", images imagenet-train, 16x16x3"));
}

/// Images of one gray pixel, `count` for each class.
void add_images(const std::filesystem::path& folder, int count) {
  const std::string png = data::from_hex(
      "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c636007"
      "00000900082023c38c0000000049454e44ae426082");
  std::filesystem::create_directories(folder);
  for (int i = 0; i < count; ++i) data::write_bytes(folder / fmt::format("{}.png", i), png);
}

TEST_F(Saved, MatchesClassFoldersByName) {
  const std::filesystem::path photos = directory("photos");
  add_images(photos / "train" / "ant", 1);
  add_images(photos / "train" / "bee", 7);
  add_images(photos / "bees" / "bee", 3);
  add_images(photos / "more" / "bee", 1);
  add_images(photos / "more" / "cat", 1);
  const auto data = [&](const char* folder) { return " --data " + (photos / folder).string(); };
  const Result trained = run_lockstep(
      "train --model linear --log-format json --epochs 20 --learning-rate 0.1 --keep-best none "
      "--checkpoint-dir " +
      directory() + data("train") + " --validation-data " + (photos / "bees").string());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(trained.event("epoch")["validation_accuracy"], 1.0);  // all are bees, class 1
  const std::string evaluate = "evaluate --log-format json --checkpoint " + directory();
  EXPECT_EQ(run_lockstep(evaluate + data("bees")).event("evaluate")["accuracy"], 1.0);
  const Result refused = run_lockstep(evaluate + data("more"));
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors,
              HasSubstr("expected only the classes ant, bee; it has the class cat"));
  for (const char* folder : {"bees", "more"})  // converted to shards
    ASSERT_EQ(run_lockstep("data convert images --part test --input " + (photos / folder).string() +
                           " --output " + directory(folder))
                  .status,
              0);
  EXPECT_EQ(run_lockstep(evaluate + " --data " + directory("bees")).event("evaluate")["accuracy"],
            1.0);
  EXPECT_EQ(run_lockstep(evaluate + " --data " + directory("more")).errors,
            "lockstep: error: [test dataset.json in " + directory("more") +
                "] expected only the classes ant, bee; it has the class cat\n");

  const std::string predict = "predict --checkpoint " + directory() + data("more") + " --output ";
  ASSERT_EQ(run_lockstep(predict + directory("p.csv")).status, 0);
  EXPECT_THAT(data::read_bytes(directory("p.csv")),
              ::testing::MatchesRegex("record,predicted,probability_0,probability_1,file,class\n"
                                      "0,1,[^\n]*,bee/0.png,bee\n1,1,[^\n]*,cat/0.png,bee\n"));
  ASSERT_EQ(run_lockstep(predict + directory("p.jsonl")).status, 0);
  const Result lines{0, data::read_bytes(directory("p.jsonl")), ""};
  for (const auto& event : lines.events()) EXPECT_EQ(event["class"], "bee");

  add_images(photos / "new", 2);
  const std::string unlabelled =
      "predict --quiet --checkpoint " + directory() + data("new") + " --output ";
  EXPECT_THAT(run_lockstep(unlabelled + "- --top 1").output,
              ::testing::MatchesRegex("record,predicted,top_1,top_1_probability,file\n"
                                      "0,1,bee,[^\n]*,0.png\n1,1,bee,[^\n]*,1.png\n"));
  EXPECT_THAT(
      run_lockstep("predict --quiet --output - --checkpoint " + directory() + data("new/1.png"))
          .output,
      ::testing::MatchesRegex("record,.*\n0,1,[^\n]*,1.png,bee\n"));
  ASSERT_EQ(run_lockstep(unlabelled + directory("p.tfrecord")).status, 0);
  const std::vector<std::string> records = data::read_records(directory("p.tfrecord"));
  ASSERT_EQ(records.size(), 2U);
  const data::Example second = data::parse_example(records[1]);
  EXPECT_EQ(std::get<data::Int64List>(second.at("record")), data::Int64List{1});
  EXPECT_EQ(std::get<data::Int64List>(second.at("predicted")), data::Int64List{1});
  EXPECT_EQ(std::get<data::BytesList>(second.at("file")), data::BytesList{"1.png"});
  EXPECT_EQ(std::get<data::BytesList>(second.at("class")), data::BytesList{"bee"});
  const auto& outputs = std::get<data::FloatList>(second.at("outputs"));
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(std::get<data::FloatList>(second.at("probability")), data::FloatList{outputs[1]});
  const Result without_labels = run_lockstep("evaluate --checkpoint " + directory() + data("new"));
  EXPECT_EQ(without_labels.status, 3);
  EXPECT_THAT(without_labels.errors, HasSubstr("expected the images of each class in a folder"));
}

TEST_F(Saved, PredictsRecordsWithoutLabels) {
  const auto write = [&](const std::string& name, bool has_labels) {
    std::vector<std::string> records;
    for (std::int64_t i = 0; i < 6; ++i) {
      data::Example example = {{"x", data::FloatList{static_cast<float>(i), 1}}};
      if (has_labels) example["y"] = data::Int64List{i % 2};
      records.push_back(data::serialize_example(example));
    }
    data::write_records(directory(name), records);
    return " --data " + directory(name);
  };
  ASSERT_EQ(run_lockstep("train --model linear --quiet --input-feature x --label-feature y "
                         "--checkpoint-dir " +
                         directory() + write("train.tfrecord", true))
                .status,
            0);
  const Result result = run_lockstep("predict --quiet --output - --checkpoint " + directory() +
                                     write("new.tfrecord", false));
  EXPECT_EQ(result.errors, "") << "the input feature is that of the training";
  const auto rows = numbers_of(result.output);
  ASSERT_EQ(rows.size(), 6U);
  for (const auto& row : rows) EXPECT_NEAR(row.at(2) + row.at(3), 1, 1e-6);
}

TEST_F(Saved, StoresLoss) {
  std::ofstream(directory("a.csv")) << "x,kind\n1,0\n-1,1\n2,0\n-2,1\n0.5,0\n";
  const std::string data = " --data csv:" + directory("a.csv");
  const std::string train =
      "train --model linear --epochs 2 --log-format json --validation-data csv:" +
      directory("a.csv") + data + " --loss binary-crossentropy:label_smoothing=0.25";
  const Result trained =
      run_lockstep(train + " --class-weights auto --checkpoint-dir " + directory());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_NE(hash_of(trained), hash_of(run_lockstep(train)));
  const Result evaluated = run_lockstep("evaluate --json --checkpoint " + directory() + data);
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  const auto sums = evaluated.event("evaluate");
  EXPECT_NEAR(sums["loss"], trained.event("epoch")["validation_loss"].get<double>(), 1e-6);
  EXPECT_EQ(sums["accuracy"], trained.event("epoch")["validation_accuracy"]);
  EXPECT_EQ(hash_of(trained), hash_of(run_lockstep(train + " --class-weights 0.833333333,1.25")))
      << "5 records, 3 and 2 of the classes";
  const Result predicted =
      run_lockstep("predict --quiet --output - --checkpoint " + directory() + data);
  EXPECT_THAT(predicted.output,
              ::testing::StartsWith("record,predicted,probability_0,probability_1"));
  for (const auto& row : numbers_of(predicted.output)) {
    EXPECT_NEAR(row.at(2) + row.at(3), 1, 1e-6);
    EXPECT_EQ(row.at(1) > 0, row.at(3) > 0.5);
  }
  const Result refused = run_lockstep(train + " --class-weights 1,2,3");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("[class-weights] expected 2 weights, one for each class"));
}

TEST_F(Saved, StoresMixup) {
  const std::string train = kTrain + "--checkpoint-dir " + directory();
  const Result mixed = run_lockstep(train + " --epochs 1 --mixup 0.2");
  EXPECT_EQ(mixed.status, 0) << mixed.errors;
  EXPECT_NE(hash_of(mixed), hash_of(run_lockstep(kTrain + "--epochs 1")));
  const Result otherwise = run_lockstep(train + " --epochs 2");
  EXPECT_EQ(otherwise.status, 3);
  EXPECT_THAT(otherwise.errors,
              HasSubstr("(\", mixup 0.2\"), got \"\"; use another --checkpoint-dir to start over"));
  EXPECT_EQ(run_lockstep(train + " --epochs 2 --mixup 0.2").status, 0);
  const Result refused = run_lockstep(kTrain + "--mixup 5");
  EXPECT_EQ(refused.status, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("expected --mixup to be from 0 to 4, got 5"));
}

TEST_F(Saved, ResumesBfloat16AndEvaluatesInEitherType) {
  const std::string precision = "--precision bfloat16 ";
  const Result straight = run_lockstep(train("straight") + precision);
  if (straight.errors.find("expected a processor with AVX-512") != std::string::npos)
    GTEST_SKIP() << straight.errors;
  ASSERT_EQ(straight.status, 0) << straight.errors;
  EXPECT_EQ(straight.event("start")["precision"], "bfloat16");
  EXPECT_LT(straight.event("epoch")["loss"], 1.0);
  EXPECT_NE(hash_of(straight), hash_of(run_lockstep(kTrain + "--epochs 3")));
  ASSERT_EQ(run_lockstep(train() + precision + "--steps 13").status, 0);
  const Result again = run_lockstep(train() + precision);
  EXPECT_EQ(again.event("start")["first_step"], 13);
  EXPECT_EQ(hash_of(again), hash_of(straight));
  const auto evaluated = [&](const std::string& options) -> double {
    return run_lockstep("evaluate --log-format json --checkpoint " + directory() + kData + options)
        .event("evaluate")["loss"];
  };
  const double exact = evaluated("");
  const double rough = evaluated(precision);
  EXPECT_NE(rough, exact);
  EXPECT_NEAR(rough, exact, 0.02 * exact + 1e-3);
}

TEST_F(Saved, SavesOnSigterm) {
  // Too long to end by itself.
  Process process(lockstep(train() + "--epochs 100000"));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":3)"));
  process.kill(SIGTERM);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 143) << result.errors;
  EXPECT_EQ(result.event("end")["signal"], SIGTERM);
  EXPECT_EQ(result.event("checkpoint")["step"], result.event("end")["steps"]);
}

TEST_F(Saved, FallsBackFromDamagedCheckpoint) {
  ASSERT_EQ(run_lockstep(train()).status, 0);
  const std::string newest = directory() + "/step-00000033";
  std::filesystem::resize_file(newest + "/model.safetensors", 100);
  const Result result = run_lockstep(train());
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.event("start")["first_step"], 32);
  EXPECT_THAT(result.errors, HasSubstr("skipped a checkpoint"));
  EXPECT_THAT(result.errors, HasSubstr(newest));
}

TEST_F(Saved, RejectsOtherModelBatchOrSeed) {
  ASSERT_EQ(run_lockstep(train()).status, 0);
  for (const char* other :
       {"--model linear", "--global-batch 64", "--seed 9", "--optimizer sgd --momentum 0.9"}) {
    const Result result = run_lockstep(train() + other);
    EXPECT_EQ(result.status, 3) << other << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("lockstep: error: [")) << other;
  }
  EXPECT_THAT(run_lockstep(train() + "--model linear").errors,
              HasSubstr("[resume] expected the network of " + directory("run/step-00000033") +
                        ", mlp, got linear; use another --checkpoint-dir to start over"));
  EXPECT_EQ(run_lockstep(train() + "--resume never --overwrite --seed 9").status, 0);
}

TEST_F(Saved, RequiresCheckpointToResume) {
  const Result result = run_lockstep(train() + "--resume require");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected a complete checkpoint; there is none"));
}

TEST_F(Saved, EvaluatesAsTraining) {
  const Result training = run_lockstep(train() + "--validation-data synthetic:8x8x1,4,500");
  const std::string evaluate =
      "evaluate --data synthetic:8x8x1,4,500,test --checkpoint " + directory();
  const Result json = run_lockstep(evaluate + " --log-format json --global-batch 77");
  EXPECT_EQ(json.status, 0) << json.errors;
  EXPECT_EQ(json.event("evaluate")["samples"], 500);
  EXPECT_EQ(json.event("evaluate")["accuracy"], training.event("epoch")["validation_accuracy"]);
  EXPECT_NEAR(json.event("evaluate")["loss"].get<double>(),
              training.event("epoch")["validation_loss"].get<double>(), 1e-6);
  EXPECT_EQ(json.event("evaluate")["parameter_hash"], hash_of(training));
  const Result text = run_lockstep(evaluate + " --devices cpu:0,cpu:0,cpu:0");
  EXPECT_THAT(text.output, EndsWith("\nevaluated 500 of 500\n"));
  EXPECT_THAT(text.output, HasSubstr(", accuracy "));
  EXPECT_THAT(text.output, ::testing::Not(HasSubstr("top-5")));  // only 4 classes
  EXPECT_EQ(run_lockstep("evaluate --data synthetic:8x8x1,4,500 --log-format json --checkpoint " +
                         directory() + "/step-00000024")
                .event("evaluate")["step"],
            24);
}

TEST_F(Saved, IsEvaluatedWhileItTrains) {
  const std::string options = "evaluate --json --follow " + directory() + kData;
  for (const auto& command : {lockstep(options), mpirun(2, options)}) {
    std::filesystem::remove_all(directory());
    Process evaluation(command);
    ASSERT_EQ(run_lockstep(train()).status, 0);
    EXPECT_TRUE(evaluation.wait_for(R"("step":33)"));
    const Result more = run_lockstep(train() + "--epochs 4");
    ASSERT_EQ(more.status, 0) << more.errors;
    EXPECT_TRUE(evaluation.wait_for(R"("step":44)"));
  }
  EXPECT_THAT(run_lockstep(options + "--checkpoint " + directory()).errors,
              HasSubstr("[command line] expected --checkpoint or --follow, got both"));
}

TEST_F(Saved, EvaluatesMetricsOfTraining) {
  const std::string data = " --data synthetic:8x8x1,4,100 ";
  ASSERT_EQ(run_lockstep("train --model mlp --steps 1 --metrics accuracy,f1 --checkpoint-dir " +
                         directory() + data)
                .status,
            0);
  const std::string evaluate = "evaluate --json --checkpoint " + directory() + data;
  EXPECT_TRUE(run_lockstep(evaluate).event("evaluate").contains("f1"));
  const nlohmann::json others = run_lockstep(evaluate + "--metrics recall").event("evaluate");
  EXPECT_TRUE(others.contains("recall"));
  EXPECT_FALSE(others.contains("f1"));
  const std::string text = run_lockstep("evaluate --checkpoint " + directory() + data).output;
  EXPECT_EQ(text.find("accuracy"), text.rfind("accuracy")) << text;
}

TEST_F(Saved, EvaluatesTop5WithMoreClasses) {
  const std::string data = " --data synthetic:8x8x1,6,100 ";
  ASSERT_EQ(
      run_lockstep("train --model mlp --steps 1 --checkpoint-dir " + directory() + data).status, 0);
  EXPECT_THAT(run_lockstep("evaluate --checkpoint " + directory() + data).output,
              HasSubstr(", top-5 accuracy "));
}

TEST_F(Saved, TrainsDropoutOfMlpAsDescribed) {
  const std::string model = scratch_.path() / "net.json";
  std::ofstream(model) << R"({"layers": [{"type": "flatten"},
      {"type": "dense", "units": 9}, {"type": "relu"}, {"type": "dropout", "rate": 0.25},
      {"type": "dense", "units": "classes"}]})";
  const auto hash = [&](const std::string& network) {
    const Result result = run_lockstep("train --json --checkpoint-dir none --epochs 2 --model " +
                                       network + " --data synthetic:8x8x1,4,100");
    EXPECT_EQ(result.status, 0) << result.errors;
    return hash_of(result);
  };
  EXPECT_EQ(hash("mlp:9,dropout=0.25"), hash(model));
  EXPECT_NE(hash("mlp:9,dropout=0.25"), hash("mlp:9"));
}

TEST_F(Saved, StoresDescribedModel) {
  const std::string model = scratch_.path() / "net.json";
  std::ofstream(model)
      << R"({"layers": [{"type": "flatten"}, {"type": "dense", "units": "classes"}]})";
  ASSERT_EQ(run_lockstep(train() + "--model " + model).status, 0);
  std::filesystem::remove(model);  // the checkpoint has a copy
  EXPECT_EQ(run_lockstep("evaluate --data synthetic:8x8x1,4,10 --checkpoint " + directory()).status,
            0);
}

TEST_F(Saved, InspectShowsNetworkAndProgress) {
  ASSERT_EQ(run_lockstep(train() + "--model mlp:32,16 --steps 24").status, 0);
  const std::string inspect = "checkpoint inspect " + directory();
  EXPECT_THAT(run_lockstep(inspect + "/step-00000016").output,
              HasSubstr("\n  network mlp:32,16, 2676 parameters, 4 classes\n"
                        "  step 16 of 24, 1 epoch completed\n"
                        "  optimizer adam:"));
  EXPECT_THAT(run_lockstep(inspect + "/step-00000016").output,
              HasSubstr("\n  loss function cross-entropy\n"));
  const std::string last = run_lockstep(inspect + "/step-00000024").output;
  EXPECT_THAT(last, ContainsRegex("\n  loss [0-9.]+ over 200 samples of the epoch\n"));
  EXPECT_THAT(last, Not(HasSubstr("epoch_")));
  std::ofstream(directory("t.csv")) << "size,kind\n1,pear\n2,apple\n";
  ASSERT_EQ(run_lockstep("train --model linear --steps 1 --checkpoint-dir " + directory("t") +
                         " --data csv:" + directory("t.csv"))
                .status,
            0);
  EXPECT_THAT(run_lockstep("checkpoint inspect " + directory("t/step-00000001")).output,
              HasSubstr("\n  network linear, 4 parameters, 2 classes: apple, pear\n"));
}

TEST_F(Saved, RejectsOtherData) {
  ASSERT_EQ(run_lockstep(train()).status, 0);
  const Result result =
      run_lockstep("evaluate --data synthetic:9x8x1,4,10 --checkpoint " + directory());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected samples of shape [8, 8, 1]"));
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Saved, WritesPredictionFiles) {
  ASSERT_EQ(run_lockstep(train()).status, 0);
  const std::string predict =
      "predict --data synthetic:8x8x1,4,5,test --global-batch 2 --checkpoint " + directory() +
      " --output ";
  const Result csv = run_lockstep(predict + directory("p.csv"));
  EXPECT_EQ(csv.status, 0);
  EXPECT_THAT(csv.errors, HasSubstr("predicted 5 of 5 records"));
  const std::string table = file_text(directory("p.csv"));
  EXPECT_THAT(table,
              ::testing::StartsWith(
                  "record,predicted,probability_0,probability_1,probability_2,probability_3\n0,"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6);

  const Result printed = run_lockstep(predict + "-");
  EXPECT_EQ(printed.output, table);
  EXPECT_THAT(printed.errors, HasSubstr("written to standard output\n"));

  EXPECT_EQ(run_lockstep(predict + directory("p.jsonl")).status, 0);
  const Result lines{0, file_text(directory("p.jsonl")), ""};
  EXPECT_EQ(run_lockstep(predict + "- --log-format json").output, lines.output);
  const Result event = run_lockstep(predict + directory("p.csv") + " --log-format json");
  EXPECT_EQ(event.event("predict")["records"], 5);
  EXPECT_EQ(event.event("predict")["output"], directory("p.csv"));
  EXPECT_EQ(event.errors, "");
  const auto events = lines.events();
  ASSERT_EQ(events.size(), 5U);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["record"], i);
    double sum = 0;
    for (const auto& probability : events[i]["probabilities"]) sum += probability.get<double>();
    EXPECT_NEAR(sum, 1, 1e-8);
    ASSERT_EQ(events[i]["logits"].size(), 4U);
    const std::vector<double> row = numbers_of(table)[i];
    const double ratio =
        std::exp(events[i]["logits"][1].get<double>() - events[i]["logits"][0].get<double>());
    EXPECT_NEAR(row[3] / row[2], ratio, 1e-5 * ratio);
    EXPECT_NEAR(row[2], events[i]["probabilities"][0].get<double>(), 1e-9);
  }
  const Result failed =
      run_lockstep("predict --data synthetic:9x8x1,4,5 --output - --checkpoint " + directory());
  EXPECT_EQ(failed.status, 3);
  EXPECT_EQ(failed.output, "") << "not even the header";

  EXPECT_EQ(run_lockstep(predict + directory("p.txt") + " --format jsonl").status, 0);
  EXPECT_EQ(file_text(directory("p.txt")), lines.output);
  EXPECT_THAT(run_lockstep(predict + "- --outputs logits").output,
              ::testing::StartsWith("record,predicted,logit_0,logit_1,logit_2,logit_3\n0,"));
  const Result top = run_lockstep(predict + "- --top 2 --json");
  for (const auto& line : top.events()) {
    ASSERT_EQ(line["top"].size(), 2U);
    EXPECT_EQ(line["top"][0]["class"], line["predicted"]);
    EXPECT_EQ(line["top"][0]["probability"], line["probability"]);
    EXPECT_GE(line["probability"], line["top"][1]["probability"]);
  }
}

TEST_F(Saved, EvaluatesCheckpointOfLibraryProgram) {
  const auto data = data::Dataset::synthetic({8, 8, 1}, 4, 500);
  model::Network network({8, 8, 1}, "of a program");
  network.add(model::Conv2D({.filters = 3, .kernel = 3}));
  network.add(model::BatchNormalization());
  network.add(model::Flatten());
  network.add(model::Dense({.units = 4}));
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = strategy::make_strategy(session);
  train::Trainer trainer(*strategy, network,
                         {.loss = model::SparseCategoricalCrossentropy{.label_smoothing = 0.1F}});
  train::FitOptions fit{.epochs = 1};
  fit.checkpoint.directory = directory();
  trainer.fit(data.shuffle().batch(50), fit);
  const model::MetricSums expected = trainer.evaluate(data.batch(50));

  const Result result = run_lockstep(
      "evaluate --json --metrics f1,confusion --data synthetic:8x8x1,4,500,train --checkpoint " +
      directory());
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto evaluated = result.event("evaluate");
  EXPECT_EQ(evaluated["correct"], expected.correct);
  EXPECT_NEAR(evaluated["loss"].get<double>(), expected.loss(), 1e-5);
  EXPECT_EQ(evaluated["parameter_hash"], checkpoint::hex16(trainer.parameter_hash()));
  double right = 0;
  for (std::size_t i = 0; i < 4; ++i) right += evaluated["confusion"][i][i].get<double>();
  EXPECT_EQ(right, static_cast<double>(expected.correct));
  EXPECT_GT(evaluated["f1"], 0);
  const Result text = run_lockstep("evaluate --metrics f1,confusion,top2 --checkpoint " +
                                   directory() + " --data synthetic:8x8x1,4,500,train");
  EXPECT_THAT(text.output, ::testing::ContainsRegex("\nf1 0\\.[0-9]+, top2 0\\.[0-9]+\n"
                                                    "confusion .rows: labels, columns: pred"));
}

TEST_F(Saved, RequiresTargetOfEachLoss) {
  model::Network network({2, 2, 1}, "two");
  const model::NodeId flat = network.add(model::Flatten());
  network.output("kind", network.add(model::Dense({.units = 2}), {flat}));
  network.output("price", network.add(model::Dense({.units = 1}), {flat}));
  const auto data = data::Dataset::from_memory(
      std::vector<data::MemoryTensor>{std::vector<float>(8, 1)},
      std::vector<data::MemoryTensor>{std::vector<std::int32_t>{0, 1}, std::vector<float>{1, 2}},
      {.inputs = {{.name = "image", .shape = {2, 2, 1}}},
       .targets = {{.name = "kind", .type = lockstep::ElementType::int32, .classes = 2},
                   {.name = "price", .shape = {1}}}});
  {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = strategy::make_strategy(session);
    train::Trainer trainer(
        *strategy, network,
        {.losses = {{.output = "kind"}, {.output = "price", .loss = model::MeanSquaredError()}}});
    train::FitOptions fit{.epochs = 1};
    fit.checkpoint.directory = directory();
    trainer.fit(data.batch(2), fit);
  }
  const std::string on_data = " --data synthetic:2x2x1,2,4 --checkpoint " + directory();
  const Result refused = run_lockstep("evaluate" + on_data);
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors,
              HasSubstr("expected a target kind for the output kind of model two, got label"));
  EXPECT_EQ(run_lockstep("predict --output -" + on_data).status, 0);
}

/// Trains a linear model on `training` for an epoch, with checkpoints in `directory`, and returns
/// its metrics on `test`.
model::MetricSums train_linear(const data::Dataset& training, const data::Dataset& test,
                               const std::filesystem::path& directory,
                               std::optional<data::Dataset> validation = {}) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = strategy::make_strategy(session);
  train::Trainer trainer(*strategy,
                         zoo::linear(training.spec().shape(), training.spec().classes()));
  train::FitOptions fit{.epochs = 1, .validation = std::move(validation)};
  fit.checkpoint.directory = directory;
  trainer.fit(training.batch(20), fit);
  return trainer.evaluate(test.batch(20));
}

TEST_F(Saved, EvaluatesWithCustomImageRecipe) {
  const std::string spec = "synthetic-images:32x32x3,4,60,train";
  const data::Dataset images = data::open_data(spec);
  data::ImageRecipe recipe = data::ImageRecipe::parse("cifar10-train");
  recipe.geometry = data::RandomResizedCrop{};
  recipe.height = recipe.width = 24;
  recipe.normalization.mean[1] = 0.25F;
  data::ImageRecipe test = recipe.for_test();
  const auto expect_evaluated = [&](const std::string& name, const model::MetricSums& expected) {
    const Result result =
        run_lockstep("evaluate --json --data " + spec + " --checkpoint " + directory(name));
    ASSERT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.event("evaluate")["correct"], expected.correct);
    EXPECT_NEAR(result.event("evaluate")["loss"], expected.loss(), 1e-5);
    EXPECT_THAT(result.errors, Not(HasSubstr("mapped data")));
  };
  expect_evaluated("training",
                   train_linear(images.images(recipe), images.images(test), directory("training")));
  test.geometry = data::ResizedCenter{.shorter = 24};
  const data::Dataset validation = images.images(test);
  expect_evaluated("validation", train_linear(images.images(recipe), validation,
                                              directory("validation"), validation.batch(20)));
}

TEST_F(Saved, WarnsThatEvaluationDataAreNotMapped) {
  const std::string spec = "synthetic:8x8x1,4,60,train";
  const data::Dataset data = data::open_data(spec);
  const data::Dataset mapped = data.map([](data::Sample& sample, const data::SampleKey&) {
    for (float& feature : sample.features()) feature *= 2;
  });
  train_linear(mapped, mapped, directory());
  train_linear(data, data, directory("plain"));
  const std::string options = " --data " + spec + " --checkpoint ";
  for (const std::string command : {"evaluate", "predict --output -"}) {
    const Result result = run_lockstep(command + options + directory());
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("the model was trained on mapped data (1 map), which only "
                                         "the program that trained it can repeat"));
    EXPECT_THAT(run_lockstep(command + options + directory("plain")).errors,
                Not(HasSubstr("mapped data")));
  }
}

TEST_F(Saved, ChecksNumberOfClasses) {
  ASSERT_EQ(run_lockstep("train --model linear --quiet --data synthetic:2,4,60 --checkpoint-dir " +
                         directory())
                .status,
            0);
  const std::string evaluate = "evaluate --checkpoint " + directory() + " --data ";
  const Result refused = run_lockstep(evaluate + "synthetic:2,3,60");
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors, HasSubstr("expected 4 classes, the outputs of model linear"));
  const std::string questioned = "go up to 1, and the model has 4 outputs";
  std::ofstream(directory("few.csv")) << "a,b,label\n1,2,0\n2,1,1\n";
  std::ofstream(directory("all.csv")) << "a,b,label\n1,2,0\n2,1,3\n";
  const Result few = run_lockstep(evaluate + "csv:" + directory("few.csv"));
  EXPECT_EQ(few.status, 0) << few.errors;
  EXPECT_THAT(few.errors, HasSubstr(questioned));
  EXPECT_THAT(run_lockstep(evaluate + "csv:" + directory("all.csv")).errors,
              Not(HasSubstr("outputs")));
  const Result converted = run_lockstep("data convert csv --part test --input " +
                                        directory("few.csv") + " --output " + directory("shards"));
  ASSERT_EQ(converted.status, 0) << converted.errors;
  for (const std::string& data : {directory("shards"), directory("shards") + "/*.tfrecord"}) {
    const Result result = run_lockstep(evaluate + data);
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(questioned)) << data;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
