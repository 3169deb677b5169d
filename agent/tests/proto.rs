//! The contract explains itself: every service, call, message, field, enum and value of the .proto has a comment.

use std::collections::BTreeSet;
use std::path::Path;

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

const FILE: &str = "volferry/v1/volferry.proto";

/// Every part of a file with its path in the descriptors, as protoc numbers them.
fn parts(file: &FileDescriptorProto) -> Vec<(Vec<i32>, String)> {
    let mut parts = Vec::new();
    let number = |index: usize| i32::try_from(index).expect("few of them");
    for (index, message) in file.message_type.iter().enumerate() {
        message_parts(&[4, number(index)], message, &mut parts);
    }
    for (index, kind) in file.enum_type.iter().enumerate() {
        enum_parts(&[5, number(index)], kind, &mut parts);
    }
    for (index, service) in file.service.iter().enumerate() {
        let path = vec![6, number(index)];
        for (index, call) in service.method.iter().enumerate() {
            let path = [&path[..], &[2, number(index)]].concat();
            parts.push((path, format!("{}.{}", service.name(), call.name())));
        }
        parts.push((path, service.name().to_owned()));
    }
    parts
}

fn message_parts(path: &[i32], message: &DescriptorProto, parts: &mut Vec<(Vec<i32>, String)>) {
    // The entries of a map are nobody's own message.
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    parts.push((path.to_vec(), message.name().to_owned()));
    for (index, field) in (0..).zip(&message.field) {
        parts.push(([path, &[2, index]].concat(), format!("{}.{}", message.name(), field.name())));
    }
    for (index, inner) in (0..).zip(&message.nested_type) {
        message_parts(&[path, &[3, index]].concat(), inner, parts);
    }
    for (index, kind) in (0..).zip(&message.enum_type) {
        enum_parts(&[path, &[4, index]].concat(), kind, parts);
    }
}

fn enum_parts(path: &[i32], kind: &EnumDescriptorProto, parts: &mut Vec<(Vec<i32>, String)>) {
    parts.push((path.to_vec(), kind.name().to_owned()));
    for (index, value) in (0..).zip(&kind.value) {
        parts.push(([path, &[2, index]].concat(), value.name().to_owned()));
    }
}

#[test]
fn every_part_of_the_contract_has_a_comment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiler = protox::Compiler::new([folder]).expect("the folder");
    let set = compiler.include_source_info(true).open_file(FILE).expect("it compiles");
    let set = set.file_descriptor_set();
    let file = set.file.iter().find(|file| file.name() == FILE).expect("the file");
    let explained: BTreeSet<&[i32]> = file
        .source_code_info
        .iter()
        .flat_map(|info| &info.location)
        .filter(|location| !location.leading_comments().trim().is_empty())
        .map(|location| &location.path[..])
        .collect();
    let parts = parts(file);
    assert!(parts.len() > 300, "{} parts", parts.len());
    let silent = parts.iter().filter(|(path, _)| !explained.contains(&path[..]));
    let silent: Vec<_> = silent.map(|(_, name)| name.as_str()).collect();
    assert!(silent.is_empty(), "without a comment: {silent:?}");
}
