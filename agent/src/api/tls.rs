//! The listener on the network: TCP, and nothing on it before both sides have shown a certificate.
//!
//! Certificates can be read anew while connections are open: [`Identity`] is one reading of the files, and every
//! handshake takes the newest. What a client may do is not known here.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::Access;
use crate::config::access::Tls;

/// Handshakes at a time; whoever comes meanwhile waits.
const HANDSHAKES: usize = 32;
/// A handshake that takes longer is given up.
const WHOLE: Duration = Duration::from_secs(10);
/// After an accept that failed, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(200);
/// How long, and for how much, a client that is refused may take to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_BYTES: u64 = 64 * 1024;
/// No key or bundle of certificates is larger.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// Why the files of `[tls]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{file} cannot be read")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file has no PEM of its kind.
    #[error("{file} holds no {what} in PEM")]
    Pem {
        /// The file.
        file: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// Whoever can read the key can be the agent.
    #[error(
        "the key {file} has mode {mode:04o}: others must have no access to it and its group must not write it; `chmod 600` it"
    )]
    KeyMode {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its owner can change it.
    #[error("the key {file} belongs to uid {owner}: it must be root's or the agent's own")]
    KeyOwner {
        /// The file.
        file: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A CA that is none.
    #[error("{file} holds a certificate that is no CA")]
    Ca {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// No client can be verified.
    #[error("clients cannot be verified by {file}")]
    Verifier {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: VerifierBuilderError,
    },
    /// Certificate and key do not belong together, or are of a kind that cannot be used.
    #[error("{certificate} cannot be used with the key {key}")]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// One reading of the files of `[tls]`.
#[derive(Debug, Clone)]
pub struct Identity {
    server: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Identity {
    /// Reads them.
    ///
    /// Errors: one of them cannot be used; every rule is named with its file.
    pub fn load(files: &Tls) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for ca in certificates(&files.client_ca)? {
            let file = files.client_ca.clone();
            roots.add(ca).map_err(|source| TlsError::Ca { file, source })?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|source| {
            let file = files.client_ca.clone();
            TlsError::Verifier { file, source }
        })?;
        let unusable = |source| TlsError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        };
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
            .map_err(unusable)?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        // Whoever comes back shows its certificate again.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { server: Arc::new(server), verifier })
    }

    /// Whether a client with these certificates is one of a CA's at this moment.
    ///
    /// Errors: why not.
    pub fn verify(&self, shown: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let Some((own, between)) = shown.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        self.verifier.verify_client_cert(own, between, UnixTime::now()).map(drop)
    }
}

/// The names of whoever a certificate is for: the DNS names, in lower case, and URIs among the alternative names of
/// its subject.
///
/// Errors: it cannot be read.
pub fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, webpki::Error> {
    let certificate = webpki::EndEntityCert::try_from(certificate)?;
    let dns = certificate.valid_dns_names().map(str::to_ascii_lowercase);
    // What has no scheme is no URI, and must not be taken for the DNS name of another.
    let uris = certificate.valid_uri_names().filter(|uri| uri.contains(':')).map(str::to_owned);
    Ok(dns.chain(uris).collect())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = open(file).and_then(|opened| read(opened, file))?;
    let wrong = |source| TlsError::Pem { file: file.to_owned(), what: "certificate", source };
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(wrong)?;
    if found.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let opened = open(file)?;
    // Of what is open, so that nothing can take its place in between.
    let seen = opened.metadata();
    let seen = seen.map_err(|source| TlsError::Read { file: file.to_owned(), source })?;
    let mode = seen.mode() & 0o7777;
    if mode & 0o027 != 0 {
        return Err(TlsError::KeyMode { file: file.to_owned(), mode });
    }
    if seen.uid() != 0 && seen.uid() != nix::unistd::geteuid().as_raw() {
        return Err(TlsError::KeyOwner { file: file.to_owned(), owner: seen.uid() });
    }
    let text = read(opened, file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| TlsError::Pem {
        file: file.to_owned(),
        what: "private key",
        source,
    })
}

fn open(file: &Path) -> Result<File, TlsError> {
    let failed = |source| TlsError::Read { file: file.to_owned(), source };
    // A pipe would be waited for.
    if !fs::metadata(file).map_err(failed)?.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")));
    }
    File::open(file).map_err(failed)
}

fn read(opened: File, file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    let read = opened.take(LARGEST_FILE).read_to_end(&mut text);
    read.map_err(|source| TlsError::Read { file: file.to_owned(), source })?;
    Ok(text)
}

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct TlsListenError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// A bound listener.
#[derive(Debug)]
pub struct TlsListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl TlsListener {
    /// Binds it.
    ///
    /// Errors: the address is taken, or not this host's.
    pub async fn bind(address: SocketAddr) -> Result<Self, TlsListenError> {
        let named = |source| TlsListenError { address, source };
        let socket = TcpListener::bind(address).await.map_err(named)?;
        let address = socket.local_addr().map_err(named)?;
        Ok(Self { socket, address })
    }

    /// Where it listens; the port is the one it was given when it asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections whose client has shown a certificate of a CA's, until `stop`.
    pub fn incoming(
        self,
        access: Arc<Access>,
        stop: CancellationToken,
    ) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
        let (sender, receiver) = mpsc::channel(HANDSHAKES);
        let (places, shaking) = (Arc::new(Semaphore::new(HANDSHAKES)), TaskTracker::new());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                match self.socket.accept().await {
                    Ok((stream, from)) => {
                        let (access, sender) = (Arc::clone(&access), sender.clone());
                        let shake = async move {
                            if let Some(stream) = shake_hands(&access, stream, from).await {
                                // A server that has ended takes no more.
                                let _ = sender.send(Ok(stream)).await;
                            }
                            drop(place);
                        };
                        shaking.spawn(stop.clone().run_until_cancelled_owned(shake));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }));
        ReceiverStream::new(receiver)
    }
}

async fn shake_hands(
    access: &Access,
    stream: TcpStream,
    from: SocketAddr,
) -> Option<TlsStream<TcpStream>> {
    let refused = |why: &str| {
        tracing::info!(
            target: super::access::AUDIT, address = %from, outcome = "refused", why, "connection"
        );
        None
    };
    let Some(identity) = access.identity() else { return refused("there are no certificates") };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection stays slow");
    }
    let acceptor = TlsAcceptor::from(Arc::clone(&identity.server));
    match tokio::time::timeout(WHOLE, acceptor.accept(stream).into_fallible()).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err((error, stream))) => {
            hang_up(stream).await;
            refused(&error.to_string())
        }
        Err(_) => refused("the handshake took too long"),
    }
}

/// Ends a connection so that its client reads why: closed with anything unread, it would be reset, and the alert with it.
async fn hang_up(mut stream: TcpStream) {
    let last = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(LAST_BYTES), &mut tokio::io::sink()).await
    };
    match tokio::time::timeout(LAST_WORDS, last).await {
        Ok(Ok(_)) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a refused connection ended by itself"),
    }
}
