// The wrapper for a network and an optimizer in Eigen.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <array>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/interop/distributed_loop.h"
#include "tests/interop/rank_threads.h"

namespace lockstep::inline v0::interop {
namespace {

using Matrix = Eigen::MatrixXf;

struct EigenArray {
  std::string name;
  Matrix values;
  Matrix gradient = Matrix::Zero(values.rows(), values.cols());
};

/// y = v tanh(W x + b) with mean squared error.
class EigenNetwork {
 public:
  explicit EigenNetwork(unsigned seed = 1)
      : arrays{{{"hidden/weights", random(own::kHidden, own::kInputs, seed)},
                {"hidden/bias", random(own::kHidden, 1, seed + 1)},
                {"output/weights", random(own::kHidden, 1, seed + 2)}}} {}

  void zero_grad() {
    for (EigenArray& array : arrays) array.gradient.setZero();
  }

  /// Computes gradients for samples [begin, end).
  void backward(const own::Samples& samples, std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const auto count = static_cast<Eigen::Index>(end - begin);
    const auto features = static_cast<Eigen::Index>(own::kInputs);
    const Eigen::Map<const Matrix> x(samples.inputs.data() + begin * own::kInputs, features, count);
    const Eigen::Map<const Eigen::RowVectorXf> targets(samples.targets.data() + begin, count);
    auto& [weights, bias, output] = arrays;
    const Matrix hidden = ((weights.values * x).colwise() + bias.values.col(0)).array().tanh();
    const Eigen::RowVectorXf errors = output.values.col(0).transpose() * hidden - targets;
    const Eigen::RowVectorXf d = errors * (2.0F / static_cast<float>(count));
    const Matrix inner = ((output.values * d).array() * (1 - hidden.array().square())).matrix();
    output.gradient += hidden * d.transpose();
    weights.gradient += inner * x.transpose();
    bias.gradient += inner.rowwise().sum();
  }

  std::vector<float> all_values() const {
    std::vector<float> all;
    for (const EigenArray& array : arrays)
      all.insert(all.end(), array.values.data(), array.values.data() + array.values.size());
    return all;
  }

  std::array<EigenArray, 3> arrays;

 private:
  static Matrix random(std::size_t rows, std::size_t columns, unsigned seed) {
    std::mt19937 numbers(seed);
    std::uniform_real_distribution<float> uniform(-0.5F, 0.5F);
    return Matrix::NullaryExpr(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns),
                               [&] { return uniform(numbers); });
  }
};

/// Gradient descent with Nesterov's momentum.
class Nesterov {
 public:
  explicit Nesterov(EigenNetwork& network) : network_(network) {
    for (const EigenArray& array : network.arrays)
      velocities_.push_back(Matrix::Zero(array.values.rows(), array.values.cols()));
  }

  std::vector<Parameter> parameters() {
    const auto span = [](Matrix& matrix) {
      return std::span(matrix.data(), static_cast<std::size_t>(matrix.size()));
    };
    std::vector<Parameter> parameters;
    for (EigenArray& array : network_.arrays)
      parameters.push_back({array.name, span(array.values), span(array.gradient)});
    return parameters;
  }
  void zero_grad() { network_.zero_grad(); }
  void step() {
    for (std::size_t i = 0; i < velocities_.size(); ++i) {
      EigenArray& array = network_.arrays[i];
      velocities_[i] = 0.9F * velocities_[i] + array.gradient;
      array.values -= 0.05F * (array.gradient + 0.9F * velocities_[i]);
    }
  }

 private:
  EigenNetwork& network_;
  std::vector<Matrix> velocities_;
};

class EigenEquivalence : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EigenEquivalence, AnyRanksAndPassesEqualOneProcess) {
  const auto [ranks, passes] = GetParam();
  const std::vector<float> alone = own::train_alone<EigenNetwork, Nesterov>();
  run_ranks(ranks, [&, passes = passes](job::Workers& workers) {
    const auto ours = own::train_as_rank<EigenNetwork, Nesterov>(
        workers, {.backward_passes_per_step = passes}, static_cast<unsigned>(1 + workers.rank()));
    EXPECT_LT(own::relative_difference(alone, ours), 1e-6) << "rank " << workers.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, EigenEquivalence,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(1, 2, 4, 7)),
                         [](const auto& param_info) {
                           return std::to_string(std::get<0>(param_info.param)) + "_ranks_" +
                                  std::to_string(std::get<1>(param_info.param)) + "_passes";
                         });

}  // namespace
}  // namespace lockstep::inline v0::interop
