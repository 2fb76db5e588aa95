// A data set of two targets as TFRecord shards, and a network of two outputs for it as JSON.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::apps {

inline const std::string kHouseLosses =
    " --loss kind=cross-entropy:label_smoothing=0.1 --loss cost=mse:weight=0.5,target=price ";

/// Writes house_data() of 60 records as the parts train and test to `directory`/shards, and a
/// network with the outputs kind and cost to `directory`/net.json. Returns the options of a
/// training.
inline std::string write_houses(const std::filesystem::path& directory) {
  const data::Dataset houses = train::house_data(60);
  for (const char* part : {"train", "test"})
    data::write_shards(houses.source(), {.directory = directory / "shards", .part = part});
  std::ofstream(directory / "net.json") << R"({
    "inputs": {"image": {"shape": [2, 2, 1]}, "table": {"shape": [3]},
               "word": {"shape": [], "type": "int32"}},
    "layers": [
      {"type": "flatten", "inputs": ["image"]},
      {"type": "dense", "name": "picture", "units": 8},
      {"type": "dense", "name": "columns", "inputs": ["table"], "units": 8},
      {"type": "embedding", "name": "term", "inputs": ["word"], "vocabulary": 5, "dimension": 8},
      {"type": "add", "name": "sum", "inputs": ["picture", "columns", "term"]},
      {"type": "dense", "name": "kind", "units": "classes"},
      {"type": "dense", "name": "cost", "inputs": ["sum"], "units": 1}],
    "outputs": ["kind", "cost"]})";
  return "train --epochs 1 --global-batch 20 --log-format json --model " +
         (directory / "net.json").string() + " --data " + (directory / "shards").string() + " ";
}

}  // namespace lockstep::inline v0::apps
