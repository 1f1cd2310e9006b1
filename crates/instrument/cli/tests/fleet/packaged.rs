//! The files of `packaging`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// A file of `packaging`, by its path there.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../packaging").join(name)
}

pub(crate) fn text(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every string below `key` in the dashboard, wherever that is.
pub(crate) fn of_dashboard(key: &str) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("grafana/mayfly.json")).unwrap();
    let mut found = Vec::new();
    collect(&dashboard, key, &mut found);
    found
}

fn collect(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == key => found.push(text.clone()),
                    _ => collect(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, key, found)),
        _ => {}
    }
}

/// The queries of the dashboard's panels, for all hosts.
pub(crate) fn queries() -> Vec<String> {
    of_dashboard("expr").iter().map(|query| query.replace("$instance", ".*")).collect()
}
