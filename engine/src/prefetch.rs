//! Asking early for a cache line that another core may have.
//!
//! A booking and a free each swap or add to a handful of words on as many lines, one after the
//! other, and every one of those instructions waits for its line by itself: with two threads at
//! work that is the time the line takes from the other core, several times over. Asked for
//! beforehand, the lines are under way together. The same goes for what a pick reads first and others
//! have just written.

/// Asks for the line that `place` begins on, to be written soon. Orders nothing, reads nothing, and
/// may do nothing at all: on other processors than x86-64 it does not.
#[inline(always)]
pub(crate) fn for_writing<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch touches no memory that the program can tell; where the instruction is not
    // known, processors of this family take it as one that does nothing. (The intrinsic would be
    // compiled to a prefetch for reading: for writing is not in the baseline.)
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{}]",
            in(reg) std::ptr::from_ref(place),
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks for the line that `place` begins on, to be read soon; otherwise as [`for_writing`].
#[inline(always)]
pub(crate) fn for_reading<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch touches no memory that the program can tell, and is in the baseline.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_asked_for_stays_what_it_is() {
        let places = vec![7u64; 1000];
        places.iter().for_each(super::for_writing);
        places.iter().for_each(super::for_reading);
        assert!(places.iter().all(|&place| place == 7));
    }
}
