//! placeholder
pub trait Filter: Send + Sync {}
pub trait Scorer: Send + Sync {}
pub trait Picker: Send + Sync {}
pub trait Observer: Send + Sync {}
