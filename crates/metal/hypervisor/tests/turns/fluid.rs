//! The naive model: processor time as a fluid, which is divided by weight. What a VM cannot use goes to the others.

/// What each VM gets of `processors`, in processors: of each, its weight, and the most that it can use.
pub(crate) fn shares(processors: f64, vms: &[(u32, f64)]) -> Vec<f64> {
    let mut given = vec![None; vms.len()];
    loop {
        let left = processors - given.iter().flatten().sum::<f64>();
        let open = |at: &usize| given[*at].is_none();
        let weight: f64 = (0..vms.len()).filter(open).map(|at| f64::from(vms[at].0)).sum();
        let part = |at: usize| left * f64::from(vms[at].0) / weight;
        let Some(full) = (0..vms.len()).filter(open).find(|&at| vms[at].1 <= part(at)) else {
            return (0..vms.len()).map(|at| given[at].unwrap_or_else(|| part(at))).collect();
        };
        given[full] = Some(vms[full].1);
    }
}
