// The edge: alone turns exceptions into result codes and keeps their text for ncclGetLastError. Nothing escapes.
#pragma once

#include <new>
#include <string>

#include "include/nccl.h"
#include "src/base/error.hpp"
#include "src/comm/group.hpp"

// Defines pncclX strongly and ncclX as its weak alias, so that a profiler may define ncclX and call pncclX.
#define HOCCL_NCCL(result, name, parameters)                                 \
  extern "C" result name parameters __attribute__((weak, alias("p" #name))); \
  extern "C" result p##name parameters

namespace hoccl {

void set_last_error(const std::string& text) noexcept;

// The names of arguments in errors.
template <class T>
void require_pointer(const T* pointer, const char* call, const char* argument) {
  require(pointer != nullptr, Code::invalid_argument, "{}: {} is NULL", call, argument);
}

// Counts are elements of one rank; no memory holds more than 2^63 bytes.
inline void check_count(const char* call, std::size_t count, Type type, int ranks) {
  const std::size_t most = static_cast<std::size_t>(INT64_MAX) / static_cast<std::size_t>(row(type).bytes * ranks);
  require(count <= most, Code::invalid_argument, "{}: a count of {} is beyond any memory", call, count);
}

// Runs a call's body. An Error becomes its code; inside a group it is reported again at the group's end.
template <class Body>
ncclResult_t guarded(Body&& body, bool within_group = false) noexcept {
  try {
    body();
    return ncclSuccess;
  } catch (const Error& e) {
    set_last_error(e.what());
    if (within_group && Group::mine().open()) Group::mine().note(e);
    return static_cast<ncclResult_t>(e.code());
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return ncclSystemError;
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return ncclInternalError;
  }
}

}  // namespace hoccl
