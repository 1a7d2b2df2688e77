// What an error says.
#pragma once
#include <string>
#include <utility>

#include "rlx/base.h"

namespace rlx {

/// The message of the error of kind E that `f` throws; `no error` where it throws none. Errors of another kind pass.
template <class E = UserError, class F>
std::string message_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace rlx
