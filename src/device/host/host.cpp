// Host memory: allocation in huge pages where the system has them, arithmetic by the kernels chosen in dispatch.cpp.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "src/base/error.hpp"
#include "src/device/device.hpp"
#include "src/device/host/kernels.hpp"

namespace hoccl {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// What is mapped for a request: whole pages, at least one.
std::size_t mapped_bytes(Bytes bytes) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t wanted = bytes.value > 0 ? size_of(bytes) : 1;
  return (wanted + page - 1) / page * page;
}

class HostDevice final : public Device {
 public:
  const char* name() const noexcept override { return "host"; }

  void* allocate(Bytes bytes) override {
    const std::size_t wanted = mapped_bytes(bytes);
    // More than is wanted, so that an aligned part is inside; what is left over on both sides goes back.
    const std::size_t spare = wanted >= kHugePage ? kHugePage : 0;
    void* const mapped = mmap(nullptr, wanted + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) fail_errno(fmt::format("allocating {} bytes of host memory", bytes.value));
    if (spare == 0) return mapped;
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    const std::size_t after = spare - before;
    if (before != 0) munmap(begin, before);
    if (after != 0) munmap(begin + before + wanted, after);
    madvise(begin + before, wanted, MADV_HUGEPAGE);  // a wish: without huge pages the memory is as good
    return begin + before;
  }

  void release(void* memory, Bytes bytes) noexcept override {
    if (memory != nullptr) munmap(memory, mapped_bytes(bytes));
  }

  void combine(const Reduction& reduction, const Combine& work) noexcept override {
    host::combine_with(*table_, reduction, work);
  }

 private:
  const host::KernelTable* table_ = host::usable_tables().tables[0];
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace hoccl
