// Saved trainings on sequences: outputs at each position, and windows of rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/apps/saved.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

TEST_F(Saved, EvaluatesAndPredictsClassesAtPositions) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> next;
  for (std::int32_t i = 0; i < 40; ++i) {
    tokens.push_back(i * i % 5);
    next.push_back(i % 4 == 3 ? kMasked : (tokens.back() + 1) % 5);
  }
  const data::Dataset texts = data::Dataset::from_memory(
      {std::move(tokens)}, {std::move(next)},
      {.inputs = {{.name = "tokens", .type = lockstep::ElementType::int32, .shape = {4}}},
       .targets = {
           {.name = "next", .type = lockstep::ElementType::int32, .shape = {4}, .classes = 5}}});
  for (const char* part : {"train", "test"})
    data::write_shards(texts.source(), {.directory = directory("texts"), .part = part});
  std::ofstream(directory("net.json")) << R"({"inputs": {"tokens": {"shape": [4], "type": "int32"}},
             "layers": [{"type": "embedding", "vocabulary": 5, "dimension": 8},
                        {"type": "conv1d", "filters": 5, "kernel": 1}]})";
  const std::string data = " --data " + directory("texts");
  const Result trained =
      run_lockstep("train --log-format json --epochs 2 --global-batch 4 --model " +
                   directory("net.json") + data + " --metrics perplexity" + " --validation-data " +
                   directory("texts") + " --checkpoint-dir " + directory());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const auto epoch = trained.event("epoch");
  EXPECT_EQ(epoch["samples"], 10);
  EXPECT_NEAR(epoch["validation_perplexity"].get<double>(),
              std::exp(epoch["validation_loss"].get<double>()), 1e-4);
  const std::string checkpoint = " --checkpoint " + directory() + data;
  const auto sums = run_lockstep("evaluate --json" + checkpoint).event("evaluate");
  EXPECT_EQ(sums["samples"], 10);
  EXPECT_EQ(sums["positions"], 30);
  EXPECT_NEAR(sums["loss"], epoch["validation_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(sums["accuracy"].get<double>() * 30, sums["correct"].get<double>(), 1e-9);
  const Result predicted = run_lockstep("predict --quiet --json --output -" + checkpoint);
  std::int64_t records = 0;
  for (const auto& record : predicted.events()) {
    EXPECT_EQ(record["record"], records++);
    ASSERT_EQ(record["predicted"].size(), 4U);
    ASSERT_EQ(record["probability"].size(), 4U);
    for (const auto& one : record["predicted"]) EXPECT_LT(one.get<int>(), 5);
    for (const auto& one : record["probability"]) EXPECT_GE(one.get<double>(), 0.2 - 1e-6);
  }
  EXPECT_EQ(records, 10);
  ASSERT_EQ(run_lockstep("predict --quiet --output " + directory("p.tfrecord") + checkpoint).status,
            0);
  const data::Example first =
      data::parse_example(data::read_records(directory("p.tfrecord")).front());
  EXPECT_EQ(std::get<data::Int64List>(first.at("predicted")).size(), 4U);
  EXPECT_EQ(std::get<data::FloatList>(first.at("probability")).size(), 4U);
  for (const char* other :
       {"--output -", "--json --output - --top 2", "--json --output - --outputs logits"}) {
    const Result refused = run_lockstep("predict --quiet " + std::string(other) + checkpoint);
    EXPECT_EQ(refused.status, 2) << other;
    EXPECT_THAT(refused.errors, HasSubstr("for a class at each position of "));
  }
}

TEST_F(Saved, ForecastsInUnitOfTargets) {
  // 1, 2, 3, 2, 1, ...: the last value is wrong by 1.
  const auto write = [&](const std::string& name, int first, int rows) {
    std::ofstream out(directory(name));
    out << "level\n";
    for (int i = first; i < first + rows; ++i) out << (i % 4 == 3 ? 2 : i % 4 + 1) << "\n";
    return " --data csv:" + directory(name);
  };
  const std::string training = write("train.csv", 0, 105) + ":targets=level,window=4";
  const std::string train =
      "train --model lstm:1x8 --loss mse --global-batch 20 --learning-rate 0.05 --log-format json "
      "--validation-data csv:" +
      directory("train.csv") + training;
  const Result trained = run_lockstep(train + " --epochs 60 --checkpoint-dir " + directory());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(trained.event("epoch")["samples"], 101);
  const std::string checkpoint = " --checkpoint " + directory();
  const std::string test = write("test.csv", 2, 9);  // ends in 1, 2, 3
  const auto sums = run_lockstep("evaluate --json" + checkpoint + test).event("evaluate");
  EXPECT_EQ(sums["samples"], 5);
  EXPECT_LT(sums["loss"].get<double>(), 0.1);
  const Result predicted = run_lockstep("predict --quiet --output -" + checkpoint + test);
  EXPECT_THAT(predicted.output, ::testing::StartsWith("record,level\n0,"));
  const auto rows = numbers_of(predicted.output);
  ASSERT_EQ(rows.size(), 6U) << "one for each end of a window, the last row included";
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i].at(1), i % 4 == 1 || i % 4 == 3 ? 2 : i % 4 == 0 ? 3 : 1, 0.5) << i;
  const Result refused = run_lockstep("evaluate" + checkpoint + test + ":window=5");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("expected window=4, as in the training data"));
}

TEST_F(Saved, ResumesWindowsOnSeveralReplicas) {
  std::ofstream out(directory("a.csv"));
  out << "shop,x,y\n";
  for (int i = 0; i < 60; ++i)
    out << (i % 3 == 0 ? "a," : "b,") << std::sin(i) << "," << std::cos(2 * i) << "\n";
  out.close();
  const std::string train =
      "train --model lstm:1x6 --loss mse --global-batch 7 --log-format json --log-every 1 --data "
      "csv:" +
      directory("a.csv") + ":targets=y,window=5,series=shop,steps=2 --checkpoint-dir ";
  const Result straight = run_lockstep(train + directory("straight") + " --epochs 2");
  ASSERT_EQ(straight.status, 0) << straight.errors;
  ASSERT_EQ(run_lockstep(train + directory() + " --steps 5").status, 0);
  const Result again = run_lockstep(train + directory() + " --epochs 2");
  EXPECT_EQ(hash_of(again), hash_of(straight));
  const std::vector<double> losses = straight.losses();
  for (const std::string devices : {"cpu:0,cpu:0", "cpu:0,cpu:0,cpu:0"}) {
    const Result several =
        run_lockstep(train + directory(devices) + " --epochs 2 --devices " + devices);
    const std::vector<double> others = several.losses();
    ASSERT_EQ(others.size(), losses.size()) << several.errors;
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(others[i], losses[i], 1e-4 * losses[i]) << devices << ", step " << i;
  }
}

TEST_F(Saved, ReadsSentencesByColumnName) {
  std::ofstream(directory("a.csv")) << "title,sentence,topic\n"
                                       "x,The crew moors.,sea\ny,A chef peels.,kitchen\n"
                                       "z,Her boat leaks.,sea\nu,My soup boils.,kitchen\n";
  const auto train = [&](const std::string& options) {
    return run_lockstep(
        "train --model minilm:1x16 --quiet --global-batch 4 --learning-rate 0.01 "
        "--checkpoint-dir " +
        directory() + " --data text:" + directory("a.csv") + ":label=topic," + options);
  };
  const std::string as_trained = "column=sentence,tokenizer=bytes,length=24";
  ASSERT_EQ(train(as_trained + " --steps 10").status, 0);
  const std::string checkpoint = " --checkpoint " + directory() + " --data text:";
  const auto sums =
      run_lockstep("evaluate --json" + checkpoint + directory("a.csv")).event("evaluate");
  EXPECT_EQ(sums["samples"], 4);
  std::ofstream(directory("b.csv")) << "sentence;more\nThe crew moors.;1\nMy soup boils.;2\n";
  const Result predicted =
      run_lockstep("predict --quiet --output -" + checkpoint + directory("b.csv"));
  EXPECT_THAT(predicted.output,
              ::testing::MatchesRegex("record,.*,class\n0,[01],.*,(sea|kitchen)\n1,[01],.*\n"));
  const Result embeddings =
      run_lockstep("predict --embeddings --quiet --output -" + checkpoint + directory("b.csv"));
  const auto rows = numbers_of(embeddings.output);
  ASSERT_EQ(rows.size(), 2U) << embeddings.errors;
  EXPECT_EQ(rows[0].size(), 17U);
  const Result other = train("column=title,tokenizer=bytes,length=24 --steps 11");
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.errors, HasSubstr("expected the columns of the texts of "));
  EXPECT_THAT(other.errors, HasSubstr(", column=sentence,label=topic, got column=title,"
                                      "label=topic; use another --checkpoint-dir"));
}

TEST_F(Saved, ResumesPairsOnlyWithSameColumns) {
  std::ofstream(directory("pairs.csv")) << "number,english,french\n1,one,un\n2,two,deux\n"
                                           "3,three,trois\n4,four,quatre\n";
  const auto train = [&](const std::string& options) {
    return run_lockstep(
        "train --model seq2seq:1x4 --quiet --global-batch 4 --learning-rate 0.01 "
        "--checkpoint-dir " +
        directory() + " --data text:" + directory("pairs.csv") +
        ":tokenizer=bytes,length=8,source=number," + options);
  };
  ASSERT_EQ(train("target=english --steps 2").status, 0);
  const Result other = train("target=french --steps 3");
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.errors, HasSubstr(", source=number,target=english, got source=number,"
                                      "target=french; use another --checkpoint-dir"));
  EXPECT_EQ(train("target=english --steps 3").status, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
