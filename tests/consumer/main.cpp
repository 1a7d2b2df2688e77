// The smallest program that uses an installed RLX.
#include <rlx/array.h>

#include <cstdio>

int main() {
  rlx::Array x(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  std::printf("%s %s\n", rlx::to_string(x.type()).c_str(), rlx::to_string(rlx::Shape{rlx::Dim::symbol("batch"), 3}).c_str());
  return rlx::to_string(x.type()) == "f32[2,3]" ? 0 : 1;
}
