//! Experiments, statistics, records, comparison, reports
