// What is written from the op table.
#pragma once
#include <string>

namespace rlx {

std::string ops_markdown();  // docs/ops.md
std::string ops_header();    // include/rlx/ops.h

}  // namespace rlx
