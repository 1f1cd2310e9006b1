//! Mayfly beside its peers
