#include "lockstep/model/tensor/parameters.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <xxhash.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>
#include <numeric>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {
namespace {

using Block = std::array<float, 4>;
using Words = std::array<std::uint32_t, 4>;

constexpr auto kInitializers =
    enum_names<Initializer::Kind>({{Initializer::Kind::glorot_uniform, "glorot_uniform"},
                                   {Initializer::Kind::he_normal, "he_normal"},
                                   {Initializer::Kind::he_uniform, "he_uniform"},
                                   {Initializer::Kind::constant, "zeros"}});

Block uniform(const Words& words, float limit) {
  Block values;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = limit * (2 * to_unit_float(words[i]) - 1);
  return values;
}

// Two pairs of normal numbers (Box and Muller, Annals of Mathematical Statistics 1958). Computed in
// double, so that a last-bit difference between math libraries is rounded away.
Block normal(const Words& words, double deviation) {
  Block values;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double above_zero = 1.0 - to_unit_float(words[i]);
    const double radius = deviation * std::sqrt(-2.0 * std::log(above_zero));
    const double angle = 2.0 * std::numbers::pi * to_unit_float(words[i + 1]);
    values[i] = static_cast<float>(radius * std::cos(angle));
    values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

// Block b of the parameter's stream yields elements 4b .. 4b+3.
template <typename Draw>
void fill(std::uint64_t seed, std::string_view name, std::span<float> values, Draw draw) {
  const Philox generator(random_key(seed, name));
  for (std::size_t begin = 0; begin < values.size(); begin += 4) {
    const Block block = draw(generator.block(0, begin / 4));
    std::copy_n(block.begin(), std::min<std::size_t>(4, values.size() - begin),
                values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

// The columns of a matrix of independent normal numbers, each minus its projections on those before
// it (modified Gram-Schmidt): uniformly distributed. Computed in double, as in normal().
void make_columns_orthogonal(std::span<float> values, std::size_t columns) {
  const std::size_t rows = values.size() / columns;
  LOCKSTEP_CHECK_OP(rows, >=, columns);
  std::vector<double> matrix(values.begin(), values.end());
  std::vector<double> products(columns);  // products of column k with columns k, k + 1, …
  for (std::size_t k = 0; k < columns; ++k) {
    std::ranges::fill(products, 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      const double* const row = matrix.data() + r * columns;
      for (std::size_t j = k; j < columns; ++j) products[j] += row[k] * row[j];
    }
    const double scale = 1 / std::sqrt(products[k]);
    for (std::size_t r = 0; r < rows; ++r) {
      double* const row = matrix.data() + r * columns;
      const double unit = row[k] *= scale;
      for (std::size_t j = k + 1; j < columns; ++j) row[j] -= unit * (products[j] * scale);
    }
  }
  std::ranges::transform(matrix, values.begin(), [](double x) { return static_cast<float>(x); });
}

double checked_fan(std::int64_t fan) {
  LOCKSTEP_CHECK_OP(fan, >, 0);
  return static_cast<double>(fan);
}

}  // namespace

void initialize(const Initializer& initializer, std::uint64_t seed, std::string_view name,
                std::span<float> values) {
  if (initializer.draw) return initializer.draw(seed, values);
  const auto fill_uniform = [&](double limit) {
    fill(seed, name, values,
         [limit](const Words& words) { return uniform(words, static_cast<float>(limit)); });
  };
  const auto fill_normal = [&](double deviation) {
    fill(seed, name, values, [deviation](const Words& words) { return normal(words, deviation); });
  };
  switch (initializer.kind) {
    case Initializer::Kind::constant:
      std::ranges::fill(values, initializer.value);
      return;
    case Initializer::Kind::glorot_uniform:
      return fill_uniform(
          std::sqrt(6.0 / (checked_fan(initializer.fan_in) + checked_fan(initializer.fan_out))));
    case Initializer::Kind::uniform:
      return fill_uniform(static_cast<double>(initializer.value));
    case Initializer::Kind::he_uniform:
      return fill_uniform(std::sqrt(6.0 / checked_fan(initializer.fan_in)));
    case Initializer::Kind::he_normal:
      return fill_normal(std::sqrt(2.0 / checked_fan(initializer.fan_in)));
    case Initializer::Kind::normal:
      return fill_normal(static_cast<double>(initializer.value));
    case Initializer::Kind::orthogonal:
      fill_normal(1);
      return make_columns_orthogonal(values,
                                     static_cast<std::size_t>(checked_fan(initializer.fan_in)));
  }
}

Initializer::Kind parse_initializer(std::string_view name) {
  return kInitializers.parse("initializer", name);
}

std::string_view to_string(Initializer::Kind kind) { return kInitializers.name(kind); }

ParameterTable::ParameterTable(std::vector<ParameterInfo> parameters)
    : entries_(std::move(parameters)) {
  constexpr std::size_t kAlignment = 16;  // elements: one cache line of float32
  for (ParameterInfo& entry : entries_) {
    entry.offset = flat_size_;
    entry.count = static_cast<std::size_t>(model::element_count(entry.shape));
    element_count_ += entry.count;
    constexpr std::size_t kMaxElements = std::size_t{1}
                                         << 58;  // sums and byte counts cannot overflow
    if (entry.count > kMaxElements || element_count_ > kMaxElements)
      throw Error(ErrorCategory::input, entry.name,
                  fmt::format("expected at most {} parameters", kMaxElements),
                  fmt::format("got more with shape {}", to_string(entry.shape)));
    flat_size_ += (entry.count + kAlignment - 1) / kAlignment * kAlignment;
  }
}

std::vector<std::size_t> ParameterTable::indices_by_name() const {
  std::vector<std::size_t> indices(entries_.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::ranges::sort(indices, {},
                    [this](std::size_t i) -> const std::string& { return entries_[i].name; });
  return indices;
}

const ParameterInfo* ParameterTable::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &ParameterInfo::name);
  return found == entries_.end() ? nullptr : &*found;
}

std::vector<std::size_t> ParameterTable::matching(std::string_view where,
                                                  const std::string& pattern) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (fnmatch(pattern.c_str(), entries_[i].name.c_str(), 0) == 0) found.push_back(i);
  if (!found.empty()) return found;
  const std::vector<std::string_view> names = [&] {
    std::vector<std::string_view> all;
    for (const ParameterInfo& entry : entries_) all.push_back(entry.name);
    return all;
  }();
  constexpr std::size_t kNamesListed = 8;
  const auto listed = std::span(names).first(std::min(names.size(), kNamesListed));
  throw Error(ErrorCategory::input, where,
              fmt::format("expected a pattern of parameter names, which are {}{}",
                          list_names(listed), listed.size() < names.size() ? ", …" : ""),
              got_name(pattern, names));
}

std::uint64_t ParameterTable::hash(std::span<const float> flat) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const std::size_t i : indices_by_name()) {
    const auto bytes = std::as_bytes(slice(flat, entries_[i]));
    XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace lockstep::inline v0::model
