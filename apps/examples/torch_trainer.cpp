// A LibTorch module in a Trainer: data, order, optimizer, checkpoints, metrics and predictions are
// Lockstep's, on any number of ranks. When restarted, it resumes from its last checkpoint:
//
//     mpirun -np 3 example_torch_trainer [TRAIN [TEST [EPOCHS [CHECKPOINT_DIR [SCRIPT]]]]]
//
// TRAIN, TEST: as for `lockstep train --data`. SCRIPT: a TorchScript file instead of the module.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <lockstep/interop/torch.h>
#include <lockstep/lockstep.h>
#include "torch_images.h"

namespace {

lockstep::Network make_network(const lockstep::Dataset& data, const std::string& script) {
  lockstep::Network network(data.spec().shape(), "torch_net");
  if (script.empty())
    network.add(lockstep::torch::ModuleLayer([] { return Net(); }));
  else
    network.add(lockstep::torch::ModuleLayer(std::filesystem::path(script)));
  return network;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* standard) {
    return std::string(argc > i ? argv[i] : standard);
  };
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto train = lockstep::open_data(argument(1, "fashion-mnist:train"));
    const auto test = lockstep::open_data(argument(2, "fashion-mnist:test"));
    const auto strategy = lockstep::make_strategy(session);

    lockstep::Trainer trainer(
        *strategy, make_network(train, argument(5, "")),
        {.optimizer = lockstep::Sgd{.momentum = 0.5F}, .schedule = {.peak = 0.01F}});
    lockstep::FitOptions fit{.epochs = std::atoi(argument(3, "3").c_str()), .progress = false};
    fit.signals = {SIGTERM, SIGINT};
    fit.checkpoint.directory = argument(4, "torch_trainer.checkpoints");
    trainer.fit(train.shuffle().batch(64), fit);

    const auto result = trainer.evaluate(test.batch(256));
    if (session.is_chief())
      fmt::print("loss {:.9f}, accuracy {:.4f}\n", result.loss(), result.accuracy());
  });
}
