//! The engine's `prefetch` without an effect: asking early for a line orders nothing.

/// Does nothing.
pub fn for_writing<T>(_place: &T) {}

/// Does nothing.
pub fn for_reading<T>(_place: &T) {}

/// Does nothing.
pub fn all_for_writing<T>(_place: &T) {}
