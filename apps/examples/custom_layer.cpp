// A custom layer: a learned scale and shift of every feature, y = a * x + b, trained between two
// dense layers.
//
//     example_custom_layer [DATA]
//
// DATA: as for `lockstep train --data`.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include <lockstep/lockstep.h>

namespace {

namespace model = lockstep::model;

class ScaleAndShift final : public lockstep::CustomLayer {
 public:
  std::string kind() const override { return "scale_and_shift"; }

  model::Shape build(model::BuildContext& context) const override {
    const model::Shape& input = context.input();
    context.parameter("scale", input, {.kind = model::Initializer::Kind::constant, .value = 1});
    context.parameter("shift", input, {}, /*decay=*/false);
    return input;
  }

  // Arrays are [batch, features...]; the output's gradient is not needed after the input's was
  // written.
  void forward(const model::Tensors& t, const model::PassContext& /*pass*/) const override {
    const auto scale = t.parameters[0];
    const auto shift = t.parameters[1];
    for (std::size_t i = 0; i < t.output.size(); ++i)
      t.output[i] = scale[i % scale.size()] * t.inputs[0][i] + shift[i % scale.size()];
  }

  void backward(const model::Tensors& t, const model::PassContext& /*pass*/) const override {
    const std::size_t features = t.parameters[0].size();
    std::ranges::fill(t.parameter_gradients[0], 0.0f);
    std::ranges::fill(t.parameter_gradients[1], 0.0f);
    for (std::size_t i = 0; i < t.output_gradient.size(); ++i) {
      t.parameter_gradients[0][i % features] += t.output_gradient[i] * t.inputs[0][i];
      t.parameter_gradients[1][i % features] += t.output_gradient[i];
      if (!t.input_gradients[0].empty())
        t.input_gradients[0][i] = t.output_gradient[i] * t.parameters[0][i % features];
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto data = lockstep::open_data(argc > 1 ? argv[1] : "synthetic:8x8x1,4,2000");
    const auto strategy = lockstep::make_strategy(session);

    lockstep::Network network(data.spec().shape(), "with-a-layer-of-our-own");
    network.add(lockstep::Flatten());
    network.add(lockstep::Dense({.units = 32}));
    network.add(ScaleAndShift());
    network.add(lockstep::ReLU());
    network.add(lockstep::Dense({.units = data.spec().classes()}));

    lockstep::Trainer trainer(*strategy, network);
    const auto history = trainer.fit(data.shuffle().batch(50), {.epochs = 3, .progress = false});
    if (session.is_chief())
      for (const auto& epoch : history.epochs)
        fmt::print("epoch {}: loss {:.4f}, accuracy {:.4f}\n", epoch.epoch + 1,
                   epoch.metrics.loss(), epoch.metrics.accuracy());
  });
}
