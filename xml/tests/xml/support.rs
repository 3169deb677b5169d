//! What several test files share: the fixtures and the usual destinations.

use std::fs;
use std::path::PathBuf;

use volferry_xml::{DestinationHost, DestinationSource, DomainXml};

pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/xml")
}

/// Text of one fixture, for instance `cases/shareable-rbd.xml`.
pub fn fixture(name: &str) -> String {
    let path = fixtures().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn domain(name: &str) -> DomainXml {
    DomainXml::parse(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names of all complete documents among the fixtures.
pub fn documents() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["cases", "inputs"] {
        for entry in fs::read_dir(fixtures().join(folder)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            if file != "malformed-truncated.xml" {
                names.push(format!("{folder}/{file}"));
            }
        }
    }
    names.sort();
    names
}

pub fn rbd(name: &str) -> DestinationSource {
    DestinationSource::Rbd {
        name: name.to_owned(),
        hosts: vec![
            DestinationHost { name: "198.51.100.21".to_owned(), port: Some(6789) },
            DestinationHost { name: "2001:db8:51::23".to_owned(), port: None },
        ],
        user: Some("volferry".to_owned()),
        secret_uuid: Some("20000000-0000-4000-8000-0000000000bb".to_owned()),
    }
}

pub fn file(path: &str) -> DestinationSource {
    DestinationSource::File { path: path.to_owned() }
}
