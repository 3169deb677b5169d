//! PURE: what a volume is called at its destination.

use super::refusal::{Refusal, RefusalCode};
use crate::spec::{VolumeFormat, VolumeName};

/// Suffixes that say what an image contains; a name that contradicts its content makes the guest unbootable.
const IMAGE_SUFFIXES: [&str; 4] = ["qcow2", "qcow", "raw", "img"];

/// The name without a known image suffix; `web.v2` is a whole name.
pub fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, suffix)) if is_image_suffix(suffix) => stem,
        _ => name,
    }
}

fn is_image_suffix(suffix: &str) -> bool {
    IMAGE_SUFFIXES.iter().any(|known| known.eq_ignore_ascii_case(suffix))
}

fn suffix(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, suffix)| suffix).filter(|suffix| is_image_suffix(suffix))
}

/// The destination's name: the stem of the source for RBD, `<stem>.qcow2` for a file; or the one asked for.
///
/// Errors: `invalid-name` when the name breaks a rule or its suffix contradicts the format.
pub fn destination_name(
    source_name: &str,
    wanted: Option<&VolumeName>,
    format: VolumeFormat,
) -> Result<VolumeName, Refusal> {
    let name = match wanted {
        Some(wanted) => fit(wanted.as_str(), format)?,
        None => match format {
            VolumeFormat::Raw => stem(source_name).to_owned(),
            VolumeFormat::Qcow2 => format!("{}.qcow2", stem(source_name)),
        },
    };
    let invalid = |message: String| Refusal::new(RefusalCode::InvalidName, message);
    if wanted.is_none() && stem(source_name).is_empty() {
        return Err(invalid(format!("invalid volume name {source_name:?}: only a suffix")));
    }
    let name = VolumeName::new(name).map_err(|error| invalid(error.to_string()))?;
    if format == VolumeFormat::Raw {
        rbdutils::names::ImageName::new(name.as_str())
            .map_err(|error| invalid(error.to_string()))?;
    }
    Ok(name)
}

fn fit(wanted: &str, format: VolumeFormat) -> Result<String, Refusal> {
    let fits = match (suffix(wanted), format) {
        (None, VolumeFormat::Raw) => Some(wanted.to_owned()),
        (None, VolumeFormat::Qcow2) => Some(format!("{wanted}.qcow2")),
        (Some(suffix), VolumeFormat::Raw) => {
            (!suffix.to_ascii_lowercase().starts_with("qcow")).then(|| wanted.to_owned())
        }
        (Some("qcow2"), VolumeFormat::Qcow2) => Some(wanted.to_owned()),
        (Some(_), VolumeFormat::Qcow2) => None,
    };
    fits.ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidName,
            format!(
                "invalid volume name {wanted:?}: its suffix contradicts the format {format}; \
                 a guest would read it wrongly at its next start"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(source: &str, wanted: Option<&str>, format: VolumeFormat) -> Option<String> {
        let wanted = wanted.map(|name| VolumeName::new(name).expect("a valid name"));
        destination_name(source, wanted.as_ref(), format).ok().map(String::from)
    }

    #[test]
    fn only_a_known_suffix_is_cut() {
        for (source, expected) in [
            ("vol-1", "vol-1"),
            ("vol-1.qcow2", "vol-1"),
            ("vol-1.RAW", "vol-1"),
            ("vol-1.img", "vol-1"),
            ("web.v2", "web.v2"),
            ("a.meta.qcow2", "a.meta"),
            ("x.raw.qcow2", "x.raw"),
        ] {
            assert_eq!(stem(source), expected, "{source}");
        }
    }

    #[test]
    fn a_file_is_named_qcow2_and_an_image_by_its_stem() {
        assert_eq!(name("v.raw", None, VolumeFormat::Qcow2).as_deref(), Some("v.qcow2"));
        assert_eq!(name("v.qcow2", None, VolumeFormat::Raw).as_deref(), Some("v"));
        assert_eq!(name(".qcow2", None, VolumeFormat::Raw), None);
    }

    #[test]
    fn a_suffix_that_contradicts_the_format_is_refused() {
        assert_eq!(name("v", Some("x"), VolumeFormat::Qcow2).as_deref(), Some("x.qcow2"));
        assert_eq!(name("v", Some("x.qcow2"), VolumeFormat::Qcow2).as_deref(), Some("x.qcow2"));
        assert_eq!(name("v", Some("x.raw"), VolumeFormat::Qcow2), None);
        assert_eq!(name("v", Some("x.qcow2"), VolumeFormat::Raw), None);
        assert_eq!(name("v", Some("x.v2"), VolumeFormat::Raw).as_deref(), Some("x.v2"));
    }
}
