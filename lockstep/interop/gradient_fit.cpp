#include "lockstep/interop/gradient_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace lockstep::inline v0::interop {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Solves the symmetric `matrix` x = `right` by elimination; unknowns without information are 0.
std::vector<double> solve(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const std::size_t size = right.size();
  double largest = 0;
  for (std::size_t i = 0; i < size; ++i) largest = std::max(largest, matrix[i][i]);
  std::vector<double> solution(size);
  std::vector<bool> is_known(size);
  for (std::size_t i = 0; i < size; ++i) {
    is_known[i] = matrix[i][i] > 1e-12 * largest;
    if (!is_known[i]) continue;
    for (std::size_t row = i + 1; row < size; ++row) {
      const double factor = matrix[row][i] / matrix[i][i];
      for (std::size_t column = i; column < size; ++column)
        matrix[row][column] -= factor * matrix[i][column];
      right[row] -= factor * right[i];
    }
  }
  for (std::size_t i = size; i-- > 0;) {
    if (!is_known[i]) continue;
    double rest = right[i];
    for (std::size_t column = i + 1; column < size; ++column)
      rest -= matrix[i][column] * solution[column];
    solution[i] = rest / matrix[i][i];
  }
  return solution;
}

/// The lines of an array: its rows, or its columns.
struct Lines {
  std::size_t count;
  std::size_t length;
  std::size_t next_line;     // distance in elements
  std::size_t next_element;  // distance in elements
};

/// Whether values and gradient are orthogonal in each line that has a gradient.
bool are_orthogonal(std::span<const double> values, std::span<const double> gradient,
                    const Lines& lines) {
  constexpr double kOrthogonal = 1e-3;  // the small constant in the variance spoils it a little
  constexpr double kZero = 1e-3;        // share of the whole gradient: no information
  const double whole = std::sqrt(dot(gradient, gradient));
  std::size_t seen = 0;
  for (std::size_t line = 0; line < lines.count; ++line) {
    double product = 0;
    double value_squares = 0;
    double gradient_squares = 0;
    for (std::size_t i = 0; i < lines.length; ++i) {
      const std::size_t at = line * lines.next_line + i * lines.next_element;
      product += values[at] * gradient[at];
      value_squares += values[at] * values[at];
      gradient_squares += gradient[at] * gradient[at];
    }
    const double scale = std::sqrt(value_squares * gradient_squares);
    if (std::sqrt(gradient_squares) <= kZero * whole || scale == 0) continue;
    if (std::abs(product) > kOrthogonal * scale) return false;
    ++seen;
  }
  return seen > 0 && seen * lines.length >= 4;
}

}  // namespace

std::optional<double> factor_between(std::span<const double> expected,
                                     std::span<const double> actual, double tolerance) {
  if (expected.size() != actual.size()) return std::nullopt;
  const double squares = dot(expected, expected);
  if (squares == 0) return std::nullopt;
  const double factor = dot(actual, expected) / squares;
  double rest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = actual[i] - factor * expected[i];
    rest += difference * difference;
  }
  if (!(std::sqrt(rest) <= tolerance * std::abs(factor) * std::sqrt(squares))) return std::nullopt;
  return factor;
}

// The gradients of the ranks are broadcast one by one: memory for one more gradient.
std::optional<std::vector<double>> weights_of(job::Workers& ranks, const std::vector<double>& own,
                                              const std::vector<double>& expected,
                                              double tolerance) {
  std::vector<double> products;  // own gradient times those of all ranks and `expected`
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::vector<double> other(expected.size());
    if (rank == ranks.rank() && own.size() == other.size()) other = own;
    ranks.broadcast(std::span(other), rank);
    products.push_back(own.size() == other.size() ? dot(own, other) : 0);
  }
  products.push_back(own.size() == expected.size() ? dot(own, expected) : 0);
  std::vector<std::vector<double>> matrix = ranks.all_gather(std::span<const double>(products));
  std::vector<double> right;
  for (std::vector<double>& row : matrix) {
    right.push_back(row.back());
    row.pop_back();
  }
  std::vector<double> weights = solve(matrix, right);
  // |e - sum|^2 = e e - 2 w r + w M w.
  double rest = dot(expected, expected) - 2 * dot(weights, right);
  for (std::size_t i = 0; i < weights.size(); ++i) rest += weights[i] * dot(matrix[i], weights);
  if (expected.size() <= weights.size()) return std::nullopt;  // any numbers would fit
  if (!(rest <= tolerance * tolerance * dot(expected, expected))) return std::nullopt;
  return weights;
}

bool is_scale_invariant(std::span<const job::ObservedParameter> parameters,
                        const ParameterNumbers& values, const ParameterNumbers& gradient) {
  for (std::size_t i = 0; i < std::min(values.arrays.size(), gradient.arrays.size()); ++i) {
    const std::vector<double>& numbers = values.arrays[i];
    const std::vector<double>& slope = gradient.arrays[i];
    if (numbers.size() != slope.size() || numbers.size() < 4) continue;
    const std::vector<std::int64_t>& shape = parameters[i].shape;
    const auto size = numbers.size();
    if (shape.size() < 2 || shape.front() <= 0 || shape.back() <= 0) {
      if (are_orthogonal(numbers, slope, {1, size, size, 1})) return true;
      continue;
    }
    const auto rows = static_cast<std::size_t>(shape.front());
    const auto columns = static_cast<std::size_t>(shape.back());
    if (are_orthogonal(numbers, slope, {rows, size / rows, size / rows, 1}) ||
        are_orthogonal(numbers, slope, {columns, size / columns, 1, columns}))
      return true;
  }
  return false;
}

}  // namespace lockstep::inline v0::interop
