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
    line_for_writing(std::ptr::from_ref(place).cast());
}

/// Asks for all lines of `place`, which begins on one, otherwise as [`for_writing`].
#[inline(always)]
pub(crate) fn all_for_writing<T>(place: &T) {
    let first = std::ptr::from_ref(place).cast::<u8>();
    (0..size_of::<T>()).step_by(LINE).for_each(|at| line_for_writing(first.wrapping_add(at)));
}

/// Bytes that are on their way together.
const LINE: usize = 64;

#[inline(always)]
fn line_for_writing(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch touches no memory that the program can tell; where the instruction is not
    // known, processors of this family take it as one that does nothing. (The intrinsic would be
    // compiled to a prefetch for reading: for writing is not in the baseline.)
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{}]",
            in(reg) place,
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
        super::all_for_writing(&places[0]);
        super::all_for_writing(&[0u64; 40]);
        assert!(places.iter().all(|&place| place == 7));
    }
}
