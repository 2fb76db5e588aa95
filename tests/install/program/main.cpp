#include <iostream>

#include "lockstep.h"

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);
  return session.guard([&] {
    lockstep::MirroredStrategy strategy(session, {{}, {}});
    const auto data = lockstep::Dataset::synthetic({8, 8, 1}, 4, 200).shuffle().batch(50);
    lockstep::Network network({8, 8, 1});
    network.add(lockstep::Flatten());
    network.add(lockstep::Dense({.units = 4}));
    lockstep::Trainer trainer(strategy, network, {.optimizer = lockstep::Adam{}});
    trainer.fit(data, {.epochs = 1});
    std::cout << "trained on " << data.size() << " samples\n";
    return 0;
  });
}
