// Shared by both LibTorch programs: images in memory as a LibTorch data set, and the network.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/sample/record_source.h"

/// All records of a data set, as for `lockstep train --data`: images [channels, height, width] and
/// classes.
struct Images : torch::data::datasets::Dataset<Images> {
  explicit Images(const std::string& name) {
    const auto data = lockstep::data::open_data(name);
    const auto shape = data.spec().shape();  // [height, width, channels]
    std::vector<float> values;
    lockstep::data::Batch one(data.spec());
    lockstep::data::Sample sample = one.sample();
    for (std::int64_t i = 0; i < data.size(); ++i) {
      data.source().read(i, sample);
      values.insert(values.end(), sample.features().begin(), sample.features().end());
      classes.push_back(sample.label());
    }
    images = torch::tensor(values)
                 .reshape({data.size(), shape[0], shape[1], shape[2]})
                 .permute({0, 3, 1, 2});
    images = images.contiguous();
  }

  torch::data::Example<> get(std::size_t index) override {
    return {images[static_cast<std::int64_t>(index)], torch::tensor(classes[index])};
  }
  decltype(std::declval<const torch::data::datasets::BatchDataset<void>&>().size()) size()
      const override {
    return classes.size();
  }

  torch::Tensor images;
  std::vector<std::int64_t> classes;
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(first(x), 2));
    x = torch::relu(torch::max_pool2d(second(x), 2));
    return torch::log_softmax(output(torch::relu(hidden(x.flatten(1)))), 1);
  }

  torch::nn::Conv2d first = register_module("first", torch::nn::Conv2d(1, 10, 5));
  torch::nn::Conv2d second = register_module("second", torch::nn::Conv2d(10, 20, 5));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(320, 50));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(50, 10));
};
TORCH_MODULE(Net);
