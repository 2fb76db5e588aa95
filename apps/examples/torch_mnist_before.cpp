// A convolutional network on Fashion-MNIST with LibTorch alone, in one process:
//
//     example_torch_mnist_before [TRAIN [TEST [EPOCHS]]]
//
// TRAIN and TEST: as for `lockstep train --data`.
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <string>

#include "torch_images.h"

using torch::data::samplers::SequentialSampler;

int train(int argc, char** argv) {
  const auto argument = [&](int i, const char* standard) {
    return std::string(argc > i ? argv[i] : standard);
  };
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  auto train = Images(argument(1, "fashion-mnist:train")).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<SequentialSampler>(std::move(train), 64);
  const int epochs = std::atoi(argument(3, "3").c_str());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::nll_loss(net(batch.data), batch.target).backward();
      optimizer.step();
    }
  }

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
  return train(argc, argv);
}
