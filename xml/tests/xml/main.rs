//! Tests of the crate from outside, over the documents in `fixtures/xml`.

#![allow(missing_docs, clippy::unwrap_used)]

mod edits;
mod facts;
mod find;
mod golden;
mod pools;
mod properties;
mod secrets;
mod support;
mod well_formed;
