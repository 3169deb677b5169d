//! Certificates for tests: a CA, and whoever it or another one vouches for.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};

/// A CA.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a CA") }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Of a server on loopback.
    pub fn server(&self) -> Pair {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("plain names");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Of a client with these DNS names or, with a colon, URIs.
    pub fn client(&self, names: &[&str]) -> Pair {
        self.sign(&Self::client_params(names))
    }

    /// Of a client whose time is over.
    pub fn expired(&self, name: &str) -> Pair {
        let mut params = Self::client_params(&[name]);
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.sign(&params)
    }

    fn client_params(names: &[&str]) -> CertificateParams {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        let name = |name: &&str| {
            let text = (*name).try_into().expect("ASCII");
            if name.contains(':') { SanType::URI(text) } else { SanType::DnsName(text) }
        };
        params.subject_alt_names = names.iter().map(name).collect();
        // What no role may follow from.
        params.distinguished_name.push(DnType::CommonName, "admin.example.org");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Writes `NAME.crt` and `NAME.key`, the key for its owner only.
pub fn write(folder: &Path, name: &str, pair: &Pair) -> (PathBuf, PathBuf) {
    let (certificate, key) =
        (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    fs::write(&certificate, &pair.certificate).expect("written");
    fs::write(&key, &pair.key).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its mode");
    (certificate, key)
}

/// Writes the files of `[tls]` and its text, without clients.
pub fn write_site(folder: &Path, listen: &str, ca: &Ca) -> String {
    let (certificate, key) = write(folder, "server", &ca.server());
    let client_ca = folder.join("ca.crt");
    fs::write(&client_ca, ca.pem()).expect("written");
    format!(
        "[tls]\nlisten = {listen:?}\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {client_ca:?}\n"
    )
}
