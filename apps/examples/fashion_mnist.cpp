// A convolutional network on Fashion-MNIST in a few lines. Runs on one replica, or under mpirun on
// one replica per rank:
//
//     example_fashion_mnist [DATA [TEST_DATA [EPOCHS]]]
//
// DATA and TEST_DATA: as for `lockstep train --data`.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include <lockstep/lockstep.h>

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto argument = [&](int i, const char* standard) {
      return std::string(argc > i ? argv[i] : standard);
    };
    const auto train = lockstep::open_data(argument(1, "fashion-mnist:train"));
    const auto test = lockstep::open_data(argument(2, "fashion-mnist:test"));
    const auto strategy = lockstep::make_strategy(session);
    const std::int64_t global_batch = 64;

    lockstep::Network network(train.spec().shape(), "two-convolutions");
    network.add(lockstep::Conv2D({.filters = 32, .kernel = 3}));
    network.add(lockstep::ReLU());
    network.add(lockstep::MaxPool2D());
    network.add(lockstep::Conv2D({.filters = 64, .kernel = 3}));
    network.add(lockstep::ReLU());
    network.add(lockstep::MaxPool2D());
    network.add(lockstep::Flatten());
    network.add(lockstep::Dropout({.rate = 0.3f}));
    network.add(lockstep::Dense({.units = train.spec().classes()}));

    lockstep::Trainer trainer(*strategy, network,
                              {.optimizer = lockstep::Adam{.learning_rate = 2e-3f},
                               .schedule = {.kind = lockstep::Schedule::Kind::cosine}});
    trainer.fit(train.shuffle().batch(global_batch),
                {.epochs = std::atoi(argument(3, "1").c_str())});
    const lockstep::MetricSums result = trainer.evaluate(test.batch(global_batch));
    if (session.is_chief())
      fmt::print("accuracy {:.4f} on {} records; replicas: {}\n", result.accuracy(), result.samples,
                 strategy->num_replicas_in_sync());
  });
}
