// combine.ipp for what every machine of this kind has.
// Compiled with flags of its own (CMakeLists.txt): include nothing else here.
#include "src/device/host/combine.ipp"

namespace hoccl::host {

namespace {
constexpr KernelTable kTable = make_table("baseline");
}
const KernelTable* baseline_table() noexcept { return &kTable; }

}  // namespace hoccl::host
