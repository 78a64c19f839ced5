//! Which file systems can hold the store. Its log needs memory that all its processes share, and locks
//! that all of them see; over a network there is neither.

use std::path::Path;

/// What a file system is for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Fine.
    Local,
    /// Fine until the next reboot.
    Memory,
    /// A program stands behind it; whether it is fine nobody knows but its author.
    Unknown(String),
    /// Shared with other machines: the store would be damaged.
    Network(String),
}

/// Numbers that the kernel gives file systems which other machines may write to.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x786F_4256, "VirtualBox shared folder"),
    (0xBACB_ACBC, "VMware shared folder"),
    (0x7C7C_6673, "Parallels shared folder"),
];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;
/// Of everything a program serves: network mounts and local ones alike.
const FUSE: u32 = 0x6573_5546;
/// What `mount` calls those served over a network, or between a host and its guests.
const FUSE_NETWORK: &[&str] = &[
    "beegfs",
    "ceph",
    "cephfs",
    "davfs",
    "gcsfuse",
    "glusterfs",
    "goofys",
    "juicefs",
    "moosefs",
    "mount-s3",
    "rclone",
    "s3fs",
    "seaweedfs",
    "smbnetfs",
    "sshfs",
    "virtiofs",
    "vmhgfs-fuse",
];

/// What the file system with this number is. `mounted` is its type as `mount` calls it, such as
/// `fuse.sshfs`, which alone tells what a program serves.
#[must_use]
pub fn judge(magic: u32, mounted: Option<&str>) -> FileSystem {
    if let Some((_, name)) = NETWORK.iter().find(|(number, _)| *number == magic) {
        return FileSystem::Network((*name).to_owned());
    }
    match magic {
        TMPFS | RAMFS => FileSystem::Memory,
        FUSE => {
            let kind = mounted.unwrap_or("fuse");
            let served = kind.strip_prefix("fuse.").unwrap_or(kind);
            if FUSE_NETWORK.contains(&served) {
                FileSystem::Network(served.to_owned())
            } else if served == "fuseblk" || served == "fuse-overlayfs" {
                FileSystem::Local
            } else {
                FileSystem::Unknown(kind.to_owned())
            }
        }
        _ => FileSystem::Local,
    }
}

/// The type of the mount that a path lies on, by the kernel's list of mounts.
#[must_use]
pub fn mount_type(mounts: &str, path: &Path) -> Option<String> {
    // 36 35 98:0 /root /mount/point options [optional…] - type source options
    let mounts = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        Some((point, after.split(' ').next()?))
    });
    mounts
        .filter(|(point, _)| path.starts_with(point))
        // The last of equal length hides those below it.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_owned())
}

/// What the file system of a folder is.
///
/// # Errors
/// When the kernel does not tell.
#[cfg(target_os = "linux")]
pub fn of(folder: &Path) -> std::io::Result<FileSystem> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of file systems have 32 bits, whatever the field's width and sign here"
    )]
    let magic = rustix::fs::statfs(folder)?.f_type as u32;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Ok(judge(magic, mount_type(&mounts, folder).as_deref()))
}

/// What the file system of a folder is: other systems have no common number for it.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn of(_folder: &Path) -> std::io::Result<FileSystem> {
    Ok(FileSystem::Local)
}

/// Bytes that are free for the store where a folder lies.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_known_by_number_and_name() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0x0102_1997, "9P"),
            (0x00C3_6400, "Ceph"),
            (0x0BD0_0BD0, "Lustre"),
            (0x0116_1970, "GFS2"),
        ] {
            assert_eq!(judge(magic, None), FileSystem::Network(name.to_owned()));
        }
    }

    #[test]
    fn local_ones_are_fine() {
        // ext, XFS, Btrfs, overlayfs, ZFS, F2FS
        for magic in [
            0xEF53,
            0x5846_5342,
            0x9123_683E,
            0x794C_7630,
            0x2FC1_2FC1,
            0xF2F5_2010,
        ] {
            assert_eq!(judge(magic, None), FileSystem::Local, "{magic:x}");
        }
        assert_eq!(judge(TMPFS, Some("tmpfs")), FileSystem::Memory);
    }

    #[test]
    fn what_a_program_serves_is_judged_by_its_name() {
        let network = |kind| matches!(judge(FUSE, Some(kind)), FileSystem::Network(_));
        assert!(network("fuse.sshfs"));
        assert!(network("fuse.glusterfs"));
        assert!(network("virtiofs"));
        assert_eq!(judge(FUSE, Some("fuseblk")), FileSystem::Local);
        assert_eq!(judge(FUSE, Some("fuse.fuse-overlayfs")), FileSystem::Local);
        let unknown = judge(FUSE, Some("fuse.mergerfs"));
        assert_eq!(unknown, FileSystem::Unknown("fuse.mergerfs".to_owned()));
        assert_eq!(judge(FUSE, None), FileSystem::Unknown("fuse".to_owned()));
    }

    #[test]
    fn the_nearest_mount_tells_the_type() {
        let mounts = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /proc rw - proc proc rw
40 21 0:50 / /srv rw shared:9 - xfs /dev/sdb rw
41 40 0:51 / /srv/far\\040away rw - fuse.sshfs host:/ rw
42 40 0:52 / /srv/far\\040away rw - fuse.rclone host: rw
";
        let kind = |path: &str| mount_type(mounts, Path::new(path));
        assert_eq!(kind("/var/lib").as_deref(), Some("ext4"));
        assert_eq!(kind("/srv/store").as_deref(), Some("xfs"));
        assert_eq!(kind("/srv/far away/store").as_deref(), Some("fuse.rclone"));
        // A longer name is another folder.
        assert_eq!(kind("/srv/far awayer").as_deref(), Some("xfs"));
        assert_eq!(mount_type("", Path::new("/")), None);
    }

    #[test]
    fn the_kernel_answers() {
        assert!(of(Path::new("/")).is_ok());
        assert!(of(Path::new("/no/such/folder")).is_err());
        if cfg!(target_os = "linux") {
            assert_eq!(of(Path::new("/dev/shm")).ok(), Some(FileSystem::Memory));
        }
    }
}
