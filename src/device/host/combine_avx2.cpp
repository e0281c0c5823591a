// combine.ipp for AVX2; empty where the compiler does not know it.
// Compiled with flags of its own (CMakeLists.txt): include nothing else here.
#include "src/device/host/combine.ipp"

namespace hoccl::host {

#if defined(__AVX2__)
namespace {
constexpr KernelTable kTable = make_table("avx2");
}
const KernelTable* avx2_table() noexcept { return &kTable; }
#else
const KernelTable* avx2_table() noexcept { return nullptr; }
#endif

}  // namespace hoccl::host
