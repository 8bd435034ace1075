//! The one place where atomics, locks and cells come from.
//!
//! Protocol files use these and nothing else, so that the model checker can stand in for them:
//! `loom-tests` compiles the same files with a `sync` module of its own.

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub(crate) use crate::lock::Mutex;
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread_local;

pub(crate) mod thread {
    pub(crate) use std::thread::{Thread, current, park};
}

/// Whether the model checker is at work: it wants small arrays.
pub(crate) const MODELLED: bool = false;

/// A cell whose accesses are closures, as the model checker needs them to be.
#[derive(Debug, Default)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for reading; the caller upholds that nobody writes meanwhile.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing; the caller upholds that nobody else looks meanwhile.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A value that is read without a lock and replaced almost never.
///
/// Writers take turns by a lock of their own. The model checker's stand-in is an atomic index, as
/// a lock in its place would order more than this does.
pub(crate) struct Published<T>(arc_swap::ArcSwap<T>);

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Published(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The value that was stored last, or one stored before it; never older than what the caller
    /// has synchronised with.
    #[inline(always)]
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<T>> {
        self.0.load()
    }

    /// Replaces the value; publishes (release) what was written before.
    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}
