// Fine-tuning: trains a network on new classes, starting from the weights in a safetensors file.
// Only the head is initialized randomly. Runs on one replica, or under mpirun:
//
//     example_fine_tune WEIGHTS [MODEL [DATA]]
//
// WEIGHTS: a safetensors file with the names of Lockstep or torchvision (such as resnet18), a
// checkpoint, or a directory of checkpoints. MODEL and DATA: as for `lockstep train --model` and
// `--data`.
#include <fmt/format.h>

#include <string>

#include <lockstep/lockstep.h>

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    if (argc < 2) {
      fmt::print(stderr, "usage: example_fine_tune WEIGHTS [MODEL [DATA]]\n");
      return 2;
    }
    const auto data = lockstep::open_data(argc > 3 ? argv[3] : "synthetic:8x8x1,6,1200");
    const auto strategy = lockstep::make_strategy(session);
    lockstep::Trainer trainer(
        *strategy,
        lockstep::zoo::make(argc > 2 ? argv[2] : "mlp", data.spec().shape(), data.spec().classes()),
        {.optimizer = lockstep::Adam{.learning_rate = 1e-3F}});
    const auto before = trainer.evaluate(data.batch(100));

    // A small learning rate and few epochs, to preserve the pretrained features.
    trainer.fit(
        data.shuffle().batch(100),
        {.epochs = 3, .pretrained = lockstep::Pretrained{.path = argv[1], .reset_head = true}});

    const auto after = trainer.evaluate(data.batch(100));
    if (session.is_chief())
      fmt::print("accuracy {:.4f} before, {:.4f} after fine-tuning\n", before.accuracy(),
                 after.accuracy());
    return 0;
  });
}
