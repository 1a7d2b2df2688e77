// Text tables with aligned columns.
#pragma once
#include <string>
#include <vector>

namespace rlx {

/// Columns of numbers are set right, others left. A cell counts as a number by its first character: digit, sign or
/// point.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}
  /// Throws UserError where there are not as many cells as headers.
  void add_row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace rlx
