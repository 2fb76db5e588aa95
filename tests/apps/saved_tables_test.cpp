// Saved trainings on tables: the column schema in checkpoints.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/apps/saved.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Saved, MatchesVocabularyOfTable) {
  const std::filesystem::path table = directory("table.csv");
  std::ofstream(table) << "size,color,kind\n1,red,plum\n2,green,apple\n3,red,plum\n4,green,apple\n";
  const std::string options = "categorical=color";
  const std::string data = " --data csv:" + table.string() + ":" + options;
  ASSERT_EQ(run_lockstep(
                "train --model mlp:4 --epochs 200 --quiet --learning-rate 0.05 --checkpoint-dir " +
                directory("words") + data)
                .status,
            0);
  const std::filesystem::path test = directory("test.csv");
  std::ofstream(test) << "size,color,kind\n2,red,plum\n";  // not all colors and kinds
  const std::string evaluate = "evaluate --log-format json --checkpoint " + directory("words") +
                               " --data csv:" + test.string() + ":" + options;
  EXPECT_EQ(run_lockstep(evaluate + ",like=" + table.string()).event("evaluate")["accuracy"], 1.0);
  EXPECT_EQ(run_lockstep(evaluate).event("evaluate")["accuracy"], 1.0) << "by the checkpoint";
  std::ofstream(test) << "color,size\nred,2\ngreen,2\n";  // without the label
  const Result predicted = run_lockstep("predict --quiet --output - --checkpoint " +
                                        directory("words") + " --data csv:" + test.string());
  EXPECT_THAT(predicted.output,
              ::testing::MatchesRegex("record,.*,class\n0,1,.*,plum\n1,0,.*,apple\n"));
  const Result refused =
      run_lockstep("evaluate --checkpoint " + directory("words") + " --data csv:" + test.string());
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors, HasSubstr("expected the column kind, the label of the training"));
  const Result resumed = run_lockstep(
      "train --model mlp:4 --epochs 201 --quiet --learning-rate 0.05 --checkpoint-dir " +
      directory("words") + data + ",scale=none");
  EXPECT_THAT(resumed.errors,
              HasSubstr("expected the sample preparation of " + directory("words")));
}

TEST_F(Saved, NamesPredictionsAfterTargets) {
  const auto table = [&](const std::string& name, const std::string& header) {
    std::ofstream(directory(name)) << header << "\n1,2,3\n2,1,4\n";
    return " --data csv:" + directory(name) + ":targets=3+2";
  };
  const std::string train = "train --model linear --loss mean-squared-error --quiet --epochs 2";
  const std::string predict = "predict --quiet --output - --checkpoint ";
  const std::string named = table("a.csv", "x,\"price, net\",rate");
  ASSERT_EQ(run_lockstep(train + " --checkpoint-dir " + directory() + named).status, 0);
  EXPECT_THAT(run_lockstep(predict + directory() + named).output,
              ::testing::StartsWith("record,rate,\"price, net\"\n0,"));
  const Result refused =
      run_lockstep("evaluate --checkpoint " + directory() + table("b.csv", "x,rate,price"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("expected rate as target 1, as in the training data"));
  const std::string unnamed = table("c.csv", "5,6,7");
  ASSERT_EQ(run_lockstep(train + " --checkpoint-dir " + directory("unnamed") + unnamed).status, 0);
  EXPECT_THAT(run_lockstep(predict + directory("unnamed") + unnamed).output,
              ::testing::StartsWith("record,output_0,output_1\n0,"));
}

TEST_F(Saved, StandardizesTheTargetOfARegression) {
  // Targets in two units: the second is standardized by hand.
  constexpr double kMean = 1000;
  constexpr double kDeviation = 50;
  std::ofstream raw(directory("raw.csv"));
  std::ofstream standard(directory("standard.csv"));
  raw << "x,z,price\n";
  standard << "x,z,price\n";
  for (int i = 0; i < 64; ++i) {
    const double price = i % 2 == 0 ? 1 : -1;  // mean 0 and deviation 1
    for (std::ofstream* file : {&raw, &standard}) *file << 0.5 * (i % 11) << "," << i % 5 << ",";
    raw << kMean + kDeviation * price << "\n";
    standard << price << "\n";
  }
  raw.close();
  standard.close();
  const auto train = [&](const std::string& name, const std::string& options) {
    return "train --model mlp:8 --loss mse --epochs 5 --global-batch 16 --json --optimizer sgd "
           "--learning-rate 0.05 --checkpoint-dir " +
           directory(name + "_run") + " --data csv:" + directory(name + ".csv") +
           ":targets=price " + options;
  };
  const Result scaled = run_lockstep(train("raw", "--metrics mae"));
  ASSERT_EQ(scaled.status, 0) << scaled.errors;
  EXPECT_THAT(scaled.errors, HasSubstr("target standardized: price (mean 1000, deviation 50); "
                                       "losses, metrics and predictions are in its unit"));
  EXPECT_THAT(scaled.errors, ::testing::Not(HasSubstr("far from unit scale")));
  const Result by_hand = run_lockstep(train("standard", "--no-scale-targets --metrics mae"));
  const double loss = by_hand.event("epoch")["loss"];
  EXPECT_NEAR(scaled.event("epoch")["loss"], loss * kDeviation * kDeviation, 1e-3 * kDeviation);
  EXPECT_NEAR(scaled.event("epoch")["mae"],
              by_hand.event("epoch")["mae"].get<double>() * kDeviation, 1e-3 * kDeviation);
  const auto predicted = [&](const std::string& name) {
    return run_lockstep("predict --quiet --json --output - --checkpoint " +
                        directory(name + "_run") + " --data csv:" + directory(name + ".csv"))
        .events()
        .front()["outputs"][0]
        .get<double>();
  };
  EXPECT_NEAR(predicted("raw"), kMean + kDeviation * predicted("standard"), 1e-3);
}

TEST_F(Saved, ScalesTargetsOnlyWhereTheLayersComputeThem) {
  std::ofstream file(directory("t.csv"));
  file << "x,y\n";
  for (int i = 0; i < 40; ++i) file << i << "," << 1000 + 50 * i << "\n";
  file.close();
  std::ofstream(directory("bounded.json"))
      << R"({"input": [1], "layers": [{"type": "dense", "units": 1}, {"type": "sigmoid"}]})";
  const std::string data = " --data csv:" + directory("t.csv") + ":targets=y --loss mse --json ";
  const auto train = [&](const std::string& model, const std::string& run,
                         const std::string& options) {
    return run_lockstep("train --model " + model + data + "--checkpoint-dir " + directory(run) +
                        " " + options);
  };
  const Result bounded = train(directory("bounded.json"), "bounded", "--steps 1");
  EXPECT_THAT(bounded.errors, ::testing::Not(HasSubstr("target standardized")));
  ASSERT_EQ(train("linear", "scaled", "--epochs 100").status, 0);
  // An error of a tenth of the deviation: the first step starts at these weights.
  ASSERT_EQ(run_lockstep("checkpoint export " + directory("scaled") + " --output " +
                         directory("net.onnx"))
                .status,
            0);
  for (const std::string& from :
       {std::string("linear --init-from " + directory("scaled")), directory("net.onnx")}) {
    const Result tuned = train(from, "none", "--steps 1 --global-batch 40 --learning-rate 0");
    ASSERT_EQ(tuned.status, 0) << tuned.errors;
    EXPECT_LT(tuned.event("epoch")["loss"], 57 * 57) << from;
    std::filesystem::remove_all(directory("none"));
  }
  EXPECT_THAT(
      train("linear --no-scale-targets --init-from " + directory("scaled"), "none", "--steps 1")
          .errors,
      HasSubstr("expected --scale-targets, as in the training of these weights"));
  const Result resumed = train("linear", "scaled", "--epochs 101 --no-scale-targets");
  EXPECT_EQ(resumed.status, 3);
  EXPECT_THAT(resumed.errors, HasSubstr("expected the scale of the targets of "));
}

TEST_F(Saved, CopiesColumnsBesidePredictions) {
  std::ofstream(directory("a.csv")) << "PassengerId,x,k\n7,1,a\n8,2,b\n9,3,a\n";
  std::ofstream(directory("b.csv")) << "x,\"id,old\",PassengerId\n1,,892\n2,p2,893\n";
  ASSERT_EQ(run_lockstep("train --model linear --quiet --checkpoint-dir " + directory() +
                         " --data csv:" + directory("a.csv") + ":drop=PassengerId")
                .status,
            0);
  const std::string predict = "predict --quiet --checkpoint " + directory() +
                              " --data csv:" + directory("b.csv") + " --keep-columns ";
  EXPECT_THAT(run_lockstep(predict + "PassengerId,\"id,old\" --output -").output,
              ::testing::MatchesRegex("record,PassengerId,\"id,old\",predicted,.*\n0,892,,.*\n"
                                      "1,893,p2,.*\n"));
  const auto rows = run_lockstep(predict + "PassengerId --output - --json").events();
  EXPECT_EQ(rows[1]["columns"], (nlohmann::json{{"PassengerId", "893"}}));
  const Result unknown = run_lockstep(predict + "Id --output -");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors,
              HasSubstr("[--keep-columns] expected columns of the table: x, id,old, "
                        "PassengerId, got \"Id\""));
  EXPECT_EQ(run_lockstep(predict + "x --output " + directory("p.tfrecord")).status, 2);
}

TEST_F(Saved, StoresFeaturesAndMissingValues) {
  std::ofstream(directory("f.json"))
      << R"({"features": [{"column": "age", "kind": "bucketized", "boundaries": [30]},
                          {"column": "color", "kind": "hashed", "buckets": 3},
                          {"column": "since", "date": "days"}]})";
  std::ofstream(directory("a.csv")) << "age,color,since,x,k\n10,red,2026-01-01,1,0\n"
                                       "50,blue,2026-01-03,,1\n60,blue,2026-01-05,3,1\n";
  const Result trained = run_lockstep(
      "train --model linear --epochs 100 --learning-rate 0.1 --log-format json --keep-best none "
      "--verbose --features " +
      directory("f.json") + " --checkpoint-dir " + directory("run") + " --data csv:" +
      directory("a.csv") + ":missing=mean --validation-data csv:" + directory("a.csv"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.errors,
              HasSubstr("standardized columns: since (mean 20456, deviation 1.63299), x (mean 2, "
                        "deviation 1)"));
  EXPECT_THAT(trained.event("start")["data"], HasSubstr("a.csv, 2 columns standardized"));
  std::filesystem::remove(directory("f.json"));
  std::ofstream(directory("b.csv")) << "k,x,color,since,age\n0,,red,2026-01-01,10\n";
  const Result evaluated = run_lockstep("evaluate --log-format json --checkpoint " +
                                        directory("run") + " --data csv:" + directory("b.csv"));
  EXPECT_EQ(evaluated.event("evaluate")["accuracy"], 1.0) << evaluated.errors;
}

TEST_F(Saved, ReadsAllColumnKindsWithoutTrainingFile) {
  std::ofstream(directory("f.json")) << R"({"label": "k", "features": [
      {"column": "age", "missing": "indicator"},
      {"column": "income", "kind": "bucketized", "boundaries": [20, 40]},
      {"column": "since", "date": "weekday"},
      {"column": "shape", "kind": "categorical"},
      {"column": "color", "kind": "categorical", "vocabulary": ["red", "green"],
       "unknown": "column", "output": "index"},
      {"column": "city", "kind": "hashed", "buckets": 9, "output": "index"},
      {"columns": ["city", "color"], "kind": "crossed", "buckets": 60, "output": "index"}]})";
  const char* const colors[] = {"red", "green", "blue"};
  std::string rows = "age,income,since,shape,color,city,k\n";
  for (int i = 0; i < 60; ++i)
    rows += fmt::format("{},{},2026-01-{:02},{},{},town{},{}\n",
                        i % 4 == 0 ? "" : std::to_string(20 + i % 7), i, i % 28 + 1,
                        i % 2 == 0 ? "round" : "square", colors[i % 3], i % 5, i % 3 == 0 ? 1 : 0);
  std::ofstream(directory("a.csv")) << rows;
  const std::string table = "csv:" + directory("a.csv");
  const Result trained = run_lockstep(
      "train --model wide_deep:8,embedding=4 --loss bce --metrics auc --epochs 40 --keep-best none "
      "--global-batch "
      "20 --learning-rate 0.05 --log-format json --features " +
      directory("f.json") + " --checkpoint-dir " + directory() + " --data " + table +
      " --validation-data " + table);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_GT(trained.event("epoch")["validation_auc"], 0.99);
  for (const char* file : {"f.json", "a.csv"}) std::filesystem::remove(directory(file));

  // Other rows and column order, with a color and a city that the training data lack.
  const std::string header = "city,color,k,shape,since,income,age\n";
  std::ofstream(directory("b.csv")) << header << "town1,red,1,round,2026-02-01,10,\n"
                                    << "town2,pink,0,square,2026-02-02,30,25\n"
                                    << "farm,red,1,round,2026-02-03,70,31\n";
  const std::string of = " --checkpoint " + directory() + " --data csv:";
  const auto evaluated =
      run_lockstep("evaluate --json --metrics auc" + of + directory("b.csv")).event("evaluate");
  EXPECT_EQ(evaluated["accuracy"], 1.0);
  EXPECT_GT(evaluated["auc"], 0.99);
  std::ofstream(directory("c.csv")) << "age,income,since,shape,color,city\n"
                                    << "31,10,2026-02-01,round,green,town4\n"
                                    << ",10,2026-02-01,square,red,town4\n";
  EXPECT_THAT(run_lockstep("predict --quiet --output -" + of + directory("c.csv")).output,
              ::testing::MatchesRegex("record,predicted,probability_0,probability_1\n"
                                      "0,0,[^\n]*\n1,1,[^\n]*\n"));
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"city,color,k,shape,since,age\n",
            "expected the column income, a feature of the training data; the columns are city,"},
           {header + "a,red,1,round,2026-02-01,much,1\n", "line 2, column 6] expected a number"},
           {header + "a,red,1,round,2026-02-01,,1\n", "line 2, column 6] expected a number ("},
           {header + "a,red,1,round,yesterday,1,1\n", "line 2, column 5] expected a date such as"},
           {header + "a,red,1,flat,2026-02-01,1,1\n",
            "line 2, column 4] expected a value that the column shape of the training data has "
            "(round, square), got \"flat\"; unknown from here on: 1 of 1 row"},
           {header + "a,red,2,round,2026-02-01,1,1\n",
            "line 2, column 3] expected a class number below 2, got \"2\""}}) {
    std::ofstream(directory("d.csv")) << text << (text.ends_with("age\n") ? "a,red,1,x,y,1\n" : "");
    const Result refused = run_lockstep("evaluate" + of + directory("d.csv"));
    EXPECT_EQ(refused.status, 3) << message;
    EXPECT_THAT(refused.errors, HasSubstr(message));
    EXPECT_EQ(std::ranges::count(refused.errors, '\n'), 1) << refused.errors;
  }
}

TEST_F(Saved, FindsColumnsByName) {
  std::ofstream(directory("a.csv")) << "width,height,kind\n1,2,0\n2,1,1\n";
  std::ofstream(directory("b.csv")) << "height,width,kind\n1,2,0\n2,1,1\n";
  ASSERT_EQ(run_lockstep("train --model linear --quiet --checkpoint-dir " + directory() +
                         " --data csv:" + directory("a.csv"))
                .status,
            0);
  const std::string evaluate = "evaluate --checkpoint " + directory() + " --data csv:";
  for (const char* options : {"", ":columns=width+height"}) {
    const Result result = run_lockstep(evaluate + directory("b.csv") + options);
    EXPECT_EQ(result.status, 0) << result.errors;
  }
  std::ofstream(directory("c.csv")) << "height,depth,kind\n1,2,0\n";
  const Result refused = run_lockstep(evaluate + directory("c.csv"));
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors, HasSubstr("expected the column width, a feature of the training"));
  const Result converted = run_lockstep("data convert csv --part test --input " +
                                        directory("b.csv") + " --output " + directory("shards"));
  ASSERT_EQ(converted.status, 0) << converted.errors;
  EXPECT_THAT(
      run_lockstep("evaluate --checkpoint " + directory() + " --data " + directory("shards"))
          .errors,
      HasSubstr("number 1 of which is width; select the columns"));
}

TEST_F(Saved, FindsColumnsWithNumericNames) {
  const std::string rows = "1.5,2.5,0.5,up\n0.7,0.2,0.1,down\n0.3,0.4,0.9,up\n";
  std::ofstream(directory("a.csv")) << "2018,2019,2020,class\n" << rows;
  const std::string table = " --data csv:" + directory("a.csv");
  const std::string train = "train --model linear --quiet --checkpoint-dir " + directory();
  const Result doubtful = run_lockstep(train + table);
  EXPECT_EQ(doubtful.status, 3);
  EXPECT_THAT(doubtful.errors, HasSubstr("expected header=yes or header=no"));
  ASSERT_EQ(run_lockstep(train + table + ":label=class").status, 0);
  const std::string of = " --checkpoint " + directory();
  const auto evaluated = run_lockstep("evaluate --json" + of + table).event("evaluate");
  EXPECT_EQ(evaluated["samples"], 3);
  EXPECT_EQ(evaluated["table"]["header"], true);
  std::ofstream(directory("b.csv")) << "2018,2019,2020\n1.5,2.5,0.5\n0.7,0.2,0.1\n";
  std::ofstream(directory("c.csv")) << "2020,2018,2019\n0.5,1.5,2.5\n0.1,0.7,0.2\n";
  const std::string predict = "predict --quiet --output -" + of + " --data csv:";
  const Result in_order = run_lockstep(predict + directory("b.csv"));
  EXPECT_EQ(std::ranges::count(in_order.output, '\n'), 3);
  EXPECT_EQ(run_lockstep(predict + directory("c.csv")).output, in_order.output);
  std::ofstream(directory("d.csv")) << "1.5,2.5,0.5\n0.7,0.2,0.1\n";
  for (const char* options : {"", ":header=no"}) {
    const Result unnamed = run_lockstep(predict + directory("d.csv") + options);
    EXPECT_EQ(unnamed.status, 3);
    EXPECT_THAT(unnamed.errors, HasSubstr("expected a first row with the names of the columns"));
  }
}

TEST_F(Saved, ReportsUnknownWords) {
  std::ofstream(directory("a.csv")) << "sex,age,k\nmale,1,0\nfemale,2,1\nmale,3,0\nfemale,4,1\n";
  std::ofstream(directory("b.csv")) << "sex,age,k\nMALE,1,0\nFEMALE,2,1\nmale,3,0\n";
  const Result trained =
      run_lockstep("train --model linear --json --checkpoint-dir " + directory() +
                   " --data csv:" + directory("a.csv") +
                   ":categorical=sex,unknown=column --validation-data csv:" + directory("b.csv"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const auto begin = trained.event("start")["table"];
  EXPECT_EQ(begin["rows"], 4);
  EXPECT_EQ(begin["columns"][0]["unknown"], 0);
  EXPECT_EQ(begin["classes"][1]["rows"], 2);
  EXPECT_THAT(trained.errors, HasSubstr("a.csv, 1 column standardized: 4 rows below a header\n"
                                        "lockstep:   numbers: age\n"
                                        "lockstep:   words: sex (2 values)\n"
                                        "lockstep:   label k: 0 (2), 1 (2)\n"));
  const std::string warning =
      "sex: 2 of 3 rows have values that the training table does not have (there 0 of 4)";
  EXPECT_THAT(trained.errors, HasSubstr(warning)) << "in the validation";
  const Result evaluated = run_lockstep("evaluate --json --checkpoint " + directory() +
                                        " --data csv:" + directory("b.csv"));
  EXPECT_EQ(evaluated.event("evaluate")["table"]["columns"][0]["unknown"], 2);
  EXPECT_THAT(evaluated.errors, HasSubstr("words: sex (2 of 3 rows unknown)"));
  EXPECT_THAT(evaluated.errors, HasSubstr(warning));
  const Result same = run_lockstep("evaluate --json --checkpoint " + directory() +
                                   " --data csv:" + directory("a.csv"));
  EXPECT_THAT(same.errors, ::testing::Not(HasSubstr("warning")));
}

TEST_F(Saved, RejectsPreprocessingBeyondFloat32Precision) {
  std::ofstream table(directory("times.csv"));
  table << "time,kind\n";
  for (int i = 0; i < 400; ++i) table << 1'700'000'000 + i << ',' << i % 2 << '\n';
  table.close();
  ASSERT_EQ(run_lockstep("train --model linear --quiet --steps 1 --data csv:" +
                         directory("times.csv") + " --checkpoint-dir " + directory())
                .status,
            0);
  const std::string file = directory("model.onnx");
  const std::string export_it = "checkpoint export " + directory() + " --output " + file;
  const Result refused = run_lockstep(export_it + " --with-preprocessing");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("got the column time of numbers near 1700000199.5 within"));
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(run_lockstep(export_it).status, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
