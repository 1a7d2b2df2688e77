// What every caller of oneDNN here needs; its own headers stay in the .cpp files.
#pragma once
#include <cstddef>

namespace dnnl {
struct engine;
struct stream;
}  // namespace dnnl

namespace rlx::cpu {

/// oneDNN's CPU engine, held to the instruction sets of cpu_features(), and this thread's stream on it.
const dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();

/// While it lives, OpenMP regions entered by this thread have one thread, so oneDNN starts none of its own. To be held
/// when a primitive is made (its blocking depends on the count) and when it runs.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 1;
};

/// One slot for each thing that may be in use at the same time on one thread.
enum class Scratch { OneDnn, GemmPacked, GemmLeft, GemmRight, ConvX, ConvY, ConvWeights, ConvPacked, ConvPartial };

/// Scratch memory of this thread, aligned to 64 bytes, kept and grown; what was in the slot is lost.
void* thread_scratch(Scratch slot, std::size_t bytes);

}  // namespace rlx::cpu
