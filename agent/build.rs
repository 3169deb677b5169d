//! Compiles `proto/` without protoc: the gRPC code, and the descriptors that reflection serves.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use protox::prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["volferry/v1/volferry.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("volferry.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // It carries passphrases; its own form is beside the conversion.
        .skip_debug(["volferry.v1.MigrateRequest"])
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
