#include "apps/lockstep/evaluate/predicted_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

/// exp(x) / sum of exp(x), computed without overflow.
std::vector<double> softmax(std::vector<double> values) {
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

/// A number as JSON; one that is not finite is null.
template <typename Number>
std::string json_number(Number value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

template <typename Number>
std::string json_list(const std::vector<Number>& values) {
  std::string list;
  for (const Number value : values) list += (list.empty() ? "" : ",") + json_number(value);
  return '[' + list + ']';
}

/// Unnamed columns are numbered.
bool is_column_name(const std::string& text) {
  return text.find_first_not_of("0123456789") != std::string::npos;
}

data::FloatList float_list(const std::vector<double>& values) {
  data::FloatList list;
  for (const double value : values) list.push_back(static_cast<float>(value));
  return list;
}

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string json_string(const std::string& text) { return dump_json(nlohmann::json(text)); }

PredictedOutput::PredictedOutput(const model::Network& network, std::size_t index,
                                 const model::Loss& loss, const train::DataNames& names)
    : name_(network.outputs()[index].name),
      index_(index),
      width_(model::row_width(loss, network.shape(network.outputs()[index].node))),
      positions_(model::element_count(network.shape(network.outputs()[index].node)) / width_),
      loss_(loss),
      classes_(model::class_count(loss, width_)),
      activation_(model::activation_of(loss)),
      is_activated_(!activation_.empty() &&
                    model::final_activation(network, network.outputs()[index].node) == activation_),
      targets_(names.targets) {
  if (activation_ == "sigmoid" && !targets_.empty()) classes_ = 0;  // a target, not a class
  if (static_cast<std::int64_t>(names.classes.size()) == classes_) names_ = names.classes;
}

PredictedRow PredictedOutput::row(std::span<const float> outputs,
                                  const PredictionStyle& style) const {
  if (!has_positions()) return row_of_position(outputs, style);
  PredictedRow all;
  const auto width = static_cast<std::size_t>(width_);
  for (; !outputs.empty(); outputs = outputs.subspan(width)) {
    const PredictedRow one = row_of_position(outputs.first(width), style);
    all.ranked.push_back(one.ranked.front());
    all.probabilities.push_back(one.probability());
  }
  return all;
}

PredictedRow PredictedOutput::row_of_position(std::span<const float> outputs,
                                              const PredictionStyle& style) const {
  PredictedRow row{.outputs = {outputs.begin(), outputs.end()}};
  std::vector<double> scores(outputs.begin(), outputs.end());
  if (classes_ == 0) {
    if (activation_ == "sigmoid")
      for (const double score : scores)
        row.probabilities.push_back(is_activated_ ? score : 1 / (1 + std::exp(-score)));
    return row;
  }
  // A single output represents two classes.
  if (scores.size() == 1) scores.insert(scores.begin(), is_activated_ ? 1 - scores.front() : 0);
  row.probabilities = is_activated_ ? scores : softmax(scores);
  row.ranked.resize(scores.size());
  std::iota(row.ranked.begin(), row.ranked.end(), 0);
  const std::int64_t top = std::min(style.top, classes_);
  if (top > 1)
    std::ranges::stable_sort(row.ranked, [&](std::int64_t a, std::int64_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
  else
    row.ranked.front() = std::ranges::max_element(scores) - scores.begin();
  row.ranked.resize(static_cast<std::size_t>(std::max<std::int64_t>(top, 1)));
  return row;
}

std::vector<std::string> PredictedOutput::classes_of(const PredictedRow& row) const {
  std::vector<std::string> texts;
  for (const std::int64_t number : row.ranked) texts.push_back(class_text(number));
  return texts;
}

std::string PredictedOutput::class_text(std::int64_t number) const {
  return names_.empty() ? std::to_string(number) : names_[static_cast<std::size_t>(number)];
}

std::string_view PredictedOutput::column_name(const PredictionStyle& style) const {
  if (activation_.empty()) return "output";
  return style.logits && has_logits() ? "logit" : "probability";
}

std::string PredictedOutput::header(const std::string& prefix, const PredictionStyle& style) const {
  const auto column = [&](const std::string& name) { return "," + csv_field(prefix + name); };
  std::string names;
  if (classes_ > 0) names += column("predicted");
  if (classes_ > 0 && style.top > 0) {
    for (std::int64_t i = 1; i <= std::min(style.top, classes_); ++i)
      names += column(fmt::format("top_{}", i)) + column(fmt::format("top_{}_probability", i));
    return names;
  }
  const bool are_classes = classes_ > 0 && !(style.logits && has_logits());
  for (std::int64_t i = 0; i < (are_classes ? classes_ : width_); ++i) {
    const auto target = static_cast<std::size_t>(i);
    if (classes_ == 0 && target < targets_.size() && is_column_name(targets_[target]))
      names += column(targets_[target]);
    else
      names += column(fmt::format("{}_{}", column_name(style), i));
  }
  return names;
}

std::string PredictedOutput::fields(const PredictedRow& row, const PredictionStyle& style) const {
  std::string line;
  if (classes_ > 0) line += fmt::format(",{}", row.ranked.front());
  if (classes_ > 0 && style.top > 0) {
    for (const std::int64_t number : row.ranked)
      line += fmt::format(",{},{:.9g}", csv_field(class_text(number)),
                          row.probabilities[static_cast<std::size_t>(number)]);
  } else if ((style.logits && !is_activated_) || row.probabilities.empty()) {
    line += fmt::format(",{:.9g}", fmt::join(row.outputs, ","));
  } else {
    line += fmt::format(",{:.9g}", fmt::join(row.probabilities, ","));
  }
  return line;
}

std::string PredictedOutput::members(const PredictedRow& row, const PredictionStyle& style) const {
  if (has_positions()) {
    const std::string classes =
        names_.empty() ? "" : ",\"class\":" + dump_json(nlohmann::json(classes_of(row)));
    return fmt::format("\"predicted\":[{}],\"probability\":{}{}", fmt::join(row.ranked, ","),
                       json_list(row.probabilities), classes);
  }
  std::string text;
  if (classes_ > 0)
    text += fmt::format("\"predicted\":{},\"probability\":{},", row.ranked.front(),
                        json_number(row.probability()));
  if (classes_ > 0 && style.top > 0) {
    std::string list;
    for (const std::int64_t number : row.ranked)
      list += fmt::format("{}{{\"class\":{},\"probability\":{}}}", list.empty() ? "" : ",",
                          names_.empty() ? class_text(number) : json_string(class_text(number)),
                          json_number(row.probabilities[static_cast<std::size_t>(number)]));
    return text + fmt::format("\"top\":[{}]", list);
  }
  if (row.probabilities.empty()) return text + "\"outputs\":" + json_list(row.outputs);
  text += "\"probabilities\":" + json_list(row.probabilities);
  if (has_logits()) text += ",\"logits\":" + json_list(row.outputs);
  return text;
}

void PredictedOutput::add_features(const PredictedRow& row, const std::string& prefix,
                                   const PredictionStyle& style, data::Example& example) const {
  if (has_positions()) {
    example[prefix + "predicted"] = row.ranked;
    example[prefix + "probability"] = float_list(row.probabilities);
    if (!names_.empty()) example[prefix + "class"] = classes_of(row);
    return;
  }
  if (classes_ > 0) {
    example[prefix + "predicted"] = data::Int64List{row.ranked.front()};
    example[prefix + "probability"] = float_list({row.probability()});
  }
  if (classes_ > 0 && style.top > 0) {
    std::vector<double> top;
    for (const std::int64_t number : row.ranked)
      top.push_back(row.probabilities[static_cast<std::size_t>(number)]);
    example[prefix + "top"] = row.ranked;
    example[prefix + "top_probability"] = float_list(top);
  } else {
    const bool as_they_are = (style.logits && !is_activated_) || row.probabilities.empty();
    example[prefix + "outputs"] = as_they_are ? row.outputs : float_list(row.probabilities);
  }
  if (has_class_names()) example[prefix + "class"] = data::BytesList{predicted_class(row)};
}

std::vector<PredictedOutput> predicted_outputs(const model::Network& network,
                                               const model::Loss& loss,
                                               std::span<const strategy::OutputLoss> losses,
                                               const train::DataNames& names,
                                               std::string_view selected) {
  std::vector<PredictedOutput> all;
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < network.outputs().size(); ++i) {
    const std::string& name = network.outputs()[i].name;
    known.push_back(name);
    const auto own = std::ranges::find(losses, name, &strategy::OutputLoss::output);
    if (own != losses.end()) {
      const bool has_names =
          losses.size() == 1 || (!names.target.empty() && own->target == names.target);
      all.emplace_back(network, i, own->loss, has_names ? names : train::DataNames{});
    } else if (losses.empty() && i == 0) {
      all.emplace_back(network, i, loss, names);
    } else {
      all.emplace_back(network, i, model::MeanSquaredError(), train::DataNames{});
    }
  }
  if (selected.empty()) return all;
  std::vector<PredictedOutput> chosen;
  for (const std::string& name : split_specs("select", selected)) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end())
      throw Error(
          ErrorCategory::input, "select",
          fmt::format("expected outputs of model {}: {}", network.name(), list_names(known)),
          got_name(name, known));
    if (std::ranges::find(chosen, name, &PredictedOutput::name) != chosen.end())
      throw Error(ErrorCategory::input, "select", "expected each output once",
                  fmt::format("got {} twice", name));
    chosen.push_back(all[static_cast<std::size_t>(found - known.begin())]);
  }
  return chosen;
}

}  // namespace lockstep::inline v0::apps
