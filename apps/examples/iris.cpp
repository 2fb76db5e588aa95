// A classifier of irises, as in the well-known tf.estimator tutorial: four measurements of a
// flower, two hidden layers of ten units, three species. Runs on one replica, or under mpirun on
// one replica per rank:
//
//     example_iris TRAIN.csv TEST.csv [EPOCHS]
//
// The species is the last column: its name, or a number from 0. The folder iris has Fisher's
// table (The use of multiple measurements in taxonomic problems, 1936).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

namespace {

/// The class names in the table, or the usual names of its class numbers.
std::vector<std::string> species_of(const lockstep::Dataset& data) {
  const std::vector<std::string> names = data.source().info().class_names;
  return names.empty() ? std::vector<std::string>{"setosa", "versicolor", "virginica"} : names;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    if (argc < 3) {
      fmt::print(stderr, "usage: example_iris TRAIN.csv TEST.csv [EPOCHS]\n");
      return 1;
    }
    const auto train_table = lockstep::Dataset::from_csv(argv[1]);
    // Class numbers and standardization are those of the training table.
    const auto test_table =
        lockstep::Dataset::from_csv(argv[2], {.schema = train_table.source().info().table});
    const auto train = train_table.shuffle().batch(32);
    const auto test = test_table.batch(32);
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
