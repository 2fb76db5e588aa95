// A user's program: trains for three epochs with one replica per rank.
#include <iostream>

#include <lockstep/lockstep.h>

#include "data/dataset.h"
#include "device/device.h"
#include "model/network.h"

int main(int argc, char** argv) {
  const lockstep::SessionOptions options{.quiet = true};
  return lockstep::run(argc, argv, options, [](lockstep::Session& session) {
    const auto strategy = lockstep::make_strategy(session);
    const auto data =
        lockstep::Dataset::synthetic({kSide, kSide, 1}, kClasses, kSamples).shuffle().batch(50);
    lockstep::Network network({kSide, kSide, 1});
    network.add(lockstep::Flatten());
    network.add(lockstep::Dense({.units = kClasses}));
    const lockstep::TrainerOptions training{.optimizer = lockstep::Adam{},
                                            .schedule = {.peak = 1e-2F}};
    lockstep::Trainer trainer(*strategy, network, training);
    const double before = trainer.evaluate(data).loss();
    trainer.fit(data, {.epochs = 3});
    const lockstep::MetricSums after = trainer.evaluate(data);
    if (session.is_chief())
      std::cout << "trained on " << after.samples << " samples, "
                << strategy->num_replicas_in_sync() << " replicas\n";
    return after.loss() < before ? 0 : 1;
  });
}
