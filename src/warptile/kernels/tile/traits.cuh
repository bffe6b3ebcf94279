// Compile-time traits of types.
#pragma once

namespace warptile {

template <typename LEFT, typename RIGHT>
inline constexpr bool SAME = false;
template <typename TYPE>
inline constexpr bool SAME<TYPE, TYPE> = true;

template <bool CONDITION, typename YES, typename NO>
struct Choice {
    using type = YES;
};
template <typename YES, typename NO>
struct Choice<false, YES, NO> {
    using type = NO;
};

}  // namespace warptile
