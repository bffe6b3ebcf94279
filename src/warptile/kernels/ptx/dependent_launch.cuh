// Launches that follow each other in a stream (sm_90): one may start while the one before it ends.
// PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
#pragma once

namespace warptile {

// The launch before this one is over, and all that it wrote can be read; at once where there is none to wait for. A launch
// that may overlap the one before calls this in every thread, before the first access to memory that another launch may
// use. Then launches also end in their order: whoever waits for this one has waited for all before it.
__device__ __forceinline__ void wait_for_previous_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Blocks of the next launch may start as soon as every block of this one has come here or ended, where there is room. They
// wait for the end of this launch all the same.
__device__ __forceinline__ void allow_next_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace warptile
