//! The form of a cephx key. Whether a key is right only the cluster knows.

/// Whether the text is a key as Ceph prints it: base64 of a type (2 bytes), a time (8), the length of
/// the secret (2) and the secret. Ceph reports a malformed one with the number it also gives for an
/// unknown host, so it is told apart here. Only the part before the secret is decoded.
pub(super) fn is_well_formed(key: &str) -> bool {
    let key = key.trim().as_bytes();
    let body = key.strip_suffix(b"==").or_else(|| key.strip_suffix(b"=")).unwrap_or(key);
    if !key.len().is_multiple_of(4) || !body.iter().all(|c| value(*c).is_some()) {
        return false;
    }
    let Some(head) = body.first_chunk::<16>() else {
        return false;
    };
    let mut bytes = [0_u8; 12];
    for (four, three) in head.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
        let bits = four.iter().fold(0_u32, |bits, c| bits << 6 | value(*c).unwrap_or_default());
        three.copy_from_slice(&bits.to_be_bytes()[1..]);
    }
    let secret = usize::from(u16::from_le_bytes([bytes[10], bytes[11]]));
    secret > 0 && body.len() * 3 / 4 == bytes.len() + secret
}

fn value(c: u8) -> Option<u32> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    alphabet.iter().position(|a| *a == c).and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_as_ceph_prints_them() {
        assert!(is_well_formed("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="));
        assert!(is_well_formed("AQB/sgxrkUDYHRAAAAAAAAAAAAAAAAAAAAAAAA==\n"));
        for text in ["", "no key", "aGVsbG8gd29ybGQh", "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(!is_well_formed(text), "{text}");
        }
    }
}
