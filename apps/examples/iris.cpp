// A classifier of irises, as in the well-known tf.estimator tutorial: four measurements of a
// flower, two hidden layers of ten units, three species. Runs on one replica, or under mpirun on
// one replica per rank:
//
//     example_iris TRAIN.csv TEST.csv [EPOCHS]
//
// The species is the last column: its name, or a number from 0. Debian's package python3-sklearn
// has such a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

namespace {

/// The class names in the table, or the usual names of its class numbers.
std::vector<std::string> species_of(const lockstep::Dataset& data) {
  const std::vector<std::string> names = data.source().class_names();
  return names.empty() ? std::vector<std::string>{"setosa", "versicolor", "virginica"} : names;
}

/// Normalizes each measurement to mean 0 and standard deviation 1, with the statistics of the
/// training data.
lockstep::data::SampleMap standardized(const lockstep::Dataset& train) {
  const auto width = static_cast<std::size_t>(train.spec().feature_count());
  std::vector<float> sums(width), squares(width);
  lockstep::Batch one(train.spec());
  lockstep::Sample flower = one.sample();
  for (std::int64_t i = 0; i < train.size(); ++i) {
    train.source().read(i, flower);
    for (std::size_t f = 0; f < width; ++f) {
      sums[f] += flower.features()[f];
      squares[f] += flower.features()[f] * flower.features()[f];
    }
  }
  const auto count = static_cast<float>(train.size());
  return [=](lockstep::Sample& sample, const lockstep::data::SampleKey&) {
    for (std::size_t f = 0; f < width; ++f) {
      const float mean = sums[f] / count;
      const float variance = std::max(squares[f] / count - mean * mean, 1e-6f);
      sample.features()[f] = (sample.features()[f] - mean) / std::sqrt(variance);
    }
  };
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);
  return session.guard([&] {
    if (argc < 3) {
      fmt::print(stderr, "usage: example_iris TRAIN.csv TEST.csv [EPOCHS]\n");
      return 1;
    }
    const auto train_table = lockstep::Dataset::from_csv(argv[1]);
    const auto test_table =
        lockstep::Dataset::from_csv(argv[2], {.like = argv[1]});  // the same species
    const auto standardize = standardized(train_table);
    const auto train = train_table.map(standardize).shuffle().batch(32);
    const auto test = test_table.map(standardize).batch(32);
    const std::vector<std::string> species = species_of(train);

    const auto strategy = lockstep::make_strategy(session);
    lockstep::Trainer trainer(
        *strategy, lockstep::zoo::mlp(train.spec().shape(), train.spec().classes(), {10, 10}),
        {.optimizer = lockstep::Adam{.learning_rate = 0.01f}});
    trainer.fit(train, {.epochs = argc > 3 ? std::atoi(argv[3]) : 60});

    const lockstep::MetricSums result = trainer.evaluate(test);
    if (session.is_chief())
      fmt::print("accuracy {:.4f} on {} flowers\n", result.accuracy(), result.samples);
    trainer.predict(test, [&](const lockstep::Predictions& predictions) {
      for (std::size_t i = 0; i < predictions.record_ids.size(); ++i) {
        if (predictions.record_ids[i] >= 5) continue;
        const auto width = static_cast<std::size_t>(predictions.width);
        const auto logits = predictions.outputs.subspan(i * width, width);
        const auto best =
            static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
        fmt::print("flower {}: {}\n", predictions.record_ids[i] + 1,
                   best < species.size() ? species[best] : "?");
      }
    });
    return 0;
  });
}
