// SPDX-License-Identifier: Apache-2.0

// Command kernel runs a program under Debian's own kernel, in a virtual
// machine that qemu emulates, and ends with that program's exit status. The
// project's tests use it for what needs kernel modules that the machine's own
// kernel lacks: Open vSwitch's kernel datapath first of all.
//
//	kernel [flags] PROGRAM [ARGUMENT…]
//
// There is no guest image. The guest's root is the machine's root, read-only
// over 9p, under an overlay in the guest's memory: every path means the same
// inside as outside, and nothing that the guest does reaches the machine. Only
// the directory given by -out is shared for writing; the guest finds its path
// in COELAN_OUT. /run, /dev, /proc and /sys are the guest's own, so PROGRAM
// and its files must lie elsewhere.
//
// The kernel comes from the package that linux-image-amd64 depends on,
// unpacked below the cache directory and never installed. The initramfs holds
// this same binary as /init (see guest.go) and the few modules that reach the
// root file system; every other module is loaded by the guest on demand.
package main
