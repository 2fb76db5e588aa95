// Data parallelism around an existing training loop: a classifier and its optimizer in Eigen, which
// do not know about ranks. The added lines are marked with >>. Runs alone, or under mpirun:
//
//     mpirun -np 2 example_wrap_eigen [DATA]
//
// DATA: as for `lockstep train --data`.
#include <fmt/format.h>

#include <Eigen/Dense>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

namespace {

using Matrix = Eigen::MatrixXf;
using Vector = Eigen::VectorXf;

/// Softmax regression: logits = W x + b.
struct Classifier {
  Classifier(Eigen::Index features, Eigen::Index classes)
      : weights(Matrix::Zero(classes, features)),
        bias(Vector::Zero(classes)),
        weights_gradient(weights),
        bias_gradient(bias) {}

  /// Mean loss over the columns of `inputs` and its gradient.
  float backward(const Matrix& inputs, std::span<const std::int32_t> labels) {
    Matrix p = (weights * inputs).colwise() + bias;
    p = (p.rowwise() - p.colwise().maxCoeff()).array().exp().matrix();
    p.array().rowwise() /= p.colwise().sum().array().eval();
    float loss = 0;
    for (Eigen::Index i = 0; i < p.cols(); ++i) {
      const auto label = static_cast<Eigen::Index>(labels[static_cast<std::size_t>(i)]);
      loss -= std::log(p(label, i));
      p(label, i) -= 1;
    }
    const auto samples = static_cast<float>(inputs.cols());
    weights_gradient = p * inputs.transpose() / samples;
    bias_gradient = p.rowwise().sum() / samples;
    return loss / samples;
  }

  Matrix weights;
  Vector bias;
  Matrix weights_gradient;
  Vector bias_gradient;
};

/// Stochastic gradient descent.
struct Sgd {
  Classifier& model;
  float rate;

  void step() {
    model.weights -= rate * model.weights_gradient;
    model.bias -= rate * model.bias_gradient;
  }
  // >> Addresses of parameters and gradients.
  std::vector<lockstep::Parameter> parameters() {
    const auto span = [](auto& array) {
      return std::span(array.data(), static_cast<std::size_t>(array.size()));
    };
    return {{"weights", span(model.weights), span(model.weights_gradient)},
            {"bias", span(model.bias), span(model.bias_gradient)}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  // >> Runs this process as a rank of the job; an error on any rank is reported in one line.
  return lockstep::run(argc, argv, [&](lockstep::Session& session) {
    const auto data =
        lockstep::open_data(argc > 1 ? argv[1] : "synthetic:8x8x1,4,2000").shuffle().batch(100);
    const Eigen::Index features = data.spec().feature_count();
    Classifier model(features, data.spec().classes());
    Sgd sgd{model, 0.1F};
    lockstep::DistributedOptimizer optimizer(session, sgd);  // >>
    optimizer.broadcast_parameters();  // >> all ranks start with the same values

    const std::int64_t steps = 2 * data.steps_per_epoch();
    const auto stream =
        data.stream({.last_step = steps,
                     .replicas = session.world_size(),  // >> this rank's part of each batch
                     .first_replica = session.rank()});
    std::vector<lockstep::Batch> batch;
    for (std::int64_t step = 1; stream->next(batch); ++step) {
      const Eigen::Map<const Matrix> inputs(batch[0].features().data(), features, batch[0].samples);
      float loss = 0;  // a small last batch may leave a rank without samples
      if (batch[0].samples > 0)
        loss = model.backward(inputs, batch[0].labels()) * static_cast<float>(batch[0].samples);
      optimizer.backward_done(static_cast<double>(batch[0].samples));  // >>
      optimizer.step();                                                // was: sgd.step()
      session.workers().all_reduce(std::span(&loss, 1));               // >>
      if (session.is_chief() && step % data.steps_per_epoch() == 0)
        fmt::print("step {}: loss {:.5f} of {} samples\n", step, loss / optimizer.samples(),
                   optimizer.samples());
    }
  });
}
