//! vCPUs that are created by several threads.

use std::thread;

use crate::{Error, Vcpu};

/// Creates the vCPUs `ids` of a VM on so many threads, this one among them; gives them in that order. What a thread was to
/// make that there is no room for, this one makes.
pub(crate) fn together(
    ids: &[u32],
    threads: u32,
    create: impl Fn(u32) -> Result<Vcpu, Error> + Sync,
) -> Result<Vec<Vcpu>, Error> {
    let threads = (threads.max(1) as usize).min(ids.len());
    let from = |first: usize| {
        let own = ids.iter().enumerate().skip(first).step_by(threads.max(1));
        own.map(|(place, id)| Ok((place, create(*id)?))).collect::<Result<Vec<_>, Error>>()
    };
    let mut all = thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|first| (first, thread::Builder::new().spawn_scoped(scope, move || from(first))))
            .collect();
        let mut all = from(0)?;
        for (first, other) in others {
            let part = other.ok().and_then(|thread| thread.join().ok());
            all.extend(part.unwrap_or_else(|| from(first))?);
        }
        Ok(all)
    })?;
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, vcpu)| vcpu).collect())
}
