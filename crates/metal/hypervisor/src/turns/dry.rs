//! Shares without quota, which have threads that wait: none of these is taken.
//!
//! A share is ready again when its quota comes, or when one of its own threads stops, which may be what it was dry for.

use super::Turns;
use super::share::Share;

/// How many are looked at in a row.
const AT_ONCE: usize = 8;

impl Turns {
    /// Has some of the dry shares that have their quota by `now` be ready, and says when the next has its own.
    #[cold]
    pub(super) fn look_at_dry(&mut self, now: u64) {
        // SAFETY: a share with threads that wait is there.
        unsafe {
            for _ in 0..AT_ONCE {
                let share = self.dry.first();
                if share.is_null() || (*share).quota_at > now {
                    break;
                }
                self.wet(share, now);
            }
            if let Some(first) = self.dry.first().as_ref() {
                self.remind(first.quota_at);
            }
        }
    }

    /// Has a dry share be ready, unless it is still dry at `now`.
    ///
    /// # Safety
    ///
    /// It lies dry.
    pub(super) unsafe fn wet(&mut self, share: *mut Share, now: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            self.dry.remove(share);
            (*share).lies_dry = false;
            if (*share).is_dry(now) {
                self.lay_dry(share);
            } else {
                (*share).keep_within(self.present);
                self.ready.insert(share);
            }
        }
    }

    /// # Safety
    ///
    /// It is in no heap, and has a budget and a thread that waits.
    #[cold]
    pub(super) unsafe fn lay_dry(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = (*share).next_quota();
            ((*share).quota_at, (*share).lies_dry) = (at, true);
            self.remind(at);
            self.dry.insert(share);
        }
    }
}
