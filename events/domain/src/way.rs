//! Ways to a service: who else can read and answer on them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether the way to a service is one that nobody else can read or answer on: loopback or TLS.
///
/// An address that is written in an unusual way is not trusted.
#[must_use]
pub fn is_trusted_way(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if authority.is_empty() || !authority.chars().all(is_plain) {
        return false;
    }
    match scheme {
        "https" => true,
        "http" => is_loopback(authority),
        _ => false,
    }
}

fn is_loopback(authority: &str) -> bool {
    if let Some((host, _port)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    host == "localhost" || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_trusted_way;

    #[test]
    fn only_loopback_and_tls_are_trusted() {
        for url in [
            "https://cache.example",
            "https://cache.example:8443/x",
            "http://127.0.0.1:8080/",
            "http://127.1.2.3",
            "http://[::1]:8080",
            "http://localhost:1/x",
        ] {
            assert!(is_trusted_way(url), "{url}");
        }
        for url in [
            "http://cache.example",
            "http://10.0.0.1:80",
            "http://[::2]",
            "http://localhost.example",
            "http://localhost@cache.example",
            "http://localhost:1@cache.example",
            "http://127.0.0.1\\@cache.example",
            "http://127.0.0.1.example",
            "http:localhost",
            "ftp://127.0.0.1",
            "ftp://::1",
            "https://",
            "",
        ] {
            assert!(!is_trusted_way(url), "{url}");
        }
    }
}
