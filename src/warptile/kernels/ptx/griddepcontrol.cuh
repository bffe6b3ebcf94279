// Programmatic dependent launch (PDL): a kernel may start while the one before it in the stream still runs (sm_90).
// PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
#pragma once

namespace warptile {

// Waits until the launches that this one depends on have ended and their writes are visible; returns at once where
// there are none. A kernel that may overlap its predecessor calls this in every thread, before the first access to
// memory that another launch may use. Launches then also complete in order: whoever waits for this one has waited for
// all before it.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next launch start as soon as every CTA of this one has executed it or ended, and there is room. The next
// launch still waits for the end of this one in `griddepcontrol_wait`.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The same in kernels that also run on GPUs before Hopper, whose launches follow each other.
__device__ __forceinline__ void wait_for_previous_launch() {
#if __CUDA_ARCH__ >= 900
    griddepcontrol_wait();
#endif
}
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
    griddepcontrol_launch_dependents();
#endif
}

}  // namespace warptile
