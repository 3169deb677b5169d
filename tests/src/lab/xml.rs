//! Domain XML of the lab's guests, and the few facts read back from it.

use super::volume::Encryption;
use super::{Format, Lab, LabError, Place, Volume};
use crate::guest::Disk;

/// What a guest's XML is made of.
pub(crate) struct Parts<'a> {
    pub name: &'a str,
    pub uuid: &'a str,
    pub memory_mib: u32,
    pub command_line: &'a str,
    pub serial_log: &'a str,
    pub disks: &'a [(Disk, Volume)],
    /// Socket of a QEMU monitor beside libvirt's own.
    pub monitor: Option<&'a std::path::Path>,
}

pub(crate) fn domain(lab: &Lab, parts: &Parts<'_>) -> Result<String, LabError> {
    let mut disks = String::new();
    for (disk, volume) in parts.disks {
        disks += &disk_xml(lab, *disk, volume)?;
    }
    let Parts { name, uuid, memory_mib, command_line, serial_log, .. } = parts;
    let monitor = parts.monitor.map_or_else(String::new, |path| {
        format!(
            "  <qemu:commandline>
    <qemu:arg value='-qmp'/>
    <qemu:arg value='unix:{},server=on,wait=off'/>
  </qemu:commandline>
",
            path.display()
        )
    });
    Ok(format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>{memory_mib}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{}</kernel>
    <initrd>{}</initrd>
    <cmdline>console=ttyS0 quiet loglevel=3 panic=-1 tsc=reliable {command_line}</cmdline>
  </os>
  <on_crash>destroy</on_crash>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
{disks}    <controller type='usb' model='none'/>
    <serial type='file'>
      <source path='{serial_log}'/>
      <target port='0'/>
    </serial>
    <memballoon model='none'/>
  </devices>
{monitor}</domain>
",
        lab.setting("VOLFERRY_LAB_KERNEL")?,
        lab.built("initramfs.gz")?.display(),
    ))
}

fn disk_xml(lab: &Lab, disk: Disk, volume: &Volume) -> Result<String, LabError> {
    let cache = match lab.setting("VOLFERRY_LAB_DIRECT_IO")? {
        "yes" => "none",
        _ => "writeback",
    };
    let format = volume.format.name();
    let encryption = volume.encryption.as_ref().map(encryption_xml).unwrap_or_default();
    let (kind, source) = match &volume.place {
        Place::File(path) => {
            ("file", format!("<source file='{}'>{encryption}</source>", path.display()))
        }
        Place::Rbd { pool, image } => ("network", rbd_source(lab, pool, image, &encryption)?),
    };
    Ok(format!(
        "    <disk type='{kind}' device='disk'>
      <driver name='qemu' type='{format}' cache='{cache}' discard='unmap'/>
      {source}
      <target dev='{disk}' bus='virtio'/>
      <serial>volferry-{disk}</serial>
    </disk>
"
    ))
}

fn encryption_xml(encryption: &Encryption) -> String {
    let Encryption { format, engine, secret } = encryption;
    let engine = engine.as_ref().map(|engine| format!(" engine='{engine}'")).unwrap_or_default();
    format!(
        "<encryption format='{format}'{engine}><secret type='passphrase' uuid='{secret}'/></encryption>"
    )
}

fn rbd_source(lab: &Lab, pool: &str, image: &str, encryption: &str) -> Result<String, LabError> {
    Ok(format!(
        "<source protocol='rbd' name='{pool}/{image}'>
        <host name='{}' port='{}'/>
        <auth username='{}'><secret type='ceph' uuid='{}'/></auth>{encryption}
      </source>",
        lab.setting("VOLFERRY_LAB_MON_HOST")?,
        lab.setting("VOLFERRY_LAB_MON_PORT")?,
        lab.setting("VOLFERRY_LAB_RBD_USER")?,
        lab.setting("VOLFERRY_LAB_SECRET_UUID")?,
    ))
}

/// The volume a disk uses according to a domain's XML as libvirt prints it.
pub(crate) fn volume_of(xml: &str, disk: Disk) -> Option<Volume> {
    let target = format!("<target dev='{disk}'");
    let block =
        xml.split("<disk ").skip(1).map(|part| part.split("</disk>").next().unwrap_or(part));
    let block = block.into_iter().find(|part| part.contains(&target))?;
    // What a copy writes to is not what the disk uses, and neither is its backing chain.
    let block =
        block.split("<mirror").next()?.to_owned() + block.split("</mirror>").nth(1).unwrap_or("");
    let block = block.split("<backingStore").next()?;
    let driver = block.split("<driver ").nth(1)?.split('>').next()?;
    let format = match attribute(driver, "type")? {
        "raw" => Format::Raw,
        "qcow2" => Format::Qcow2,
        _ => return None,
    };
    let source = block.split("<source ").nth(1)?.split('>').next()?;
    let place = match attribute(source, "file") {
        Some(path) => Place::File(path.into()),
        None => {
            let (pool, image) = attribute(source, "name")?.split_once('/')?;
            Place::Rbd { pool: pool.into(), image: image.into() }
        }
    };
    let encryption = match block.split_once("<encryption ") {
        None => None,
        Some((_, rest)) => {
            let (element, secret) = rest.split_once('>')?;
            Some(Encryption {
                format: attribute(element, "format")?.to_owned(),
                engine: attribute(element, "engine").map(str::to_owned),
                secret: attribute(secret.split_once("<secret ")?.1, "uuid")?.to_owned(),
            })
        }
    };
    Some(Volume { encryption, ..Volume::at(place, format) })
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}='"))?;
    rest.split('\'').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_of_each_disk_is_read_back() {
        let xml = "<domain><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>\
            <source file='/a/b.qcow2' index='1'/><backingStore type='file'><source file='/t'/></backingStore>\
            <target dev='vda' bus='virtio'/></disk><disk type='network' device='disk'>\
            <driver name='qemu' type='raw'/><source protocol='rbd' name='p/i'><host name='h'/></source>\
            <target dev='vdb' bus='virtio'/></disk></domain>";
        assert_eq!(volume_of(xml, Disk::VDA), Some(Volume::qcow2("/a/b.qcow2")));
        assert_eq!(volume_of(xml, Disk::VDB), Some(Volume::rbd("p", "i")));
        assert_eq!(volume_of(xml, Disk::parse("vdc").expect("a disk")), None);
    }

    #[test]
    fn how_a_volume_is_encrypted_is_read_back_as_it_is_written() {
        let disk = |encryption: &str| {
            format!(
                "<disk type='network' device='disk'><driver name='qemu' type='raw'/>\
                 <source protocol='rbd' name='p/i'><auth username='u'><secret type='ceph' uuid='no'/></auth>\
                 {encryption}</source><target dev='vda' bus='virtio'/></disk>"
            )
        };
        let librbd = Encryption {
            format: "luks2".into(),
            engine: Some("librbd".into()),
            secret: "yes".into(),
        };
        let qemu = Encryption { format: "luks".into(), engine: None, secret: "other".into() };
        for known in [librbd, qemu] {
            let found = volume_of(&disk(&encryption_xml(&known)), Disk::VDA).expect("a volume");
            assert_eq!(found.encryption, Some(known));
        }
        assert_eq!(volume_of(&disk(""), Disk::VDA), Some(Volume::rbd("p", "i")));
    }
}
