// Folds reductions and matrix products of constants.
#include <algorithm>
#include <cmath>

#include "lockstep/onnx/import/folding.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;

/// after(before(a) join before(b) …, number of elements).
struct Reduction {
  std::string_view type;
  std::string_view join;     ///< a binary_function() and integer_function()
  double (*before)(double);  ///< null: identity
  double (*after)(double, double);
};
constexpr Reduction kReductions[] = {
    {"ReduceL1", "Add", [](double x) { return std::abs(x); }, nullptr},
    {"ReduceL2", "Add", [](double x) { return x * x; },
     [](double sum, double /*count*/) { return std::sqrt(sum); }},
    {"ReduceMax", "Max", nullptr, nullptr},
    {"ReduceMean", "Add", nullptr, [](double sum, double count) { return sum / count; }},
    {"ReduceMin", "Min", nullptr, nullptr},
    {"ReduceProd", "Mul", nullptr, nullptr},
    {"ReduceSum", "Add", nullptr, nullptr},
    {"ReduceSumSquare", "Add", [](double x) { return x * x; }, nullptr},
};

/// The axes of a reduction, from an attribute or, in later versions, an input; all by default.
std::optional<std::vector<bool>> reduced_axes(const Folding& f, std::size_t rank) {
  const auto axes = f.integers(1, "axes");
  if (f.input(1) != nullptr && !axes) return std::nullopt;
  const bool is_listed = axes && !axes->empty();
  const bool reduces_all = !is_listed && f.options.integer("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(rank, reduces_all);
  if (is_listed)
    for (const std::int64_t one : *axes) {
      const auto axis = axis_of(one, rank);
      if (!axis) return std::nullopt;
      reduced[*axis] = true;
    }
  return reduced;
}

Folded reduce(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr || input->has_batch()) return std::nullopt;
  const auto* const row = std::ranges::find(kReductions, f.node.type, &Reduction::type);
  const std::size_t rank = input->shape.size();
  const auto reduced = reduced_axes(f, rank);
  if (!reduced) return std::nullopt;
  Shape kept;    // with extents of 1
  Shape result;  // shape of the output
  const bool keeps = f.options.integer("keepdims", 1) != 0;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    kept.push_back((*reduced)[axis] ? 1 : input->shape[axis]);
    if (!(*reduced)[axis] || keeps) result.push_back(kept.back());
  }
  std::vector<std::ptrdiff_t> steps;
  const std::vector<std::size_t> strides = strides_of(kept);
  for (std::size_t axis = 0; axis < rank; ++axis)
    steps.push_back((*reduced)[axis] ? 0 : static_cast<std::ptrdiff_t>(strides[axis]));
  f.spend(input->shape);
  f.spend(kept);
  const std::vector<std::size_t> targets = element_offsets(input->shape, 0, steps);
  const std::size_t outputs = size_of(kept);
  // An empty sum is 0, an empty product 1; an empty maximum does not exist.
  const bool has_start = row->join == "Add" || row->join == "Mul";
  if (targets.empty() && (!has_start || row->after != nullptr)) return std::nullopt;
  const double start = row->join == "Mul" ? 1 : 0;
  std::vector<bool> begun(outputs, has_start);
  if (const auto* const values = input->floats()) {
    const BinaryFunction join = binary_function(row->join);
    std::vector<double> sums(outputs, start);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      auto value = static_cast<double>((*values)[i]);
      if (row->before != nullptr) value = row->before(value);
      sums[targets[i]] = begun[targets[i]] ? join(sums[targets[i]], value) : value;
      begun[targets[i]] = true;
    }
    std::vector<float> floats;
    const double count = outputs == 0 ? 0 : static_cast<double>(targets.size() / outputs);
    for (const double sum : sums)
      floats.push_back(static_cast<float>(row->after != nullptr ? row->after(sum, count) : sum));
    return make_constant(result, std::move(floats));
  }
  if (row->before != nullptr || row->after != nullptr) return std::nullopt;
  std::vector<std::int64_t> sums(outputs, static_cast<std::int64_t>(start));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    std::int64_t& sum = sums[targets[i]];
    const std::int64_t value = (*input->integers())[i];
    const auto joined = begun[targets[i]] ? integer_function(row->join, sum, value) : value;
    if (!joined) return std::nullopt;
    sum = *joined;
    begun[targets[i]] = true;
  }
  return make_constant(result, std::move(sums));
}

Folded cumulative_sum(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const axes = f.integers(1);
  if (input == nullptr || input->has_batch() || axes == nullptr || axes->size() != 1 ||
      f.options.integer("exclusive", 0) != 0 || f.options.integer("reverse", 0) != 0)
    return std::nullopt;
  const auto axis = axis_of(axes->front(), input->shape.size());
  if (!axis) return std::nullopt;
  f.spend(input->shape);
  const std::size_t step = strides_of(input->shape)[*axis];
  const auto extent = static_cast<std::size_t>(input->shape[*axis]);
  return visit_values(*input, [&](const auto& values) -> Folded {
    auto sums = values;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (i / step % extent == 0) continue;
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(sums.front())>, float>) {
        sums[i] += sums[i - step];
      } else {
        const auto sum = integer_function("Add", sums[i - step], sums[i]);
        if (!sum) return std::nullopt;
        sums[i] = *sum;
      }
    }
    return make_constant(input->shape, std::move(sums));
  });
}

Folded softmax(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr || input->floats() == nullptr || input->has_batch()) return std::nullopt;
  const std::size_t rank = input->shape.size();
  const auto axis = axis_of(f.options.integer("axis", f.opset < 13 ? 1 : -1), rank);
  // Until version 13 it was over all axes from this one on.
  if (!axis || (f.opset < 13 && *axis + 1 != rank)) return std::nullopt;
  f.spend(input->shape);
  const std::size_t step = strides_of(input->shape)[*axis];
  const auto extent = static_cast<std::size_t>(input->shape[*axis]);
  std::vector<float> values = *input->floats();
  for (std::size_t first = 0; first < values.size(); ++first) {
    if (first / step % extent != 0) continue;
    const auto at = [&](std::size_t k) -> float& { return values[first + k * step]; };
    float largest = at(0);
    for (std::size_t k = 1; k < extent; ++k) largest = std::max(largest, at(k));
    double sum = 0;
    for (std::size_t k = 0; k < extent; ++k)
      sum += std::exp(static_cast<double>(at(k)) - static_cast<double>(largest));
    for (std::size_t k = 0; k < extent; ++k)
      at(k) = static_cast<float>(
          std::exp(static_cast<double>(at(k)) - static_cast<double>(largest)) / sum);
  }
  return make_constant(input->shape, std::move(values));
}

// ---- Products of matrices

/// [.., rows, columns] with the last two axes swapped.
Constant swapped(const Folding& f, const Constant& matrix) {
  std::vector<std::size_t> strides = strides_of(matrix.shape);
  Shape shape = matrix.shape;
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  f.spend(shape);
  return gathered(
      matrix, shape,
      element_offsets(shape, 0, std::vector<std::ptrdiff_t>(strides.begin(), strides.end())));
}

Shape with_matrix(Shape batch, std::int64_t rows, std::int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

/// a [.., n, k] times b [.., k, m], whose leading axes broadcast.
Folded product_of(const Folding& f, const Constant& a, const Constant& b) {
  const auto first_axes = [](const Constant& matrix) {
    return reshaped(matrix, Shape(matrix.shape.begin(), matrix.shape.end() - 2));
  };
  if (a.floats() == nullptr || b.floats() == nullptr || a.has_batch() || b.has_batch() ||
      a.shape.size() < 2 || b.shape.size() < 2 || a.shape.back() != b.shape[b.shape.size() - 2])
    return std::nullopt;
  const auto batch = common_shape(first_axes(a), first_axes(b));
  if (!batch) return std::nullopt;
  const std::int64_t n = a.shape[a.shape.size() - 2];
  const std::int64_t k = a.shape.back();
  const std::int64_t m = b.shape.back();
  const Folded left = expanded(f, a, with_matrix(*batch, n, k));
  const Folded right = expanded(f, b, with_matrix(*batch, k, m));
  if (!left || !right) return std::nullopt;
  const Shape shape = with_matrix(*batch, n, m);
  std::vector<float> values(f.spend(shape));
  // Bounds the time of products.
  constexpr std::size_t kProductsOfAnElement = 128;
  f.spend(values.size() / kProductsOfAnElement * static_cast<std::size_t>(k));
  const auto rows = static_cast<std::size_t>(n);
  const auto columns = static_cast<std::size_t>(m);
  const auto inner = static_cast<std::size_t>(k);
  for (std::size_t row = 0; columns > 0 && row < values.size() / columns; ++row)
    for (std::size_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::size_t i = 0; i < inner; ++i)
        sum += static_cast<double>((*left->floats())[row * inner + i]) *
               static_cast<double>((*right->floats())[(row / rows * inner + i) * columns + column]);
      values[row * columns + column] = static_cast<float>(sum);
    }
  return make_constant(shape, std::move(values));
}

/// A vector is a matrix of one row or column, whose axis is removed from the result.
Folded product(const Folding& f) {
  const Constant* const a = f.input(0);
  const Constant* const b = f.input(1);
  if (a == nullptr || b == nullptr || a->shape.empty() || b->shape.empty()) return std::nullopt;
  const bool is_row = a->shape.size() == 1;
  const bool is_column = b->shape.size() == 1;
  Folded result = product_of(f, is_row ? reshaped(*a, {1, a->shape[0]}) : *a,
                             is_column ? reshaped(*b, {b->shape[0], 1}) : *b);
  if (!result) return std::nullopt;
  if (is_column) result->shape.pop_back();
  if (is_row) result->shape.erase(result->shape.end() - (is_column ? 1 : 2));
  return result;
}

/// alpha * a * b + beta * c.
Folded general_product(const Folding& f) {
  const Constant* const a = f.input(0);
  const Constant* const b = f.input(1);
  const Constant* const c = f.input(2);
  if (a == nullptr || b == nullptr || a->shape.size() != 2 || b->shape.size() != 2 ||
      a->has_batch() || b->has_batch())
    return std::nullopt;
  const Folded result = product_of(f, f.options.integer("transA", 0) != 0 ? swapped(f, *a) : *a,
                                   f.options.integer("transB", 0) != 0 ? swapped(f, *b) : *b);
  const bool fits = result && c != nullptr && common_shape(*c, *result) == result->shape;
  const Folded added = fits ? expanded(f, *c, result->shape) : std::nullopt;
  if (!result || (c != nullptr && (!added || added->floats() == nullptr))) return std::nullopt;
  std::vector<float> values = *result->floats();
  const float alpha = f.options.number("alpha", 1);
  const float beta = f.options.number("beta", 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= alpha;
    if (added) values[i] += beta * (*added->floats())[i];
  }
  return make_constant(result->shape, std::move(values));
}

constexpr FoldRow kReductionRows[] = {
    {"CumSum", cumulative_sum}, {"Gemm", general_product},   {"MatMul", product},
    {"ReduceL1", reduce},       {"ReduceL2", reduce},        {"ReduceMax", reduce},
    {"ReduceMean", reduce},     {"ReduceMin", reduce},       {"ReduceProd", reduce},
    {"ReduceSum", reduce},      {"ReduceSumSquare", reduce}, {"Softmax", softmax},
};

}  // namespace

std::span<const FoldRow> folded_reductions() { return kReductionRows; }

}  // namespace lockstep::inline v0::onnx
