// Trainers that read weights, and files of weights.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/job/session.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/options/pretrained.h"
#include "lockstep/train/trainer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::train {
using namespace strategy;

/// A file of scripts/make_reference.
inline std::filesystem::path reference(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference" / (name + ".safetensors");
}

/// The network of pretrained_*.safetensors, which has 10 classes.
inline model::Network residual_network(std::int64_t classes = 10) {
  return zoo::resnet18({16, 16, 3}, classes, {.width = 2});
}

/// The session of all trainers of a test.
inline std::shared_ptr<job::Session> shared_session() {
  static std::weak_ptr<job::Session> current;
  auto session = current.lock();
  if (!session) {
    session = std::make_shared<job::Session>(0, nullptr, job::SessionOptions{.quiet = true});
    current = session;
  }
  return session;
}

/// A trainer of one replica, and its parameters.
class TestTrainer {
 public:
  explicit TestTrainer(model::Network network, std::uint64_t seed = 1)
      : session_(shared_session()),
        strategy_(*session_),
        trainer_(strategy_, std::move(network), {.seed = seed}) {}

  Trainer& trainer() { return trainer_; }
  std::vector<float> parameter(std::string_view name) {
    const model::ParameterTable& table = trainer_.network().parameters();
    const auto values = table.slice(model().parameters(), *table.find(name));
    return {values.begin(), values.end()};
  }
  std::vector<float> all_values() {
    std::vector<float> values(model().parameters().begin(), model().parameters().end());
    values.insert(values.end(), model().buffers().begin(), model().buffers().end());
    return values;
  }
  std::vector<float> predicted(const model::BatchView& batch) {
    const auto values = model().predict_batch(batch);
    return {values.begin(), values.end()};
  }
  std::vector<float> logits(std::span<const float> images) {
    const auto samples = static_cast<std::int64_t>(images.size()) /
                         model::element_count(trainer_.network().input_shape());
    const auto values = model().predict_batch(samples, images);
    return {values.begin(), values.end()};
  }
  /// Returns the error of initialize_from, and checks that nothing has changed.
  std::string init_error(const Pretrained& pretrained) {
    const std::vector<float> before = all_values();
    std::string message =
        checkpoint::checkpoint_error([&] { trainer_.initialize_from(pretrained); });
    EXPECT_EQ(all_values(), before) << "half loaded";
    return message;
  }

 private:
  model::CompiledModel& model() { return trainer_.replicas()[0].model(); }

  std::shared_ptr<job::Session> session_;
  OneDeviceStrategy strategy_;
  Trainer trainer_;
};

/// Writes tensors with these names and shapes, and the values 1, 2, ….
inline void write_tensors(const std::filesystem::path& path,
                          const std::vector<std::pair<std::string, model::Shape>>& tensors) {
  std::vector<std::vector<float>> values;
  std::vector<checkpoint::TensorView> views;
  values.reserve(tensors.size());
  for (const auto& [name, shape] : tensors) {
    auto& tensor = values.emplace_back(static_cast<std::size_t>(model::element_count(shape)));
    std::iota(tensor.begin(), tensor.end(), 1.0F);
    views.push_back({name, shape, std::span<const float>(tensor)});
  }
  checkpoint::write_safetensors(path, views);
}

}  // namespace lockstep::inline v0::train
