pub mod thresholds;
