// combine.ipp for AVX-512; empty where the compiler does not know it.
// Compiled with flags of its own (CMakeLists.txt): include nothing else here.
#include "src/device/host/combine.ipp"

namespace hoccl::host {

#if defined(__AVX512F__)
namespace {
constexpr KernelTable kTable = make_table("avx512");
}
const KernelTable* avx512_table() noexcept { return &kTable; }
#else
const KernelTable* avx512_table() noexcept { return nullptr; }
#endif

}  // namespace hoccl::host
