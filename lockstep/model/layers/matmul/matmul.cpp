#include "lockstep/model/layers/matmul/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape MatMul::build(BuildContext& context) const {
  if (context.inputs().size() != 2)
    context.refuse("expected two inputs", fmt::format("got {}", context.inputs().size()));
  const Shape& a = context.inputs()[0];
  const Shape& b = context.inputs()[1];
  const std::size_t rank = a.size();
  const bool have_matrices = rank >= 2 && b.size() == rank;
  const std::size_t inner = rank - (options_.transpose_b ? 1 : 2);
  if (!have_matrices || !std::equal(a.begin(), a.end() - 2, b.begin()) || a.back() != b[inner])
    context.refuse(options_.transpose_b ? "expected inputs [..., M, K] and [..., N, K]"
                                        : "expected inputs [..., M, K] and [..., K, N]",
                   fmt::format("got {} and {}", to_string(a), to_string(b)));
  Shape output = a;
  output.back() = options_.transpose_b ? b[rank - 2] : b.back();
  return context.within_limits(output);
}

MatMulSpec MatMul::spec(const CompileContext& context) const {
  const Shape& a = context.inputs.front();
  const std::int64_t rows = a[a.size() - 2];
  return {.products = context.batch * element_count(a) / rows / a.back(),
          .rows = rows,
          .inner = a.back(),
          .columns = context.output.back(),
          .transpose_b = options_.transpose_b,
          .training = context.training};
}

std::int64_t MatMul::flop(const CompileContext& context) const {
  const MatMulSpec products = spec(context);
  return 2 * products.products * products.rows * products.inner * products.columns;
}

std::shared_ptr<const Layer> MatMul::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const MatMul>(Options{.transpose_b = object.flag("transpose_b", false)});
}

void MatMul::write(nlohmann::json& object) const { object["transpose_b"] = options_.transpose_b; }

}  // namespace lockstep::inline v0::model
