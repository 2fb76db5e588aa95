// Networks with several outputs on the command line: losses, metrics, checkpoints, predictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "apps/lockstep/evaluate/predicted_output.h"
#include "lockstep/model/layers/layers.h"
#include "tests/apps/houses.h"
#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SeveralOutputs : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::string on_run() const {
    return " --checkpoint " + path("run") + " --data " + path("shards") + " ";
  }
  void train_run() const {
    const Result result = run_lockstep(train_ + kHouseLosses + "--checkpoint-dir " + path("run"));
    ASSERT_EQ(result.status, 0) << result.errors;
  }

  checkpoint::ScratchDirectory scratch_;
  const std::string train_ = write_houses(scratch_.path());
};

TEST_F(SeveralOutputs, AreTrainedAndEvaluated) {
  const Result trained =
      run_lockstep(train_ + kHouseLosses + "--metrics kind:f1,mae --epochs 8 --lr 0.02 " +
                   "--validation-data " + path("shards") + " --checkpoint-dir " + path("run"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const auto epoch = trained.event("epoch");
  for (const auto& event : trained.events()) {
    if (event["event"] == "epoch" && event["epoch"] == 0) {
      EXPECT_LT(epoch["validation_loss"], event["validation_loss"]);
    }
  }
  const Result evaluated =
      run_lockstep("evaluate --json --metrics kind:top2,confusion,cost:mae,f1" + on_run());
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  const auto event = evaluated.event("evaluate");
  for (const char* name :
       {"loss", "kind_loss", "kind_accuracy", "kind_f1", "cost_loss", "cost_mae"})
    EXPECT_NEAR(event.value(name, -1.0), epoch.value(std::string("validation_") + name, -2.0), 1e-5)
        << name;
  EXPECT_NEAR(event["loss"].get<double>(),
              event["kind_loss"].get<double>() + 0.5 * event["cost_loss"].get<double>(), 1e-4);
  EXPECT_FALSE(event.contains("cost_accuracy"));
  EXPECT_TRUE(event.contains("kind_confusion") && event.contains("kind_top2"));
  EXPECT_THAT(run_lockstep("evaluate" + on_run()).output, HasSubstr("cost_loss "));
}

TEST_F(SeveralOutputs, AreListedWithTheirLosses) {
  train_run();
  const std::string inspected =
      run_lockstep("checkpoint inspect " + path("run") + "/step-00000003").output;
  EXPECT_THAT(inspected, HasSubstr(", outputs kind [3], cost [1]\n"));
  EXPECT_THAT(inspected,
              HasSubstr("\n  loss of kind: cross-entropy:label_smoothing=0.1, weight 1, target "
                        "kind\n  loss of cost: mse, weight 0.5, target price\n"));
}

TEST_F(SeveralOutputs, ArePredicted) {
  train_run();
  const std::string predict = "predict --quiet" + on_run() + "--output ";
  const Result csv = run_lockstep(predict + "-");
  ASSERT_EQ(csv.status, 0) << csv.errors;
  EXPECT_THAT(csv.output, StartsWith("record,kind.predicted,kind.probability_0,kind.probability_1,"
                                     "kind.probability_2,cost.output_0\n0,"));
  const auto rows = numbers_of(csv.output);
  ASSERT_EQ(rows.size(), 60U);
  const auto lines = run_lockstep(predict + "- --json").events();
  ASSERT_EQ(lines.size(), 60U);
  ASSERT_EQ(run_lockstep(predict + path("p.tfrecord")).status, 0);
  const std::vector<std::string> records = data::read_records(path("p.tfrecord"));
  ASSERT_EQ(records.size(), 60U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].at(2) + rows[i].at(3) + rows[i].at(4), 1, 1e-6);
    EXPECT_EQ(lines[i]["record"], i);
    EXPECT_EQ(lines[i]["kind"]["predicted"], rows[i][1]);
    EXPECT_NEAR(lines[i]["kind"]["probabilities"][2].get<double>(), rows[i][4], 1e-8);
    EXPECT_EQ(lines[i]["kind"]["logits"].size(), 3U);
    EXPECT_NEAR(lines[i]["cost"]["outputs"][0].get<double>(), rows[i].at(5), 1e-6);
    const data::Example example = data::parse_example(records[i]);
    EXPECT_EQ(std::get<data::Int64List>(example.at("kind.predicted")).front(), rows[i][1]);
    EXPECT_EQ(std::get<data::FloatList>(example.at("kind.outputs")).size(), 3U);
    EXPECT_NEAR(std::get<data::FloatList>(example.at("cost.outputs")).front(), rows[i][5], 1e-6);
  }
  EXPECT_THAT(run_lockstep(predict + "- --select cost").output, StartsWith("record,output_0\n0,"));
  EXPECT_THAT(
      run_lockstep(predict + "- --select cost,kind --top 1").output,
      StartsWith("record,cost.output_0,kind.predicted,kind.top_1,kind.top_1_probability\n"));
  const Result refused = run_lockstep(predict + "- --select kind,prise");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("[select] expected outputs of model "));
  EXPECT_THAT(refused.errors, HasSubstr(": kind, cost, got \"prise\""));
}

TEST_F(SeveralOutputs, MayBeUntrained) {
  const Result result = run_lockstep(train_ + "--loss kind=cce --loss cost=none --loss kind=mse");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("[loss] expected one loss for each output, got two for kind"));
  const Result trained = run_lockstep(
      train_ + "--loss kind=cross-entropy --loss cost=none --checkpoint-dir " + path("run"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_FALSE(trained.event("epoch").contains("cost_loss"));
  EXPECT_EQ(run_lockstep("evaluate" + on_run()).status, 0);
  EXPECT_THAT(run_lockstep("predict --output -" + on_run()).output,
              HasSubstr(",cost.output_0\n0,"));
}

TEST_F(SeveralOutputs, KeepLossesInConfiguration) {
  const Result printed = run_lockstep(train_ + kHouseLosses + "--print-config");
  ASSERT_EQ(printed.status, 0) << printed.errors;
  std::ofstream(path("train.toml")) << printed.output;
  const Result again = run_lockstep("train --config " + path("train.toml"));
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(hash_of(again), hash_of(run_lockstep(train_ + kHouseLosses)));
}

TEST_F(SeveralOutputs, AreValidated) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "[loss] expected --loss OUTPUT=LOSS for each output of model "},
      {"--loss mse", ": kind, cost (OUTPUT=none: not trained), got none that names an output"},
      {"--loss kind=cross-entropy", ": kind, cost, got none for cost; cost=none does not train it"},
      {"--loss kid=cross-entropy --loss cost=mse",
       ": kind, cost, got \"kid\" (did you mean kind?)"},
      {"--loss kind=none --loss cost=none", "got OUTPUT=none for all"},
      {"--loss kind=cross-entropy,cost=mse", "expected --loss OUTPUT=LOSS once for each output"},
      {"--loss kind=cros-entropy", "(did you mean cross-entropy?)"},
      {"--loss mse --loss kind=cross-entropy", "for each output, got both"},
      {"--loss cost=mse:wieght=2",
       "[loss] expected target= or weight= as settings of mse, got \"wieght\" (did you mean "
       "weight?)"},
      {"--loss cost=huber:delta=2,weight=0",
       "[loss] expected weight to be above 0, got \"weight=0\""},
      {kHouseLosses + "--label-smoothing 0.1",
       "expected the setting label_smoothing=S of --loss OUTPUT=LOSS"},
      {kHouseLosses + "--metrics auc",
       "[metrics] expected a metric of one of the outputs kind (cross-entropy:label_smoothing=0.1)"
       ", cost (mse), got auc: "},
      {kHouseLosses + "--metrics cst:mae",
       "[metrics] expected OUTPUT:NAME with one of the outputs kind, cost, or NAME:OPTION=VALUE, "
       "got \"cst:mae\""},
      {kHouseLosses + "--metrics f1,conf", "got \"conf\" (did you mean confusion?)"},
      {kHouseLosses + "--metrics f1,kind:f1", "expected each metric once, got f1 twice"}};
  for (const auto& [options, message] : cases) {
    const Result result = run_lockstep(train_ + options);
    EXPECT_EQ(result.status, 2) << options;
    EXPECT_THAT(result.errors, HasSubstr(message)) << options;
  }
}

// ---- Representation of the values

TEST(PredictedOutputs, AreConvertedToProbabilitiesByLoss) {
  const auto network_of = [](std::int64_t units, const char* activation) {
    model::Network network({4}, "one");
    network.add(model::Dense({.units = units}));
    if (std::string_view(activation) == "softmax") network.add(model::Softmax());
    if (std::string_view(activation) == "sigmoid") network.add(model::Sigmoid());
    return network;
  };
  struct Case {
    model::Loss loss;
    const char* activation;
    std::vector<float> outputs;
    std::vector<double> probabilities;
    std::string header;
  };
  const std::string classes = ",predicted,probability_0,probability_1";
  const Case cases[] = {
      {model::SparseCategoricalCrossentropy(), "", {0, 0}, {0.5, 0.5}, classes},
      {model::SparseCategoricalCrossentropy(), "softmax", {0.25, 0.75}, {0.25, 0.75}, classes},
      {model::CategoricalCrossentropy(), "sigmoid", {1, 1}, {0.5, 0.5}, classes},
      {model::BinaryCrossentropy(), "", {0}, {0.5, 0.5}, classes},
      {model::BinaryCrossentropy(), "sigmoid", {0.75}, {0.25, 0.75}, classes},
      {model::BinaryCrossentropy(), "", {0, 0}, {0.5, 0.5}, ",probability_0,probability_1"},
      {model::BinaryCrossentropy(),
       "sigmoid",
       {0.25, 1},
       {0.25, 1},
       ",probability_0,probability_1"},
      {model::MeanSquaredError(), "sigmoid", {0.25}, {}, ",output_0"},
      {model::Huber(), "", {3, 4}, {}, ",output_0,output_1"}};
  for (const Case& c : cases) {
    const model::Network network =
        network_of(static_cast<std::int64_t>(c.outputs.size()), c.activation);
    const PredictedOutput output(network, 0, c.loss, {});
    const std::string what = model::to_string(c.loss) + " after " + c.activation;
    EXPECT_EQ(output.row(c.outputs, {}).probabilities, c.probabilities) << what;
    EXPECT_EQ(output.header("", {}), c.header) << what;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
