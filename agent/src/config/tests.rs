//! The file's rules, one test each, and the files that are shipped.

use super::*;
use crate::spec::{Bytes, PoolKind, RequestPools, Reserve};

fn refused(text: &str) -> String {
    let error = Config::parse(text).expect_err("it breaks a rule");
    format!("{error}: {}", error.rule)
}

fn pool(keys: &str) -> String {
    format!("host_name = \"a\"\n[[pool]]\nname = \"p\"\n{keys}\n")
}

#[test]
fn defaults_are_those_of_the_manual() {
    let config = Config::parse("host_name = \"host-a\"").expect("the least there is");
    assert_eq!(config.socket, Path::new("/run/volferry/volferry.sock"));
    assert_eq!(config.state_dir, Path::new("/var/lib/volferry"));
    assert_eq!(config.libvirt_uri, "qemu:///system");
    assert!(config.pools.is_empty());
    assert_eq!(config.source_retention, Duration::ZERO);
    assert_eq!((config.limits.operations_per_host, config.limits.operations_per_pool), (8, 4));
    let reserve = Reserve { percent: 5, at_least: Bytes::mib(1024) };
    assert_eq!(config.limits.reserve, reserve);
}

#[test]
fn limits_are_read_and_a_pool_may_have_its_own() {
    let text = "host_name = \"a\"\n[limits]\noperations_per_host = 2\noperations_per_pool = 1\n\
                reserve_percent = 0\nreserve_bytes = \"64MiB\"\n\
                [[pool]]\nname = \"p\"\ntype = \"nfs\"\npath = \"/a\"\noperations = 3\n";
    let config = Config::parse(text).expect("limits");
    let reserve = Reserve { percent: 0, at_least: Bytes::mib(64) };
    let limits = Limits { operations_per_host: 2, operations_per_pool: 1, reserve };
    assert_eq!((config.limits, config.pools[0].operations), (limits, Some(3)));
}

#[test]
fn metrics_are_scraped_nowhere_unless_it_is_said_and_then_on_loopback() {
    let listen = |text: &str| {
        let text = format!("host_name = \"a\"\n{text}");
        Config::parse(&text).expect("a configuration").metrics.map(|address| address.to_string())
    };
    assert_eq!(listen(""), None);
    assert_eq!(listen("[metrics]\n").as_deref(), Some("127.0.0.1:9856"));
    assert_eq!(listen("[metrics]\nlisten = \"[::1]:1\"\n").as_deref(), Some("[::1]:1"));
    let wrong = refused("host_name = \"a\"\n[metrics]\nlisten = \"localhost\"");
    assert!(wrong.contains("metrics.listen: \"localhost\" is not an address"), "{wrong}");
}

#[test]
fn a_retention_is_a_span_of_time() {
    let retention = |text: &str| {
        let config = Config::parse(&format!("host_name = \"a\"\nsource_retention = \"{text}\""));
        config.map(|config| config.source_retention).map_err(|error| error.rule.to_string())
    };
    assert_eq!(retention("7d"), Ok(Duration::from_secs(7 * 86_400)));
    assert_eq!(retention("0"), Ok(Duration::ZERO));
    for bad in ["", "7", "-1d", "1w", "99999999d"] {
        let refused = retention(bad).expect_err("no span of time");
        assert!(refused.starts_with("source_retention: "), "{refused}");
    }
}

#[test]
fn a_rbd_pool_is_resolved_whole() {
    let text = pool(
        "type = \"rbd\"\nmonitors = [\"192.0.2.11\", \"2001:db8::12\"]\nport = 6789\n\
         pool = \"cs\"\nnamespace = \"ns\"\nuser = \"u\"\n\
         secret_uuid = \"10000000-0000-4000-8000-0000000000AA\"",
    );
    let config = Config::parse(&text).expect("a whole pool");
    let name = PoolName::new("p").expect("a plain name");
    let PoolKind::Rbd(pool) = &config.pool(&name).expect("the pool").kind else {
        panic!("a pool of type rbd")
    };
    assert_eq!(pool.address.monitors, "192.0.2.11:6789,[2001:db8::12]:6789");
    assert_eq!(pool.address.image_path("v"), "cs/ns/v");
    assert_eq!(pool.address.secret_uuid.as_deref(), Some("10000000-0000-4000-8000-0000000000aa"));
}

#[test]
fn paths_are_absolute_and_normalised() {
    let text = pool("type = \"nfs\"\npath = \"//mnt/./a//b/\"");
    let config = Config::parse(&text).expect("a file pool");
    let PoolKind::File(pool) = &config.pools[0].kind else { panic!("a file pool") };
    assert_eq!(pool.path.to_str(), Some("/mnt/a/b"));
    for bad in ["mnt/a", "", "/mnt/../etc", "/mnt/a\\u0000b"] {
        refused(&pool_at(bad));
    }
}

#[test]
fn only_what_is_a_mount_must_be_mounted_unless_said_otherwise() {
    for (keys, expected) in [
        ("type = \"nfs\"\npath = \"/a\"", true),
        ("type = \"shared-mount-point\"\npath = \"/a\"", true),
        ("type = \"local\"\npath = \"/a\"\nhost = \"a\"", false),
        ("type = \"nfs\"\npath = \"/a\"\nmust_be_mounted = false", false),
        ("type = \"local\"\npath = \"/a\"\nhost = \"a\"\nmust_be_mounted = true", true),
    ] {
        let config = Config::parse(&pool(keys)).expect("a file pool");
        let PoolKind::File(pool) = &config.pools[0].kind else { panic!("a file pool") };
        assert_eq!(pool.must_be_mounted, expected, "{keys}");
    }
}

fn pool_at(path: &str) -> String {
    pool(&format!("type = \"nfs\"\npath = \"{path}\""))
}

#[test]
fn every_error_names_the_file_the_pool_and_the_rule() {
    let cases = [
        (pool("type = \"nfs\""), "pool \"p\": a pool of type nfs needs `path`"),
        (pool("type = \"local\"\npath = \"/a\""), "pool \"p\": a pool of type local needs `host`"),
        (
            pool("type = \"nfs\"\npath = \"/a\"\nhost = \"b\""),
            "pool \"p\": `host` does not belong to a pool of type nfs",
        ),
        (
            pool("type = \"nfs\"\npath = \"/a\"\nuser = \"b\""),
            "pool \"p\": `user` does not belong to a pool of type nfs",
        ),
        (
            pool("type = \"rbd\"\nmonitors = [\"m\"]\npool = \"c\"\npath = \"/a\""),
            "pool \"p\": `path` does not belong to a pool of type rbd",
        ),
        (
            pool("type = \"rbd\"\nmonitors = [\"m\"]\npool = \"c\"\nmust_be_mounted = true"),
            "pool \"p\": `must_be_mounted` does not belong to a pool of type rbd",
        ),
        (pool("type = \"rbd\"\nmonitors = []\npool = \"c\""), "pool \"p\": monitors: "),
        (
            pool("type = \"rbd\"\nmonitors = [\"192.0.2.1:99999\"]\npool = \"c\""),
            "pool \"p\": monitors: monitor \"192.0.2.1:99999\"",
        ),
        (pool("type = \"rbd\"\nmonitors = [\"m\"]\npool = \"c/d\""), "pool \"p\": pool: "),
        (
            pool("type = \"rbd\"\nmonitors = [\"m\"]\npool = \"c\"\nuser = \"u\""),
            "pool \"p\": `user` needs `secret_uuid` or `key_file`",
        ),
        (
            pool("type = \"rbd\"\nmonitors = [\"m\"]\npool = \"c\"\nkey_file = \"/k\""),
            "pool \"p\": `secret_uuid` and `key_file` need `user`",
        ),
        (
            "host_name = \"a\"\n[limits]\noperations_per_pool = 0".to_owned(),
            "limits.operations_per_pool: it must be at least 1",
        ),
        (
            "host_name = \"a\"\n[limits]\nreserve_percent = 51".to_owned(),
            "limits.reserve_percent: 51 is not a share",
        ),
        (
            "host_name = \"a\"\n[limits]\nreserve_bytes = \"much\"".to_owned(),
            "limits.reserve_bytes: \"much\" is not a size",
        ),
        (
            pool("type = \"nfs\"\npath = \"/a\"\noperations = 0"),
            "pool \"p\": operations: it must be at least 1",
        ),
        (
            "host_name = \"a\"\nlisten = \"tcp:0.0.0.0:50051\"".to_owned(),
            "listen: \"tcp:0.0.0.0:50051\" needs mutual TLS, which is not configured",
        ),
    ];
    for (text, message) in cases {
        let text = refused(&text);
        assert!(text.starts_with("configuration text: "), "{text}");
        assert!(text.contains(message), "{text}\nlacks {message}");
    }
}

#[test]
fn unknown_keys_and_types_are_errors_with_their_line() {
    assert!(refused("host_name = \"a\"\nhostname = \"b\"").contains("unknown field `hostname`"));
    assert!(refused(&pool("type = \"nfs\"\npath = \"/a\"\nmonitor = \"b\"")).contains("line 6"));
    assert!(refused(&pool("type = \"ceph\"")).contains("unknown variant `ceph`"));
}

#[test]
fn one_name_means_one_pool() {
    let one = "[[pool]]\nname = \"p\"\ntype = \"nfs\"\npath = \"/a\"\n";
    let text = refused(&format!("host_name = \"a\"\n{one}{one}"));
    assert!(text.ends_with("pool \"p\" is defined twice"), "{text}");
}

#[test]
fn the_example_that_is_shipped_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/volferry.toml");
    let config = Config::load(&path).expect("the example configuration");
    let types: Vec<_> = config.pools.iter().map(Pool::type_name).collect();
    assert_eq!(types, ["rbd", "rbd", "nfs", "shared-mount-point", "local"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/nonexistent/volferry.toml")).expect_err("no file");
    assert_eq!(error.to_string(), "configuration /nonexistent/volferry.toml");
}

#[test]
fn requests_bring_pools_along_only_where_that_is_said() {
    let config = Config::parse("host_name = \"a\"").expect("the least there is");
    assert_eq!(config.request_pools, RequestPools::default());
    let text =
        "host_name = \"a\"\n[pools_in_requests]\npaths = [\"/mnt/a/\", \"/srv\"]\nrbd = true\n";
    let config = Config::parse(text).expect("two folders");
    let paths = vec!["/mnt/a".into(), "/srv".into()];
    assert_eq!(config.request_pools, RequestPools { paths, rbd: true });
    for bad in ["mnt", "/mnt/../etc", "/", ""] {
        let text = format!("host_name = \"a\"\n[pools_in_requests]\npaths = [\"{bad}\"]\n");
        assert!(refused(&text).contains("pools_in_requests.paths"), "{bad}: {}", refused(&text));
    }
}
