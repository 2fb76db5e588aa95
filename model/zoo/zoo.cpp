#include "model/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "device/error.h"
#include "model/suggestion.h"

namespace lockstep::zoo {
namespace {

using model::Network;
using model::Shape;

struct Recipe {
  std::string_view name;
  Network (*make)(Shape input, std::int64_t classes);
};

const std::array<Recipe, 9> kRecipes = {{
    {"linear", [](Shape input, std::int64_t classes) { return linear(std::move(input), classes); }},
    {"mlp", [](Shape input, std::int64_t classes) { return mlp(std::move(input), classes); }},
    {"cnn", [](Shape input, std::int64_t classes) { return cnn(std::move(input), classes); }},
    {"fast_cifar", [](Shape input, std::int64_t classes) { return fast_cifar(std::move(input), classes); }},
    {"resnet18", [](Shape input, std::int64_t classes) { return resnet18(std::move(input), classes); }},
    {"resnet34", [](Shape input, std::int64_t classes) { return resnet34(std::move(input), classes); }},
    {"resnet50", [](Shape input, std::int64_t classes) { return resnet50(std::move(input), classes); }},
    {"resnet101", [](Shape input, std::int64_t classes) { return resnet101(std::move(input), classes); }},
    {"resnet152", [](Shape input, std::int64_t classes) { return resnet152(std::move(input), classes); }},
}};

constexpr std::string_view kSizedMlp = "mlp:";

/// Of "mlp:10,10".
std::vector<std::int64_t> hidden_sizes(std::string_view name) {
  std::vector<std::int64_t> sizes;
  const char* const end = name.data() + name.size();
  for (const char* begin = name.data() + kSizedMlp.size();; ++begin) {
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(begin, end, size);
    const bool ends_here = stop == end || *stop == ',';
    if (error != std::errc() || !ends_here || size < 1)
      throw Error(ErrorCategory::input, "model", "needed the sizes of hidden layers, such as mlp:128,128",
                  fmt::format("got \"{}\"", name));
    sizes.push_back(size);
    if (stop == end) return sizes;
    begin = stop;
  }
}

}  // namespace

std::vector<std::string_view> names() {
  std::vector<std::string_view> result;
  for (const Recipe& recipe : kRecipes) result.push_back(recipe.name);
  return result;
}

Network make(std::string_view name, Shape input, std::int64_t classes) {
  if (name.starts_with(kSizedMlp)) return mlp(std::move(input), classes, hidden_sizes(name));
  const auto* const recipe = std::ranges::find(kRecipes, name, &Recipe::name);
  if (recipe != kRecipes.end()) return recipe->make(std::move(input), classes);
  const std::vector<std::string_view> known = names();
  throw Error(ErrorCategory::input, "model", fmt::format("needed one of {}, or a FILE.json", model::list_names(known)),
              model::got_name(name, known));
}

}  // namespace lockstep::zoo
