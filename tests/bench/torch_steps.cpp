// Steps of LibTorch on every rank, with gradients averaged by lockstep::torch and by LibTorch's
// reducer over Gloo, the core of PyTorch's DistributedDataParallel. All kinds alternate in one job,
// so that conditions are equal. Prints one JSON object: median milliseconds per step of each kind.
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/interop/torch.h"

namespace {

using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential make_network(const std::string& model) {
  namespace nn = torch::nn;
  torch::manual_seed(1);
  if (model == "mlp")
    return nn::Sequential(nn::Linear(784, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(),
                          nn::Linear(1024, 10));
  return nn::Sequential(nn::Conv2d(1, 32, 3), nn::ReLU(), nn::Conv2d(32, 64, 3), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Flatten(), nn::Linear(9216, 200), nn::ReLU(),
                        nn::Linear(200, 10));
}

/// A kind of training step.
class Kind {
 public:
  Kind(const std::string& model, std::int64_t batch)
      : network_(make_network(model)),
        optimizer_(network_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        inputs_(model == "mlp" ? torch::rand({batch, 784}) : torch::rand({batch, 1, 28, 28})),
        targets_(torch::randint(10, {batch})) {}
  virtual ~Kind() = default;

  virtual void step() {
    forget_gradients();
    torch::cross_entropy_loss(network_->forward(inputs_), targets_).backward();
    optimizer_.step();
  }

 protected:
  void forget_gradients() {
    for (const at::Tensor& parameter : network_->parameters()) parameter.mutable_grad().reset();
  }

  torch::nn::Sequential network_;
  torch::optim::SGD optimizer_;
  at::Tensor inputs_;
  at::Tensor targets_;
};

class Lockstep final : public Kind {
 public:
  Lockstep(lockstep::Session& session, const std::string& model, std::int64_t batch)
      : Kind(model, batch), net_(session, network_) {}
  void step() override {
    forget_gradients();
    torch::cross_entropy_loss(net_(inputs_), targets_).backward();
    optimizer_.step();
  }

 private:
  lockstep::torch::DistributedDataParallel<torch::nn::SequentialImpl> net_;
};

/// The use of the reducer in torch/nn/parallel/distributed.py, without Python.
class Ddp final : public Kind {
 public:
  Ddp(const lockstep::Session& session, const std::string& store, const std::string& model,
      std::int64_t batch, bool views, bool zeroes)
      : Kind(model, batch), zeroes_(zeroes) {
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    const auto files = c10::make_intrusive<c10d::FileStore>(store, session.size());
    const auto group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(files, session.rank(), session.size(), options);
    const Tensors parameters = network_->parameters();
    const std::vector<bool> sparse(parameters.size(), false);
    // The first step has one bucket; then buckets of 1 and 25 MiB are rebuilt in the order in which
    // gradients became ready.
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        parameters, {static_cast<std::size_t>(std::numeric_limits<int>::max())}, sparse);
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters, std::vector(buckets.rbegin(), buckets.rend()),
        std::vector(limits.rbegin(), limits.rend()), group, sparse, c10d::kDefaultBucketBytesCap,
        /*find_unused_parameters=*/false, views, std::unordered_map<std::size_t, std::string>{},
        c10d::kDefaultFirstBucketBytes);
  }
  void step() override {
    if (zeroes_)
      optimizer_.zero_grad();
    else
      forget_gradients();
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    const at::Tensor outputs = network_->forward(inputs_);
    reducer_->prepare_for_backward({});
    torch::cross_entropy_loss(outputs, targets_).backward();
    optimizer_.step();
  }

 private:
  bool zeroes_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

/// Returns the milliseconds per step of the slowest rank in a block of steps that begins with a
/// barrier.
double time_block(lockstep::Session& session, Kind& kind, int steps, bool takes_part) {
  session.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; takes_part && i < steps; ++i) kind.step();
  double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() /
      steps;
  session.workers().all_reduce(std::span(&milliseconds, 1), lockstep::allreduce::ReduceOp::max);
  return milliseconds;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Times the all-reduce of the gradient's bytes without computation.
double time_communication(lockstep::Session& session, std::size_t parameters, int rounds) {
  auto buffer = session.workers().group().allocate(parameters * sizeof(float));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    session.barrier();
    const auto begin = std::chrono::steady_clock::now();
    session.workers().all_reduce(buffer.as<float>());
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "cnn", store;
  std::int64_t batch = 64;
  int steps = 10, rounds = 15;
  CLI::App app("Steps of LibTorch under several wrappers");
  app.add_option("--model", model, "mlp or cnn")->check(CLI::IsMember({"mlp", "cnn"}));
  app.add_option("--batch", batch, "samples of each rank");
  app.add_option("--steps", steps, "steps of a block");
  app.add_option("--rounds", rounds, "blocks of each kind");
  app.add_option("--store", store,
                 "a file that is not there yet, through which the ranks of Gloo meet");
  CLI11_PARSE(app, argc, argv);

  lockstep::Session session(argc, argv, {.quiet = true});
  torch::set_num_threads(1);
  std::map<std::string, std::unique_ptr<Kind>> kinds;
  kinds["alone"] = std::make_unique<Kind>(model, batch);  // one rank computes, the others wait
  kinds["independent"] = std::make_unique<Kind>(model, batch);  // all compute, nothing is averaged
  kinds["lockstep"] = std::make_unique<Lockstep>(session, model, batch);
  // Gradients that are views of buckets cannot be zeroed by an optimizer of this LibTorch.
  if (!store.empty() && session.size() > 1) {
    const auto ddp = [&](const char* suffix, bool views, bool zeroes) {
      return std::make_unique<Ddp>(session, store + suffix, model, batch, views, zeroes);
    };
    kinds["ddp"] = ddp("a", /*views=*/false, /*zeroes=*/false);
    kinds["ddp, zeroed"] = ddp("b", /*views=*/false, /*zeroes=*/true);
    kinds["ddp, views"] = ddp("c", /*views=*/true, /*zeroes=*/false);
  }

  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < rounds; ++round)  // the first only warms up
    for (const auto& [name, kind] : kinds) {
      const double milliseconds =
          time_block(session, *kind, steps, name != "alone" || session.is_chief());
      if (round >= 0) times[name].push_back(milliseconds);
    }
  nlohmann::json result{{"model", model}, {"batch", batch}, {"ranks", session.size()}};
  std::size_t parameters = 0;
  for (const at::Tensor& parameter : make_network(model)->parameters())
    parameters += static_cast<std::size_t>(parameter.numel());
  result["parameters"] = parameters;
  result["communication"] = time_communication(session, parameters, rounds);
  result["route"] = session.workers().route();
  for (const auto& [name, values] : times) result["milliseconds"][name] = median(values);
  result["blocks"] = times;
  if (session.is_chief()) std::cout << result << std::endl;
  return 0;
}
