// A network with two inputs, an image and a table, and two outputs, a kind and a price, each with
// its own loss. Recent sales have a larger weight. Runs on one replica, or under mpirun on one
// replica per rank:
//
//     example_two_outputs [EPOCHS]
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>

namespace {

constexpr std::int64_t kHouses = 600;

/// Generated houses: the brightness of a photo determines the kind; the kind and the size, the only
/// column of the table, determine the price.
lockstep::Dataset houses() {
  std::mt19937 random(1);
  std::vector<float> images;
  std::vector<float> tables;
  std::vector<std::int32_t> kinds;
  std::vector<float> prices;
  std::vector<float> weights;
  for (std::int64_t house = 0; house < kHouses; ++house) {
    kinds.push_back(static_cast<std::int32_t>(random() % 3));
    const auto kind = static_cast<float>(kinds.back());
    for (int pixel = 0; pixel < 8 * 8; ++pixel)
      images.push_back((kind + static_cast<float>(random() % 100) / 100) / 3);
    tables.push_back(static_cast<float>(random() % 100) / 100);
    prices.push_back(tables.back() + kind / 4);
    weights.push_back(house < kHouses / 2 ? 0.5F : 1.5F);
  }
  return lockstep::Dataset::from_memory(
      {std::move(images), std::move(tables)}, {std::move(kinds), std::move(prices)},
      {.inputs = {{.name = "image", .shape = {8, 8, 1}}, {.name = "table", .shape = {1}}},
       .targets = {{.name = "kind", .type = lockstep::ElementType::int32, .classes = 3},
                   {.name = "price", .shape = {1}}},
       .weighted = true},
      std::move(weights));
}

lockstep::Network network() {
  lockstep::Network net({{.name = "image", .shape = {8, 8, 1}}, {.name = "table", .shape = {1}}});
  net.add(lockstep::Conv2D({.filters = 4, .kernel = 3, .strides = 2}), {net.input("image")});
  net.add(lockstep::ReLU());
  net.add(lockstep::Flatten());
  const auto picture = net.add(lockstep::Dense({.units = 16}));
  const auto table = net.add(lockstep::Dense({.units = 16}), {net.input("table")});
  net.add(lockstep::Add(), {picture, table});
  const auto both = net.add(lockstep::ReLU());
  net.output("kind", net.add(lockstep::Dense({.units = 3}), {both}));
  net.output("price", net.add(lockstep::Dense({.units = 1}), {both}));
  return net;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto train = houses().shuffle().batch(40);
    const auto strategy = lockstep::make_strategy(session);
    lockstep::Trainer trainer(
        *strategy, network(),
        {.losses = {{.output = "kind", .loss = lockstep::SparseCategoricalCrossentropy{}},
                    {.output = "price", .loss = lockstep::MeanSquaredError{}, .weight = 2}},
         .optimizer = lockstep::Sgd{.momentum = 0.9F, .learning_rate = 0.02F}});
    trainer.fit(train, {.epochs = argc > 1 ? std::atoi(argv[1]) : 10, .progress = false});
    const lockstep::Evaluation result = trainer.evaluate(train);
    for (const char* name : {"loss", "kind_loss", "kind_accuracy", "price_loss"})
      if (session.is_chief()) fmt::print("{} {:.6f}\n", name, *result.metric(name));
  });
}
