#include "strategy/shard_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep::strategy {
namespace {

std::string row(std::string_view who, const data::WorkerShare& share) {
  return fmt::format("{:>7}  {:>6}  {:>12}  {:>9}\n", who, share.files > 0 ? std::to_string(share.files) : "-",
                     share.records, share.bytes > 0 ? bytes_text(share.bytes) : "-");
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value,
                                 value < 9.995   ? 2
                                 : value < 99.95 ? 1
                                                 : 0,
                                 kUnits[unit]);
}

std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records, std::int64_t bytes,
                        const std::vector<data::WorkerShare>& shares) {
  std::string table = fmt::format("shard policy {}: {} records", policy, records);
  if (files > 0) table += fmt::format(" of {} file{}, {}", files, files == 1 ? "" : "s", bytes_text(bytes));
  table += '\n';
  if (shares.size() <= 1) return table;
  table += fmt::format("{:>7}  {:>6}  {:>12}  {:>9}\n", "rank", "files", "records", "bytes");
  if (shares.size() <= kMostRanksShown) {
    for (std::size_t rank = 0; rank < shares.size(); ++rank) table += row(std::to_string(rank), shares[rank]);
    return table;
  }
  const auto extremes = [&](std::int64_t data::WorkerShare::*field) {
    const auto less = [field](const data::WorkerShare& a, const data::WorkerShare& b) { return a.*field < b.*field; };
    const auto [least, most] = std::ranges::minmax_element(shares, less);
    return std::pair((*least).*field, (*most).*field);
  };
  const auto [least_files, most_files] = extremes(&data::WorkerShare::files);
  const auto [least_records, most_records] = extremes(&data::WorkerShare::records);
  const auto [least_bytes, most_bytes] = extremes(&data::WorkerShare::bytes);
  return table + row("least", {least_files, least_records, least_bytes}) +
         row("most", {most_files, most_records, most_bytes});
}

}  // namespace lockstep::strategy
