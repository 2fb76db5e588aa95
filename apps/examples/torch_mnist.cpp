// The program of torch_mnist_before.cpp on any number of ranks; six lines are new. Each rank
// computes its part of every batch of 64, and the network is the same as that of one process:
//
//     mpirun -np 2 example_torch_mnist [TRAIN [TEST [EPOCHS]]]
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <string>

#include <lockstep/interop/torch.h>
#include "torch_images.h"

using torch::data::samplers::SequentialSampler;

int train(int argc, char** argv, lockstep::Session& session) {
  const auto argument = [&](int i, const char* standard) {
    return std::string(argc > i ? argv[i] : standard);
  };
  lockstep::torch::DistributedDataParallel net(session, Net());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  auto train = Images(argument(1, "fashion-mnist:train")).map(torch::data::transforms::Stack<>());
  auto loader = lockstep::torch::make_data_loader<SequentialSampler>(session, std::move(train), 64);
  const int epochs = std::atoi(argument(3, "3").c_str());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::nll_loss(net(batch.data), batch.target).backward();
      optimizer.step();
    }
  }

  if (!session.is_chief()) return 0;
  const torch::NoGradGuard no_grad;
  const Images test(argument(2, "fashion-mnist:test"));
  const torch::Tensor output = net(test.images);
  const torch::Tensor target = torch::tensor(test.classes);
  std::cout << std::setprecision(9) << "loss " << torch::nll_loss(output, target).item<double>()
            << ", accuracy " << output.argmax(1).eq(target).to(torch::kFloat).mean().item<double>()
            << std::endl;
  torch::save(net, "torch_mnist.pt");
  return 0;
}

int main(int argc, char** argv) {
  torch::manual_seed(1);
  return lockstep::run(argc, argv, [&](auto& session) { return train(argc, argv, session); });
}
