#include "lockstep/data/table/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::data {

bool TableWindow::agrees_with(const TableWindow& other) const {
  TableWindow adjusted = *this;
  adjusted.stride = other.stride;
  adjusted.series = other.series;  // names of columns are compared elsewhere
  return adjusted == other && series.empty() == other.series.empty();
}

std::string TableWindow::preparation() const {
  if (rows == 0) return "";
  return fmt::format(", windows of {}{}", counted(rows, "row"),
                     stride == 1 ? "" : fmt::format(" at every {} rows", stride));
}

WindowStarts::WindowStarts(std::span<const std::int64_t> ends, std::int64_t span,
                           std::int64_t stride)
    : stride_(stride) {
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    if (const std::int64_t rows = end - begin; rows >= span) {
      series_.push_back({size_, begin});
      size_ += (rows - span) / stride + 1;
    } else {
      ++skipped_;
    }
    begin = end;
  }
}

std::int64_t WindowStarts::row(std::int64_t window) const {
  const auto next = std::ranges::upper_bound(series_, window, {}, &Series::window);
  const Series& series = *(next - 1);
  return series.row + (window - series.window) * stride_;
}

}  // namespace lockstep::inline v0::data
