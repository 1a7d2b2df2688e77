// Text tables with aligned columns.
#include "base/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "rlx/base.h"

namespace rlx {
namespace {

bool is_number(const std::string& cell) {
  return cell.empty() || cell == "-" || std::string_view("+-.0123456789").find(cell[0]) != std::string_view::npos;
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != headers_.size())
    throw UserError(fmt::format("[table] got {} cells, expected {}", cells.size(), headers_.size()));
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t c = 0; c < headers_.size(); ++c) {
    std::size_t width = count_characters(headers_[c]);
    bool numbers = !rows_.empty();
    for (auto& row : rows_) {
      width = std::max(width, count_characters(row[c]));
      numbers = numbers && is_number(row[c]);
    }
    widths.push_back(width);
    right.push_back(numbers);
  }

  std::string out;
  auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      std::string gap(widths[c] - count_characters(cells[c]), ' ');
      line += (c ? "  " : "") + (right[c] ? gap + cells[c] : cells[c] + gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line(headers_);
  std::vector<std::string> rule;
  for (std::size_t width : widths) rule.emplace_back(width, '-');
  add_line(rule);
  for (auto& row : rows_) add_line(row);
  return out;
}

}  // namespace rlx
