// Streams, events and pinned memory of any device by run-time value: work of a device beside that of the host, and of
// other streams (kernels/device_memory.h says what is in whose order). The CPU has one stream, and no work waits.
#pragma once

#include <cstddef>

#include "kernels/device.h"

namespace motley::kernels {

class Stream {
 public:
  explicit Stream(const Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  const Device& device() const { return device_; }

 private:
  friend class StreamScope;
  Device device_;
  void* handle_ = nullptr;
};

/// This thread's work goes to the stream, on its device, while the scope lasts; then to where it went before.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Device device_;
  void* before_ = nullptr;
};

/// A point in the work of a stream of the device; come at once until it is recorded.
class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// After all that this thread's stream was given so far.
  void record();
  /// This thread's stream goes on after the event.
  void await() const;
  /// The host does. Throws what a kernel met.
  void finish() const;

 private:
  Device device_;
  void* handle_ = nullptr;
};

/// Memory of the host for async copies with a device. Aligned as allocate_on does; its contents are undefined.
class PinnedBytes {
 public:
  PinnedBytes(const Device& device, size_t bytes);
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  void* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  Device device_;
  size_t bytes_;
  void* data_;
};

/// Copies with pinned memory in the order of this thread's stream; the bytes must stay as they are until it was waited
/// for.
void copy_in_async(const Device& device, void* to, const void* pinned, size_t bytes);
void copy_out_async(const Device& device, void* pinned, const void* from, size_t bytes);
/// The host waits for this thread's stream. Throws what a kernel met.
void finish_stream(const Device& device);

}  // namespace motley::kernels
