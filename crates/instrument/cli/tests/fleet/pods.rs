//! The `DaemonSet`, as strictly as a cluster reads it with `--validate=strict`: no field that is not known, none twice, and
//! what one part names is there in another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::packaged::text;

/// A string for each key.
type Labels = BTreeMap<String, String>;

// The fields of `apps/v1` and `v1` that are used, named as they stand in the file. Any other is refused.

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DaemonSet {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: Option<String>,
    labels: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    selector: Selector,
    update_strategy: Strategy,
    template: Template,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Selector {
    match_labels: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strategy {
    r#type: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    metadata: Metadata,
    spec: Pod,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Pod {
    node_selector: Labels,
    #[serde(rename = "hostPID")]
    host_pid: bool,
    automount_service_account_token: bool,
    enable_service_links: bool,
    termination_grace_period_seconds: u64,
    containers: Vec<Container>,
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Container {
    name: String,
    image: String,
    command: Vec<String>,
    resources: Resources,
    security_context: Security,
    volume_mounts: Vec<Mount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    requests: Labels,
    limits: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Security {
    #[serde(default)]
    privileged: bool,
    read_only_root_filesystem: bool,
    allow_privilege_escalation: Option<bool>,
    app_armor_profile: Option<Profile>,
    capabilities: Option<Capabilities>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    r#type: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    drop: Vec<String>,
    add: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mount {
    name: String,
    #[serde(rename = "mountPath")]
    path: String,
    #[serde(default)]
    read_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Volume {
    name: String,
    host_path: HostPath,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPath {
    path: String,
    r#type: String,
}

fn read(text: &str) -> Result<DaemonSet, serde_yaml_ng::Error> {
    serde_yaml_ng::from_str(text)
}

/// Whether a quantity has one of the suffixes that it may have here.
fn is_quantity(key: &str, value: &str) -> bool {
    let suffixes: &[&str] = if key == "cpu" { &["m", ""] } else { &["Ki", "Mi", "Gi"] };
    let number = suffixes.iter().find_map(|suffix| value.strip_suffix(suffix));
    ["cpu", "memory"].contains(&key) && number.is_some_and(|number| number.parse::<u32>().is_ok())
}

#[test]
fn the_daemon_set_has_known_fields_alone_and_what_a_part_names_is_there() {
    let set = read(&text("kubernetes/mayfly.yaml")).unwrap();
    assert_eq!((&set.api_version[..], &set.kind[..]), ("apps/v1", "DaemonSet"));
    assert_eq!(set.metadata.name.as_deref(), Some("mayfly"));
    // A DaemonSet that does not select its own pods is refused.
    let (selected, pods) = (&set.spec.selector.match_labels, &set.spec.template.metadata);
    assert!(!selected.is_empty() && *selected == pods.labels && set.metadata.labels == pods.labels);
    assert!(pods.name.is_none() && set.spec.update_strategy.r#type == "RollingUpdate");
    let pod = &set.spec.template.spec;
    assert!(pod.host_pid && !pod.automount_service_account_token && !pod.enable_service_links);
    assert!(pod.node_selector.contains_key("mayfly/kvm"));
    assert!(pod.termination_grace_period_seconds < 30);
    let volumes: BTreeSet<&str> = pod.volumes.iter().map(|one| &one.name[..]).collect();
    let mounts = || pod.containers.iter().flat_map(|one| &one.volume_mounts);
    assert_eq!(volumes, mounts().map(|one| &one.name[..]).collect());
    assert_eq!(volumes.len(), pod.volumes.len());
    for Volume { host_path, .. } in &pod.volumes {
        let types = ["CharDevice", "Directory", "DirectoryOrCreate"];
        assert!(host_path.path.starts_with('/') && types.contains(&&host_path.r#type[..]));
    }
    assert!(mounts().all(|one| one.path.starts_with('/')));
    let written = mounts().filter(|one| !one.read_only).map(|one| &one.name[..]);
    assert_eq!(written.collect::<BTreeSet<_>>(), ["kvm", "metrics"].into());
}

#[test]
fn each_container_runs_what_its_image_has_and_writes_where_a_volume_is() {
    let set = read(&text("kubernetes/mayfly.yaml")).unwrap();
    let image = text("kubernetes/Containerfile");
    assert!(
        image.contains(" /usr/bin/mayfly\n") && image.contains("\nFROM docker.io/library/debian:")
    );
    let pod = &set.spec.template.spec;
    let names: BTreeSet<&str> = pod.containers.iter().map(|one| &one.name[..]).collect();
    assert_eq!(names, ["doctor", "watch"].into());
    for one in &pod.containers {
        assert!(one.image.starts_with("mayfly:"));
        let script = match &one.command[..] {
            [shell, option, script] if shell == "/bin/sh" && option == "-c" => script.clone(),
            [program, ..] if program == "mayfly" => one.command.join(" "),
            other => panic!("the image does not have {other:?}"),
        };
        let checked = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
        assert!(checked.success(), "{script}");
        let words: Vec<&str> = script.split([' ', ';']).collect();
        let at = words.iter().position(|word| *word == "--openmetrics").unwrap();
        let directory = Path::new(words[at + 1]).parent().unwrap();
        let mut mounts = one.volume_mounts.iter();
        assert!(mounts.any(|mount| Path::new(&mount.path) == directory && !mount.read_only));
        for (key, value) in one.resources.requests.iter().chain(&one.resources.limits) {
            assert!(is_quantity(key, value), "{key}: {value}");
        }
        // Whoever is privileged drops nothing; the other one has two rights, and no more.
        let Security { privileged, capabilities, .. } = &one.security_context;
        assert_eq!(*privileged, one.name == "doctor");
        assert!(one.security_context.read_only_root_filesystem);
        if let Some(Capabilities { drop, add }) = capabilities {
            assert_eq!((&drop[..], add.len()), (&["ALL".to_owned()][..], 2));
            assert_eq!(one.security_context.allow_privilege_escalation, Some(false));
            let profile = one.security_context.app_armor_profile.as_ref();
            assert_eq!(profile.map(|profile| &profile.r#type[..]), Some("Unconfined"));
        }
        assert_eq!(capabilities.is_some(), !privileged);
    }
}

#[test]
fn a_field_that_is_misspelt_or_stands_twice_is_refused() {
    let pods = text("kubernetes/mayfly.yaml");
    for (right, wrong) in [
        ("hostPID: true", "hostPid: true"),
        ("privileged: true", "priviledged: true"),
        ("      hostPID: true", "      hostPID: true\n      hostPID: true"),
        ("kind: DaemonSet\n", ""),
    ] {
        let changed = pods.replacen(right, wrong, 1);
        assert!(changed != pods && read(&changed).is_err(), "{wrong}");
    }
}
