//! Marks for an emulator that counts this machine's instructions: start and end of a span. On other machines
//! they are NOPs.

#![allow(
    unsafe_code,
    reason = "an instruction that no function of the language makes"
)]

/// Marks the start of a span.
#[inline(never)]
pub fn begin() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nopl 0x01c0ffee(%rax): touches neither memory nor registers nor flags.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x80, 0xee, 0xff, 0xc0, 0x01",
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: movz xzr, #0xfee1: the zero register stays zero.
    unsafe {
        std::arch::asm!(".inst 0xd29fdc3f", options(nomem, nostack, preserves_flags));
    }
}

/// Marks the end of the span.
#[inline(never)]
pub fn end() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nopl 0x02c0ffee(%rax), as above.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x80, 0xee, 0xff, 0xc0, 0x02",
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: movz xzr, #0xfee2, as above.
    unsafe {
        std::arch::asm!(".inst 0xd29fdc5f", options(nomem, nostack, preserves_flags));
    }
}
