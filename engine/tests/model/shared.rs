//! A value that copies share until one of them writes.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// What the model is made of is compared with what it was a step ago: most of it is the same.
#[derive(Clone, Debug, Default)]
pub struct Shared<T>(Rc<T>);

impl<T> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(Rc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}
