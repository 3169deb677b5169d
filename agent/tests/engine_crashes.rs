//! The agent killed at every point of every move.
