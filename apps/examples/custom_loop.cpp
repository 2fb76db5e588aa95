// A custom training loop on the replicas of a strategy. It halves the learning rate when the loss
// of an epoch has risen, and stops when the loss is small enough. Runs on several replicas of a
// process, or under mpirun:
//
//     example_custom_loop [DATA [DEVICES]]
//
// DATA and DEVICES: as for `lockstep train --data` and `--devices`.
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>
#include "lockstep/device/device_list.h"
#include "lockstep/strategy/replica/local_replicas.h"

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto train =
        lockstep::open_data(argc > 1 ? argv[1] : "synthetic:8x8x1,4,2000").shuffle().batch(50);
    const auto devices = lockstep::device::parse_devices(argc > 2 ? argv[2] : "cpu:0,cpu:0");
    const auto strategy = lockstep::make_strategy(session, "auto", devices);
    lockstep::Trainer trainer(
        *strategy, lockstep::zoo::mlp(train.spec().shape(), train.spec().classes(), {32}));
    auto& replicas = trainer.replicas();
    replicas.initialize(/*seed=*/1);

    // Each process reads the parts of its own replicas, for consecutive epochs.
    const auto stream = train.stream({.replicas = strategy->num_replicas_in_sync(),
                                      .first_replica = strategy->first_replica(),
                                      .local_replicas = strategy->local_replicas()});
    std::vector<lockstep::Batch> parts;
    lockstep::strategy::StepRequest request{.seed = 1, .learning_rate = 0.002F};
    double last_loss = std::numeric_limits<double>::infinity();
    for (int epoch = 1; epoch <= 20; ++epoch) {
      for (std::int64_t step = 0; step < train.steps_per_epoch(); ++step) {
        stream->next(parts);
        // On all replicas: forward, backward, all-reduce, optimizer.
        replicas.run([&](lockstep::strategy::Replica& replica, int local) {
          replica.train_step(parts[static_cast<std::size_t>(local)], request);
        });
        ++request.step;
        ++request.update;
      }
      // The sums over all replicas are the same on each of them, and so is the decision.
      const double loss = replicas.take_metrics().loss();
      if (session.is_chief())
        fmt::print("epoch {}: loss {:.4f} at rate {:.4g}\n", epoch, loss, request.learning_rate);
      if (loss < 0.05) break;
      if (loss > last_loss) request.learning_rate /= 2;
      last_loss = loss;
    }
  });
}
