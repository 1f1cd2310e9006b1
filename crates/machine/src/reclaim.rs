//! The thread that frees the tables of VMs that are gone.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use mayfly_stage2::{Format, Reclaimer, Slice};

/// A thread that serves a [`Reclaimer`] until this is dropped.
#[derive(Debug)]
pub(crate) struct ReclaimThread<F: Format> {
    reclaimer: Arc<Reclaimer<F>>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Format> ReclaimThread<F> {
    pub(crate) fn spawn(reclaimer: Arc<Reclaimer<F>>) -> io::Result<Self> {
        let served = Arc::clone(&reclaimer);
        let thread = Builder::new()
            .name("reclaimer".into())
            .spawn(move || served.serve(Slice::default()))?;
        Ok(Self { reclaimer, thread: Some(thread) })
    }

    pub(crate) fn reclaimer(&self) -> &Arc<Reclaimer<F>> {
        &self.reclaimer
    }
}

impl<F: Format> Drop for ReclaimThread<F> {
    fn drop(&mut self) {
        self.reclaimer.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to return; a panic has been reported by its own message.
            let _ = thread.join();
        }
    }
}
